"""opwright.testing and python -m opwright check on a GPU, which is emulated where there is none."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import cuda_driver
import emulated_gpu
import opwright as trt
import opwright.plugin as trtp
from opwright import aot, testing

pytestmark = emulated_gpu.required

numbers = itertools.count()
X = np.random.default_rng(0).standard_normal((4, 6), np.float32)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


def on_host(tensor) -> np.ndarray:
    """What is in the tensor."""
    return cuda_driver.driver().read(tensor.data_ptr, tensor.shape, np.float32)


def write(address: int, values: np.ndarray) -> None:
    cuda_driver.driver().write(address, np.ascontiguousarray(values))


def unary(impl, device: str | None = "cuda") -> str:
    """Registers a plugin that makes a tensor like its input of types FP32."""
    plugin_id = f"check_gpu::p{next(numbers)}"

    def like(x: trtp.TensorDesc, k: float = 2.0) -> trtp.TensorDesc:
        return x.like()

    trtp.register(plugin_id)(like)
    if impl is not None:
        trtp.impl(plugin_id, device=device)(impl)
    return plugin_id


def twice(x, k, outputs, stream):
    write(outputs[0].data_ptr, np.float32(k) * on_host(x))


def writes_behind(x, k, outputs, stream):
    twice(x, k, outputs, stream)
    write(outputs[0].data_ptr + X.nbytes, np.ones(2, np.float32))


def writes_before(x, k, outputs, stream):
    twice(x, k, outputs, stream)
    write(outputs[0].data_ptr - 8, np.ones(2, np.float32))


def writes_to_its_input(x, k, outputs, stream):
    twice(x, k, outputs, stream)
    write(x.data_ptr, np.zeros(1, np.float32))


def forgets_a_row(x, k, outputs, stream):
    write(outputs[0].data_ptr, np.float32(k) * on_host(x)[:-1])


def adds_to_what_is_there(x, k, outputs, stream):
    write(outputs[0].data_ptr, on_host(outputs[0]) + np.float32(k) * on_host(x))


def counts_calls(x, k, outputs, stream):
    write(outputs[0].data_ptr, on_host(x) + np.float32(next(numbers)))


def raises(x, k, outputs, stream):
    raise ValueError("not on this device")


def failed(plugin_id: str, **options) -> list[testing.Row]:
    try:
        testing.check(plugin_id, [X], device="cuda", **options)
    except testing.CheckError as error:
        return list(error.report.failures)
    return []


def test_a_correct_plugin_passes():
    report = testing.check(unary(twice), [X], k=3.0, device="cuda")
    done = {row.check for row in report.rows if row.result == "ok"}
    assert done == set(row.check for row in report.rows) - {"combinations", "aot"}


@pytest.mark.parametrize(
    ("impl", "check", "says"),
    [
        (writes_behind, "bounds", "output 0: 8 bytes behind its end, from byte 96 of 96 on"),
        (writes_before, "bounds", "output 0: 8 bytes before its start, from byte -8 on"),
        (writes_to_its_input, "inputs", "it changed x"),
        (forgets_a_row, "written", "is not written in 6 of 24 elements, the first at [3, 0]"),
        (adds_to_what_is_there, "uninitialized", "depends on what its memory held before"),
        (counts_calls, "determinism", "run again, output 0 differs"),
        (raises, "runs", "ValueError: not on this device"),
    ],
)
def test_a_broken_impl(impl, check, says):
    row = failed(unary(impl))[0]
    assert row.check == check
    assert says in row.detail
    assert "test_check_gpu.py" in row.where and impl.__name__ in row.where


def test_the_function_for_the_device_is_checked():
    plugin_id = unary(twice)

    @trtp.impl(plugin_id, device="cpu")
    def for_the_host(x, k, outputs, stream):
        np.asarray(outputs[0])[:-1] = k * np.asarray(x)[:-1]

    assert testing.check(plugin_id, [X], device="cuda").ok
    with pytest.raises(testing.CheckError, match="is not written"):
        testing.check(plugin_id, [X], device="cpu")


def test_a_plugin_for_the_cpu_alone_says_that_it_is_not_checked():
    (row,) = failed(unary(twice, device="cpu"))
    assert row.check == "runs" and "no implementation for the GPU" in row.detail


def test_sizes_that_depend_on_data():
    @trtp.register("check_gpu::positive")
    def desc(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        count = trtp.size_tensor(x.shape_expr.numel() // 2, upper_bound=x.shape_expr.numel())
        return trtp.from_shape_expr((count.expr(),), dtype=x.dtype), count

    @trtp.impl("check_gpu::positive", device="cuda")
    def positive(x, outputs, stream):
        values = on_host(x)
        values = values[values > 0]
        write(outputs[0].data_ptr, values)
        write(outputs[1].data_ptr, np.array(values.size, np.int32))

    assert testing.check("check_gpu::positive", [X], device="cuda").ok


KERNEL = r"""
extern "C" __global__ void scale(const float* x, long long n, float* y) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = FACTOR * x[i];
}
"""


@pytest.mark.parametrize(("factor", "failing"), [("2.0f", []), ("3.0f", ["aot"])])
def test_a_compiled_kernel_computes_what_the_function_does(factor, failing):
    plugin_id = unary(twice)

    @trtp.aot_impl(plugin_id, device="cuda")
    def compiled(x, k, outputs, tactic):
        n = x.shape_expr.numel()
        extra = [trtp.SymInt64(n)]
        source = KERNEL.replace("FACTOR", factor)
        code = aot.cuda(source, "scale", inputs=[x], extra=extra, outputs=outputs)
        launch = code.launch(grid_x=trtp.cdiv(n, 32), block_x=32)
        return code.name, code, launch, trtp.SymExprs.from_tuple(extra)

    assert sorted({row.check for row in failed(plugin_id)}) == failing


class Doubles(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """2 x, by way of its workspace."""

    behind = 0

    def __init__(self):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version = f"CheckGpu{self.behind}", "1"
        self.plugin_namespace = "check_gpu"
        self.num_outputs = 1

    def get_capability_interface(self, type):
        return self

    def clone(self):
        copy = type(self)()
        copy.__dict__.update(self.__dict__)
        return copy

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        return [inputs[0]]

    def configure_plugin(self, inputs, outputs):
        pass

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == trt.TensorFormat.LINEAR and desc.type == trt.float32

    def on_shape_change(self, inputs, outputs):
        pass

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([])

    def attach_to_context(self, context):
        return self.clone()

    def set_tactic(self, tactic):
        pass

    def get_workspace_size(self, inputs, outputs):
        return 256

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        driver = cuda_driver.driver()
        x = driver.read(inputs[0], tuple(input_desc[0].dims), np.float32)
        driver.write(workspace + self.behind, np.zeros(64, np.float32))
        driver.write(outputs[0], 2 * x)


class WritesBehindItsWorkspace(Doubles):
    behind = 4


class Creator(trt.IPluginCreatorV3One):
    def __init__(self, plugin_class):
        trt.IPluginCreatorV3One.__init__(self)
        self.plugin_class = plugin_class
        self.name, self.plugin_version = f"CheckGpu{plugin_class.behind}", "1"
        self.plugin_namespace = "check_gpu"
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name, field_collection, phase):
        return self.plugin_class()


@pytest.fixture
def registered():
    registry = trt.get_plugin_registry()
    creators = [Creator(Doubles), Creator(WritesBehindItsWorkspace)]
    for creator in creators:
        registry.register_creator(creator, "check_gpu")
    yield creators
    for creator in creators:
        registry.deregister_creator(creator)


def test_classes(registered):
    good, bad = registered
    assert testing.check(good, [X], device="cuda").ok
    with pytest.raises(testing.CheckError, match="the workspace: 4 bytes behind its end"):
        testing.check(bad, [X], device="cuda")


def test_devices_that_there_are_not():
    with pytest.raises(ValueError, match="expected cpu, cuda or cuda:1"):
        testing.check(unary(twice), [X], device="tpu")
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES=1, and say device='cuda'"):
        testing.check(unary(twice), [X], device="cuda:1")


FILE = """
    import numpy as np
    import opwright.plugin as trtp
    from cuda_driver import driver

    @trtp.register("check_gpu_file::fill")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("check_gpu_file::fill", device="cuda")
    def run(x, outputs, stream):
        count = int(np.prod(x.shape)) - {left}
        driver().write(outputs[0].data_ptr, np.ones(count, np.float32))
"""


def command(folder, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    tests = os.path.dirname(emulated_gpu.__file__)
    path = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "opwright", "check", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


@pytest.mark.parametrize(("left", "status"), [(0, 0), (1, 1)])
def test_the_command(tmp_path, left, status):
    (tmp_path / "ops.py").write_text(textwrap.dedent(FILE.format(left=left)))
    done = command(tmp_path, "ops.py", "--device", "cuda")
    assert done.returncode == status, done.stdout + done.stderr
    assert ("is not written in 1 of" in done.stdout) == bool(left)


def test_the_command_without_a_device(tmp_path):
    (tmp_path / "ops.py").write_text(textwrap.dedent(FILE.format(left=0)))
    driver = str(tmp_path / "none.so")
    done = command(tmp_path, "ops.py", "--device", "cuda", OPWRIGHT_CUDA_DRIVER=driver)
    assert done.returncode == 2
    assert "the GPU was asked for, but" in done.stderr and driver in done.stderr
    assert done.stdout == ""
