"""Engines on a GPU from Python: streams, addresses, arrays in and out, what plugins' functions get. The GPU is an
emulated one, on which nothing is done before somebody waits, and whose memory the host cannot read."""

from __future__ import annotations

import ctypes
import threading
from typing import Tuple

import numpy as np
import pytest

import emulated_gpu
import opwright as trt
import opwright.plugin as trtp
from cuda_driver import DeviceArray, Stream, driver, read_interface
from emulated_gpu import run_program
from plugin_testing import build, network, new_id, op_of

pytestmark = emulated_gpu.emulated_only

X = np.arange(24, dtype=np.float32).reshape(4, 6) - 5


def copy_on(stream: int, to: int, source: int, num_bytes: int) -> None:
    """Gives the stream a copy within the GPU's memory."""
    size, queue = ctypes.c_size_t(num_bytes), ctypes.c_void_p(stream)
    driver().call_here(
        "cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), size, queue
    )


def write_on(stream: int, to: int, values: np.ndarray) -> None:
    """Gives the stream a copy to the GPU's memory. The values must stay until it is done."""
    size, data = ctypes.c_size_t(values.nbytes), ctypes.c_void_p(values.ctypes.data)
    driver().call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(to), data, size, ctypes.c_void_p(stream))


def bytes_of(tensor: trtp.Tensor) -> int:
    return tensor.numel() * tensor.dtype.itemsize


def identity(body=None) -> str:
    """A plugin that copies its input on the stream that it gets; `body` is called with what the function gets."""
    plugin_id = new_id("identity")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        copy_on(stream, outputs[0].data_ptr, x.data_ptr, bytes_of(x))
        if body is not None:
            body(x, outputs[0], stream)

    return plugin_id


def engine_of(plugin_id: str, *shapes, dtype=trt.float32, device="cuda", **options) -> trt.Engine:
    net = network()
    inputs = [net.add_input(f"x{i}", dtype, shape) for i, shape in enumerate(shapes or [X.shape])]
    layer = net.add_plugin(op_of(plugin_id)(*inputs))
    outputs = [layer.get_output(i) for i in range(layer.num_outputs)]
    return build(net, *outputs, device=device, **{"timing": False, **options})


def test_a_format_that_a_gpu_has_no_conversion_to_is_not_chosen():
    """As NVIDIA's qdp_runner.py inplace_add lists formats: the first combination wants HWC."""
    formats = []
    plugin_id = identity(lambda x, y, stream: formats.append(x.format))

    @trtp.autotune(plugin_id)
    def tune(x, outputs):
        return [trtp.AutoTuneCombination("FP32, FP32", layouts) for layouts in ("HWC", "LINEAR")]

    x = np.arange(2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4)
    engine = engine_of(plugin_id, x.shape, timing=True)
    formats.clear()
    np.testing.assert_array_equal(engine(x), x)
    assert set(formats) == {trt.TensorFormat.LINEAR}


# Execution contexts.


def context_of(engine: trt.Engine, x: DeviceArray, y: DeviceArray) -> trt.IExecutionContext:
    context = engine.engine.create_execution_context()
    context.set_tensor_address("x0", x.ptr)
    context.set_tensor_address("y0", y.ptr)
    return context


def test_a_stream_reaches_the_plugin_and_is_not_waited_for():
    streams = []
    engine = engine_of(identity(lambda x, y, stream: streams.append(stream)))
    x, y = DeviceArray(X), DeviceArray(np.zeros_like(X))
    context = context_of(engine, x, y)
    streams.clear()
    stream = Stream().handle
    assert context.execute_async_v3(stream)
    assert streams == [stream]
    assert not driver().is_done(stream), "the call has waited for its work"
    np.testing.assert_array_equal(y.numpy(), X)


class HasInt:
    """As cuda-python's streams and addresses."""

    def __init__(self, value: int):
        self.value = value

    def __int__(self) -> int:
        return self.value


def test_handles_that_are_no_ints():
    streams = []
    engine = engine_of(identity(lambda x, y, stream: streams.append(stream)))
    x, y = DeviceArray(X), DeviceArray(np.zeros_like(X))
    context = engine.engine.create_execution_context()
    stream = Stream().handle
    context.set_tensor_address("x0", HasInt(x.ptr))
    context.set_tensor_address("y0", np.uint64(y.ptr))
    assert context.execute_async_v3(stream_handle=HasInt(stream))
    assert context.execute_v2([HasInt(x.ptr), y.ptr])
    assert streams == [stream, 0]
    np.testing.assert_array_equal(y.numpy(), X)
    for wrong in (1.5, "1", None, object()):
        with pytest.raises(TypeError):
            context.execute_async_v3(wrong)


