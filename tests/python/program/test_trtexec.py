"""TensorRT's program trtexec in our spelling: what scripts give it, and what they read from it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from small_models import circular_padding, convolution, expansion, model, two_inputs

X = np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)
QUICK = ["--duration=0", "--iterations=10", "--warmUp=1"]


class Trtexec:
    """Runs the program in a folder of its own."""

    def __init__(self, program: Path, folder: Path):
        self.program, self.folder = program, folder

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.program, "trtexec", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def passes(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        last = done.stdout.splitlines()[-1]
        assert re.match(r"&&&& PASSED TensorRT\.trtexec \[TensorRT v\d{6}\] ", last), last
        return done.stdout

    def fails(self, *arguments: str, match: str) -> None:
        done = self.run(*arguments)
        assert done.returncode == 1, done
        assert done.stdout.splitlines()[-1].startswith("&&&& FAILED TensorRT.trtexec ")
        assert re.search(r"^\[[\d/:-]+\] \[E\] ", done.stderr, re.M), done.stderr
        assert re.search(match, done.stderr, re.S), done.stderr


@pytest.fixture(scope="module")
def trtexec(program, tmp_path_factory) -> Trtexec:
    made = Trtexec(program, tmp_path_factory.mktemp("trtexec"))
    onnx.save(convolution(), made.folder / "conv.onnx")
    onnx.save(convolution("n"), made.folder / "dynamic.onnx")
    onnx.save(two_inputs(), made.folder / "two.onnx")
    onnx.save(circular_padding([1, 1, 1, 1]), made.folder / "pad.onnx")
    made.passes("--onnx=conv.onnx", "--saveEngine=conv.plan", "--skipInference")
    X.tofile(made.folder / "x.bin")
    np.save(made.folder / "x.npy", X)
    return made


def summary(text: str, metric: str) -> dict[str, float]:
    """The figures of a line of the summary, as scripts take them apart."""
    (line,) = re.findall(
        rf"^\[\d\d/\d\d/\d{{4}}-\d\d:\d\d:\d\d\] \[I\] {metric}: (.*)$", text, re.M
    )
    pairs = (part.split(" = ") for part in line.split(", "))
    return {name: float(value.removesuffix(" ms")) for name, value in pairs}


def test_the_summary_has_the_lines_that_scripts_parse(trtexec):
    text = trtexec.passes("--onnx=conv.onnx", *QUICK)
    lines = text.splitlines()
    assert lines[0].startswith("&&&& RUNNING TensorRT.trtexec [TensorRT v")
    assert lines[0].endswith("# trtexec --onnx=conv.onnx " + " ".join(QUICK))
    assert text.count("=== Performance summary ===") == 1
    for metric in ("Latency", "Enqueue Time", "H2D Latency", "GPU Compute Time", "D2H Latency"):
        figures = summary(text, metric)
        names = ["min", "max", "mean", "median"]
        assert list(figures) == [*names, *(f"percentile({p}%)" for p in (90, 95, 99))]
        assert 0 <= figures["min"] <= figures["median"] <= figures["percentile(99%)"]
        assert figures["percentile(99%)"] <= figures["max"]
    assert summary(text, "H2D Latency")["max"] == 0
    throughput = float(re.search(r"\[I\] Throughput: ([\d.e+]+) qps", text)[1])
    wall = float(re.search(r"\[I\] Total Host Walltime: ([\d.e-]+) s", text)[1])
    (runs,) = re.findall(r"Timing trace has (\d+) queries over", text)
    assert int(runs) >= 10 and throughput == pytest.approx(int(runs) / wall, rel=0.01)
    assert re.search(r"Average on 10 runs - GPU latency: [\d.e-]+ ms - Host latency: ", text)


def test_a_duration_is_measured_in_full(trtexec):
    # A run takes half a microsecond, so that a second has more runs than are kept.
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    ports = [(name, TensorProto.FLOAT, [1]) for name in "xy"]
    onnx.save(model(nodes, ports[:1], ports[1:]), trtexec.folder / "neg.onnx")
    text = trtexec.passes("--onnx=neg.onnx", "--duration=1", "--exportTimes=neg.json")
    runs, seconds = re.search(r"Timing trace has (\d+) queries over ([\d.]+) s", text).groups()
    assert 1 <= float(seconds) < 3
    throughput = float(re.search(r"\[I\] Throughput: ([\d.]+) qps", text)[1])
    assert throughput == pytest.approx(int(runs) / float(seconds), rel=0.01)
    kept = json.loads((trtexec.folder / "neg.json").read_text())
    assert len(kept) <= 1_000_000
    spent = kept[-1]["endComputeMs"] - kept[0]["startComputeMs"]
    assert spent == pytest.approx(1000 * float(seconds), rel=0.05)


def test_percentiles_and_streams(trtexec):
    text = trtexec.passes("--loadEngine=conv.plan", *QUICK, "--percentile=50,99.5", "--streams=2")
    assert list(summary(text, "Latency"))[4:] == ["percentile(50%)", "percentile(99.5%)"]
    assert "Inference Streams: 2" in text


def test_the_files_that_it_exports(trtexec):
    trtexec.passes(
        *["--loadEngine=conv.plan", *QUICK, "--dumpProfile", "--separateProfileRun"],
        *["--exportTimes=times.json", "--exportProfile=profile.json"],
        *["--exportLayerInfo=layers.json", "--exportOutput=output.json"],
        *["--loadInputs=x:x.bin", "--profilingVerbosity=detailed"],
    )

    def read(name):
        return json.loads((trtexec.folder / name).read_text())

    times = read("times.json")
    assert len(times) >= 10
    for run in times:
        assert run["endComputeMs"] - run["startComputeMs"] == pytest.approx(
            run["computeMs"], abs=0.01
        )
        assert run["latencyMs"] == pytest.approx(run["h2dMs"] + run["computeMs"] + run["d2hMs"])
        assert run["startEnqMs"] <= run["endEnqMs"] and run["startD2hMs"] <= run["endD2hMs"]
    profile = read("profile.json")
    layers = read("layers.json")["Layers"]
    assert profile[0]["count"] >= 1
    assert [each["name"] for each in profile[1:]] == [each["Name"] for each in layers]
    assert sum(each["percentage"] for each in profile[1:]) == pytest.approx(100, abs=0.1)
    (output,) = read("output.json")
    model = onnxruntime.InferenceSession(convolution().SerializeToString())
    (expected,) = model.run(None, {"x": X})
    assert output["name"] == "y" and output["dimensions"] == "1x4x8x8"
    made = np.array(output["values"], np.float32).reshape(expected.shape)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def test_inputs_from_files(trtexec):
    for file in ("x.bin", "x.npy"):
        text = trtexec.passes(
            "--loadEngine=conv.plan", *QUICK, f"--loadInputs='x':{file}", "--dumpOutput"
        )
        assert f"Using values loaded from {file} for input x" in text
        assert "y: (1x4x8x8)" in text
    (trtexec.folder / "short.bin").write_bytes(b"1234")
    trtexec.fails(
        "--loadEngine=conv.plan", "--loadInputs=x:short.bin", match="short.bin.*4 bytes.*768"
    )
    trtexec.fails("--loadEngine=conv.plan", "--loadInputs=z:x.bin", match="no input 'z'")


def test_shapes(trtexec):
    ranges = ["--minShapes=x:1x3x8x8", "--optShapes=x:2x3x8x8", "--maxShapes=x:4x3x8x8"]
    text = trtexec.passes(
        "--onnx=dynamic.onnx", *ranges, "--saveEngine=d.plan", "--dumpOptimizationProfile", *QUICK
    )
    assert "Model input x (profile 0): min=1x3x8x8, opt=2x3x8x8, max=4x3x8x8" in text
    assert "Input binding for x with dimensions 2x3x8x8" in text
    for shape in ("x:3x3x8x8", "'x':3x3x8x8", "*:3x3x8x8"):
        text = trtexec.passes("--loadEngine=d.plan", f"--shapes={shape}", *QUICK)
        assert "Input binding for x with dimensions 3x3x8x8" in text
    trtexec.fails("--loadEngine=d.plan", "--shapes=x:9x3x8x8", match="9x3x8x8")
    text = trtexec.passes("--onnx=dynamic.onnx", "--shapes=x:3x3x8x8", *QUICK)
    assert "Output binding for y with dimensions 3x4x8x8" in text
    two = ["--profile=0", *ranges, "--profile=1", "--optShapes=x:8x3x8x8", "--useProfile=1"]
    text = trtexec.passes("--onnx=dynamic.onnx", *two, *QUICK)
    assert "Input binding for x with dimensions 8x3x8x8" in text
    trtexec.fails("--onnx=dynamic.onnx", "--optShapes=y:1x3x8x8", match="no input 'y'")


def test_what_has_no_shape_is_1(trtexec):
    done = trtexec.run("--onnx=dynamic.onnx", *QUICK)
    assert done.returncode == 0, done.stderr
    warning = "Dynamic dimensions required for input: x, but no shapes were provided. "
    assert done.stderr.count(warning + "Automatically overriding shape to: 1x3x8x8") == 1
    assert "Output binding for y with dimensions 1x4x8x8" in done.stdout
    wildcard = trtexec.run("--onnx=dynamic.onnx", "--optShapes=*:2x3x8x8", *QUICK)
    assert wildcard.returncode == 0 and warning not in wildcard.stderr


def test_inputs_that_share_a_dimension_follow_the_given_one(trtexec):
    onnx.save(two_inputs("n"), trtexec.folder / "shared.onnx")
    ranges = ["--minShapes=b:1x3", "--optShapes=b:4x3", "--maxShapes=b:8x3"]
    done = trtexec.run("--onnx=shared.onnx", *ranges, "--saveEngine=shared.plan", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "input: a, but no shapes were provided. Automatically overriding shape to: 4x3" in done.stderr
    assert "Output binding for total with dimensions 4x3" in done.stdout
    text = trtexec.passes("--loadEngine=shared.plan", "--shapes=b:7x3", *QUICK)
    assert "Input binding for a with dimensions 7x3" in text


def test_values_that_decide_shapes(trtexec):
    onnx.save(expansion(), trtexec.folder / "expand.onnx")
    ranges = ["--minShapes=size:1x1", "--optShapes=size:2x3", "--maxShapes=size:4x4"]
    text = trtexec.passes("--onnx=expand.onnx", *ranges, "--saveEngine=e.plan", *QUICK)
    assert "Output binding for y with dimensions 2x3" in text
    text = trtexec.passes("--loadEngine=e.plan", "--shapes=size:3x2", *QUICK)
    assert "Output binding for y with dimensions 3x2" in text
    text = trtexec.passes("--onnx=expand.onnx", *QUICK)
    assert "Output binding for y with dimensions 1x1" in text
    trtexec.fails("--onnx=expand.onnx", "--shapes=size:2x3x1", match="2 elements, 3 values")


def test_several_inputs_in_one_option(trtexec):
    proto = onnx.load(trtexec.folder / "two.onnx")
    shapes = ",".join(
        f"{value.name}:" + "x".join(str(d.dim_value) for d in value.type.tensor_type.shape.dim)
        for value in proto.graph.input
    )
    trtexec.passes("--onnx=two.onnx", f"--shapes={shapes}", *QUICK)


def test_what_has_no_effect_is_named(trtexec):
    done = trtexec.run(
        *["--onnx=conv.onnx", "--skipInference", "--explicitBatch", "--useSpinWait"],
        *["--calib=cache", "--sparsity=enable", "--fp16", "--int8", "--best", "--noTF32"],
        *["--memPoolSize=workspace:16.5,tacticSharedMem:1M", "--builderOptimizationLevel=1"],
        *["--tacticSources=-CUDNN,+CUBLAS", "--precisionConstraints=prefer"],
        *["--layerPrecisions=*:fp16", "--timingCacheFile=times", "--maxAuxStreams=0"],
    )
    assert done.returncode == 0, done.stderr
    for name in ("explicitBatch", "useSpinWait", "calib"):
        assert f"[W] --{name} has no effect" in done.stderr, done.stderr
    assert (trtexec.folder / "times").stat().st_size > 0


@pytest.mark.parametrize(
    "arguments, match",
    [
        (["--onnx=conv.onnx", "--useDLACore=0"], "Cannot create DLA engine, 0 not available"),
        (["--onnx=conv.onnx", "--savEngine=e"], "Unknown option: --savEngine=e.*'--saveEngine'"),
        (["--onnx=conv.onnx", "--fp16=1"], "--fp16 takes no value"),
        (["--onnx=conv.onnx", "--iterations=many"], "--iterations=many"),
        (["--onnx=conv.onnx", "--percentile=101"], "0 to 100"),
        (["--onnx=conv.onnx", "--optShapes=x:AxB"], "--optShapes"),
        (["--onnx=conv.onnx", "--inputIOFormats=fp16:chw3"], "no format 'chw3'"),
        (["--onnx=conv.onnx", "--memPoolSize=work:3"], "no pool 'work'"),
        (["--onnx=conv.onnx", "--safe"], "--safe is not here"),
        (["--onnx=conv.onnx", "--saveEngine=no/e.plan"], "there is no folder 'no'"),
        (["--onnx=none.onnx"], "none.onnx"),
        (["--loadEngine=conv.onnx"], "conv.onnx"),
        (["--onnx=pad.onnx"], "circ_pad_plugin"),
        (["--fp16"], "Model missing"),
        (["conv.onnx"], "'conv.onnx' is no option"),
    ],
)
def test_what_it_refuses(trtexec, arguments, match):
    trtexec.fails(*arguments, match=match)


def test_formats_of_inputs_and_outputs(trtexec):
    trtexec.passes(
        *["--onnx=conv.onnx", "--fp16", "--inputIOFormats=fp16:chw", "--outputIOFormats=fp16:chw"],
        *["--saveEngine=half.plan", "--skipInference"],
    )
    X.astype(np.float16).tofile(trtexec.folder / "half.bin")
    trtexec.passes(
        "--loadEngine=half.plan", *QUICK, "--loadInputs=x:half.bin", "--exportOutput=half.json"
    )
    (output,) = json.loads((trtexec.folder / "half.json").read_text())
    model = onnxruntime.InferenceSession(convolution().SerializeToString())
    (expected,) = model.run(None, {"x": X})
    made = np.array(output["values"], np.float32).reshape(expected.shape)
    np.testing.assert_allclose(made, expected, rtol=0.02, atol=0.02)


def test_plugins_and_a_link_of_its_name(trtexec, plugin_dir):
    library = plugin_dir / "circ_pad_plugin.so"
    link = trtexec.folder / "trtexec"
    link.symlink_to(trtexec.program)
    for option in ("--plugins", "--staticPlugins", "--dynamicPlugins"):
        done = subprocess.run(
            [link, "--onnx=pad.onnx", f"{option}={library}", *QUICK],
            cwd=trtexec.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and "Throughput: " in done.stdout, done.stderr


def test_help_and_versions(trtexec):
    for option in ("--help", "-h"):
        assert "--saveEngine=FILE" in trtexec.passes(option)
    assert "TensorRT" in trtexec.passes("--version")
    text = trtexec.passes("--loadEngine=conv.plan", "--getPlanVersionOnly")
    assert "Plan was created with opwright" in text
