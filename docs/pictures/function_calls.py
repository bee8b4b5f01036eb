"""Draws function_calls.png: which function of a decorated plugin the engine calls when.

The order is that of a build with one profile, as functions that note their calls hear it.

    .venv/bin/python docs/pictures/function_calls.py
"""

from __future__ import annotations

from drawing import ACCENT, ACCENT_FILL, INK, MUTED, arrow, box, save, write

LINE = 3.2


def calls(axes, x, top, width, title, functions, *, accent=False) -> float:
    """A box with functions and what each is for; returns its lower edge."""
    height = 4.2 + LINE * len(functions)
    colors = {"fill": ACCENT_FILL, "edge": ACCENT} if accent else {"fill": "white"}
    box(axes, x, top - height, width, height, **colors)
    write(axes, x + 1.3, top - 2.2, title, size=9, color=ACCENT if accent else MUTED, ha="left")
    for i, (function, purpose) in enumerate(functions):
        y = top - 5 - LINE * i
        write(axes, x + 1.3, y, function, size=9, ha="left", family="monospace", color=INK)
        write(axes, x + width - 1.3, y, purpose, size=8.6, ha="right", color=MUTED)
    return top - height


def stage(axes, x, width, title):
    box(axes, x, 8, width, 36)
    write(axes, x + width / 2, 41.2, title, size=12, weight="bold")


def draw(axes) -> None:
    stage(axes, 0, 34, "define the network")
    bottom = calls(
        axes, 1.5, 38, 31, "a call of op, or an ONNX node",
        [("register", "extents are expressions")],
    )  # fmt: skip
    for i, note in enumerate(
        ["attributes are checked and", "converted before;", "types and shapes follow"]
    ):
        write(axes, 17, bottom - 4 - LINE * i, note, size=9, color=MUTED)

    left, half = 39, 25.5
    stage(axes, left, 56, "build the engine")
    bottom = calls(
        axes, left + 1.5, 38, 53, "what may be chosen from",
        [("autotune", "types, layouts, tactics; knows the profile")],
    )  # fmt: skip
    write(axes, left + 28, bottom - 2, "for each of these", size=9, color=MUTED)
    top = bottom - 3.8
    calls(
        axes, left + 1.5, top, half, "in Python",
        [("impl", "measured"), ("", "on random inputs")], accent=True,
    )  # fmt: skip
    bottom = calls(
        axes, left + 3.5 + half, top, half, "compiled",
        [("aot_impl", "code and launch"), ("the kernel", "measured")], accent=True,
    )  # fmt: skip
    write(axes, left + 28, bottom - 2.6, "the fastest is kept:", size=9, color=MUTED)
    notes = ["its id, and the attributes of impl", "its code and launch"]
    for i, note in enumerate(notes):
        x = left + 1.5 + half / 2 + i * (half + 2)
        write(axes, x, bottom - 6, note, size=9, color=MUTED)

    left = 100
    stage(axes, left, 38, "run it, here or elsewhere")
    for y, note in [
        (36, "extents and launches follow from"),
        (36 - LINE, "expressions, without Python"),
    ]:
        write(axes, left + 19, y, note, size=9, color=MUTED)
    bottom = calls(
        axes, left + 1.5, 30, 35, "in Python, each run", [("impl", "computes")], accent=True
    )
    calls(
        axes, left + 1.5, bottom - 2.6, 35, "compiled, each run: no Python",
        [("the kernel", "computes")], accent=True,
    )  # fmt: skip
    arrow(axes, (34.3, 24), (38.7, 24))
    arrow(axes, (95.3, 24), (99.7, 24))


if __name__ == "__main__":
    save("function_calls.png", draw, size=(11.6, 3.3), xlim=(-1, 139), ylim=(6.5, 45.5))
