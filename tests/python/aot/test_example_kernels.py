"""The vendors' example kernels, unchanged, through opwright.aot: compiled, or refused with the reason.

It needs the languages, and their repositories in a folder that OPWRIGHT_EXAMPLES names:
triton, cutile (NVIDIA/cutile-python), TileGym, tilelang, cutlass. With OPWRIGHT_EXAMPLE_KERNELS the kernels are
saved there, for tests/python/gpu/test_gpu_example_kernels.py.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest
from example_kernels import CASES, file_of, load

from opwright import aot

SOURCES = os.environ.get("OPWRIGHT_EXAMPLES")
PACKAGES = {
    "triton": "triton",
    "cutile": "cuda.tile",
    "warp": "warp",
    "tilelang": "tilelang",
    "cute": "cutlass.cute",
    "pallas": "jax",
}
pytestmark = pytest.mark.skipif(not SOURCES, reason="set OPWRIGHT_EXAMPLES to the vendors' sources")


class Hopper:
    """What the tutorials of Triton ask of a driver while they are loaded."""

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self):
        import torch

        return torch.device("cpu")


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_an_example(case, monkeypatch):
    pytest.importorskip(PACKAGES[case.language])
    if case.language == "triton":
        import triton

        torch = pytest.importorskip("torch")
        monkeypatch.setattr(triton.runtime.driver, "_active", Hopper())
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    file = file_of(case, Path(SOURCES))
    if not file.is_file():
        pytest.skip(f"there is no {file}")
    names = load(file)
    if case.refused:
        with pytest.raises(aot.CompileError, match=case.refused):
            case.make(names, arch="sm_90", **case.tensors())
        return
    code = case.make(names, arch="sm_90", **case.tensors())
    assert code.kind == "cubin" and code.target.rstrip("a") == "sm_90"
    kernels = os.environ.get("OPWRIGHT_EXAMPLE_KERNELS")
    if kernels:
        code.save(Path(kernels) / f"{case.name}.kernel")


def test_every_language_has_examples():
    assert {case.language for case in CASES} == set(PACKAGES)
    assert importlib.import_module("example_kernels").CASES is CASES
