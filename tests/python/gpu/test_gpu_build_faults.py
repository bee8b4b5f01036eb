"""Builds for a GPU that meet faults go on with what is left: kernels that do not compile, or take too long, memory that
runs out. What is interrupted is gone on with."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import emulated_gpu
import opwright as trt
import paths
from small_models import model

pytestmark = emulated_gpu.emulated_only

RANDOM = np.random.default_rng(3)
A = RANDOM.uniform(-1, 1, (64, 64)).astype(np.float32)
B = RANDOM.uniform(-1, 1, (64, 64)).astype(np.float32)
#: What tells the kernels of two tiles of products of FP32 apart.
TILE, OTHER_TILE = "kTileM = 64", "kTileM = 32"


class Listener(trt.ILogger):
    def __init__(self):
        super().__init__()
        self.messages: list[str] = []

    def log(self, severity, message):
        if severity <= trt.ILogger.Severity.WARNING:
            self.messages.append(message)


def product() -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"], name="product")]
    shapes = [(name, TensorProto.FLOAT, [64, 64]) for name in "ab"]
    return model(nodes, shapes, [("y", TensorProto.FLOAT, [64, 64])], {})


def built(listener: Listener, seconds: float = 60, **options):
    """The engine of product()."""
    builder = trt.Builder(listener)
    network = builder.create_network()
    parser = trt.OnnxParser(network, listener)
    assert parser.parse(product().SerializeToString())
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    config.kernel_seconds = seconds
    for name, value in options.items():
        setattr(config, name, value)
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None
    return trt.Engine(engine)


def check(engine) -> None:
    y = engine(a=A, b=B)
    np.testing.assert_allclose(y, A.astype(np.float64) @ B, rtol=1e-5, atol=1e-4)


SCRIPT = """
import sys
import test_gpu_build_faults as faults
import opwright as trt
listener = faults.Listener()
try:
    engine = {call}
    faults.check(engine)
    print(engine.layers[-1]["TacticName"])
    print(len(engine.layers))
except trt.Error as error:
    print("Error:", error)
print(*listener.messages, sep="\\n", file=sys.stderr)
"""


def run(call: str, cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which has compiled nothing before."""
    script = SCRIPT.format(call=call)
    return emulated_gpu.run_program(script, OPWRIGHT_CACHE_DIR=str(cache), **environment)


