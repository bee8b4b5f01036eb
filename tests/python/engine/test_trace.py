"""Traces of runs in Chrome's trace event format, and ranges for NVIDIA's tools."""

from __future__ import annotations

import collections
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import cuda_driver
import emulated_gpu
import opwright
import opwright as trt
import opwright.plugin as plugins

HOST, DEVICE = 1, 2
CUDA = Path("/usr/local/cuda/include")


def chain(nodes: int, rows: int = 64, **build) -> opwright.Engine:
    lines = " ".join(f"t{i + 1} = Softmax(t{i})" for i in range(nodes))
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[{rows}, 512] t0) => (float[{rows}, 512] t{nodes}) {{ {lines} }}""")
    for i, node in enumerate(model.graph.node):
        node.name = f"softmax{i}"
    return opwright.build(model, timing=False, **build)


@pytest.fixture(scope="module")
def engine():
    return chain(4)


X = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)


def spans_of(text: str) -> list[dict]:
    """The spans of a trace that is as the format has it: spans of a thread lie within each other or apart, arrows
    begin and end in spans, and processes and threads have names."""
    trace = json.loads(text)
    assert trace["displayTimeUnit"] in ("ns", "ms")
    events = trace["traceEvents"]
    named = {(e["name"], e["pid"], e["tid"]) for e in events if e["ph"] == "M"}
    spans = [e for e in events if e["ph"] == "X"]
    tracks = collections.defaultdict(list)
    for event in events:
        assert event["ph"] in "MXsf"
        if event["ph"] == "M":
            assert event["args"]["name"]
            continue
        assert ("process_name", event["pid"], 0) in named
        assert ("thread_name", event["pid"], event["tid"]) in named
        assert isinstance(event["ts"], (int, float)) and event["name"] and event["cat"]
        if event["ph"] == "X":
            assert event["dur"] >= 0
            tracks[event["pid"], event["tid"]].append(event)
    for track in tracks.values():
        open_: list[float] = []
        for span in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
            end = span["ts"] + span["dur"]
            while open_ and open_[-1] <= span["ts"] + 1e-3:
                open_.pop()
            assert not open_ or end <= open_[-1] + 2e-3, span
            open_.append(end)
    arrows = collections.defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            arrows[event["id"]].append(event)
            track = tracks[event["pid"], event["tid"]]
            assert any(s["ts"] <= event["ts"] <= s["ts"] + s["dur"] for s in track)
    for begin, end in arrows.values():
        assert (begin["ph"], end["ph"]) == ("s", "f")
        assert begin["ts"] <= end["ts"] + 1000  # microseconds: two clocks
    return spans


def steps(spans: list[dict], process: int = HOST) -> list[str]:
    found = [s for s in spans if s["cat"] in ("step", "plugin") and s["pid"] == process]
    return [span["name"] for span in sorted(found, key=lambda s: s["ts"])]


def test_runs_and_their_steps(engine, tmp_path):
    engine(X)
    with engine.trace() as trace:
        engine(X)
        engine(X)
    engine(X)
    trace.save(tmp_path / "trace.json")
    text = (tmp_path / "trace.json").read_text()
    assert text == trace.json()
    spans = spans_of(text)
    names = [layer["Name"] for layer in engine.layers]
    assert steps(spans) == names * 2
    runs = [s for s in spans if s["cat"] == "run"]
    assert len(runs) == 2
    for span in (s for s in spans if s["cat"] == "step"):
        assert any(r["ts"] <= span["ts"] <= r["ts"] + r["dur"] for r in runs)
    one = next(s for s in spans if s["cat"] == "step")
    assert one["args"]["step"] == 0 and one["args"]["detail"].startswith("Softmax, FP32")
    assert {s["tid"] for s in spans if s["cat"] == "run"} == {threading.get_native_id()}


def test_new_shapes_are_prepared_for():
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[n, 8] x) => (float[n, 8] y) { y = Softmax(x) }""")
    engine = opwright.build(model, shapes={"x": ((1, 8), (2, 8), (4, 8))}, timing=False)
    engine(np.zeros((1, 8), np.float32))
    with engine.trace() as trace:
        engine(np.zeros((1, 8), np.float32))
        assert "prepare" not in trace.json()
        engine(np.zeros((3, 8), np.float32))
    assert [s["cat"] for s in spans_of(trace.json())].count("prepare") == 1


