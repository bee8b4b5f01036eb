"""python -m opwright check, and opwright.testing: every check finds what it is for, and only that."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import time
from typing import Tuple

import numpy as np
import numpy.typing as npt
import pytest

import opwright as trt
import opwright.plugin as trtp
from opwright import aot, testing
from plugin_testing import new_id, op_of

X = np.random.default_rng(0).standard_normal((4, 5), np.float32)


def unary(impl, *, register=None, combinations=None, aot_impl=None) -> str:
    """Registers a plugin y = f(x) with the attribute k = 2."""
    plugin_id = new_id("checked")

    def like(x: trtp.TensorDesc, k: float = 2.0) -> trtp.TensorDesc:
        return x.like()

    trtp.register(plugin_id)(register or like)
    if impl is not None:
        trtp.impl(plugin_id)(impl)
    if combinations is not None:

        @trtp.autotune(plugin_id)
        def tune(x, outputs):
            return [trtp.AutoTuneCombination(*combinations)]

    if aot_impl is not None:
        trtp.aot_impl(plugin_id)(aot_impl)
    return plugin_id


def twice(x, k, outputs, stream):
    np.multiply(np.asarray(x), k, out=np.asarray(outputs[0]), casting="unsafe")


def twice_by_tactic(x, k, outputs, stream, tactic):
    twice(x, k, outputs, stream)


def failures(plugin_id: str, *inputs, **options) -> list[testing.Row]:
    """The failed rows of a check."""
    try:
        testing.check(plugin_id, list(inputs) or [X], **options)
    except testing.CheckError as error:
        return [row for row in error.report.rows if row.result == "FAIL"]
    return []


def line_of(function) -> str:
    return f"test_check.py:{function.__code__.co_firstlineno} ({function.__name__})"


def memory(tensor, first: int, count: int) -> np.ndarray:
    """FP32 elements counted from a tensor's first one, wherever they are."""
    address = tensor.data_ptr + 4 * first
    return np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)


# Correct plugins -------------------------------------------------------------------------------


def results(report: testing.Report) -> dict[str, str]:
    return {row.check: row.result for row in report.rows}


def test_a_correct_plugin_passes_every_check():
    plugin_id = unary(
        twice_by_tactic, combinations=("FP32|FP16|BF16, FP32|FP16|BF16", "LINEAR", [1, 2])
    )
    report = testing.check(plugin_id, [X], k=3.0)
    assert report.ok and report.failed == []
    assert {c for c, r in results(report).items() if r != "ok"} == {"aot"}
    detail = next(row.detail for row in report.rows if row.check == "combinations")
    assert detail.startswith("6: FLOAT, FLOAT, tactic 1 | ")


def test_every_combination_of_types_formats_and_tactics_runs():
    seen = set()

    def run(x, k, outputs, stream, tactic):
        seen.add((x.dtype, x.format, outputs[0].format, tactic))
        twice(x, k, outputs, stream)

    plugin_id = unary(run, combinations=("FP32|FP16, FP32|FP16", "LINEAR*HWC, LINEAR*HWC", [3, 7]))
    image = np.random.default_rng(0).standard_normal((2, 3, 4, 5), np.float32)
    assert failures(plugin_id, image) == []
    formats = trt.TensorFormat.LINEAR, trt.TensorFormat.HWC
    assert seen == {
        (t, f, g, tactic)
        for t in (trt.float32, trt.float16)
        for f in formats
        for g in formats
        for tactic in (3, 7)
    }


def test_outputs_in_place_and_of_sizes_that_depend_on_data_pass():
    plugin_id = new_id("checked")

    @trtp.register(plugin_id)
    def desc(
        x: trtp.TensorDesc, y: trtp.TensorDesc
    ) -> Tuple[trtp.TensorDesc, trtp.TensorDesc, trtp.TensorDesc]:
        size = trtp.size_tensor(4, x.shape_expr.numel())
        return y.aliased(), trtp.from_shape_expr((2, size.expr()), trt.int32), size

    @trtp.impl(plugin_id)
    def run(x, y, outputs, stream):
        np.asarray(outputs[0])[...] += 1
        found = np.argwhere(np.asarray(x) > 0).T
        np.asarray(outputs[1])[:, : found.shape[1]] = found
        np.asarray(outputs[2])[...] = found.shape[1]

    assert failures(plugin_id, X, np.arange(3, dtype=np.int32)) == []


