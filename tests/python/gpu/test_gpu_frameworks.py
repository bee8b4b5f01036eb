"""Plugins in each framework, and engines that are called with the frameworks' arrays."""

from __future__ import annotations

import ctypes
import importlib
import sys
import textwrap

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from cuda_driver import Stream
from gpu_engines import Runner, build, new_id, one_plugin, op_of, strongly_typed

pytestmark = pytest.mark.usefixtures("on_gpu")

N = 5000
ADD = r"""
extern "C" __global__ void add_one(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}
"""


def plugin(function, name="plugin") -> str:
    """A plugin of one tensor and its copy, computed by the function."""
    plugin_id = new_id(name)
    trtp.register(plugin_id)(described)
    trtp.impl(plugin_id, device="cuda")(function)
    return plugin_id


def described(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


def engine_of(*names: str, dtype=trt.float32, shape=(N,), **options) -> trt.Engine:
    net = strongly_typed()
    tensor = net.add_input("x0", dtype, shape)
    for name in names:
        tensor = net.add_plugin(op_of(name)(tensor)).get_output(0)
    return build(net, tensor, **options)


def torch_plugin(torch):
    def add_one(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        assert torch.cuda.current_stream().cuda_stream == stream
        torch.as_tensor(outputs[0], device="cuda").copy_(torch.as_tensor(x, device="cuda") + 1)

    return plugin(add_one)


def torch_dlpack_plugin(torch):
    def add_one(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        torch.add(torch.from_dlpack(x), 1, out=torch.from_dlpack(outputs[0]))

    return plugin(add_one)


def cupy_plugin(cupy):
    kernel = cupy.RawKernel(ADD, "add_one")

    def add_one(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        assert cupy.cuda.get_current_stream().ptr == stream
        blocks = (-(-N // 256),)
        kernel(blocks, (256,), (cupy.asarray(x), cupy.asarray(outputs[0]), np.int32(N)))

    return plugin(add_one)


def cupy_arrays_plugin(cupy):
    def add_one(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        cupy.add(cupy.from_dlpack(x), 1, out=cupy.asarray(outputs[0]))

    return plugin(add_one)


TRITON = """
    import triton
    import triton.language as tl

    @triton.jit
    def add_one(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
"""


@pytest.fixture(scope="session")
def triton_kernel(triton, tmp_path_factory):
    folder = tmp_path_factory.mktemp("triton")
    (folder / "kernel_in_triton.py").write_text(textwrap.dedent(TRITON))
    sys.path.insert(0, str(folder))
    return importlib.import_module("kernel_in_triton").add_one


def triton_plugin(torch, kernel):
    def add_one(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        # No stream is named: Triton takes torch's current one, which is the engine's.
        x, y = torch.as_tensor(x, device="cuda"), torch.as_tensor(outputs[0], device="cuda")
        kernel[(-(-N // 1024),)](x, y, N, BLOCK=1024)

    return plugin(add_one)


def numba_plugin(cuda):
    @cuda.jit
    def kernel(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = x[i] + 1

    def add_one(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        arrays = cuda.as_cuda_array(x), cuda.as_cuda_array(outputs[0])
        kernel[-(-N // 256), 256, cuda.external_stream(stream)](*arrays)

    return plugin(add_one)


def cuda_python_plugin(driver, nvrtc):
    def checked(result):
        assert int(result[0]) == 0, result[0]
        return result[1] if len(result) == 2 else result[1:]

    functions = []

    def compile():
        device = checked(driver.cuCtxGetDevice())
        attributes = driver.CUdevice_attribute
        major, minor = (
            checked(driver.cuDeviceGetAttribute(attribute, device))
            for attribute in (
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        program = checked(nvrtc.nvrtcCreateProgram(ADD.encode(), b"add.cu", 0, [], []))
        options = [f"--gpu-architecture=sm_{major}{minor}".encode()]
        checked(nvrtc.nvrtcCompileProgram(program, 1, options))
        cubin = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
        checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return checked(
            driver.cuModuleGetFunction(checked(driver.cuModuleLoadData(cubin)), b"add_one")
        )

    def add_one(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        if not functions:
            functions.append(compile())
        values = (x.data_ptr, outputs[0].data_ptr, N)
        types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
        grid = -(-N // 256), 1, 1
        checked(
            driver.cuLaunchKernel(functions[0], *grid, 256, 1, 1, 0, stream, (values, types), 0)
        )

    return plugin(add_one)


@pytest.fixture
def torch_made(torch):
    return torch_plugin(torch)


@pytest.fixture
def torch_dlpack_made(torch):
    return torch_dlpack_plugin(torch)


@pytest.fixture
def cupy_made(cupy):
    return cupy_plugin(cupy)


@pytest.fixture
def cupy_arrays_made(cupy):
    return cupy_arrays_plugin(cupy)


@pytest.fixture
def triton_made(torch, triton_kernel):
    return triton_plugin(torch, triton_kernel)


@pytest.fixture
def numba_made(numba_cuda):
    return numba_plugin(numba_cuda)


@pytest.fixture
def cuda_python_made(cuda_python):
    return cuda_python_plugin(*cuda_python)


FRAMEWORKS = ["torch", "torch_dlpack", "cupy", "cupy_arrays", "triton", "numba", "cuda_python"]


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_plugin_in(framework, request, gpu, stream, rng):
    engine = engine_of(request.getfixturevalue(f"{framework}_made"))
    x = rng.random(N, np.float32)
    np.testing.assert_array_equal(engine(x), x + 1)
    runner = Runner(engine, x)
    for own in (stream, None):
        for _ in range(6):
            x = rng.random(N, np.float32)
            runner.inputs[0].write(x)
            np.testing.assert_array_equal(runner.run(own)[0], x + 1)


@pytest.mark.frameworks
def test_frameworks_in_one_engine_share_its_stream(request, gpu, stream, rng):
    names = [request.getfixturevalue(f"{framework}_made") for framework in FRAMEWORKS]
    engine = engine_of(*names * 3)
    x = rng.random(N, np.float32)
    runner = Runner(engine, x)
    for _ in range(10):
        runner.enqueue(stream)
    stream.synchronize()
    expected = x
    for _ in range(3 * len(names)):
        expected = expected + np.float32(1)
    np.testing.assert_array_equal(runner.outputs[0].numpy(wait=False), expected)


def test_the_streams_of_the_user_are_current_again(torch, cupy, gpu, rng):
    side, other = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    engine = engine_of(torch_plugin(torch), cupy_plugin(cupy))
    x = rng.random(N, np.float32)
    with torch.cuda.stream(side), other:
        engine(x)
        Runner(engine, x).run(Stream())
        assert torch.cuda.current_stream() == side
        assert cupy.cuda.get_current_stream().ptr == other.ptr


def test_a_callback_that_raises_leaves_the_streams_alone(torch, rng):
    def fails(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        raise KeyError("from the plugin")

    engine = engine_of(plugin(fails), timing=False)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        with pytest.raises(KeyError, match="from the plugin"):
            engine(rng.random(N, np.float32))
        assert torch.cuda.current_stream() == side


def test_torch_tensors_go_in_and_out(torch):
    engine = engine_of(torch_plugin(torch))
    x = torch.rand(N, device="cuda")
    y = engine(x)
    assert isinstance(y, torch.Tensor) and y.is_cuda and y.data_ptr() != x.data_ptr()
    assert torch.equal(y, x + 1)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # all in the order of this stream, without waiting
        total = x
        for _ in range(50):
            total = engine(total)
        expected = x
        for _ in range(50):
            expected = expected + 1
        assert torch.equal(total, expected)
    cpu = torch.rand(N)
    out = engine(cpu)
    assert out.device.type == "cpu" and torch.equal(out, cpu + 1)


def test_torch_tensors_that_are_not_dense(torch):
    engine = engine_of(torch_plugin(torch), shape=(50, 100))
    x = torch.rand(100, 50, device="cuda").t()
    assert torch.equal(engine(x), x + 1)


def test_half_precision_from_torch(torch):
    for dtype, kind in ((torch.float16, trt.float16), (torch.bfloat16, trt.bfloat16)):

        def add_one(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
            torch.add(torch.from_dlpack(x), 1, out=torch.from_dlpack(outputs[0]))

        engine = engine_of(plugin(add_one), dtype=kind)
        x = torch.rand(N, device="cuda", dtype=dtype)
        y = engine(x)
        assert y.dtype == dtype and torch.equal(y, x + 1)


def test_cupy_arrays_go_in_and_out(cupy):
    engine = engine_of(cupy_plugin(cupy))
    x = cupy.random.random(N, dtype=cupy.float32)
    y = engine(x)
    assert isinstance(y, cupy.ndarray)
    cupy.testing.assert_array_equal(y, x + 1)
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(20):
            x = engine(x)
        cupy.testing.assert_array_equal(x, engine(x) - 1)


def test_torch_s_allocator_beside_ours(torch, rng):
    engine = engine_of(torch_plugin(torch), shape=(1 << 22,))
    for round in range(20):
        held = [torch.empty(1 << (10 + (round + i) % 14), device="cuda") for i in range(10)]
        x = torch.rand(1 << 22, device="cuda")
        y = engine(x)
        del held
        junk = torch.full((1 << 22,), -1.0, device="cuda")
        assert torch.equal(y, x + 1) and junk.min() == -1
    torch.cuda.empty_cache()
    assert torch.equal(engine(x), x + 1)


def test_data_dependent_shapes_in_torch(torch, rng):
    name = new_id("non_zero")

    @trtp.register(name)
    def desc(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        bound = x.shape_expr.numel()
        size = trtp.size_tensor(bound // 2, bound)
        return trtp.from_shape_expr((size.expr(), 2), dtype=trt.int32), size

    @trtp.impl(name, device="cuda")
    def impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor, trtp.Tensor], stream: int) -> None:
        found = torch.nonzero(torch.from_dlpack(x))
        torch.from_dlpack(outputs[0])[: len(found)] = found
        torch.from_dlpack(outputs[1]).fill_(len(found))

    x = (rng.random((60, 70)) > 0.5).astype(np.float32)
    net, layer = one_plugin(name, x)
    engine = build(net, layer.get_output(0), layer.get_output(1))
    for values in (x, x * 0, 1 - x):
        outputs = engine(values)
        np.testing.assert_array_equal(outputs["y0"], np.argwhere(values))
        assert outputs["y1"] == np.count_nonzero(values)


def test_an_output_in_place_of_an_input(torch, rng):
    name = new_id("add_")

    @trtp.register(name)
    def desc(x: trtp.TensorDesc, delta: float) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.impl(name, device="cuda")
    def impl(x: trtp.Tensor, delta: float, outputs: tuple[trtp.Tensor], stream: int) -> None:
        assert outputs[0].data_ptr == x.data_ptr
        torch.from_dlpack(outputs[0]).add_(delta)

    x = rng.random(N, np.float32)
    net, first = one_plugin(name, x, delta=1.0)
    second = net.add_plugin(op_of(name)(first.get_output(0), delta=2.0))
    engine = build(net, second.get_output(0))
    given = torch.from_numpy(x).cuda()
    assert torch.equal(engine(given), torch.from_numpy(x).cuda() + 1 + 2)
    assert torch.equal(given.cpu(), torch.from_numpy(x)), "the caller's tensor stays"


def test_channels_last(torch, rng):
    """A plugin that wants its tensors with channels last gets them so, by a reformat on the GPU."""
    name = new_id("hwc")
    strides = []

    @trtp.register(name)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune(name)
    def autotune(
        x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc]
    ) -> list[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination("FP16, FP16", "HWC, HWC")]

    @trtp.impl(name, device="cuda")
    def impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        strides.append((x.format, x.strides))
        torch.add(torch.from_dlpack(x), 1, out=torch.from_dlpack(outputs[0]))

    x = rng.random((2, 8, 6, 5), np.float32)
    net, layer = one_plugin(name, x, flags=0)
    engine = build(net, layer.get_output(0), fp16=True)
    np.testing.assert_allclose(engine(x), x + 1, rtol=2e-3)
    assert strides[-1] == (trt.TensorFormat.HWC, (240, 1, 40, 8))


def test_numpy_cannot_read_a_tensor_of_the_gpu(rng):
    def wrong(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        np.asarray(x)

    engine = engine_of(plugin(wrong), timing=False)
    with pytest.raises(trt.Error, match="GPU"):
        engine(rng.random(N, np.float32))


def test_tensors_tell_where_they_are(rng):
    seen = []

    def look(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        seen.append((x.__cuda_array_interface__, x.__dlpack_device__()))

    engine_of(plugin(look), timing=False)(rng.random(N, np.float32))
    interface, device = seen[-1]
    assert (
        interface["version"] == 3 and interface["shape"] == (N,) and interface["typestr"] == "<f4"
    )
    assert interface.get("stream") is None
    assert tuple(map(int, device)) == (2, 0)  # kDLCUDA


class AddOne(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """x + 1 in CuPy, on the stream that enqueue is given."""

    def __init__(self, cupy, half=False):
        for base in AddOne.__bases__:
            base.__init__(self)
        self.cupy, self.half = cupy, half
        self.plugin_name, self.plugin_version, self.plugin_namespace = "AddOneInCuPy", "1", ""
        self.num_outputs = 1

    def get_capability_interface(self, type):
        return self

    def clone(self):
        return AddOne(self.cupy, self.half)

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        return [inputs[0]]

    def supports_format_combination(self, pos, in_out, num_inputs):
        wanted = trt.float16 if self.half else trt.float32
        return (
            in_out[pos].desc.format == trt.TensorFormat.LINEAR and in_out[pos].desc.type == wanted
        )

    def configure_plugin(self, inputs, outputs):
        pass

    def on_shape_change(self, inputs, outputs):
        pass

    def set_tactic(self, tactic):
        pass

    def attach_to_context(self, context):
        return self.clone()

    def get_workspace_size(self, inputs, outputs):
        return 4096

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        cp = self.cupy
        dtype = np.float16 if self.half else np.float32
        size = int(np.prod(input_desc[0].dims)) * np.dtype(dtype).itemsize
        arrays = [
            cp.ndarray(
                tuple(input_desc[0].dims),
                dtype,
                cp.cuda.MemoryPointer(cp.cuda.UnownedMemory(address, size, self), 0),
            )
            for address in (inputs[0], outputs[0])
        ]
        assert workspace != 0
        with cp.cuda.ExternalStream(stream):
            cp.add(arrays[0], dtype(1), out=arrays[1])

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([])


class AddOneCreator(trt.IPluginCreatorV3One):
    def __init__(self, cupy, half):
        trt.IPluginCreatorV3One.__init__(self)
        self.cupy, self.half = cupy, half
        self.name, self.plugin_version, self.plugin_namespace = "AddOneInCuPy", "1", ""
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name, fc, phase):
        return AddOne(self.cupy, self.half)


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
def test_a_class_of_v3(cupy, gpu, stream, rng, half):
    registry, creator = trt.get_plugin_registry(), AddOneCreator(cupy, half)
    assert registry.register_creator(creator, "")
    try:
        net = strongly_typed() if not half else trt.Builder(trt.Logger()).create_network(0)
        x = net.add_input("x0", trt.float32, (N,))
        layer = net.add_plugin_v3([x], [], AddOne(cupy, half))
        engine = build(net, layer.get_output(0), fp16=half)
        values = rng.random(N, np.float32)
        np.testing.assert_allclose(
            Runner(engine, values).run(stream)[0], values + 1, rtol=2e-3 if half else 0
        )
    finally:
        registry.deregister_creator(creator)
