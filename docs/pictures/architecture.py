"""Draws architecture.png: what the engine consists of, and what calls what.

.venv/bin/python docs/pictures/architecture.py
"""

from __future__ import annotations

from drawing import ACCENT, ACCENT_FILL, INK, MUTED, arrow, box, save, write


def part(axes, x, y, width, height, title, text="", *, accent=False):
    colors = {"fill": ACCENT_FILL, "edge": ACCENT} if accent else {}
    box(axes, x, y, width, height, **colors)
    lines = text.count("\n") + 1 if text else 0
    top = y + height / 2 + (1.25 * lines if lines else 0)
    write(axes, x + width / 2, top, title, size=11, weight="bold", color=ACCENT if accent else INK)
    if lines:
        write(axes, x + width / 2, top - 1.6 - 1.2 * lines, text, size=9, linespacing=1.3)


def band(axes, y, text):
    write(axes, 0, y, text, size=9, color=MUTED, ha="left", linespacing=1.3)


def draw(axes) -> None:
    band(axes, 61, "languages:\nthey decide\nnothing")
    part(axes, 16, 57, 31, 8, "C++", "include/, src/api/: TensorRT's classes, noexcept")
    part(axes, 50, 57, 31, 8, "Python", "python/: the same methods, bound")
    part(axes, 84, 57, 22, 8, "the program", "cli/: build, run, check, ...")

    band(axes, 45.5, "core:\neach behaviour\nonce")
    part(axes, 16, 40, 20, 11, "Network", "layers by name,\nsymbolic shapes;\nONNX models")
    part(axes, 41, 40, 20, 11, "compile", "passes, timing,\nselection, memory")
    part(axes, 66, 40, 15, 11, "Plan", "plain structs;\nthe engine file")
    part(axes, 86, 40, 20, 11, "Engine, Context", "steps, shapes,\ngraphs, debugging")
    for start, end in (
        ((36, 45.5), (40.7, 45.5)),
        ((61, 45.5), (65.7, 45.5)),
        ((81, 45.5), (85.7, 45.5)),
    ):
        arrow(axes, start, end)
    for x in (26, 61, 96):
        arrow(axes, (x, 57), (x, 51.3))

    band(axes, 27.5, "one interface\nfor all\nlayers")
    part(axes, 16, 22, 20, 11, "Operator", "infers shapes,\nlists candidates")
    part(axes, 60, 22, 23, 11, "PlannedOperator", "is timed, stored,\nloaded, checked")
    part(axes, 86, 22, 20, 11, "Kernel", "hears of shapes,\nenqueues")
    for x in (26, 73.5, 96):
        arrow(axes, (x, 40), (x, 33.3))
    arrow(axes, (36, 27.5), (59.7, 27.5))
    write(axes, 47.5, 29.3, "plan(candidate)", size=9, family="monospace")
    arrow(axes, (83, 27.5), (85.7, 27.5))

    band(axes, 9.5, "who\nimplements it")
    part(axes, 16, 4, 20, 11, "built-in operators", "parameters,\ninference")
    part(axes, 57, 4, 26, 11, "plugins", "V2, V3, V3 Quick, functions;\nC++ or Python", accent=True)
    part(axes, 86, 4, 20, 11, "backends", "cpu, cuda, yours:\nmemory, queue, code")
    for x in (26, 71.5, 96):
        arrow(axes, (x, 15), (x, 21.7))
    arrow(axes, (57, 13), (36.3, 21.7))


if __name__ == "__main__":
    save("architecture.png", draw, size=(11.6, 6.9), xlim=(-1, 108), ylim=(2, 67))