CPP = """
#include <cstdint>
template <class T>
void f(const T* x, std::int64_t count, float k, T* y, std::int64_t, std::int64_t, std::int64_t) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = k * x[i];
}
"""


def kernel(count, k):
    extra = trtp.SymExprs.from_tuple([trtp.SymInt64(count), trtp.SymFloat32(k)])
    types = [trt.float32]
    code = aot.cpp(CPP, "f", inputs=types, outputs=types, extra=extra)
    return code.name, code, trtp.KernelLaunchParams(), extra


def compiled_twice(x, k, outputs, tactic):
    return kernel(x.shape_expr.numel(), k)


def test_a_compiled_plugin_passes():
    report = testing.check(unary(twice, aot_impl=compiled_twice), [X])
    # There is one combination, so that there is nothing to compare.
    assert {c for c, r in results(report).items() if r != "ok"} == {"combinations"}


# Broken plugins: each is found by its check, and by no other -----------------------------------


def raises_for_half(x, k, outputs, stream):
    if x.dtype == trt.float16:
        raise ArithmeticError("no luck")
    twice(x, k, outputs, stream)


def writes_behind(x, k, outputs, stream):
    twice(x, k, outputs, stream)
    memory(outputs[0], 20, 1)[:] = 1


def writes_before(x, k, outputs, stream):
    twice(x, k, outputs, stream)
    memory(x, -2, 2)[:] = 1


def reads_behind(x, k, outputs, stream):
    np.asarray(outputs[0])[...] = memory(x, 1, 20).reshape(4, 5)


def writes_to_its_input(x, k, outputs, stream):
    twice(x, k, outputs, stream)
    memory(x, 3, 1)[:] = 0


def writes_to_a_protected_input(x, k, outputs, stream):
    np.asarray(x)[...] *= 2
    twice(x, k, outputs, stream)


def is_random(x, k, outputs, stream):
    np.asarray(outputs[0])[...] = np.random.default_rng().random((4, 5))


def forgets_a_row(x, k, outputs, stream):
    np.asarray(outputs[0])[:-1] = np.asarray(x)[:-1]


def accumulates(x, k, outputs, stream):
    np.asarray(outputs[0])[...] += np.asarray(x)


def differs_by_tactic(x, k, outputs, stream, tactic):
    twice(x, k if tactic == 1 else 1.01 * k, outputs, stream)


def differs_by_type(x, k, outputs, stream):
    twice(x, k if x.dtype == trt.float32 else 1.02 * k, outputs, stream)


SCRATCH = np.zeros(64, np.float32)


def shares_memory(x, k, outputs, stream):
    values = np.asarray(x).reshape(-1)
    SCRATCH[: values.size] = values
    time.sleep(0.001)
    np.asarray(outputs[0])[...] = SCRATCH[: values.size].reshape(x.shape)


