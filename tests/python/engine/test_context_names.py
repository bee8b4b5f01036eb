"""Contexts and runtimes: shapes before they are set, and TensorRT's names for what there is little of here."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import build, network, new_id, op_of

RELU = trt.ActivationType.RELU


@pytest.fixture
def engine() -> trt.ICudaEngine:
    """y = relu(x), x [-1, 4] with 1 to 5 rows; z = a reshaped to the values of shape."""
    net = network()
    x = net.add_input("x", trt.float32, (-1, 4))
    a = net.add_input("a", trt.float32, (2, 6))
    shape = net.add_input("shape", trt.int64, (2,))
    shuffle = net.add_shuffle(a)
    shuffle.set_input(1, shape)
    y = net.add_activation(x, RELU).get_output(0)
    y.name, shuffle.get_output(0).name = "y", "z"
    net.mark_output(y)
    net.mark_output(shuffle.get_output(0))
    builder = trt.Builder(trt.Logger())
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 4), (2, 4), (5, 4))
    profile.set_shape_input("shape", (1, 1), (3, 4), (12, 12))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(net, config)
    return trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)


def test_shapes_that_are_not_set_are_the_engines(engine: trt.ICudaEngine) -> None:
    context = engine.create_execution_context()
    for name in ("x", "a", "shape", "y", "z"):
        shape = tuple(context.get_tensor_shape(name))
        assert shape == tuple(engine.get_tensor_shape(name)), name
    assert tuple(context.get_tensor_shape("x")) == (-1, 4)
    context.set_input_shape("x", (3, 4))
    assert tuple(context.get_tensor_shape("x")) == (3, 4)
    with pytest.raises(trt.Error, match="no input or output 'nothing'"):
        context.get_tensor_shape("nothing")


def test_infer_shapes_names_what_misses(engine: trt.ICudaEngine) -> None:
    context = engine.create_execution_context()
    assert context.infer_shapes() == ["x", "shape"]
    context.set_input_shape("x", (3, 4))
    assert context.infer_shapes() == ["shape"]
    values = np.array([4, 3], np.int64)
    context.set_tensor_address("shape", values.ctypes.data)
    assert context.infer_shapes() == []
    assert tuple(context.get_tensor_shape("y")) == (3, 4)
    assert tuple(context.get_tensor_shape("z")) == (4, 3)
    values[0] = 13
    with pytest.raises(trt.Error, match="outside of profile 0"):
        context.infer_shapes()


def test_a_scalar_input_is_set(engine: trt.ICudaEngine) -> None:
    net = network()
    s = net.add_input("s", trt.float32, ())
    context = build(net, net.add_unary(s, trt.UnaryOperation.NEG).get_output(0), timing=False)
    context = context.engine.create_execution_context()
    assert tuple(context.get_tensor_shape("s")) == ()
    assert context.infer_shapes() == []


def test_shape_tensors_have_a_rank_of_one_at_most() -> None:
    net = network()
    flat = net.add_constant((2,), np.array([1, 2], np.int64)).get_output(0)
    square = net.add_constant((2, 2), np.ones((2, 2), np.int64)).get_output(0)
    x = net.add_input("x", trt.int64, (2,))
    assert flat.is_shape_tensor
    assert not square.is_shape_tensor
    assert not x.is_shape_tensor


def test_contexts_keep_what_has_no_effect(engine: trt.ICudaEngine) -> None:
    context = engine.create_execution_context()
    assert not context.debug_sync
    context.debug_sync = True
    assert context.debug_sync
    context.nvtx_verbosity = trt.ProfilingVerbosity.DETAILED
    assert context.nvtx_verbosity == trt.ProfilingVerbosity.DETAILED
    strategy = trt.ExecutionContextAllocationStrategy.ON_PROFILE_CHANGE
    config = engine.create_execution_context(strategy).get_runtime_config()
    assert config.get_execution_context_allocation_strategy() == strategy
    assert context.set_communicator(None)
    with pytest.raises(trt.Error, match="runs on the CPU and takes a Communicator"):
        context.set_communicator(4096)


def test_a_runtimes_temporary_files() -> None:
    runtime = trt.Runtime(trt.Logger())
    assert runtime.temporary_directory is None
    runtime.temporary_directory = "/var/tmp"
    assert runtime.temporary_directory == "/var/tmp"
    flag = trt.TempfileControlFlag
    assert runtime.tempfile_control_flags == 1 << int(flag.ALLOW_IN_MEMORY_FILES) | 1 << int(
        flag.ALLOW_TEMPORARY_FILES
    )
    with pytest.raises(trt.Error, match="load_runtime: 'lean.so' is not loaded"):
        runtime.load_runtime("lean.so")


def test_libraries_need_files_in_memory() -> None:
    plugin_id = new_id("copy_")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):  # type: ignore[no-untyped-def]
        source = (
            "void copy(const float* x, int64_t n, float* y, int64_t, int64_t, int64_t) {"
            "  for (int64_t i = 0; i < n; ++i) y[i] = x[i]; }"
        )
        extra = trtp.SymExprs.from_tuple([trtp.SymInt64(x.shape_expr.numel())])
        code = aot.cpp(source, "copy", inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(), extra

    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, (4,))), aot=True)
    plan = build(net, layer.get_output(0), timing=False, device="cpu").engine.serialize()
    runtime = trt.Runtime(trt.Logger())
    runtime.tempfile_control_flags = 1 << int(trt.TempfileControlFlag.ALLOW_TEMPORARY_FILES)
    with pytest.raises(trt.Error, match="do not have ALLOW_IN_MEMORY_FILES"):
        runtime.deserialize_cuda_engine(plan)
    runtime.tempfile_control_flags |= 1 << int(trt.TempfileControlFlag.ALLOW_IN_MEMORY_FILES)
    assert runtime.deserialize_cuda_engine(plan).num_layers == 1