def test_a_trace_ends_and_another_begins(engine):
    trace = engine.trace()
    with pytest.raises(trt.Error, match="recorded already"):
        engine.trace()
    trace.stop()
    engine(X)
    assert spans_of(trace.json()) == []
    other = engine.trace()
    trace.stop()  # not the other one
    engine(X)
    assert len(steps(spans_of(other.json()))) == 4
    del other  # which ends it
    engine.trace().stop()


def test_threads_have_tracks_of_their_own(engine):
    with engine.trace() as trace:
        threads = [threading.Thread(target=lambda: [engine(X) for _ in range(5)]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    runs = [s for s in spans_of(trace.json()) if s["cat"] == "run"]
    assert sorted(collections.Counter(s["tid"] for s in runs).values()) == [5, 5, 5]


def test_times_are_those_of_the_profiler():
    class Profiler(trt.IProfiler):
        def __init__(self):
            trt.IProfiler.__init__(self)
            self.times: list[float] = []

        def report_layer_time(self, layer_name, ms):
            self.times.append(ms)

    engine = chain(4, rows=2048)
    context = engine.engine.create_execution_context()
    arrays = [np.zeros((2048, 512), np.float32) for _ in range(2)]
    for name, array in zip(("t0", "t4"), arrays):
        context.set_tensor_address(name, array.ctypes.data)
    context.execute_async_v3(0)
    context.profiler = profiler = Profiler()
    with engine.trace() as trace:
        context.execute_async_v3(0)
    traced = [s["dur"] / 1000 for s in spans_of(trace.json()) if s["cat"] == "step"]
    assert len(traced) == len(profiler.times) == 4
    assert sum(traced) == pytest.approx(sum(profiler.times), rel=0.1)


@plugins.register("traced::twice")
def twice(x: plugins.TensorDesc) -> plugins.TensorDesc:
    return x.like()


@plugins.impl("traced::twice")
def twice_impl(x: plugins.Tensor, outputs, stream):
    np.multiply(np.asarray(x), 2, out=np.asarray(outputs[0]))


def test_calls_of_python_are_plugins_and_waits():
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19, "traced" : 1]>
        net (float[8] x) => (float[8] y) { a = Softmax(x)  y = traced.twice(a) }""")
    engine = opwright.build(model, timing=False)
    with engine.trace() as trace:
        engine(np.zeros(8, np.float32))
    spans = spans_of(trace.json())
    (call,) = [s for s in spans if s["cat"] == "plugin"]
    assert call["args"]["step"] == 1
    (wait,) = [s for s in spans if s["name"] == "wait for the interpreter"]
    assert wait["ts"] + wait["dur"] <= call["ts"]


def test_a_run_that_fails_leaves_what_came_before():
    @plugins.register("traced::fails")
    def fails(x: plugins.TensorDesc) -> plugins.TensorDesc:
        return x.like()

    @plugins.impl("traced::fails")
    def fails_impl(x: plugins.Tensor, outputs, stream):
        raise ValueError("no")

    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19, "traced" : 1]>
        net (float[8] x) => (float[8] y) { a = Softmax(x)  y = traced.fails(a) }""")
    engine = opwright.build(model, timing=False)
    with engine.trace() as trace, pytest.raises(ValueError):
        engine(np.zeros(8, np.float32))
    spans = spans_of(trace.json())
    assert len(steps(spans)) == 1 and [s["cat"] for s in spans].count("run") == 1


@emulated_gpu.required
def test_a_gpu_has_tracks_of_its_own():
    engine = chain(3, device="cuda")
    x = cuda_driver.DeviceArray(X)
    engine(x)
    with engine.trace() as trace:
        engine(x)
    spans = spans_of(trace.json())
    names = [layer["Name"] for layer in engine.layers]
    assert steps(spans) == names
    assert steps(spans, DEVICE) == names
    assert any(s["name"] == "wait for the device" for s in spans)
    arrows = [e for e in json.loads(trace.json())["traceEvents"] if e["ph"] in "sf"]
    assert len(arrows) == 2 * len(names)


