"""PyTorch's own examples of its operators (OpInfo), as engines and by PyTorch itself."""

from __future__ import annotations

import pytest

import opwright

torch = pytest.importorskip("torch")
methods = pytest.importorskip("torch.testing._internal.common_methods_invocations")

from torch.testing._internal import common_utils  # noqa: E402
from torch.testing._internal.opinfo import core as opinfo_core  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from torch_refusals import NOT_COMPARED, REFUSED  # noqa: E402

SAMPLES = 2
TYPES = (torch.float32, torch.int64, torch.bool)


def name_of(info) -> str:
    return f"{info.name}.{info.variant_test_name}".rstrip(".")


# torch.manual_seed makes their numbers; several variants of an operator have a name.
INFOS = {name_of(info): info for info in methods.op_db if info.name not in NOT_COMPARED}


class Call(torch.nn.Module):
    """An operator whose tensors are the module's arguments."""

    def __init__(self, function, leaves, spec):
        super().__init__()
        self.function, self.leaves, self.spec = function, leaves, spec

    def forward(self, *tensors):
        remaining = iter(tensors)
        leaves = [next(remaining) if leaf is None else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


def tensors_of(result) -> list:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def calls(info, dtype):
    """Modules and their arguments, of examples spread over all."""
    torch.manual_seed(0)
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    step = max(len(samples) / SAMPLES, 1)
    for sample in (samples[int(i * step)] for i in range(min(SAMPLES, len(samples)))):
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [leaf.detach().clone() for leaf in leaves if isinstance(leaf, torch.Tensor)]
        fixed = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        if tensors and None not in [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]:
            yield Call(info.op, fixed, spec), tensors


def outcomes(info, dtype) -> set[str]:
    """What became of the examples that PyTorch exports: "same" or "refused". Fails where one differs."""
    found = set()
    for module, tensors in calls(info, dtype):
        with torch.no_grad():
            expected = tensors_of(module(*(tensor.clone() for tensor in tensors)))
        if not expected or any(tensor.dtype.is_complex for tensor in expected):
            continue
        try:
            program = torch.export.export(module, tuple(tensors))
        except Exception:
            continue  # what it does depends on data, or is no graph
        try:
            engine = opwright.build(program, device="cpu", timing=False)
        except opwright.Error:
            found.add("refused")
            continue
        result = engine(*tensors)
        if isinstance(result, dict):
            result = tuple(result.values())
        for ours, theirs in zip(tensors_of(result), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4, equal_nan=True)
        found.add("same")
    return found


@pytest.fixture(autouse=True, scope="module")
def examples_are_quick():
    """PyTorch searches the stack for its own test at each example. Each example seeds PyTorch's generators; those of
    absent GPUs keep a stack trace of the call for later."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.random, "_manual_seed_impl", torch.random.default_generator.manual_seed)
        for module in (common_utils, opinfo_core):
            patch.setattr(module, "extract_test_fn", lambda: None)
        yield


@pytest.mark.parametrize("name", INFOS)
def test_an_operator_is_computed_as_pytorch_does_or_refused(name):
    info = INFOS[name]
    dtype = next((t for t in TYPES if info.supports_dtype(t, "cpu")), None)
    if dtype is None:
        pytest.skip("it has no example of real numbers")
    found = outcomes(info, dtype)
    if not found:
        pytest.skip("PyTorch exports no example of it")
    refused = "same" not in found
    assert refused == (name in REFUSED), REFUSED.get(
        name, "no longer refused" if not refused else ""
    )
