"""opwright.onnxruntime with memory of a GPU, beside ONNX Runtime on the CPU."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime as reference
import pytest
from onnx import TensorProto

import emulated_gpu
import opwright.onnxruntime as ort
from cuda_driver import DeviceArray, driver
from opwright.onnxruntime.capi import onnxruntime_pybind11_state as state

pytestmark = emulated_gpu.required

CUDA = ["CUDAExecutionProvider", "CPUExecutionProvider"]


def parse(text: str) -> bytes:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 19]> ' + text)
    return model.SerializeToString()


MODEL = parse("""g (float[n, 8] x, float[n, 8] y) => (float[n, 8] z, float[n] s)
    { z = Add(x, y)  axes = Constant<value_ints = [1]>()  s = ReduceSum<keepdims = 0>(z, axes) }""")


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    return ort.InferenceSession(MODEL, providers=CUDA)


def feed(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    return {name: rng.standard_normal((n, 8)).astype(np.float32) for name in "xy"}


def expected(fed: dict[str, np.ndarray], model: bytes = MODEL) -> list[np.ndarray]:
    return reference.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, fed)


def assert_close(got, want) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("element_type", [np.float32, TensorProto.FLOAT])
def test_inputs_and_outputs_at_addresses(session, element_type):
    binding = session.io_binding()
    for n in (3, 1, 5):
        fed = feed(n)
        arrays = {name: DeviceArray(array) for name, array in fed.items()}
        outputs = [DeviceArray(np.zeros((n, 8), np.float32)), DeviceArray(np.zeros(n, np.float32))]
        for name, array in arrays.items():
            binding.bind_input(name, "cuda", 0, element_type, array.shape, array.ptr)
        for name, array in zip("zs", outputs):
            binding.bind_output(name, "cuda", 0, element_type, list(array.shape), array.ptr)
        binding.synchronize_inputs()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        for array, value, copy, want in zip(
            outputs, binding.get_outputs(), binding.copy_outputs_to_cpu(), expected(fed)
        ):
            assert_close(array.numpy(), want)
            assert_close(copy, want)
            assert value.data_ptr() == array.ptr and value.device_name() == "cuda"


def test_the_engine_writes_at_the_address(session):
    """Without copies: of what the two outputs take nothing is allocated and nothing copied on the GPU."""
    fed = feed(4)
    arrays = {name: DeviceArray(array) for name, array in fed.items()}
    outputs = {
        "z": DeviceArray(np.zeros((4, 8), np.float32)),
        "s": DeviceArray(np.zeros(4, np.float32)),
    }
    binding = session.io_binding()
    for name, array in arrays.items():
        binding.bind_input(name, "cuda", 0, np.float32, array.shape, array.ptr)
    for name, array in outputs.items():
        binding.bind_output(name, "cuda", 0, np.float32, array.shape, array.ptr)
    session.run_with_iobinding(binding)
    counted = ("cuMemAlloc", "cuMemcpyAsync", "cuMemcpyDtoDAsync", "cuMemcpyDtoD")
    before = [driver().calls(name) for name in counted]
    session.run_with_iobinding(binding)
    assert [driver().calls(name) for name in counted] == before
    for array, want in zip(outputs.values(), expected(fed)):
        assert_close(array.numpy(), want)


def test_values_on_the_gpu(session):
    fed = feed(3)
    x = ort.OrtValue.ortvalue_from_numpy(fed["x"], "cuda", 0)
    y = ort.OrtValue.ortvalue_from_shape_and_type([3, 8], np.float32, "cuda", 0)
    address = y.data_ptr()
    y.update_inplace(fed["y"])
    assert y.data_ptr() == address
    np.testing.assert_array_equal(y.numpy(), fed["y"])
    z = ort.OrtValue.ortvalue_from_shape_and_type([3, 8], TensorProto.FLOAT, "cuda", 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_input("y", y)
    binding.bind_ortvalue_output("z", z)
    binding.bind_output("s")
    address = z.data_ptr()
    session.run_with_iobinding(binding)
    assert z.data_ptr() == address
    assert_close(z.numpy(), expected(fed)[0])
    first, second = binding.get_outputs()
    assert first is z and second.device_name() == "cpu"
    assert_close(second.numpy(), expected(fed)[1])
    x.update_inplace(y)
    session.run_with_iobinding(binding)
    assert_close(z.numpy(), 2 * fed["y"])
    values = session.run_with_ort_values(["z"], {"x": x, "y": z})
    assert values[0].device_name() == "cuda"
    assert_close(values[0].numpy(), 3 * fed["y"])
    assert x.__dlpack_device__() == (2, 0)
    assert_close(session.run(["z"], {"x": x, "y": fed["y"]})[0], 2 * fed["y"])


def test_memory_that_the_run_makes(session):
    fed = feed(3)
    binding = session.io_binding()
    for name, array in fed.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("z", "cuda")
    binding.bind_output("s", "cpu")
    session.run_with_iobinding(binding)
    z, s = binding.get_outputs()
    assert (z.device_name(), s.device_name()) == ("cuda", "cpu")
    for value, want in zip((z, s), expected(fed)):
        assert_close(value.numpy(), want)


TYPES = {
    "float16": (TensorProto.FLOAT16, np.float16),
    "int32": (TensorProto.INT32, np.int32),
    "int64": (TensorProto.INT64, np.int64),
    "int8": (TensorProto.INT8, np.int8),
    "uint8": (TensorProto.UINT8, np.uint8),
    "bool": (TensorProto.BOOL, np.bool_),
    "double": (TensorProto.DOUBLE, np.float64),
}


@pytest.mark.parametrize("name", TYPES)
def test_types(name):
    number, dtype = TYPES[name]
    ours = ort.InferenceSession(
        parse(f"g ({name}[n, 2] x) => ({name}[2, n] y) {{ y = Transpose(x) }}"), providers=CUDA
    )
    x = np.arange(8).reshape(-1, 2).astype(dtype)
    into = DeviceArray(np.zeros((2, 4), dtype))
    binding = ours.io_binding()
    held = DeviceArray(x)
    binding.bind_input("x", "cuda", 0, number, x.shape, held.ptr)
    binding.bind_output("y", "cuda", 0, dtype, (2, 4), into.ptr)
    ours.run_with_iobinding(binding)
    np.testing.assert_array_equal(into.numpy(), x.T)


def test_bfloat16():
    """Which __cuda_array_interface__ cannot name."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    ours = ort.InferenceSession(
        parse("g (bfloat16[2, 4] x) => (bfloat16[4, 2] y) { y = Transpose(x) }"), providers=CUDA
    )
    x = np.arange(8).reshape(2, 4).astype(ml_dtypes.bfloat16)
    value = ort.OrtValue.ortvalue_from_numpy(x, "cuda")
    assert value.element_type() == TensorProto.BFLOAT16
    (y,) = ours.run_with_ort_values(None, {"x": value})
    np.testing.assert_array_equal(y.numpy(), x.T)


