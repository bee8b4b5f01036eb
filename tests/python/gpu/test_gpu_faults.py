"""What goes wrong on a GPU is said with the layer's and the plugin's name, and how to mend it.

What makes the device fail is in a process of its own, since its context is lost with it.
"""

from __future__ import annotations

import subprocess
import textwrap

import numpy as np
import pytest

import opwright as trt
from cuda_driver import DeviceArray, Stream
from emulated_gpu import run_program
from gpu_engines import Runner, build, network, one_plugin, strongly_typed

pytestmark = pytest.mark.usefixtures("on_gpu")


def script(text: str, **environment: str) -> subprocess.CompletedProcess:
    return run_program(textwrap.dedent(text), **{"OPWRIGHT_DEVICE": "cuda", **environment})


ILLEGAL = """
    import numpy as np
    from gpu_engines import build, new_id, one_plugin
    import opwright as trt
    import opwright.plugin as trtp

    @trtp.kernel(
        "faulty::writes_anywhere",
        '''__device__ void writes_anywhere(const float* x, int64_t n, float* y) {
             *reinterpret_cast<float*>(n) = *x;
           }''',
        block=32,
        extra=lambda x: [64],
    )
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    x = np.ones(100, np.float32)
    net, layer = one_plugin("faulty::writes_anywhere", x)
    layer.name = "the culprit"
    engine = build(net, layer.get_output(0), timing=False)
    try:
        engine(x)
        print("NO ERROR")
    except trt.Error as error:
        print("FIRST", error)
    try:
        engine(x)
        print("NO ERROR")
    except trt.Error as error:
        print("SECOND", error)
    cpu = trt.Builder(trt.Logger()).create_network()
    a = cpu.add_input("a", trt.float32, (3,))
    cpu.mark_output(cpu.add_unary(a, trt.UnaryOperation.NEG).get_output(0))
    print("CPU", trt.build(cpu, device=trt.DeviceType.CPU)(np.float32([1, 2, 3])).tolist())
"""


@pytest.mark.faulty
def test_an_illegal_address_names_the_plugin():
    done = script(ILLEGAL)
    assert done.returncode == 0, done.stdout + done.stderr
    first = next(line for line in done.stdout.splitlines() if line.startswith("FIRST"))
    assert "writes_anywhere" in done.stdout and "NO ERROR" not in done.stdout
    assert "illegal" in first.lower()
    assert "SECOND" in done.stdout and "context" in done.stdout.lower()
    assert "CPU [-1.0, -2.0, -3.0]" in done.stdout, "the process goes on"


def negation(shape=(1000,)):
    net = network()
    x = net.add_input("x0", trt.float32, shape)
    return build(net, net.add_unary(x, trt.UnaryOperation.NEG).get_output(0))


def error_of(context, stream=0) -> str:
    """What a run that must fail says."""
    try:
        assert not context.execute_async_v3(stream), "it ran"
    except trt.Error as error:
        return str(error)
    raise AssertionError("it failed without a message")


@pytest.mark.parametrize("name", ["x0", "y0"])
def test_a_host_address(gpu, rng, name):
    runner = Runner(negation(), rng.random(1000, np.float32))
    host = np.zeros(1000, np.float32)
    try:
        assert runner.context.set_tensor_address(name, host.ctypes.data)
        message = error_of(runner.context)
    except trt.Error as error:
        message = str(error)
    assert name in message and "host" in message
    buffer = (runner.inputs if name == "x0" else runner.outputs)[0]
    assert runner.context.set_tensor_address(name, buffer.ptr)
    runner.run()


def test_memory_that_is_too_small(gpu, rng):
    runner = Runner(negation((1 << 22,)), rng.random(1 << 22, np.float32))
    small = DeviceArray(np.zeros(16, np.float32))
    try:
        assert runner.context.set_tensor_address("y0", small.ptr)
        message = error_of(runner.context)
    except trt.Error as error:
        message = str(error)
    assert "y0" in message


DESTROYED = """
    import numpy as np
    from cuda_driver import Stream, driver
    from gpu_engines import Runner, build, network
    import opwright as trt
    driver().make_current()
    net = network()
    x = net.add_input("x0", trt.float32, (1000,))
    engine = build(net, net.add_unary(x, trt.UnaryOperation.NEG).get_output(0))
    runner = Runner(engine, np.ones(1000, np.float32))
    stream = Stream()
    runner.run(stream)
    handle = stream.handle
    stream.destroy()
    print("BEFORE", flush=True)
    try:
        print("RAN", runner.context.execute_async_v3(handle))
    except trt.Error as error:
        print("ERROR", error)
"""


@pytest.mark.faulty
def test_a_stream_that_is_destroyed():
    # What the driver makes of such a handle is up to it; where it tells, so does the error.
    done = script(DESTROYED)
    assert "BEFORE" in done.stdout, done.stderr
    assert "RAN True" not in done.stdout
    assert done.returncode != 0 or "stream" in done.stdout, done.stdout