def test_execute_v2_waits():
    engine = engine_of(identity())
    x, y = DeviceArray(X), DeviceArray(np.zeros_like(X))
    context = engine.engine.create_execution_context()
    assert context.execute_v2([x.ptr, y.ptr])
    assert driver().is_done(0)
    np.testing.assert_array_equal(y.numpy(), X)


def test_addresses_of_the_host_are_refused():
    engine = engine_of(identity())
    y = DeviceArray(np.zeros_like(X))
    context = engine.engine.create_execution_context()
    context.set_tensor_address("y0", y.ptr)
    with pytest.raises(trt.Error, match="x0"):
        context.set_tensor_address("x0", X.ctypes.data)
        context.execute_async_v3(0)


def test_an_output_allocator_hears_of_the_stream():
    engine = engine_of(identity())
    x, y = DeviceArray(X), DeviceArray(np.zeros_like(X))
    calls = []

    class Allocator(trt.IOutputAllocator):
        def reallocate_output_async(self, tensor_name, memory, size, alignment, stream):
            calls.append((tensor_name, size, stream))
            return y.ptr

        def notify_shape(self, tensor_name, shape):
            calls.append((tensor_name, tuple(shape)))

    context = engine.engine.create_execution_context()
    context.set_tensor_address("x0", x.ptr)
    allocator = Allocator()
    context.set_output_allocator("y0", allocator)
    stream = Stream().handle
    assert context.execute_async_v3(stream)
    assert ("y0", X.nbytes, stream) in calls and ("y0", X.shape) in calls
    np.testing.assert_array_equal(y.numpy(), X)


def test_what_a_plugin_raises_arrives_and_the_context_goes_on():
    class Complaint(Exception):
        pass

    failing = []

    def body(x, y, stream):
        if failing:
            raise Complaint("no")

    engine = engine_of(identity(body))
    x, y = DeviceArray(X), DeviceArray(np.zeros_like(X))
    context = context_of(engine, x, y)
    failing.append(True)
    with pytest.raises(Complaint, match="no"):
        context.execute_async_v3(0)
    failing.clear()
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(y.numpy(), X)


def test_threads_with_contexts_of_their_own():
    engine = engine_of(identity())
    results = {}

    def work(number: int) -> None:
        values = X + number
        x, y = DeviceArray(values), DeviceArray(np.zeros_like(X))
        context = context_of(engine, x, y)
        stream = Stream().handle
        for _ in range(5):
            context.execute_async_v3(stream)
        results[number] = np.array_equal(y.numpy(), values)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: True for n in range(4)}


class IdentityV3(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
):
    """identity() as a class."""

    plugin_name, plugin_version, plugin_namespace, num_outputs = "GpuIdentity", "1", "", 1
    seen: list = []

    def get_capability_interface(self, type):
        return self

    def clone(self):
        return self.__class__()

    def get_output_data_types(self, input_types):
        return input_types

    def get_output_shapes(self, inputs, shape_inputs, exprBuilder):
        return inputs

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.type == trt.float32 and desc.format == trt.TensorFormat.LINEAR

    def configure_plugin(self, inp, out):
        pass

    def on_shape_change(self, inp, out):
        pass

    def attach_to_context(self, context):
        return self.clone()

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([])

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        copy_on(stream, outputs[0], inputs[0], trt.volume(input_desc[0].dims) * 4)
        tensor = trtp.Tensor(input_desc[0], inputs[0])
        self.seen.append((stream, tensor.__cuda_array_interface__["data"][0] == inputs[0]))


class IdentityV3Creator(trt.IPluginCreatorV3One):
    name, plugin_version, plugin_namespace = "GpuIdentity", "1", ""
    field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name, fields, phase):
        return IdentityV3()


def test_the_enqueue_of_a_class(creators_end):
    trt.get_plugin_registry().register_creator(IdentityV3Creator(), "")
    net = network()
    layer = net.add_plugin_v3([net.add_input("x0", trt.float32, X.shape)], [], IdentityV3())
    engine = build(net, layer.get_output(0), device="cuda", timing=False)
    x, y = DeviceArray(X), DeviceArray(np.zeros_like(X))
    stream = Stream().handle
    IdentityV3.seen.clear()
    context_of(engine, x, y).execute_async_v3(stream)
    assert IdentityV3.seen == [(stream, True)]
    np.testing.assert_array_equal(y.numpy(), X)


