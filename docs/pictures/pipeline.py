"""Draws pipeline.png: how a model with a custom operator becomes one file that runs without Python.

The photograph and the responses are those of the demo, computed by its NumPy and SciPy reference.

    .venv/bin/python docs/pictures/pipeline.py
"""

from __future__ import annotations

import sys

import numpy as np
from drawing import ACCENT, ACCENT_FILL, FOLDER, INK, MUTED, arrow, box, save, write

sys.path.insert(0, str(FOLDER.parents[1] / "samples" / "demo"))
import demo  # noqa: E402

CODE = """@register("sample::circ_pad_plugin")
def desc(x, pads): ...

@impl("sample::circ_pad_plugin")
def run(x, pads, outputs, stream, tactic): ...

@aot_impl("sample::circ_pad_plugin")
def kernel(x, pads, outputs, tactic): ..."""


def picture(axes, image, x, y, size, **options):
    axes.imshow(image, extent=(x, x + size, y, y + size), zorder=3, **options)


def draw(axes) -> None:
    x = np.ascontiguousarray(demo.astronaut().transpose(2, 0, 1)[None], np.float32) / 255
    responses = demo.reference(x)["responses"][0]

    # What the user has: a model, and the operator that it needs.
    write(axes, 13, 58, "an ONNX model", weight="bold")
    for i, (name, custom) in enumerate(
        [("circ_pad_plugin", True), ("Conv", False), ("Conv + Relu", False), ("MaxPool", False)]
    ):
        y = 51 - 6 * i
        colors = {"fill": ACCENT_FILL, "edge": ACCENT} if custom else {}
        box(axes, 4, y, 18, 4, **colors)
        write(axes, 13, y + 2, name, size=10, color=ACCENT if custom else INK)
        if i:
            arrow(axes, (13, y + 6), (13, y + 4))
    write(axes, 18.5, 25.5, "your operator, in Python or C++", weight="bold", color=ACCENT)
    box(axes, 0, 6, 37, 17, fill=ACCENT_FILL, edge=ACCENT)
    write(axes, 1.5, 14.5, CODE, size=8.2, ha="left", family="monospace", linespacing=1.35)

    # The build.
    box(axes, 43, 15, 25, 40)
    write(axes, 55.5, 51.5, "build", size=13, weight="bold")
    steps = ["optimize the graph", "time every candidate", "choose over the whole graph"]
    for i, step in enumerate(steps):
        write(axes, 55.5, 47 - 3.4 * i, step, size=10)
    bars = [(9, INK), (5, INK), (7, ACCENT), (3.5, ACCENT)]
    names = ["Conv  linear", "Conv  HWC", "pad  Numba", "pad  C++"]
    for i, ((length, color), name) in enumerate(zip(bars, names)):
        y = 33 - 3.6 * i
        best = i in (1, 3)
        write(axes, 54, y, name, size=9, color=color, ha="right")
        axes.barh(y, length, left=55, height=1.8, color=color, alpha=1 if best else 0.3)
    write(axes, 55.5, 17, "types, formats, tactics", size=9, color=MUTED)
    arrow(axes, (23, 43), (42.5, 41))
    arrow(axes, (37.5, 15), (42.5, 24), ACCENT)

    # The file.
    box(axes, 75, 24, 17, 22)
    write(axes, 83.5, 49, "one engine file", weight="bold")
    write(axes, 83.5, 42.5, "schedule", size=10)
    write(axes, 83.5, 37.5, "weights", size=10)
    box(axes, 77, 26.5, 13, 7, fill=ACCENT_FILL, edge=ACCENT)
    write(axes, 83.5, 30, "kernel of\nyour operator", size=9, color=ACCENT)
    arrow(axes, (68.5, 35), (74.5, 35))

    # Running it.
    picture(axes, (x[0].transpose(1, 2, 0) * 255).astype(np.uint8), 99.5, 47, 12)
    box(axes, 97, 30, 17, 11)
    write(axes, 105.5, 37.7, "opwright run", size=11, family="monospace")
    write(axes, 105.5, 33.3, "or Python, or C++", size=10)
    tile = 8
    for i in range(4):
        left, bottom = 97 + (tile + 1) * (i % 2), 15 - (tile + 1) * (i // 2)
        response = np.sqrt(responses[2 * i] / responses.max())
        picture(axes, response, left, bottom, tile, cmap="gray")
    arrow(axes, (92.5, 35), (96.5, 35))
    arrow(axes, (105.5, 46.5), (105.5, 41.5))
    arrow(axes, (105.5, 29.5), (105.5, 24))
    write(axes, 105.5, 61.2, "no Python needed", weight="bold")


if __name__ == "__main__":
    save("pipeline.png", draw, size=(11.6, 5.95), xlim=(-1, 115), ylim=(4, 63))
