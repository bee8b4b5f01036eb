"""The native program with engines for a GPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import emulated_gpu
from small_models import convolution, model

pytestmark = emulated_gpu.required

X = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)
W = np.linspace(-1, 1, 8, dtype=np.float32)


def pointwise() -> onnx.ModelProto:
    """y = relu(x * 2 + w), t is y transposed."""
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["d"], name="mul"),
        helper.make_node("Add", ["d", "w"], ["a"], name="add"),
        helper.make_node("Relu", ["a"], ["y"], name="relu"),
        helper.make_node("Transpose", ["y"], ["t"], name="turn", perm=[1, 0]),
    ]
    return model(
        nodes,
        [("x", TensorProto.FLOAT, ["n", 8])],
        [("y", TensorProto.FLOAT, ["n", 8]), ("t", TensorProto.FLOAT, [8, "n"])],
        {"two": np.array([2], np.float32), "w": W},
    )


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x * 2 + W, 0)


@pytest.fixture(scope="module")
def folder(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has an engine for the GPU and an input."""
    folder = tmp_path_factory.mktemp("cli_gpu")
    onnx.save(pointwise(), folder / "m.onnx")
    onnx.save(convolution(), folder / "conv.onnx")
    np.save(folder / "x.npy", X)
    arguments = ["m.onnx", "-o", "m.engine", "--device", "cuda", "--shapes", "x:1x8,4x8,8x8"]
    done = run(program, folder, "build", *arguments)
    assert done.returncode == 0, done.stderr
    return folder


def run(
    program: Path, folder: Path, command: str, *arguments: str, allow: bool = True
) -> subprocess.CompletedProcess[str]:
    permission = ["--allow-device-code"] if allow and command in ("run", "bench") else []
    return subprocess.run(
        [program, command, *arguments, *permission],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("command", ["run", "bench"])
def test_code_for_a_gpu_needs_permission(program: Path, folder: Path, command: str) -> None:
    done = run(program, folder, command, "m.engine", "--input", "x=x.npy", allow=False)
    assert 0 < done.returncode < 128
    assert "contains code for a GPU" in done.stderr and "(sm_" in done.stderr
    assert "--allow-device-code" in done.stderr
    assert "Permission for host code implies it" in done.stderr
    arguments = ["m.engine", "--input", "x=x.npy", "--allow-host-code"]
    assert run(program, folder, command, *arguments, allow=False).returncode == 0


def test_runs_on_the_gpu(program: Path, folder: Path) -> None:
    outputs = ["--output", "y=y.npy", "--output", "t=t.npy"]
    done = run(program, folder, "run", "m.engine", "--input", "x=x.npy", *outputs)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(folder / "y.npy"), expected(X), rtol=1e-6)
    np.testing.assert_array_equal(np.load(folder / "t.npy"), np.load(folder / "y.npy").T)


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_takes_the_gpu_that_is_asked_for(program: Path, folder: Path, device: str) -> None:
    arguments = ["run", "m.engine", "--input", "x=x.npy", "--device", device]
    assert run(program, folder, *arguments).returncode == 0


@pytest.mark.parametrize(
    "device, message",
    [
        ("cpu", "an engine for cuda, not for cpu; build it with --device cpu"),
        ("cuda:7", "7"),
        ("gpu", "expected cpu, cuda or cuda:1"),
        ("cuda:", "expected cpu, cuda or cuda:1"),
    ],
)
def test_says_what_is_wrong_with_a_device(
    program: Path, folder: Path, device: str, message: str
) -> None:
    done = run(program, folder, "run", "m.engine", "--input", "x=x.npy", "--device", device)
    assert 0 < done.returncode < 128
    assert message in done.stderr


def test_takes_one_of_several_gpus(
    program: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPWRIGHT_EMULATED_DEVICES", "2")
    build = ["build", "m.onnx", "-o", "second.engine", "--shapes", "x:4x8", "--device"]
    assert run(program, folder, *build, "cuda:1").returncode == 0
    inputs = ["second.engine", "--input", "x=x.npy"]
    done = run(program, folder, "run", *inputs, "--output", "y=y.npy", "--device", "cuda:1")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(folder / "y.npy"), expected(X), rtol=1e-6)
    bench = ["bench", *inputs, "--iterations", "2", "--device"]
    assert run(program, folder, *bench, "cuda:1").returncode == 0
    for command in (build, ["run", *inputs, "--device"], bench):
        done = run(program, folder, *command, "cuda:2")
        assert 0 < done.returncode < 128
        assert "GPU 2 was asked for, and there are 2, numbered from 0" in done.stderr
    monkeypatch.setenv("OPWRIGHT_DEVICE", "cuda:1")
    assert run(program, folder, "run", *inputs).returncode == 0
    monkeypatch.setenv("OPWRIGHT_DEVICE", "cuda:2")
    done = run(program, folder, "run", *inputs)
    assert "OPWRIGHT_DEVICE is cuda:2, and there are 2, numbered from 0" in done.stderr