def test_extents_that_data_decide():
    model = parse("g (float[n] x) => (int64[1, m] y) { y = NonZero(x) }")
    ours = ort.InferenceSession(model, providers=CUDA)
    x = np.array([0, 1, 0, 2, 3, 0], np.float32)
    into = DeviceArray(np.zeros((1, 3), np.int64))
    binding = ours.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cuda", 0, np.int64, (1, 3), into.ptr)
    ours.run_with_iobinding(binding)
    np.testing.assert_array_equal(into.numpy(), [[1, 3, 4]])
    binding.bind_cpu_input("x", x[::-1] * 0)
    with pytest.raises(state.Fail, match=r"is of shape 1x0; memory for 1x3"):
        ours.run_with_iobinding(binding)


def test_values_that_decide_shapes_are_read_from_the_gpu():
    model = parse("g (float[a, b] x, int64[2] size) => (float[c, d] y) { y = Reshape(x, size) }")
    ours = ort.InferenceSession(model, providers=CUDA)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for size in ([2, 6], [12, 1]):
        values = [ort.OrtValue.ortvalue_from_numpy(array, "cuda") for array in (x, np.array(size))]
        (y,) = ours.run(None, dict(zip(("x", "size"), values)))
        np.testing.assert_array_equal(y, x.reshape(size))


def test_a_session_on_the_cpu_takes_values_of_the_gpu():
    ours = ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    fed = feed(3)
    z = DeviceArray(np.zeros((3, 8), np.float32))
    binding = ours.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(fed["x"], "cuda"))
    binding.bind_cpu_input("y", fed["y"])
    binding.bind_output("z", "cuda", 0, np.float32, (3, 8), z.ptr)
    ours.run_with_iobinding(binding)
    assert_close(z.numpy(), expected(fed)[0])


def test_wrong_memory_is_refused(session):
    fed = feed(3)
    binding = session.io_binding()
    for name, array in fed.items():
        binding.bind_cpu_input(name, array)
    small = DeviceArray(np.zeros(16, np.float32))
    binding.bind_output("z", "cuda", 0, np.float32, (2, 8), small.ptr)
    with pytest.raises(state.Fail, match=r"output 'z' is of shape 3x8; memory for 2x8"):
        session.run_with_iobinding(binding)
    binding.bind_output("z", "cuda", 0, np.float16, (3, 8), small.ptr)
    with pytest.raises(state.InvalidArgument, match="tensor.float.*memory for tensor.float16"):
        session.run_with_iobinding(binding)
    np.testing.assert_array_equal(small.numpy(), np.zeros(16))
    with pytest.raises(ValueError, match="element_type"):
        binding.bind_output("z", "cuda", 0, buffer_ptr=small.ptr)
    with pytest.raises(state.InvalidArgument, match="buffer_ptr is 0"):
        binding.bind_input("x", "cuda", 0, np.float32, (3, 8), 0)
    with pytest.raises(state.InvalidArgument, match="no memory is of that size"):
        binding.bind_input("x", "cuda", 0, np.float32, (3, -8), small.ptr)
    with pytest.raises(state.InvalidArgument, match="unsupported device type"):
        binding.bind_output("z", "npu")
    value = ort.OrtValue.ortvalue_from_numpy(fed["x"], "cuda")
    with pytest.raises(state.InvalidArgument, match="was given"):
        value.update_inplace(fed["x"][:2])
