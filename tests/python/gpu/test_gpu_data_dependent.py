"""Outputs whose shape a kernel decides, with compiled kernels and with callbacks."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from cuda_driver import DeviceArray, driver
from gpu_engines import build, new_id, one_plugin, op_of, strongly_typed
from test_gpu_runtime import OutputAllocator

pytestmark = pytest.mark.usefixtures("on_gpu")

# Keeps the elements above a limit, in their order: one thread does, which is enough here.
KEEP = """
__device__ void keep(const float* x, int64_t n, float limit, float* y, int32_t* count) {
  if (threadIdx.x != 0) return;
  int32_t kept = 0;
  for (int64_t i = 0; i < n; ++i) if (x[i] > limit) y[kept++] = x[i];
  *count = kept;
}
"""


def keep_plugin() -> str:
    name = new_id("keep")

    @trtp.kernel(
        name,
        KEEP,
        "keep",
        block=32,
        extra=lambda x, limit: [x.shape_expr.numel(), limit],
    )
    def keep(x: trtp.TensorDesc, limit: float) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        n = x.shape_expr[0]
        size = trtp.size_tensor(n // 2, n)
        return trtp.from_shape_expr((size.expr(),), dtype=x.dtype), size

    return name


@pytest.fixture
def keep():
    return keep_plugin()


def test_the_output_has_the_size_that_was_written(keep, rng):
    x = rng.random(5000, np.float32)
    net, layer = one_plugin(keep, x, limit=0.75)
    engine = build(net, layer.get_output(0), layer.get_output(1))
    for values in (x, x / 2, x + 1):
        outputs = engine(values)
        expected = values[values > np.float32(0.75)]
        np.testing.assert_array_equal(outputs["y0"], expected)
        assert outputs["y1"] == len(expected)


def test_layers_after_it_see_the_size(keep, rng):
    x = rng.random(5000, np.float32)
    net, layer = one_plugin(keep, x, limit=0.25)
    kept = layer.get_output(0)
    doubled = net.add_elementwise(kept, kept, trt.ElementWiseOperation.SUM).get_output(0)
    total = net.add_reduce(doubled, trt.ReduceOperation.SUM, 1, True).get_output(0)
    engine = build(net, doubled, total)
    for values in (x, x * 0.5):
        outputs = engine(values)
        expected = 2 * values[values > np.float32(0.25)]
        np.testing.assert_array_equal(outputs["y0"], expected)
        np.testing.assert_allclose(outputs["y1"], [expected.sum()], rtol=1e-4)


def test_two_in_a_row(keep, rng):
    x = rng.random(5000, np.float32)
    net, layer = one_plugin(keep, x, limit=0.25)
    again = net.add_plugin(op_of(keep)(layer.get_output(0), limit=0.75))
    np.testing.assert_array_equal(build(net, again.get_output(0))(x), x[x > np.float32(0.75)])


def test_an_output_allocator_hears_of_the_size(gpu, stream, keep, rng):
    x = rng.random(5000, np.float32)
    net, layer = one_plugin(keep, x, limit=0.5)
    context = build(net, layer.get_output(0)).engine.create_execution_context()
    allocator, source = OutputAllocator(), DeviceArray(x)
    assert context.set_output_allocator("y0", allocator)
    assert context.set_tensor_address("x0", source.ptr)
    for factor in (1.0, 0.6, 1.0):
        values = x * np.float32(factor)
        source.write(values)
        assert context.execute_async_v3(stream.handle)
        stream.synchronize()
        expected = values[values > 0.5]
        assert allocator.shape == expected.shape
        got = allocator.buffer.numpy(wait=False).view(np.float32)[: len(expected)]
        np.testing.assert_array_equal(got, expected)


def test_caller_s_memory_of_the_upper_bound(gpu, stream, keep, rng):
    x = rng.random(5000, np.float32)
    net, layer = one_plugin(keep, x, limit=0.5)
    context = build(net, layer.get_output(0)).engine.create_execution_context()
    source, target = DeviceArray(x), DeviceArray(np.zeros(5000, np.float32))
    assert context.set_tensor_address("x0", source.ptr)
    assert context.set_tensor_address("y0", target.ptr)
    for _ in range(6):
        assert context.execute_async_v3(stream.handle)
    stream.synchronize()
    expected = x[x > 0.5]
    np.testing.assert_array_equal(target.numpy()[: len(expected)], expected)
    assert tuple(context.get_tensor_shape("y0")) == expected.shape


def test_a_callback_writes_the_size(gpu, rng):
    """The function computes on the host and copies in the order of its stream."""
    name, library = new_id("keep"), driver().library

    @trtp.register(name)
    def desc(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        size = trtp.size_tensor(x.shape_expr[0] // 2, x.shape_expr[0])
        return trtp.from_shape_expr((size.expr(),), dtype=trt.float32), size

    @trtp.impl(name, device="cuda")
    def impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor, trtp.Tensor], stream: int) -> None:
        handle = ctypes.c_void_p(stream)
        values = np.empty(x.shape, np.float32)

        def copy(function, to, source, size):
            assert getattr(library, function)(to, source, ctypes.c_size_t(size), handle) == 0

        device, host = ctypes.c_uint64, ctypes.c_void_p
        copy("cuMemcpyDtoHAsync_v2", host(values.ctypes.data), device(x.data_ptr), values.nbytes)
        assert library.cuStreamSynchronize(handle) == 0
        kept = np.ascontiguousarray(values[values > 0.5])
        count = np.array(len(kept), np.int32)
        copy(
            "cuMemcpyHtoDAsync_v2", device(outputs[0].data_ptr), host(kept.ctypes.data), kept.nbytes
        )
        copy(
            "cuMemcpyHtoDAsync_v2",
            device(outputs[1].data_ptr),
            host(count.ctypes.data),
            count.nbytes,
        )
        assert library.cuStreamSynchronize(handle) == 0

    x = rng.random(3000, np.float32)
    net, layer = one_plugin(name, x)
    engine = build(net, layer.get_output(0))
    for values in (x, x * 0.7, x):
        np.testing.assert_array_equal(engine(values), values[values > 0.5])


def test_shape_inputs_and_their_values(gpu, stream, rng):
    """A slice whose size is an input: its values are on the host."""
    net = strongly_typed()
    x = net.add_input("x0", trt.float32, (100,))
    size = net.add_input("x1", trt.int64, (1,))
    layer = net.add_slice(x, (2,), (1,), (1,))
    layer.set_input(2, size)
    engine = build(net, layer.get_output(0), values={"x1": ((1,), (10,), (50,))})
    values = rng.random(100, np.float32)
    for count in (10, 50, 1):
        y = engine(values, np.array([count], np.int64))
        np.testing.assert_array_equal(y, values[2 : 2 + count])


def test_many_runs_without_waiting(gpu, stream, keep, rng):
    x = rng.random(5000, np.float32)
    net, layer = one_plugin(keep, x, limit=0.5)
    y = net.add_unary(layer.get_output(0), trt.UnaryOperation.NEG).get_output(0)
    engine = build(net, y)
    context = engine.engine.create_execution_context()
    allocator, source = OutputAllocator(), DeviceArray(x)
    assert context.set_output_allocator("y0", allocator)
    assert context.set_tensor_address("x0", source.ptr)
    for _ in range(20):
        assert context.execute_async_v3(stream.handle)
    stream.synchronize()
    expected = -x[x > 0.5]
    got = allocator.buffer.numpy(wait=False).view(np.float32)[: len(expected)]
    np.testing.assert_array_equal(got, expected)