# Calls of engines.


def test_arrays_of_the_host_come_back_as_they_went():
    engine = engine_of(identity())
    y = engine(X)
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(engine(X.tolist()), X)
    np.testing.assert_array_equal(engine(x0=X.T.copy().T), X)
    torch = pytest.importorskip("torch")
    y = engine(torch.from_numpy(X))
    assert isinstance(y, torch.Tensor) and not y.is_cuda
    np.testing.assert_array_equal(y.numpy(), X)


def test_arrays_in_gpu_memory():
    engine = engine_of(identity())
    y = engine(DeviceArray(X))
    assert isinstance(y, trt.DeviceArray)
    assert (y.shape, y.dtype) == (X.shape, np.float32)
    assert y.data_ptr == y.__cuda_array_interface__["data"][0]
    assert driver().is_done(0), "for arrays of unknown libraries a call waits"
    np.testing.assert_array_equal(y.numpy(), X)
    np.testing.assert_array_equal(read_interface(engine(y)), X)
    assert repr(y) == "<DeviceArray FP32 4x6 on GPU 0>"


def test_an_array_that_is_being_written_is_waited_for():
    engine = engine_of(identity())
    stream = Stream().handle
    x = DeviceArray(np.zeros_like(X), stream=stream)
    write_on(stream, x.ptr, X)
    np.testing.assert_array_equal(engine(x).numpy(), X)


def test_arrays_of_host_and_gpu_together():
    plugin_id = new_id("second")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, y: trtp.TensorDesc) -> trtp.TensorDesc:
        return y.like()

    @trtp.impl(plugin_id)
    def run(x, y, outputs, stream):
        copy_on(stream, outputs[0].data_ptr, y.data_ptr, bytes_of(y))

    engine = engine_of(plugin_id, X.shape, X.shape)
    y = engine(DeviceArray(X), X + 1)
    assert isinstance(y, trt.DeviceArray)
    np.testing.assert_array_equal(y.numpy(), X + 1)
    np.testing.assert_array_equal(engine(X, DeviceArray(X + 2)).numpy(), X + 2)


def test_arrays_that_do_not_fit_are_named():
    engine = engine_of(identity())
    with pytest.raises(trt.Error, match="input 'x0' is FLOAT; int32|input 'x0' is FP32; int32"):
        engine(DeviceArray(X.astype(np.int32)))

    class Strided(DeviceArray):
        @property
        def __cuda_array_interface__(self):
            return {**super().__cuda_array_interface__, "strides": (4, 16)}

    with pytest.raises(trt.Error, match="'x0' is not contiguous"):
        engine(Strided(X))
    with pytest.raises(trt.Error, match="x0.*shape|shape.*x0"):
        engine(DeviceArray(X[:2]))
    np.testing.assert_array_equal(engine(X), X)


def test_an_engine_on_the_cpu_names_the_way_out():
    plugin_id = new_id("host_identity")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.asarray(outputs[0])[...] = x

    engine = engine_of(plugin_id, device="cpu")
    with pytest.raises(trt.Error, match=r"'x0'.*runs on the CPU.*device=\"cuda\""):
        engine(DeviceArray(X))
    np.testing.assert_array_equal(engine(X), X)


def test_what_is_updated_in_place_leaves_the_callers_array():
    plugin_id = new_id("overwrite")
    ones = np.ones_like(X)

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        assert outputs[0].data_ptr == x.data_ptr
        write_on(stream, outputs[0].data_ptr, ones[:1])

    engine = engine_of(plugin_id)
    expected = np.concatenate([ones[:1], X[1:]])
    x = DeviceArray(X)
    np.testing.assert_array_equal(engine(x).numpy(), expected)
    np.testing.assert_array_equal(x.numpy(), X)
    given = X.copy()
    np.testing.assert_array_equal(engine(given), expected)
    np.testing.assert_array_equal(given, X)