STREAM_FIRST = """
    import numpy as np
    from cuda_driver import Stream, driver
    from gpu_engines import Runner, build, network
    import opwright as trt
    driver().make_current()
    net = network()
    x = net.add_input("x0", trt.float32, (1000,))
    engine = build(net, net.add_unary(x, trt.UnaryOperation.NEG).get_output(0))
    x = np.ones(1000, np.float32)
    for turn in range(50):
        runner = Runner(engine, x)
        for each in range(3):  # as graphs, too, on streams of which each is gone before the next
            stream = Stream()
            for run in range(2 * each + 1):
                np.testing.assert_array_equal(runner.run(stream)[0], -x)
            stream.destroy()
        del runner
    np.testing.assert_array_equal(engine(x), -x)
    print("WELL")
"""


def test_streams_may_go_before_their_context():
    done = script(STREAM_FIRST)
    assert done.returncode == 0 and "WELL" in done.stdout, done.stdout + done.stderr


def test_out_of_memory():
    net = strongly_typed()
    x = net.add_input("x0", trt.float32, (1 << 20,))
    reshaped = net.add_shuffle(x)
    reshaped.reshape_dims = (1 << 20, 1)
    row = net.add_shuffle(x)
    row.reshape_dims = (1, 1 << 20)
    outer = net.add_elementwise(
        reshaped.get_output(0), row.get_output(0), trt.ElementWiseOperation.PROD
    ).get_output(0)  # 4 TiB
    moved = net.add_shuffle(outer)
    moved.first_transpose = (1, 0)
    total = net.add_reduce(moved.get_output(0), trt.ReduceOperation.SUM, 1, False).get_output(0)
    with pytest.raises(trt.Error, match="(?i)memory"):
        engine = build(net, total, timing=False)
        engine(np.zeros(1 << 20, np.float32))
    x = np.ones(1000, np.float32)
    np.testing.assert_array_equal(negation()(x), -x)  # and goes on


def test_what_a_callback_raises_passes(rng):
    import opwright.plugin as trtp

    @trtp.register("faulty::raises")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    failing = [True]

    @trtp.impl("faulty::raises", device="cuda")
    def impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        if failing[0]:
            raise ZeroDivisionError("from the plugin")

    x = rng.random(10, np.float32)
    net, layer = one_plugin("faulty::raises", x)
    engine = build(net, layer.get_output(0), timing=False)
    with pytest.raises(ZeroDivisionError, match="from the plugin"):
        engine(x)
    failing[0] = False
    engine(x)


def test_an_impl_for_the_cpu_alone(rng):
    import opwright.plugin as trtp

    @trtp.register("faulty::cpu_alone")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("faulty::cpu_alone", device="cpu")
    def impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        pass

    net, layer = one_plugin("faulty::cpu_alone", rng.random(10, np.float32))
    with pytest.raises(trt.Error, match="cpu_alone"):
        build(net, layer.get_output(0))


WITHOUT_DRIVER = """
    import numpy as np, opwright as trt
    net = trt.Builder(trt.Logger()).create_network()
    x = net.add_input("x", trt.float32, (3,))
    net.mark_output(net.add_unary(x, trt.UnaryOperation.NEG).get_output(0))
    print(trt.build(net, device=DEVICE)(np.float32([1, 2, 3])).tolist())
"""


def test_a_driver_that_is_missing():
    missing = {"OPWRIGHT_CUDA_DRIVER": "/nowhere/libcuda.so.1"}
    asked = script(WITHOUT_DRIVER.replace("DEVICE", "trt.DeviceType.GPU"), **missing)
    assert asked.returncode != 0 and "/nowhere/libcuda.so.1" in asked.stderr
    environment = {**missing, "OPWRIGHT_DEVICE": ""}
    left = script(WITHOUT_DRIVER.replace("DEVICE", "None"), **environment)
    assert "[-1.0, -2.0, -3.0]" in left.stdout, left.stderr


def test_nvrtc_that_is_missing(tmp_path):
    environment = {"OPWRIGHT_NVRTC": "/nowhere/libnvrtc.so", "OPWRIGHT_CACHE_DIR": str(tmp_path)}
    asked = script(WITHOUT_DRIVER.replace("DEVICE", "trt.DeviceType.GPU"), **environment)
    assert asked.returncode != 0
    assert "nvrtc" in asked.stderr.lower() and "pip install" in asked.stderr


@pytest.fixture
def second_gpu(gpu):
    if gpu.count() < 2:
        pytest.skip("one GPU")


def test_a_stream_of_another_device(second_gpu, rng):
    runner = Runner(negation(), rng.random(1000, np.float32))
    stream = Stream(device=1)
    assert "another GPU" in error_of(runner.context, stream.handle)
    stream.destroy()


def test_two_devices(gpu, second_gpu, rng):
    gpu.make_current(1)  # the thread's current context decides
    try:
        x = rng.random(1000, np.float32)
        runner = Runner(negation(), x, device=1)
        np.testing.assert_array_equal(runner.run(Stream(device=1))[0], -x)
    finally:
        gpu.make_current()