# A loop in a branch: how often it turns, and what comes of the branches, is known when it runs.
BODIES = """
    <ir_version: 9, opset_import: ["" : 19]>
    net (int64 turns, bool chosen, float[4, 512] x) => (float[m, 512] y) {
        a = Softmax (x)
        y = If (chosen) <
            then_branch = chosen_one () => (float[4, 512] p) {
                c = Constant <value = bool {1}> ()
                p = Loop (turns, c, a) <body = turn (int64 i, bool g, float[4, 512] s)
                    => (bool h, float[4, 512] r) { h = Identity (g) q = Softmax (s) r = Softmax (q) }>
            },
            else_branch = other_one () => (float[8, 512] p) { p = Concat <axis = 0> (a, a) }>
    }"""


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=emulated_gpu.required)], ids=str
)
def test_steps_of_bodies_lie_within_their_layers(device):
    engine = opwright.build(onnx.parser.parse_model(BODIES), timing=False, device=device)
    inputs = {"turns": np.int64(3), "chosen": np.True_, "x": X[:4]}
    engine(inputs)
    with engine.trace() as trace:
        engine(inputs)
        assert engine({**inputs, "chosen": np.False_}).shape == (8, 512)
    spans = spans_of(trace.json())
    for process in (HOST, DEVICE) if device == "cuda" else (HOST,):
        found = [s for s in spans if s["cat"] == "step" and s["pid"] == process]
        kinds = collections.Counter(s["args"]["detail"].split(",")[0] for s in found)
        assert kinds["Softmax"] == 2 + 3 * 2
        assert sum(kinds[kind] for kind in kinds if "Loop" in kind) == 1
        (loop,) = [s for s in found if "Loop" in s["args"]["detail"].split(",")[0]]
        whole, _ = [s for s in found if s["args"]["detail"].startswith("Conditional")]
        inside = [s for s in found if loop["ts"] < s["ts"] < loop["ts"] + loop["dur"]]
        assert sum(s["args"]["detail"].startswith("Softmax") for s in inside) == 6
        assert whole["ts"] <= loop["ts"] <= loop["ts"] + loop["dur"] <= whole["ts"] + whole["dur"]
    categories = collections.Counter(s["cat"] for s in spans)
    assert categories["run"] == 2
    assert categories["body"] == 2 + 3  # of a branch each, and the loop's turns


def test_bodies_of_engines_that_plugins_call_are_no_part_of_the_trace():
    inner = opwright.build(onnx.parser.parse_model(BODIES), timing=False)

    @plugins.register("traced::calls")
    def calls(x: plugins.TensorDesc) -> plugins.TensorDesc:
        return x.like()

    @plugins.impl("traced::calls")
    def calls_impl(x: plugins.Tensor, outputs, stream):
        given = np.array(np.asarray(x))
        np.copyto(np.asarray(outputs[0]), inner(turns=np.int64(2), chosen=np.True_, x=given))

    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19, "traced" : 1]>
        net (float[4, 512] x) => (float[4, 512] y) { y = traced.calls(x) }""")
    engine = opwright.build(model, timing=False)
    with engine.trace() as trace:
        engine(X[:4])
    spans = spans_of(trace.json())
    assert len(steps(spans)) == 1 and not any(s["cat"] == "body" for s in spans)


def test_the_program_writes_traces(program, engine, tmp_path):
    engine.save(tmp_path / "e.engine")
    command = [program, "bench", "e.engine", "--iterations", "3", "--trace", "t.json"]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    names = [layer["Name"] for layer in engine.layers]
    assert steps(spans_of((tmp_path / "t.json").read_text())) == names * 3


def test_the_program_sums_up_by_kinds(program, tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[512, 512] x) => (float[512, 512] y)
        { a = Softmax(x)  b = MatMul(a, x)  c = Softmax(b)  y = MatMul(c, x) }""")
    opwright.build(model, timing=False).save(tmp_path / "e.engine")
    bench = [program, "bench", tmp_path / "e.engine", "--iterations", "3", "--profile"]
    told = json.loads(subprocess.run([*bench, "--json"], check=True, capture_output=True).stdout)
    kinds = {each["kind"]: each for each in told["kinds"]}
    assert kinds["Softmax"]["layers"] == 2 and kinds["MatrixMultiply"]["layers"] == 2
    assert sum(k["median_ms"] for k in told["kinds"]) == pytest.approx(
        sum(layer["median_ms"] for layer in told["layers"]), abs=1e-4
    )
    text = subprocess.run(bench, check=True, capture_output=True, text=True).stdout
    tables = [table.splitlines() for table in text.split("\n\n")[1:]]
    assert [table[0].split()[-1] for table in tables] == ["kind", "layer"]
    for table in tables:
        cells = [line.split() for line in table[1:]]
        times = [float(time) * {"ns": 1, "us": 1e3, "ms": 1e6}[unit] for time, unit, *_ in cells]
        assert times == sorted(times, reverse=True)
        shares = [float(share.rstrip("%")) for _, _, share, *_ in cells]
        assert sum(shares) == pytest.approx(100, abs=0.5)


