"""A kernel in each language that changes an argument: x += 2 y, of matrices in FP32 with any extents."""

from __future__ import annotations

import importlib

from opwright import aot

# What each is made with.
PACKAGES = {
    "cutile": "cuda.tile",
    "cute": "cutlass.cute",
    "warp": "warp",
    "tilelang": "tilelang",
}


def compile(language: str, inputs: list, outputs: list, arch: str | None = None) -> aot.Code:
    """Tensors as the makers take them; the output is aliased to the first input."""
    module = importlib.import_module(f"in_place_kernels.{language}_kernel")
    options = {} if arch is None else {"arch": arch}
    return module.compile(inputs=inputs, outputs=outputs, **options)


def grid(language: str, x) -> dict:
    """What a launch over the descriptor `x` is told: a block makes a row; some languages say it themselves."""
    return {} if language in ("warp", "tilelang") else {"grid_x": x.shape_expr[0]}


def file_of(language: str) -> str:
    """The name of a saved kernel."""
    return f"in_place_{language}.kernel"