def test_arguments_that_a_call_updates():
    """As torch.compile calls engines: a cache stays where it is, wherever the caller has it."""
    net = network()
    cache = net.add_input("cache", trt.float32, (5, 3))
    places = net.add_input("places", trt.int64, (2, 1))
    x = net.add_input("x", trt.float32, (2, 3))
    parameters = {"mode": trt.ScatterMode.ND.value, "axis": 0, "reduction": 0, "in_place": True}
    layer = net._add_operator("Scatter", parameters, [cache, places, x])
    read = net.add_unary(layer.get_output(0), trt.UnaryOperation.NEG)
    engine = build(net, layer.get_output(0), read.get_output(0), device="cuda", timing=False)
    assert engine.engine.get_aliased_input_tensor("y0") == "cache"
    engine._set_updates_arguments(True)
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    caches = [DeviceArray(np.full((5, 3), value, np.float32)) for value in (1, 2)]
    expected = [each.numpy() for each in caches]
    for turn, written in enumerate(([0, 4], [1, 2], [3, 0], [2, 4])):
        which = turn % 2  # their addresses differ
        given = DeviceArray(np.array(written)[:, None])
        made = engine(cache=caches[which], places=given, x=DeviceArray(rows + turn))
        expected[which][written] = rows + turn
        assert made["y0"] is caches[which]
        np.testing.assert_array_equal(made["y1"].numpy(), -expected[which])
        for array, values in zip(caches, expected):
            np.testing.assert_array_equal(array.numpy(), values)
    # What lies on the host is copied, as ever.
    given = expected[0].copy()
    made = engine(cache=given, places=np.array([[0], [4]]), x=rows - 9)
    np.testing.assert_array_equal(given, expected[0])
    expected[0][[0, 4]] = rows - 9
    np.testing.assert_array_equal(made["y0"], expected[0])


