"""Engines that check every call of a plugin: what they find, and that they find nothing else."""

from __future__ import annotations

import ctypes
import subprocess
from typing import Tuple

import numpy as np
import pytest
from onnx import TensorProto, helper

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import build, new_id, one_plugin, op_of
from small_models import model
from v3_plugins import Log

X = np.random.default_rng(0).standard_normal((4, 5), np.float32)


def memory(tensor, first: int, count: int) -> np.ndarray:
    """Elements counted from a tensor's first one, wherever they are."""
    dtype = np.dtype(trt.nptype(tensor.dtype))
    address = tensor.data_ptr + first * dtype.itemsize
    return np.frombuffer((ctypes.c_byte * (count * dtype.itemsize)).from_address(address), dtype)


def double(x, outputs, stream):
    np.multiply(np.asarray(x), 2, out=np.asarray(outputs[0]))


def unary(impl, register=lambda x: x.like()) -> str:
    """Registers a plugin y = f(x)."""
    plugin_id = new_id("debugged")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return register(x)

    trtp.impl(plugin_id)(impl)
    return plugin_id


def debugged(plugin_id, *arrays, logger=None, **options) -> trt.Engine:
    """An engine that is built without a run of the plugin, which would end the build."""
    net, layer = one_plugin(plugin_id, *arrays)
    layer.name = "the layer"
    outputs = [layer.get_output(i) for i in range(layer.num_outputs)]
    return build(net, *outputs, debug_plugins=True, logger=logger, timing=False, **options)


def message_of(engine, *arrays) -> str:
    with pytest.raises(trt.Error) as caught:
        engine(*arrays)
    return str(caught.value)


def warnings(log: Log) -> list[str]:
    return [text for severity, text in log.lines if severity == trt.ILogger.WARNING]


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=lambda dtype: dtype.__name__)
def test_nan_of_finite_inputs_is_a_warning(dtype):
    def root(x, outputs, stream):
        with np.errstate(invalid="ignore"):
            np.sqrt(np.asarray(x), out=np.asarray(outputs[0]))

    log = Log()
    x = np.array([[4, 1, -9], [0, 16, np.inf]], dtype)
    engine = debugged(unary(root), x, logger=log)
    np.testing.assert_array_equal(engine(x), np.array([[2, 1, np.nan], [0, 4, np.inf]], dtype))
    assert warnings(log) == []  # the inputs have infinity already
    x[1, 2] = -1
    engine(x)
    engine(x)
    (text,) = warnings(log)
    assert "layer 'the layer': plugin 'debugged'" in text and "call 2 " in text
    assert "NaN or infinity in 2 of 6 elements" in text and "nan at [0, 2]" in text


def test_nan_is_reported_where_it_arises():
    def to_nan(x, outputs, stream):
        np.asarray(outputs[0])[...] = np.nan

    log = Log()
    net, first = one_plugin(unary(double), X)
    second = net.add_plugin(op_of(unary(to_nan))(first.get_output(0)))
    third = net.add_plugin(op_of(unary(double))(second.get_output(0)))
    for name, layer in zip(("first", "second", "third"), (first, second, third), strict=True):
        layer.name = name
    build(net, third.get_output(0), debug_plugins=True, logger=log)(X)
    (text,) = warnings(log)
    assert "layer 'second'" in text


def test_aliased_outputs_may_be_left_as_they_are():
    def bump(x, outputs, stream):
        np.asarray(outputs[0])[0] += 1

    def beyond(x, outputs, stream):
        memory(outputs[0], 0, 21)[20] = 0

    expected = X.copy()
    expected[0] += 1
    engine = debugged(unary(bump, lambda x: x.aliased()), X)
    np.testing.assert_array_equal(engine(X.copy()), expected)
    engine = debugged(unary(beyond, lambda x: x.aliased()), X)
    assert "behind the end of output 0" in message_of(engine, X.copy())


def non_zero(count) -> str:
    """A plugin whose rows are the indices of elements that are not 0; `count` changes their number."""
    plugin_id = new_id("non_zero")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        size = trtp.size_tensor(x.shape_expr.numel() // 2, x.shape_expr.numel())
        out = trtp.from_shape_expr((size.expr(), 2), trt.int32)
        return out, size

    @trtp.impl(plugin_id)
    def impl(x, outputs, stream):
        found = np.argwhere(np.asarray(x))
        np.asarray(outputs[0])[: len(found)] = found
        np.asarray(outputs[1])[...] = count(len(found))

    return plugin_id


def test_only_the_true_extent_of_data_dependent_outputs_counts():
    x = (X > 0) * X
    engine = debugged(non_zero(lambda n: n), x)
    for each in (x, 0 * x):
        np.testing.assert_array_equal(engine(each)["y0"], np.argwhere(each))
    found = np.count_nonzero(x)
    message = message_of(debugged(non_zero(lambda n: n + 1), x), x)
    assert f"was not written in 2 of {2 * found + 2} elements, the first at [{found}, 0]" in message
    message = message_of(debugged(non_zero(lambda n: 21), x), x)
    assert "was written as 21, which is not between 0 and its upper bound 20" in message
    message = message_of(debugged(non_zero(lambda n: -1), x), x)
    assert "the size tensor, output 1 ('y1': INT32 scalar), was written as -1" in message


def test_empty_tensors():
    def beyond(x, outputs, stream):
        memory(outputs[0], 0, 1)[0] = 1

    x = np.zeros((0, 5), np.float32)
    assert debugged(unary(double), x)(x).shape == (0, 5)
    assert "4 bytes behind the end of output 0" in message_of(debugged(unary(beyond), x), x)


def test_dynamic_shapes_move_the_guards():
    plugin_id = unary(double)
    net = trt.Builder(trt.Logger()).create_network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, (-1, 5))))
    engine = build(
        net, layer.get_output(0), debug_plugins=True, shapes={"x": ((1, 5), (4, 5), (64, 5))}
    )
    for rows in (4, 64, 1, 33):
        x = np.ones((rows, 5), np.float32)
        np.testing.assert_array_equal(engine(x), 2 * x)


