"""What the pictures are drawn with: colors, boxes, text, arrows, the file."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FOLDER = Path(__file__).resolve().parent
INK, MUTED, ACCENT = "#1f2a37", "#66707c", "#c2410c"
FILL, ACCENT_FILL = "#f3f5f8", "#fdebdf"


def box(axes, x, y, width, height, *, fill=FILL, edge=INK):
    shape = FancyBboxPatch(
        (x, y), width, height, "round,pad=0,rounding_size=1", fc=fill, ec=edge, lw=1.2
    )
    axes.add_patch(shape)


def write(axes, x, y, text, *, size=11, color=INK, ha="center", **options):
    axes.text(x, y, text, size=size, color=color, ha=ha, va="center", **options)


def arrow(axes, start, end, color=INK):
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=14, lw=1.4, color=color)
    )


def save(name: str, draw, *, size, xlim, ylim) -> None:
    """Writes a picture of `size` inches that draw(axes) draws, beside this file."""
    figure = plt.figure(figsize=size)
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    draw(axes)
    axes.set(xlim=xlim, ylim=ylim, aspect="equal")
    axes.axis("off")
    path = FOLDER / name
    figure.savefig(path, dpi=110, facecolor="white")
    print(path, path.stat().st_size // 1024, "KiB")
