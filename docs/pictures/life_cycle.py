"""Draws life_cycle.png: which method of an IPluginV3 the engine calls when.

The order is that of a build with one profile, as a plugin that notes its calls hears it.

    .venv/bin/python docs/pictures/life_cycle.py
"""

from __future__ import annotations

from drawing import ACCENT, ACCENT_FILL, INK, MUTED, arrow, box, save, write

LINE = 3.1


def calls(axes, x, top, width, title, methods, *, accent=False) -> float:
    """A box with methods and what each is for; returns its lower edge."""
    height = 4 + LINE * len(methods)
    colors = {"fill": ACCENT_FILL, "edge": ACCENT} if accent else {"fill": "white"}
    box(axes, x, top - height, width, height, **colors)
    write(axes, x + 1.2, top - 2, title, size=9, color=ACCENT if accent else MUTED, ha="left")
    for i, (method, purpose) in enumerate(methods):
        y = top - 4.6 - LINE * i
        write(axes, x + 1.2, y, method, size=8.4, ha="left", family="monospace", color=INK)
        write(axes, x + width - 1.2, y, purpose, size=8.4, ha="right", color=MUTED)
    return top - height


def stage(axes, x, width, title):
    box(axes, x, 2, width, 57)
    write(axes, x + width / 2, 56.3, title, size=12, weight="bold")


def draw(axes) -> None:
    stage(axes, 0, 41, "define the network")
    bottom = calls(
        axes, 1.5, 53, 38, "a node of a model, or your code",
        [("creator.create_plugin", "fields -> plugin"), ("clone", "the network's own")],
    )  # fmt: skip
    calls(
        axes, 1.5, bottom - 2.5, 38, "types and shapes follow",
        [("get_output_data_types", "from types"), ("get_output_shapes", "from expressions")],
    )  # fmt: skip

    left = 46
    stage(axes, left, 45, "build the engine")
    bottom = calls(
        axes, left + 1.5, 53, 42, "what may be chosen from",
        [("supports_format_combination", "types, formats")],
    )  # fmt: skip
    bottom = calls(
        axes, left + 1.5, bottom - 1.8, 42, "for each of these",
        [
            ("configure_plugin", "types, ranges of shapes"),
            ("get_valid_tactics", "ways to compute"),
        ],
    )  # fmt: skip
    bottom = calls(
        axes, left + 1.5, bottom - 1.8, 42, "for each of these, on a clone: measure",
        [
            ("get_workspace_size", "bytes"),
            ("attach_to_context, set_tactic", ""),
            ("on_shape_change", "typical shapes"),
            ("enqueue", "many times"),
        ],
        accent=True,
    )  # fmt: skip
    calls(
        axes, left + 1.5, bottom - 1.8, 42, "for the fastest",
        [("configure_plugin", "once more"), ("get_fields_to_serialize", "plugin -> fields")],
    )  # fmt: skip

    left = 96
    stage(axes, left, 41, "run it, here or elsewhere")
    bottom = calls(
        axes, left + 1.5, 53, 38, "the engine file is loaded",
        [("creator.create_plugin", "fields -> plugin")],
    )  # fmt: skip
    bottom = calls(
        axes, left + 1.5, bottom - 2.5, 38, "an execution context begins",
        [
            ("clone", "of the loaded one"),
            ("attach_to_context", "the context's own"),
            ("set_tactic", "what was chosen"),
        ],
    )  # fmt: skip
    bottom = calls(
        axes, left + 1.5, bottom - 2.5, 38, "shapes have changed",
        [("on_shape_change", "prepare")],
    )  # fmt: skip
    calls(
        axes, left + 1.5, bottom - 2.5, 38, "each run", [("enqueue", "compute")], accent=True
    )  # fmt: skip
    arrow(axes, (41.3, 30.5), (45.7, 30.5))
    arrow(axes, (91.3, 30.5), (95.7, 30.5))


if __name__ == "__main__":
    save("life_cycle.png", draw, size=(11.6, 5.1), xlim=(-1, 138), ylim=(0, 61))