def test_vectorized_formats():
    written = 3

    def impl(x, outputs, stream):
        # CHW4 keeps 4 lanes for the 3 channels of each place.
        x = memory(x, 0, 16).reshape(4, 4)
        memory(outputs[0], 0, 16).reshape(4, 4)[:, :written] = 2 * x[:, :written]

    plugin_id = unary(impl)

    @trtp.autotune(plugin_id)
    def tune(x, outputs):
        return [trtp.AutoTuneCombination("FP32, FP32", "CHW4")]

    log = Log()
    x = np.random.default_rng(1).standard_normal((1, 3, 2, 2), np.float32)
    engine = debugged(plugin_id, x, logger=log)
    np.testing.assert_array_equal(engine(x), 2 * x)
    assert warnings(log) == []
    written = 2
    assert "not written in 4 of 12 elements, the first at [0, 2, 0, 0]" in message_of(engine, x)


SOURCE = """
#include <cstdint>
void twice(const float* x, std::int64_t n, float* y, std::int64_t, std::int64_t, std::int64_t) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];
}
"""


@trtp.register("debug_tests::overrun")
def overrun_desc(x: trtp.TensorDesc, extra: int) -> trtp.TensorDesc:
    return x.like()


@trtp.aot_impl("debug_tests::overrun")
def overrun_aot(
    x: trtp.TensorDesc, extra: int, outputs: Tuple[trtp.TensorDesc], tactic: int
) -> Tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
    arguments = trtp.SymExprs.from_tuple([trtp.SymInt64(x.shape_expr.numel() + extra)])
    code = aot.cpp(SOURCE, "twice", inputs=[x], extra=arguments, outputs=outputs)
    return code.name, code, trtp.KernelLaunchParams(), arguments


def compiled(extra: int, **options) -> trt.Engine:
    attributes = {"plugin_namespace": "debug_tests", "extra": extra}
    node = helper.make_node("overrun", ["x"], ["y"], name="the node", **attributes)
    values = [(name, TensorProto.FLOAT, list(X.shape)) for name in "xy"]
    return trt.build(model([node], values[:1], values[1:]), timing=False, **options)


@pytest.mark.parametrize("extra, part", [(1, "4 bytes behind the end"), (-1, "not written in 1")])
def test_compiled_kernels(extra, part):
    message = message_of(compiled(extra, debug_plugins=True), X)
    assert "compiled kernel 'debug_tests::overrun opwright_kernel_twice', call 1 " in message
    assert part in message


def test_loading_decides_over_the_build(tmp_path):
    path = tmp_path / "engine"
    compiled(-1, debug_plugins=True).save(path)
    assert "not written" in message_of(trt.load(path), X)
    assert trt.load(path, debug_plugins=False)(X).shape == X.shape
    compiled(-1).save(path)
    assert trt.load(path)(X).shape == X.shape
    assert "not written" in message_of(trt.load(path, debug_plugins=True), X)


def partial(x, outputs, stream):
    np.multiply(np.asarray(x)[:3], 2, out=np.asarray(outputs[0])[:3])


def test_runtime_and_config_have_the_flag():
    builder = trt.Builder(trt.Logger())
    net, layer = one_plugin(unary(partial), X)
    net.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    assert config.debug_plugins is False
    config.debug_plugins = True
    config.timing = False
    plan = builder.build_serialized_network(net, config)
    runtime = trt.Runtime(trt.Logger())
    assert runtime.debug_plugins is None
    for debug in (None, True):
        runtime.debug_plugins = debug
        engine = runtime.deserialize_cuda_engine(plan)
        assert "not written" in message_of(trt.Engine(engine), X)
    runtime.debug_plugins = False
    trt.Engine(runtime.deserialize_cuda_engine(plan))(X)


def test_program(program, tmp_path):
    compiled(1).save(tmp_path / "model.engine")
    np.save(tmp_path / "x.npy", X)

    def run(*options):
        arguments = ["model.engine", "--allow-host-code", "--input", "x.npy", *options]
        command = [program, "run", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    done = run("--debug-plugins")
    assert 0 < done.returncode < 128
    assert (
        "layer 'the node': compiled kernel 'debug_tests::overrun opwright_kernel_twice', call 1"
        in done.stderr
    )
    assert "4 bytes behind the end of output 0 ('y': FP32 4x5)" in done.stderr
    assert run("--no-debug-plugins").returncode == 0