def test_a_kernel_that_does_not_compile_is_left_out(tmp_path):
    done = run("faults.built(listener)", tmp_path, OPWRIGHT_EMULATED_REFUSED=TILE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("scalar") and not done.stdout.startswith("scalar 64x")
    assert "'product': the candidate" in done.stderr and "is left out" in done.stderr
    assert "refused by the environment" in done.stderr


def test_where_none_compiles_the_error_has_the_layer_and_the_reasons(tmp_path):
    done = run("faults.built(listener)", tmp_path, OPWRIGHT_EMULATED_REFUSED="kTileM")
    assert "Layer 'product' (MatrixMultiply): none of its" in done.stdout, done.stderr
    assert "candidates works:" in done.stdout and "does not compile for sm_" in done.stdout


def test_a_kernel_that_compiles_for_too_long_is_left_out(tmp_path):
    start = time.monotonic()
    done = run("faults.built(listener, 0.7)", tmp_path, OPWRIGHT_EMULATED_SLOW=TILE)
    assert time.monotonic() - start < 50  # a minute each without the limit
    assert done.returncode == 0, done.stderr
    assert "its kernel was not compiled within 0.7 seconds (kernel_seconds)" in done.stderr


def test_what_the_timing_cache_knows_may_not_compile_any_more(tmp_path):
    times = tmp_path / "times"
    call = (
        f"trt.build(faults.product(), device='cuda', timing_cache={str(times)!r}, logger=listener)"
    )
    first = run(call, tmp_path / "first")
    tactic = first.stdout.split("\n")[0]
    assert tactic.startswith("scalar"), first.stderr
    tile_m = tactic.split()[1].split("x")[0]
    # Another cache of kernels: the chosen one is compiled again.
    second = run(call, tmp_path / "second", OPWRIGHT_EMULATED_REFUSED=f"kTileM = {tile_m};")
    assert second.returncode == 0 and second.stdout.startswith("scalar"), second.stderr
    assert not second.stdout.startswith(f"scalar {tile_m}x"), second.stdout
    assert "refused by the environment" in second.stderr


def test_without_timing_the_next_candidate_is_taken(tmp_path):
    call = "trt.build(faults.product(), device='cuda', timing=False, logger=listener)"
    first = run(call, tmp_path).stdout
    tile_m = first.split()[1].split("x")[0]
    second = run(call, tmp_path / "second", OPWRIGHT_EMULATED_REFUSED=f"kTileM = {tile_m};")
    assert second.stdout.startswith("scalar"), second.stderr
    assert not second.stdout.startswith(f"scalar {tile_m}x")


def attention():
    """softmax(q k) v."""
    nodes = [
        helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]
    shapes = [(name, TensorProto.FLOAT, [1, 2, 16, 32]) for name in "qkv"]
    return model(nodes, shapes, [("y", TensorProto.FLOAT, [1, 2, 16, 32])], {})


def check_attention(listener, **options):
    engine = trt.build(attention(), device="cuda", logger=listener, **options)
    q, k, v = np.random.default_rng(1).normal(size=(3, 1, 2, 16, 32)).astype(np.float32)
    scores = np.exp((q @ k.transpose(0, 1, 3, 2)).astype(np.float64))
    expected = scores / scores.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(engine(q=q, k=k, v=v), expected, rtol=1e-4, atol=1e-5)
    return [layer["LayerType"] for layer in engine.layers]


@pytest.mark.parametrize("timing", [True, False])
def test_an_attention_without_a_kernel_is_run_as_its_layers(tmp_path, timing):
    call = f"print(faults.check_attention(listener, timing={timing})) or faults.built(listener)"
    whole = run(call, tmp_path / "whole")
    assert "FusedAttention" in whole.stdout, whole.stderr
    parts = run(call, tmp_path / "parts", OPWRIGHT_EMULATED_REFUSED="fused_attention")
    assert parts.returncode == 0 and "FusedAttention" not in parts.stdout, parts.stderr
    assert "'Softmax'" in parts.stdout and "MatrixMultiply" in parts.stdout
    assert "attentions as separate layers" in parts.stderr


@pytest.mark.parametrize("after", range(0, 12, 3))
def test_memory_that_runs_out_once_while_tuning(tmp_path, after):
    fault = f"cuMemAllocFromPoolAsync=2@{after}"
    done = run("faults.built(listener)", tmp_path, OPWRIGHT_EMULATED_FAULT=fault)
    assert done.returncode == 0 and "scalar" in done.stdout, done.stderr


# Interrupts


def test_kernel_seconds_are_positive():
    config = trt.Builder(trt.Logger()).create_builder_config()
    assert config.kernel_seconds == 60
    with pytest.raises(trt.Error, match="kernel_seconds is 0"):
        config.kernel_seconds = 0


def start(command: list[str], cache: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env={**paths.environment("gpu"), "OPWRIGHT_CACHE_DIR": str(cache), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupt(process: subprocess.Popen[str], cache: Path, after: int) -> tuple[str, str, float]:
    """Once so many kernels were compiled; what it wrote, and how long it went on."""
    end = time.monotonic() + 90
    while len(list(cache.rglob("*.cubin"))) < after and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    time.sleep(0.3)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return out, err, time.monotonic() - begin


# A job in the background starts with Ctrl-C ignored.
INTERRUPTED = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import opwright as trt
import test_gpu_build_faults as faults
try:
    trt.build(faults.product(), device="cuda", timing_cache=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_in_python_keeps_what_there_is(tmp_path):
    times, cache = tmp_path / "times", tmp_path / "kernels"
    process = start(
        [sys.executable, "-c", INTERRUPTED, str(times)], cache, OPWRIGHT_EMULATED_SLOW=OTHER_TILE
    )
    out, err, seconds = interrupt(process, cache, 1)
    assert out == "interrupted\n", err
    assert seconds < 10 and times.exists()
    known = len(list(cache.rglob("*.cubin")))
    assert known > 0
    done = run(f"trt.build(faults.product(), device='cuda', timing_cache={str(times)!r})", cache)
    assert done.stdout.startswith("scalar"), done.stderr
    assert len(list(cache.rglob("*.cubin"))) > known


def test_an_interrupt_of_the_program_keeps_what_there_is(program, tmp_path):
    times, cache = tmp_path / "times", tmp_path / "kernels"
    onnx.save(product(), tmp_path / "m.onnx")
    command = [str(program), "build", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.engine")]
    command += ["--device", "cuda", "--timing-cache", str(times)]
    process = start(command, cache, OPWRIGHT_EMULATED_SLOW=OTHER_TILE)
    _, err, seconds = interrupt(process, cache, 1)
    assert process.returncode == 130 and seconds < 10, err
    assert "The build was interrupted (SIGINT); the next one goes on from" in err
    assert times.exists() and not (tmp_path / "m.engine").exists()
    done = start([*command, "--json"], cache)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0 and json.loads(out)["layers"] == 1, err


def test_a_monitor_ends_a_build_while_kernels_are_compiled(tmp_path):
    times = tmp_path / "times"
    steps = []

    def progress(phase: str, done: int, total: int) -> bool:
        steps.append(phase)
        return phase != "tuning"

    with pytest.raises(trt.Error, match="cancelled by its progress callback in 'tuning'"):
        trt.build(product(), device="cuda", timing_cache=times, progress=progress)
    assert times.exists() and "tuning" in steps
    check(trt.build(product(), device="cuda", timing_cache=times))