def test_times_host_and_device(program: Path, folder: Path) -> None:
    arguments = ["--iterations", "5", "--json", "--profile", "--input", "x=x.npy"]
    done = run(program, folder, "bench", "m.engine", *arguments)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["runs"] == 5
    assert 0 < figures["host_ms"] <= figures["median_ms"] * 1.5
    assert figures["device_ms"] >= 0
    assert len(figures["layers"]) >= 1
    text = run(program, folder, "bench", "m.engine", "--iterations", "3").stdout
    assert "host " in text and "device " in text


def test_an_engine_for_the_cpu_has_no_times_of_a_device(program: Path, folder: Path) -> None:
    arguments = ["m.onnx", "-o", "cpu.engine", "--device", "cpu", "--shapes", "x:4x8"]
    assert run(program, folder, "build", *arguments).returncode == 0
    done = run(program, folder, "bench", "cpu.engine", "--iterations", "3", "--json")
    assert "device_ms" not in json.loads(done.stdout)


def test_builds_a_network_that_computes(
    program: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["build", "conv.onnx", "-o", "conv.engine"]
    done = run(program, folder, *arguments, "--device", "cuda")
    assert done.returncode == 0, done.stderr
    monkeypatch.delenv("OPWRIGHT_DEVICE")
    done = run(program, folder, *arguments)
    assert done.returncode == 0, done.stderr
    assert "built for the CPU" not in done.stderr
    assert run(program, folder, "bench", "conv.engine", "--iterations", "2").returncode == 0


def run_trtexec(
    program: Path, folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    quick = ["--iterations=5", "--duration=0", "--warmUp=0"]
    return subprocess.run(
        [program, "trtexec", *arguments, *quick],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_trtexec_streams_weights(program: Path, folder: Path) -> None:
    rng = np.random.default_rng(2)
    weights = {f"w{i}": rng.normal(size=(64, 64)).astype(np.float32) / 8 for i in range(2)}
    nodes = [
        helper.make_node("MatMul", [a, w], [y]) for a, w, y in [("x", "w0", "h"), ("h", "w1", "y")]
    ]
    ports = [(name, TensorProto.FLOAT, [4, 64]) for name in "xy"]
    onnx.save(model(nodes, ports[:1], ports[1:], weights), folder / "weights.onnx")
    x = rng.normal(size=(4, 64)).astype(np.float32)
    np.save(folder / "wide.npy", x)
    built = [
        "--onnx=weights.onnx",
        "--device=cuda",
        "--allowWeightStreaming",
        "--saveEngine=w.engine",
    ]
    assert run_trtexec(program, folder, *built, "--skipInference").returncode == 0

    def stream(budget: str) -> subprocess.CompletedProcess[str]:
        arguments = ["--loadEngine=w.engine", "--loadInputs=x:wide.npy", "--exportOutput=w.json"]
        budget = f"--weightStreamingBudget={budget}"
        return run_trtexec(program, folder, *arguments, budget, OPWRIGHT_ALLOW_DEVICE_CODE="1")

    for budget, resident in [
        ("0%", 0),
        ("50%", 16),
        ("16K", 16),
        ("16384", 16),
        ("100%", 32),
        ("-1", 32),
    ]:
        done = stream(budget)
        assert done.returncode == 0, done.stdout + done.stderr
        told = re.search(r"Weight streaming: ([\d.]+) MiB of ([\d.]+) MiB", done.stdout)
        assert told and float(told[1]) == pytest.approx(resident / 1024, rel=1e-3), budget
        assert float(told[2]) == pytest.approx(32 / 1024, rel=1e-3)
        (y,) = json.loads((folder / "w.json").read_text())
        values = np.array(y["values"], np.float32).reshape(4, 64)
        np.testing.assert_allclose(values, x @ weights["w0"] @ weights["w1"], rtol=1e-4, atol=1e-5)
    assert "Weight streaming:" not in stream("-2").stdout
    for wrong in ("101%", "-3", "much", "%"):
        done = stream(wrong)
        assert done.returncode == 1 and "--weightStreamingBudget" in done.stdout + done.stderr


def test_trtexec_times_the_copies(program: Path, folder: Path) -> None:
    np.save(folder / "four.npy", X)
    arguments = ["--loadEngine=m.engine", "--loadInputs=x:four.npy", "--exportOutput=out.json"]
    arguments += ["--includeDataTransfers"]
    assert run_trtexec(program, folder, *arguments).returncode == 1  # its code is another process's
    for streams in ("1", "2"):
        streams_option = f"--streams={streams}"
        done = run_trtexec(
            program, folder, *arguments, streams_option, OPWRIGHT_ALLOW_DEVICE_CODE="1"
        )
        assert done.returncode == 0, done.stderr
        for metric in ("H2D Latency", "GPU Compute Time", "D2H Latency"):
            (least,) = re.findall(rf"{metric}: min = ([\d.]+) ms", done.stdout)
            assert float(least) > 0
    outputs = {each["name"]: each for each in json.loads((folder / "out.json").read_text())}
    y = np.array(outputs["y"]["values"], np.float32).reshape(4, 8)
    np.testing.assert_allclose(y, expected(X), rtol=1e-6)
    assert outputs["t"]["dimensions"] == "8x4"