@pytest.mark.parametrize(
    "check, impl, says",
    [
        ("runs", raises_for_half, "HALF, HALF.*ArithmeticError: no luck"),
        ("bounds", writes_behind, "output 0: 4 bytes behind its end, from byte 80 of 80 on"),
        ("bounds", writes_before, "input 0: 8 bytes before its start, from byte -8 on"),
        ("bounds", reads_behind, "depend on bytes beside the inputs"),
        ("inputs", writes_to_its_input, r"it changed x; write to the outputs only"),
        ("inputs", writes_to_a_protected_input, "ValueError.*read-only"),
        ("determinism", is_random, "run again, output 0 differs in 20 of 20 elements"),
        ("written", forgets_a_row, r"\[4, 5\] by register, is not written in 5 of 20.*\[3, 0\]"),
        ("uninitialized", accumulates, "output 0 depends on what its memory held"),
        ("combinations", differs_by_tactic, "FLOAT, tactic 2 against FLOAT, FLOAT, tactic 1"),
        ("combinations", differs_by_type, "HALF, HALF against FLOAT, FLOAT"),
        ("threads", shares_memory, "two contexts in two threads.*differs"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_broken_impl(check, impl, says):
    tactics = [1, 2] if impl is differs_by_tactic else None
    types = (
        "FP32|FP16, FP32|FP16"
        if "half" in impl.__name__ or "type" in impl.__name__
        else "FP32, FP32"
    )
    plugin_id = unary(impl, combinations=(types, "LINEAR", tactics))
    (row,) = failures(plugin_id)
    assert row.check == check
    assert re.search(says, row.detail), row.detail
    if "Error" in says:
        offset = 2 if impl is raises_for_half else 1
        assert f"test_check.py:{impl.__code__.co_firstlineno + offset} " in row.where
    else:
        assert row.where.endswith(line_of(impl))


def test_an_impl_that_exchanges_data_with_other_ranks():
    def exchange(x, k, comm: trtp.Comm, outputs, stream):
        raise AssertionError("there are no other ranks")

    (row,) = failures(unary(exchange))
    assert row.check == "runs" and "exchanges data with other ranks" in row.detail


def test_types_that_register_does_not_allow():
    plugin_id = unary(twice, combinations=("INT32, INT32",))
    (row,) = failures(plugin_id)
    assert (
        row.check == "runs" and "no combination of types and layouts that is possible" in row.detail
    )
    assert row.where.endswith("(tune)")


def test_guards_where_types_differ_from_those_of_register():
    def run(x, k, outputs, stream):
        twice(x, k, outputs, stream)
        if (x.dtype, outputs[0].dtype) == (trt.float32, trt.float16):
            memory(outputs[0], 10, 1)[:] = 1

    (row,) = failures(unary(run, combinations=("FP32, FP32*FP16", "LINEAR")))
    assert row.check == "bounds"
    assert "FLOAT, HALF;" in row.detail and "behind its end, from byte 40 of 40 on" in row.detail


def test_an_attribute_that_impl_changes():
    plugin_id = new_id("checked")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, ks: npt.NDArray[np.float32]) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, ks, outputs, stream):
        np.multiply(x, ks[0], out=np.asarray(outputs[0]))
        ks.setflags(write=True)
        ks += 1

    (row,) = failures(plugin_id, X, ks=np.array([2], np.float32))
    assert (row.check, row.where.endswith(line_of(run))) == ("attributes", True)
    assert "ks: NDArray[float32] is array([3.]" in row.detail


def longer_if_dynamic(x: trtp.TensorDesc, k: float = 2.0) -> trtp.TensorDesc:
    out = x.like()
    if not x.shape_expr[0].is_constant:
        out.shape_expr[0] += 1
    return out


def only_constant(x: trtp.TensorDesc, k: float = 2.0) -> trtp.TensorDesc:
    return trtp.from_shape_expr((x.shape_expr[0].constant_value(), 5), x.dtype)


def pads(x, k, outputs, stream):
    y = np.asarray(outputs[0])
    y[...] = 0
    y[: x.shape[0]] = np.asarray(x)


@pytest.mark.parametrize("register", [longer_if_dynamic, only_constant])
def test_a_broken_register(register):
    (row,) = failures(unary(pads, register=register))
    assert row.check == "shapes"
    if register is longer_if_dynamic:
        assert "register says [5, 5] for output 0, but [4, 5]" in row.detail
        assert row.where.endswith(line_of(register))
    else:
        assert f"test_check.py:{register.__code__.co_firstlineno + 1} (only_constant)" in row.where


def compiled_thrice(x, k, outputs, tactic):
    return kernel(x.shape_expr.numel(), 1.5 * k)


def compiled_for_one_shape(x, k, outputs, tactic):
    return kernel(20, k)


def test_a_compiled_kernel_that_computes_something_else():
    rows = failures(unary(twice, aot_impl=compiled_thrice))
    assert [row.check for row in rows] == ["aot"]
    assert rows[0].where.endswith(line_of(compiled_thrice))


def test_a_compiled_kernel_for_one_shape():
    plugin_id = unary(None, aot_impl=compiled_for_one_shape)
    rows = failures(plugin_id, X)
    assert [row.check for row in rows] == ["profile"]
    assert "compiled" in rows[0].detail and rows[0].where.endswith(line_of(compiled_for_one_shape))


def test_an_engine_that_computes_something_else_once_loaded():
    contexts = []

    def run(x, k, outputs, stream):
        if not any(outputs is each for each in contexts):
            contexts.append(outputs)
        np.asarray(outputs[0])[...] = len(contexts) * np.asarray(x)

    rows = failures(unary(run))
    assert "reload" in [row.check for row in rows]
    # Whatever is built or loaded after the first run multiplies by another number.
    assert {row.check for row in rows} <= {"reload", "profile", "threads"}


def test_an_input_that_is_changed_through_its_address():
    """There the engine cannot protect it."""

    def run(x, outputs, stream):
        np.asarray(outputs[0])[...] = np.asarray(x)
        ctypes.memset(x.data_ptr, 0, 4 * x.numel())

    (row,) = failures(unary(run))
    assert row.check == "inputs" and "it changed x" in row.detail


@pytest.mark.parametrize(
    "inputs, attributes, says",
    [
        ([X, X], {}, "2 inputs; the plugin takes x"),
        ([X], {"q": 1}, "has no attribute 'q'"),
        ([X.astype(np.complex64)], {}, "no tensor of a network has the type complex64"),
    ],
)
def test_an_example_that_does_not_fit(inputs, attributes, says):
    (row,) = failures(unary(twice), *inputs, **attributes)
    assert row.check == "example" and says in row.detail


def test_the_tolerance_can_be_given():
    plugin_id = unary(differs_by_tactic, combinations=("FP32, FP32", "LINEAR", [1, 2]))
    assert failures(plugin_id, X, rtol=0.02) == []


def test_a_plugin_for_a_gpu_alone_says_that_it_is_not_checked():
    plugin_id = unary(None)
    trtp.impl(plugin_id, device="cuda")(twice)
    (row,) = failures(plugin_id)
    assert row.check == "runs" and "no implementation for the CPU" in row.detail


def test_the_plugin_is_left_as_it_was():
    plugin_id = unary(twice)
    failures(plugin_id)
    net = trt.Builder(trt.Logger()).create_network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, X.shape), k=4.0))
    net.mark_output(layer.get_output(0))
    np.testing.assert_array_equal(trt.build(net)(X), 4 * X)


