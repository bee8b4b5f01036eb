"""Builds that verify run candidates for a GPU in another process first: what faults there is left out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import emulated_gpu
import opwright as trt
import opwright.plugin as trtp
import paths
from opwright import aot
from plugin_testing import build, network, new_id, op_of
from test_gpu_python import engine_of, identity
from v3_plugins import Log

pytestmark = emulated_gpu.emulated_only

X = np.arange(40, dtype=np.float32)
SOURCE = """
extern "C" __global__ void right(const float* x, long long n, float* y) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
extern "C" __global__ void misaligned(const float* x, long long n, float* y) {
  *(float4*)(y + 1) = make_float4(x[0], x[1], x[2], x[3]);
}
extern "C" __global__ void endless(const float* x, long long n, float* y) {
  for (volatile float* at = y; n > 0;) *at = *at + x[0];
}
"""
#: Says that a candidate runs only in the build's own process.
IN_PLACE = "does not run in another process first"


def compiled(*functions: str) -> str:
    """Registers a plugin y = 2 x, whose tactics are the functions of SOURCE."""
    plugin_id = new_id("trial")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x, outputs):
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", range(1, 1 + len(functions)))]

    @trtp.aot_impl(plugin_id, device="cuda")
    def kernel(x, outputs, tactic):
        extra = [trtp.SymInt64(x.shape_expr.numel())]
        name = functions[tactic - 1]
        code = aot.cuda(SOURCE, name, inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, code.launch(grid_x=2, block_x=32), trtp.SymExprs.from_tuple(extra)

    return plugin_id


def built(plugin_id: str, verify=True) -> tuple[trt.Engine, Log]:
    log = Log()
    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, X.shape)), aot=True)
    layer.name = "the layer"
    engine = build(net, layer.get_output(0), verify=verify, device="cuda", logger=log)
    return engine, log


def texts(log: Log, severity=None) -> str:
    return "\n".join(text for each, text in log.lines if severity in (None, each))


def test_a_compiled_operator_that_faults_is_left_out():
    plugin_id = compiled("misaligned", "right")
    engine, log = built(plugin_id)
    warnings = texts(log, trt.ILogger.WARNING)
    for part in ("'the layer'", "tactic 1", "plugin 'trial'", "CUDA_ERROR_MISALIGNED_ADDRESS"):
        assert part in warnings
    np.testing.assert_array_equal(engine(X), 2 * X)
    with pytest.raises(trt.Error, match="tactic 1.*CUDA_ERROR_MISALIGNED_ADDRESS.*strict"):
        built(plugin_id, "strict")
    with pytest.raises(trt.Error, match="'the layer'.*CUDA_ERROR_MISALIGNED_ADDRESS"):
        built(compiled("misaligned"))


def test_functions_in_python_run_in_the_build():
    log = Log()
    engine = engine_of(identity(), (4, 6), verify=True, timing=True, logger=log)
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(engine(values), values)
    assert f"{IN_PLACE}: its plugin 'identity' is of this process" in texts(log)


def test_plugins_of_libraries_run_elsewhere(plugin_dir):
    """This one takes the GPU's memory for the host's."""
    registry = trt.get_plugin_registry()
    library = registry.load_library(str(plugin_dir / "negate_plugin_v3.so"))
    try:
        creator = registry.get_creator("NegatePluginV3", "1", "styles")
        fields = trt.PluginFieldCollection([])
        plugin = creator.create_plugin("negate", fields, trt.TensorRTPhase.BUILD)
        net = network()
        x = net.add_input("x", trt.float32, X.shape)
        layer = net.add_plugin_v3([x], [], plugin)
        layer.name = "the layer"
        with pytest.raises(trt.Error, match=r"'the layer'.*NegatePluginV3.*signal 11"):
            build(net, layer.get_output(0), verify=True, device="cuda")
        del plugin, creator, layer, x, net
    finally:
        registry.deregister_library(library)


BUILD = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where Ctrl-C is ignored
import test_gpu_trials as trials
trials.built(trials.compiled("endless"))
"""


def child_of(process: subprocess.Popen) -> int | None:
    """The process that runs candidates for it."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, name, _, parent = stat.read_text().split()[:4]
        except OSError:
            continue
        if parent == str(process.pid) and name == "(opwright-trials)":
            return int(number)
    return None


def is_there(process: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_the_other_process_ends_with_its_parent(end):
    """Whatever it is doing."""
    with subprocess.Popen(
        [sys.executable, "-c", BUILD], env=paths.environment("gpu"), stderr=subprocess.PIPE
    ) as build:
        child, deadline = None, time.monotonic() + 60
        while child is None and build.poll() is None and time.monotonic() < deadline:
            child = child_of(build)
            time.sleep(0.01)
        assert child is not None
        time.sleep(0.3)
        os.kill(build.pid, end)
        build.wait(20)
    while is_there(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_there(child)