def test_outputs_whose_size_depends_on_data():
    plugin_id = new_id("first_three")
    size_of_three = np.array(3, np.int32)

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        size = trtp.size_tensor(x.shape_expr[0] // 2, x.shape_expr[0])
        out = x.like()
        out.shape_expr[0] = size.expr()
        return out, size

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        copy_on(stream, outputs[0].data_ptr, x.data_ptr, 3 * x.shape[1] * 4)
        write_on(stream, outputs[1].data_ptr, size_of_three)

    engine = engine_of(plugin_id)
    for x in (X, DeviceArray(X)):
        y = engine(x)["y0"]
        assert y.shape == (3, 6)
        np.testing.assert_array_equal(y if x is X else y.numpy(), X[:3])


def test_calls_on_other_threads():
    engine = engine_of(identity())
    results = []

    def work(number: int) -> None:
        for _ in range(5):
            results.append(np.array_equal(engine(X + number), X + number))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 20


# What functions of plugins get.


def test_a_tensor_shows_gpu_memory():
    seen = {}

    def body(x, y, stream):
        seen["interface"] = x.__cuda_array_interface__
        seen["address"] = x.data_ptr
        seen["device"] = x.__dlpack_device__()
        seen["capsule"] = repr(y.__dlpack__(stream=stream or 1))
        seen["repr"] = repr(x)
        seen["view"] = x.aliased((24,)).__cuda_array_interface__["shape"]
        seen["host"] = hasattr(x, "__array_interface__")

    engine = engine_of(identity(body))
    np.testing.assert_array_equal(engine(X), X)
    interface = seen["interface"]
    assert interface["shape"] == X.shape and interface["typestr"] == "<f4"
    assert interface["strides"] is None and interface["stream"] is None
    assert interface["version"] == 3 and interface["data"] == (seen["address"], False)
    assert seen["device"] == (2, 0)
    assert "dltensor" in seen["capsule"]
    assert "GPU 0" in seen["repr"]
    assert seen["view"] == (24,) and not seen["host"]


def test_dlpack_lets_another_stream_wait():
    other = Stream().handle
    kept = DeviceArray(np.zeros_like(X))

    def body(x, y, stream):
        capsule = y.__dlpack__(stream=other)  # of what was just given to the engine's stream
        copy_on(other, kept.ptr, y.data_ptr, bytes_of(y))
        driver().call("cuStreamSynchronize", ctypes.c_void_p(other))
        del capsule

    engine = engine_of(identity(body))
    x, y = DeviceArray(X), DeviceArray(np.zeros_like(X))
    context_of(engine, x, y).execute_async_v3(Stream().handle)
    np.testing.assert_array_equal(kept.numpy(), X)


@pytest.mark.parametrize("read", [np.asarray, lambda t: np.add(t, 1), lambda t: np.array(t)])
def test_numpy_is_told_that_it_is_gpu_memory(read):
    reading = []

    def body(x, y, stream):
        if reading:
            read(x)

    engine = engine_of(identity(body))
    reading.append(True)
    with pytest.raises(trt.Error, match=r"GPU memory: torch.as_tensor\(t\) or cupy.asarray\(t\)"):
        engine(X)
    reading.clear()
    np.testing.assert_array_equal(engine(X), X)


def test_other_views_of_the_host_are_refused():
    errors = {}

    def body(x, y, stream):
        for name, read in {
            "memoryview": memoryview,
            "interface": lambda t: t.__array_interface__,
            "dlpack": np.from_dlpack,
        }.items():
            try:
                read(x)
            except Exception as error:
                errors[name] = f"{type(error).__name__}: {error}"

    engine_of(identity(body))(X)
    assert "BufferError" in errors["memoryview"] and "GPU memory" in errors["memoryview"]
    assert "AttributeError" in errors["interface"] and "GPU memory" in errors["interface"]
    assert "dlpack" in errors


def test_a_tensor_ends_with_its_call():
    kept = []
    engine = engine_of(identity(lambda x, y, stream: kept.append(x)))
    np.testing.assert_array_equal(engine(X), X)
    with pytest.raises(trt.Error, match="used after its call"):
        assert kept[-1].__cuda_array_interface__
    with pytest.raises(trt.Error, match="used after its call"):
        assert kept[-1].data_ptr


def test_a_view_that_stays_is_an_error():
    kept = []
    keeping = []

    class View:
        def __init__(self, tensor):
            self.owner, self.address = tensor, tensor.__cuda_array_interface__["data"][0]

    def body(x, y, stream):
        view = View(y)
        if keeping:
            kept.append(view)

    engine = engine_of(identity(body))
    keeping.append(True)
    with pytest.raises(trt.Error, match="view of output 0"):
        engine(X)
    keeping.clear()
    np.testing.assert_array_equal(engine(X), X)


# Devices.


def test_devices_by_name():
    assert engine_of(identity(), device=trt.DeviceType.GPU)(X).shape == X.shape
    assert engine_of(identity(), device="cuda:0")(X).shape == X.shape
    with pytest.raises(ValueError, match="device is 'tpu'; expected cpu, cuda or cuda:1"):
        engine_of(identity(), device="tpu")
    with pytest.raises(trt.Error, match="7"):
        engine_of(identity(), device="cuda:7")


class Warnings(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
        self.text = ""

    def log(self, severity, message):
        self.text += message


def test_a_function_for_the_cpu_where_nobody_chose_the_gpu(monkeypatch):
    plugin_id = new_id("numpy_increment")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.asarray(outputs[0])[...] = np.asarray(x) + 1

    monkeypatch.delenv("OPWRIGHT_DEVICE")
    logger = Warnings()
    engine = engine_of(plugin_id, device=None, timing=True, logger=logger)
    np.testing.assert_array_equal(engine(X), X + 1)
    assert "built for the CPU" in logger.text and "GPU memory" in logger.text
    with pytest.raises(trt.Error, match="GPU memory"):
        engine_of(plugin_id, device="cuda", timing=True)


def test_kernels_are_timed_on_the_gpu():
    np.testing.assert_array_equal(engine_of(identity(), timing=True)(X), X)


def test_engines_are_loaded_on_the_device_that_they_were_built_for(tmp_path):
    path = tmp_path / "gpu.engine"
    engine_of(identity()).save(path)
    np.testing.assert_array_equal(trt.load(path)(X), X)
    np.testing.assert_array_equal(trt.load(path, device="cuda:0")(X), X)
    with pytest.raises(trt.Error, match="built for cuda, not for cpu"):
        trt.load(path, device="cpu")


TWO_DEVICES = """
import numpy as np, opwright as trt
import test_gpu_python as t
from cuda_driver import DeviceArray, Stream, driver
streams = []
engine = t.engine_of(t.identity(lambda x, y, s: streams.append(x.__dlpack_device__())), device="cuda:1")
np.testing.assert_array_equal(engine(t.X), t.X)
assert streams[-1] == (2, 1), streams

class Dlpack(DeviceArray):
    __cuda_array_interface__ = None
    def __dlpack_device__(self): return (2, self.device)
try:
    engine(Dlpack(t.X, device=0))
except trt.Error as error:
    assert "input 'x0' lies on GPU 0, the engine runs on GPU 1" in str(error), error
else:
    raise AssertionError
print("done")
"""


def test_one_of_two_gpus():
    done = run_program(TWO_DEVICES, OPWRIGHT_EMULATED_DEVICES="2")
    assert done.stdout.endswith("done\n"), done.stderr


def test_the_folders_of_nvidias_packages(tmp_path, monkeypatch):
    from opwright import _devices

    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OPWRIGHT_CUDA_PATH", "/mine")
    for _ in range(2):
        _devices.publish_library_folders()
        import os

        folders = os.environ["OPWRIGHT_CUDA_PATH"].split(":")
        assert folders[0] == "/mine" and folders.count(str(folder)) == 1