def test_an_operator_of_plugin_op_and_a_creator_are_taken():
    assert testing.check(op_of(unary(twice)), [X], k=1.0).ok
    namespace, name = unary(twice).split("::")
    creator = trt.get_plugin_registry().get_creator(name, "1", namespace)
    assert testing.check(creator, [X], k=1.0).ok
    with pytest.raises(ValueError, match="no plugin 'no::such' is registered"):
        testing.check("no::such", [X])


def test_inputs_without_elements_and_without_axes():
    for x in (np.zeros((0, 5), np.float32), np.zeros((3, 0), np.float32), np.float32(2)):
        assert failures(unary(twice), x) == []


def test_an_operator_of_pytorch():
    pytest.importorskip("torch")
    roll = trtp.from_torch("aten::roll")
    assert testing.check(roll, [X], shifts=[1, -2], dims=[0, 1]).ok


def test_indices_stay_as_they_are():
    """An index that were moved to a smaller tensor would be read from memory of others."""
    plugin_id = new_id("checked")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, rows: trtp.TensorDesc) -> trtp.TensorDesc:
        return trtp.from_shape_expr((rows.shape_expr[0], x.shape_expr[1]), x.dtype)

    @trtp.impl(plugin_id)
    def run(x, rows, outputs, stream):
        assert np.asarray(rows).max() < x.shape[0]
        np.asarray(outputs[0])[...] = np.asarray(x)[np.asarray(rows)]

    report = testing.check(plugin_id, [X, np.array([3, 0, 2, 1], np.int32)])
    assert results(report)["profile"] == "skip"


def test_what_is_not_a_number_and_signs_of_zero_are_compared_by_their_bits():
    def root(x, k, outputs, stream):
        with np.errstate(invalid="ignore"):
            np.sqrt(np.asarray(x), out=np.asarray(outputs[0]))

    assert failures(unary(root), np.array([-0.0, -1, np.nan, np.inf, 4], np.float32)) == []


def test_importing_the_package_does_not_import_the_checks():
    code = "import opwright, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [
        m for m in done.stdout.split() if m.startswith(("opwright._check.checker", "opwright.test"))
    ] == []
