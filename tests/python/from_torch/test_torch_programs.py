"""Modules of packages that build on PyTorch, as engines and by torch.compile, against eager PyTorch on the CPU.

Each runs where its package is. OPWRIGHT_PROGRAMS names those that are wanted, by parts of their names, where not all.
"""

from __future__ import annotations

import logging
import os

import pytest

import opwright

torch = pytest.importorskip("torch")

from torch_programs import PROGRAMS, package_of  # noqa: E402

WANTED = os.environ.get("OPWRIGHT_PROGRAMS", "").split()
NAMES = [name for name in PROGRAMS if not WANTED or any(part in name for part in WANTED)]
#: What torch.export does not export, and why.
NOT_BUILT = {
    "torchaudio: Conformer": "data-dependent",  # a mask is as long as the longest of the lengths
    "torchaudio: Emformer": "data-dependent",
    "vocos: the backbone and the inverse transform": "data-dependent",  # it asserts that windows overlap
    "diffusers: FluxTransformer2DModel": "float64",  # its rotary embedding
}
#: Whose results differ by more: phases are added up and their sines taken.
TOLERANCES = {"torchaudio: TimeStretch": 2e-3}
#: What stays with PyTorch, beside parts that are too short to be an engine.
PARTS = {
    "segmentation_models_pytorch: DPT": "bicubic2d_aa",
    "diffusers: FluxTransformer2DModel": "float64",
}


pytestmark = pytest.mark.usefixtures("no_gradients")


def program_of(name):
    pytest.importorskip(package_of(name))
    module, args = PROGRAMS[name]()
    module = module.eval()
    for parameter in module.parameters():
        if parameter.numel() and parameter.abs().max() == 0:  # what would hide all before it
            torch.nn.init.normal_(parameter, std=0.05)
    return module, args


def tensors(result):
    """With complex numbers as torch.view_as_real has them."""
    leaves = torch.utils._pytree.tree_leaves(result)
    leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return [torch.view_as_real(leaf) if leaf.is_complex() else leaf for leaf in leaves]


def check(name, got, want):
    got, want = tensors(got), tensors(want)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.shape == b.shape
        a, b = a.double(), b.double()
        assert (a - b).norm() <= TOLERANCES.get(name, 1e-4) * b.norm() + 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_a_program_becomes_one_engine(name):
    module, args = program_of(name)
    if name in NOT_BUILT:
        with pytest.raises(Exception, match=NOT_BUILT[name]):
            opwright.build(module, args, device="cpu", timing=False)
        return
    want = module(*args)
    engine = opwright.build(module, args, device="cpu", timing=False)
    made = engine(*tensors(args))
    check(name, list(made.values()) if isinstance(made, dict) else made, want)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_compiled(name, caplog):
    module, args = program_of(name)
    want = module(*args)
    with caplog.at_level(logging.WARNING, "opwright.torch"):
        compiled = torch.compile(module, backend="opwright", options={"timing": False})
        check(name, compiled(*args), want)
    ours = [each.getMessage() for each in caplog.records if each.name == "opwright.torch"]
    stays = [line for line in ours if "min_nodes" not in line]
    assert all(PARTS.get(name, "\0") in line for line in stays), stays