# A tool as NVTX loads it: it writes down what it is told.
TOOL = """
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
static FILE* out;
static nvtxDomainHandle_t NVTX_API create(const char* name) {
  fprintf(out, "domain %s\\n", name), fflush(out);
  return (nvtxDomainHandle_t)1;
}
static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  return fprintf(out, "push %s\\n", event->message.ascii), fflush(out), 0;
}
static int NVTX_API pop(nvtxDomainHandle_t domain) { return fprintf(out, "pop\\n"), fflush(out), 0; }
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
  const NvtxExportTableCallbacks* callbacks = (const NvtxExportTableCallbacks*)get(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table;
  unsigned size;
  out = fopen(getenv("TOOL_OUTPUT"), "w");
  if (!out || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
"""

MARKED = """
import sys
import numpy as np
import opwright as trt
engine = trt.load(sys.argv[1])
context = engine.engine.create_execution_context()
arrays = [np.zeros((64, 512), np.float32) for _ in range(2)]
for name, array in zip(("t0", "t4"), arrays):
    context.set_tensor_address(name, array.ctypes.data)
for level in ("LAYER_NAMES_ONLY", "NONE", "DETAILED"):
    if level != "LAYER_NAMES_ONLY":
        context.nvtx_verbosity = getattr(trt.ProfilingVerbosity, level)
    context.execute_async_v3(0)
"""


MARKED_BODIES = """
import sys
import numpy as np
import opwright as trt
engine = trt.load(sys.argv[1])
context = engine.engine.create_execution_context()
arrays = {"turns": np.array(2), "chosen": np.array(True)}
arrays |= {name: np.zeros((8, 512), np.float32) for name in "xy"}
for name, array in arrays.items():
    context.set_tensor_address(name, array.ctypes.data)
context.execute_async_v3(0)
context.nvtx_verbosity = trt.ProfilingVerbosity.NONE
context.execute_async_v3(0)
"""


def ranges_of(folder: Path, engine: opwright.Engine, program: str) -> list[str]:
    """What a tool of NVIDIA's is told of while the program runs the engine."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    if not (CUDA / "nvtx3" / "nvToolsExt.h").exists():
        pytest.skip("the CUDA toolkit, which the package would be built with, is not there")
    (folder / "tool.c").write_text(TOOL)
    command = [compiler, "-shared", "-fPIC", "-I", str(CUDA), "tool.c", "-o", "tool.so"]
    subprocess.run(command, check=True, cwd=folder)
    engine.save(folder / "e.engine")
    output = folder / "told.txt"
    environment = {
        **os.environ,
        "NVTX_INJECTION64_PATH": str(folder / "tool.so"),
        "TOOL_OUTPUT": str(output),
    }
    command = [sys.executable, "-c", program, str(folder / "e.engine")]
    subprocess.run(command, check=True, env=environment)
    domain, *told = output.read_text().splitlines()
    assert domain == "domain Opwright"
    return told


def test_ranges_of_bodies_lie_within_those_of_their_layers(tmp_path):
    engine = opwright.build(onnx.parser.parse_model(BODIES), timing=False)
    told = ranges_of(tmp_path, engine, MARKED_BODIES)
    assert told.count("pop") == len(told) // 2
    depth, most, begun = 0, 0, 0
    for line in told:
        depth += 1 if line.startswith("push") else -1
        most = max(most, depth)
        begun += depth == 1 and line.startswith("push")
    # Steps of the engine, of the branch, of the loop in it; NONE counts for all of them.
    assert (depth, most, begun) == (0, 3, len(engine.layers))
    assert len(told) // 2 >= 2 + 1 + 2 * 2


def test_layers_are_ranges_for_the_tools_of_nvidia(engine, tmp_path):
    told = ranges_of(tmp_path, engine, MARKED)
    names = [layer["Name"] for layer in engine.layers]
    assert told[: 2 * len(names)] == [line for name in names for line in (f"push {name}", "pop")]
    detailed = told[2 * len(names) :]  # NONE has none
    assert len(detailed) == 2 * len(names)
    for name, line in zip(names, detailed[::2]):
        assert line.startswith(f"push {name} (Softmax, FP32")
