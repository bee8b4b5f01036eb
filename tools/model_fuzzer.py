"""Compares random ONNX models with the standard's reference and with ONNX Runtime.

    python3 tools/model_fuzzer.py --seconds 600 --seed 7 --out found
    python3 tools/model_fuzzer.py --case 7/123 --out found
    python3 tools/model_fuzzer.py --run found/wrong-Pad-7-123
    python3 tools/model_fuzzer.py --program build/asan/cli/opwright
    python3 tools/model_fuzzer.py --device cuda
    python3 tools/model_fuzzer.py --compositions

A case is a valid graph of one to eight nodes, which its seed and number reproduce. It has operators
that the parser supports, with random types, attributes and shapes, including extents of zero and
one. It runs in a child process, so that a crash or a hang costs only one case. A case that is right
with fixed shapes is built again with open ones and run at two sets of shapes. If the two references
disagree or one of them refuses, either result is accepted. If both refuse, the engine may refuse
with `opwright.Error`.

With --compositions a case exercises fusion and the choice of tactics (random_compositions.py), at
sizes up to a million elements. Results must be as exact as the roundings of their types and sums
allow (rounding_bounds.py).

With --tactics the build itself times each tactic that can compute a layer and compares it with a
reference (`verify="strict"`, `all_tactics`). The last line counts the kernels' tactics and types
that occurred, and --record FILE writes them.

With --program the native program also builds and runs each model. A program with sanitizers finds
memory errors that do not change results.

A finding is a folder with model.onnx, inputs.npz and report.txt. The model is made small by leaving
out whole nodes. The exit status is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import json
import re
import select
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent))

from random_compositions import Composer  # noqa: E402  (the folder of this file is not a package)
from random_onnx import Generator  # noqa: E402
from rounding_bounds import Bounds  # noqa: E402

CASE_SECONDS = 30
# On a GPU each tactic is compiled.
CASE_SECONDS_OF_ALL_TACTICS = 300
# Operators whose results are random numbers. Only shapes and types are compared.
RANDOM = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}  # fmt: skip
# A sum that is rounded to an integer may fall on either side.
ROUNDED = {"DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QuantizeLinear", "Resize"}
# Known refusals, as patterns of the engine's messages.
LIMITS = (
    r"Cumulative '.*': input 1 \(axis\) must be one constant integer",
    r"\(Resize\): .*give the inputs fixed shapes",
    r"does not fit the padded input .* the output would have extent 0",
    r"TopK 'Hardmax.*': k must not exceed the extent of axis \d, 0, but is 1",
)


@dataclass
class Case:
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(self.model.SerializeToString())
        np.savez(folder / "inputs.npz", **self.inputs)

    @staticmethod
    def load(folder: Path) -> Case:
        model = onnx.load(folder / "model.onnx")
        with np.load(folder / "inputs.npz") as arrays:
            return Case(model, {name: arrays[name] for name in arrays})

    @property
    def operators(self) -> list[str]:
        return [node.op_type for node in self.model.graph.node]


def run_reference(case: Case) -> list[np.ndarray] | None:
    """The results of the standard's own implementation; None if it refuses."""
    from onnx.reference import ReferenceEvaluator

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(case.model).run(None, dict(case.inputs))
    except Exception:
        return None
    return [np.asarray(result) for result in results]


def run_onnx_runtime(case: Case) -> list[np.ndarray] | None:
    """The results of ONNX Runtime; None if it refuses."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        taken = {value.name for value in session.get_inputs()}
        fed = {name: array for name, array in case.inputs.items() if name in taken}
        results = session.run(None, fed)
    except Exception:
        return None
    return [np.asarray(result) for result in results]


def slice_by_the_standard(case: Case) -> list[np.ndarray] | None:
    """Slice by the standard's text: negative bounds count from the end, then bounds are clamped.
    With a negative step a start is clamped to [0, n - 1] and an end to [-1, n - 1]. For bounds
    beyond the axis the reference follows NumPy, and ONNX Runtime differs for the largest
    integers."""
    if case.operators != ["Slice"]:
        return None
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in case.model.graph.initializer}
    known |= case.inputs
    given = [known.get(name) for name in case.model.graph.node[0].input] + [None] * 2
    data, starts, ends, axes, steps = given[:5]
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps):
        start, end, axis, step = int(start), int(end), int(axis), int(step)
        extent = data.shape[axis]
        low, high = (-1, extent - 1) if step < 0 else (0, extent)
        start += extent if start < 0 else 0
        end += extent if end < 0 else 0
        first = min(max(start, 0), max(high, 0))
        places = np.arange(first, min(max(end, low), high), step) if extent else np.arange(0)
        data = np.take(data, places, axis)
    return [data]


# Results by the standard's text, for operators whose references contradict each other.
BY_THE_STANDARD = {"Slice": slice_by_the_standard}


def references(case: Case) -> list[list[np.ndarray]]:
    """The results of references that have the types and shapes which the standard infers."""
    found = [results for results in (run_reference(case), run_onnx_runtime(case)) if results]
    rule = BY_THE_STANDARD.get(case.operators[0]) if len(case.operators) == 1 else None
    if rule and len(found) == 2 and not all(map(np.array_equal, *found)):
        decided = rule(case)
        return [decided] if decided else found
    if not found:
        return found
    bare = onnx.ModelProto()
    bare.CopyFrom(case.model)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.ClearField("type")
    declared = onnx.shape_inference.infer_shapes(bare, data_prop=True).graph.output
    return [results for results in found if all(map(fits, declared, results))]


def fits(declared: onnx.ValueInfoProto, array: np.ndarray) -> bool:
    tensor = declared.type.tensor_type
    if not tensor.elem_type or array.dtype != helper.tensor_dtype_to_np_dtype(tensor.elem_type):
        return not tensor.elem_type
    extents = tensor.shape.dim
    return not tensor.HasField("shape") or (
        len(extents) == array.ndim
        and all(
            not e.HasField("dim_value") or e.dim_value == n for e, n in zip(extents, array.shape)
        )
    )


def types_of(model: onnx.ModelProto) -> set[int]:
    """Element types in the model. A narrow type widens the tolerance."""
    kinds = {value.type.tensor_type.elem_type for value in model.graph.input}
    kinds |= {tensor.data_type for tensor in model.graph.initializer}
    for node in model.graph.node:
        kinds |= {a.i for a in node.attribute if a.name in ("to", "dtype", "output_dtype")}
    return kinds


def difference(
    case: Case, got: np.ndarray, expected: np.ndarray, slack: np.ndarray | float = 0.0
) -> str | None:
    """The fault of an output; None if it is close enough."""
    if got.dtype != expected.dtype:
        return f"type {got.dtype}, expected {expected.dtype}"
    if got.shape != expected.shape:
        return f"shape {got.shape}, expected {expected.shape}"
    operators = set(case.operators)
    if operators & RANDOM or expected.dtype == object or expected.size == 0:
        return None
    wide = got.astype(np.float64) if got.dtype != np.int64 else got
    want = expected.astype(np.float64) if expected.dtype != np.int64 else expected
    kinds = types_of(case.model)
    with np.errstate(all="ignore"):
        if np.issubdtype(expected.dtype, np.integer) or expected.dtype == bool:
            bad = np.abs(wide - want) > (1 if operators & ROUNDED else 0)
        else:
            relative = 1e-4
            if TensorProto.FLOAT16 in kinds:
                relative = 1e-2
            if TensorProto.BFLOAT16 in kinds:
                relative = 6e-2
            finite = np.abs(want[np.isfinite(want)])
            scale = max(1.0, float(finite.max())) if finite.size else 1.0
            allowed = relative * (scale + np.abs(want)) + slack
            same = (wide == want) | (np.isnan(wide) & np.isnan(want))
            bad = ~(same | (np.abs(wide - want) <= allowed))
    if not bad.any():
        return None
    at = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
    return f"{int(bad.sum())} of {bad.size} elements, first at {at}: {got[at]}, expected {expected[at]}"


def node_case(case: Case, node: onnx.NodeProto, known: dict[str, np.ndarray]) -> Case:
    """A model of only this node."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        names |= {name for inner in attribute.g.node for name in inner.input if name in known}
    constants = [tensor for tensor in case.model.graph.initializer if tensor.name in names]
    inputs = {name: known[name] for name in sorted(names - {tensor.name for tensor in constants})}
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.graph.CopyFrom(helper.make_graph([node], "node", values, outputs, constants))
    return Case(model, inputs)


def expectations(case: Case) -> dict[str, list[np.ndarray]] | None:
    """The accepted values of each tensor, node by node; None if both references refuse a node.

    A reference that does not support one kind of node still judges the others.
    """
    known = dict(case.inputs)
    for tensor in case.model.graph.initializer:
        known[tensor.name] = numpy_helper.to_array(tensor)
    accepted: dict[str, list[np.ndarray]] = {}
    for node in case.model.graph.node:
        results = references(node_case(case, node, known))
        if not results:
            return None
        for i, name in enumerate(name for name in node.output if name):
            accepted[name] = [result[i] for result in results]
            known[name] = results[0][i]
    return accepted


def moved(case: Case, expected: list[np.ndarray], name: str) -> list[np.ndarray | float]:
    """The change of an output when inputs change by a few roundings. Ill-conditioned outputs are
    not findings."""
    rng = np.random.default_rng(0)
    kinds = types_of(case.model)
    rounding = 1e-6
    if TensorProto.FLOAT16 in kinds:
        rounding = 2e-4
    if TensorProto.BFLOAT16 in kinds:
        rounding = 2e-3
    slack: list[np.ndarray | float] = [0.0] * len(expected)
    for _ in range(2):
        inputs = {
            key: (array * (1 + rng.normal(0, rounding, array.shape))).astype(array.dtype)
            if np.issubdtype(array.dtype, np.floating)
            else array
            for key, array in case.inputs.items()
        }
        after = (expectations(Case(case.model, inputs)) or {}).get(name, [])
        for i, (now, before) in enumerate(zip(after, expected)):
            if now.shape == before.shape and np.issubdtype(now.dtype, np.floating):
                with np.errstate(all="ignore"):
                    step = np.abs(now.astype(np.float64) - before.astype(np.float64))
                slack[i] = np.maximum(slack[i], np.nan_to_num(8 * step, posinf=0))
    return slack


def judge(case: Case, device: str, bounded: bool = False) -> tuple[str, str]:
    """A verdict, "ok", "refused", "wrong" or "raised", and its reason. With `bounded`, results must
    be as exact as the roundings of their types and sums allow, not only close."""
    import opwright
    from opwright import onnx_backend

    accepted = expectations(case)
    bounds = Bounds(case.model, case.inputs) if bounded else None
    try:
        got = list(onnx_backend.prepare(case.model, device.upper(), timing=False).run(case.inputs))
    except opwright.Error as error:
        message = str(error)
        if accepted is None or any(re.search(limit, message) for limit in LIMITS):
            return "ok", ""
        return "refused", message
    except Exception as error:
        if accepted is None and isinstance(error, onnx.checker.ValidationError):
            return "ok", ""
        return "raised", f"{type(error).__name__}: {error}"
    if accepted is None:
        return "ok", ""
    results = dict(zip((o.name for o in case.model.graph.output), got))
    messages = differences(case, results, accepted, bounds)
    if messages:
        return "wrong", "\n".join(messages)
    return judge_open(case, accepted, device, bounds)


def differences(
    case: Case,
    got: dict[str, np.ndarray],
    accepted: dict[str, list[np.ndarray]],
    bounds: Bounds | None = None,
) -> list[str]:
    messages = []
    for value in case.model.graph.output:
        results = accepted[value.name]
        if bounds and value.name in bounds.known:
            message = bounds.difference(value.name, got[value.name])
            if message:
                messages.append(f"output '{value.name}': {message}")
            if message or bounds.is_complete(value.name):
                continue
            # References round sums in BF16 more often than code that sums in FP32.
            exact = bounds.known[value.name].value.astype(results[0].dtype)
            results = [*results, exact]
        wrong = [difference(case, got[value.name], result) for result in results]
        if all(wrong):
            slack = moved(case, results, value.name)
            wrong = [
                difference(case, got[value.name], result, allowed)
                for result, allowed in zip(results, slack)
            ]
        if all(wrong):
            messages.append(f"output '{value.name}': {' / '.join(str(text) for text in wrong)}")
    return messages


def with_open_extents(case: Case) -> tuple[onnx.ModelProto, dict[str, tuple[Any, ...]]]:
    """The model with names for all input extents but 0 and 1, and their ranges. Equal extents get
    the same name."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    shapes: dict[str, tuple[Any, ...]] = {}
    for value in model.graph.input:
        if value.name not in case.inputs:
            continue
        extents = case.inputs[value.name].shape
        for dim, extent in zip(value.type.tensor_type.shape.dim, extents):
            if extent > 1:
                dim.dim_param = f"extent{extent}"
        low = tuple(e - 1 if e > 2 else e for e in extents)
        shapes[value.name] = (low, extents, tuple(e + 2 if e > 1 else e for e in extents))
    for value in model.graph.output:
        value.ClearField("type")
    del model.graph.value_info[:]
    return model, shapes


def judge_open(
    case: Case, accepted: dict[str, list[np.ndarray]], device: str, bounds: Bounds | None
) -> tuple[str, str]:
    """Judges the case with extents that are open until the engine runs, at the case's shapes and at
    others. The engine may refuse a model that does not work for all shapes of a range."""
    import opwright

    model, shapes = with_open_extents(case)
    if all(low == high for low, _, high in shapes.values()) or set(case.operators) & RANDOM:
        return "ok", ""
    try:
        engine = opwright.build(model, shapes=shapes, device=device, timing=False)
    except opwright.Error:
        return "ok", ""
    names = [value.name for value in case.model.graph.output]
    grown = {
        name: np.resize(array, tuple(e + 1 if e > 1 else e for e in array.shape))
        for name, array in case.inputs.items()
    }
    for inputs in (case.inputs, grown):
        if inputs is grown:
            case = Case(case.model, inputs)
            known = expectations(case)
            # There is no reference behind a node over which the references disagree.
            if known is None or any(
                difference(case, results[0], other)
                for results in known.values()
                for other in results
            ):
                return "ok", ""
            accepted = known
            bounds = Bounds(case.model, inputs) if bounds else None
        try:
            made = engine(**inputs)
        except opwright.Error:
            continue
        got = made if isinstance(made, dict) else {names[0]: made}
        for name, array in got.items():  # the engine computes double precision in FP32
            if name in accepted and accepted[name][0].dtype == np.float64:
                got[name] = array.astype(np.float64)
        if not set(names) <= set(got):
            return "ok", ""  # sequences
        messages = differences(case, got, accepted, bounds)
        if messages:
            where = "other extents" if inputs is grown else "the extents of the case"
            return "wrong", f"with open extents, at {where}:\n" + "\n".join(messages)
    return "ok", ""


def judge_tactics(case: Case, device: str) -> tuple[str, str, list[dict[str, Any]]]:
    """Whether all tactics that can compute the model's layers agree with the build's own reference,
    and which tactics there were. Extents are fixed, and in a third of the cases also open."""
    import opwright

    model, shapes = with_open_extents(case)
    builds: list[dict[str, Any]] = [{"model": case.model}]
    if zlib.crc32(case.model.SerializeToString()) % 3 == 0:
        builds.append({"model": model, "shapes": shapes})
    tactics: list[dict[str, Any]] = []
    for build in builds:
        try:
            engine = opwright.build(**build, device=device, verify="strict", all_tactics=True)
        except opwright.Error as error:
            is_fault = "verification is strict" in str(error) or "CUDA_ERROR" in str(error)
            if is_fault:
                return "wrong", f"with all tactics: {error}", tactics
            continue
        inspector = engine.engine.create_engine_inspector()
        text = inspector.get_engine_information(opwright.LayerInformationFormat.JSON)
        tactics += [line for layer in json.loads(text)["Layers"] for line in ran(layer, device)]
    return "ok", "", tactics


def ran(layer: dict[str, Any], device: str) -> list[dict[str, Any]]:
    """The layer's candidates, in the form that tools/tactic_coverage.py reads. The build has run
    all of them."""

    def ports(which: str, types: str) -> list[list[str]]:
        made = []
        for port, kind in zip(layer[which], types.split(", ")):
            extents = [str(extent) for extent in port["Dimensions"]]
            low = "x".join(extents)
            is_open = not all(extent.isdigit() for extent in extents)
            made.append([kind, low, low + " or more" if is_open else low])
        return made

    lines = []
    for candidate in layer.get("Candidates", []):
        given, _, results = candidate["Types"].rpartition("-> ")
        lines.append(
            {
                "event": "run", "device": device, "kind": layer["LayerType"], "tactic": candidate["TacticName"],
                "inputs": ports("Inputs", given.strip()), "outputs": ports("Outputs", results),
            }
        )  # fmt: skip
    return lines


def judge_program(case: Case, program: str, device: str) -> tuple[str, str]:
    """Whether the native program builds and runs the model, or ends in an orderly way."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case.save(folder)
        inputs = []
        for i, (key, array) in enumerate(case.inputs.items()):
            try:
                np.save(folder / f"{i}.npy", array, allow_pickle=False)
            except ValueError:  # strings
                return "ok", ""
            inputs += ["--input", f"{key}={folder / f'{i}.npy'}"]
        engine = str(folder / "engine")
        build = ["build", str(folder / "model.onnx"), "-o", engine, "--device", device]
        for command in ([*build, "--no-timing"], ["run", engine, *inputs]):
            done = subprocess.run([program, *command], capture_output=True, text=True, check=False)
            said = done.stderr
            if done.returncode < 0 or "AddressSanitizer" in said or "runtime error: " in said:
                return "crashed", f"{program} {command[0]}: exit status {done.returncode}\n{said}"
            if done.returncode != 0:
                return "ok", ""
    return "ok", ""


# ---- The child process that judges, and the parent that watches it.


def make_case(seed: int, number: int, compositions: bool = False) -> Case:
    kind = Composer if compositions else Generator
    generator = kind(np.random.default_rng([seed, number]))
    model, inputs = generator.model(lambda model, inputs: references(Case(model, inputs)))
    return Case(model, inputs)


def serve(program: str | None, device: str, compositions: bool, tactics: bool) -> int:
    """Judge the cases on stdin, in lines "make SEED NUMBER FOLDER" or "judge FOLDER"."""
    import opwright  # noqa: F401  (the parent's clock runs from the first case)

    def say(**what: Any) -> None:
        print("@" + json.dumps(what), flush=True)

    for line in sys.stdin:
        command, *words = line.rstrip("\n").split("\t")
        folder = Path(words[-1])
        if command == "make":
            case = make_case(int(words[0]), int(words[1]), compositions)
            case.save(folder)
        else:
            case = Case.load(folder)
        say(stage="engine")
        verdict, message = judge(case, device, compositions)
        tactics_run: list[dict[str, Any]] = []
        if verdict == "ok" and tactics:
            verdict, message, tactics_run = judge_tactics(case, device)
        if verdict == "ok" and program:
            verdict, message = judge_program(case, program, device)
        say(
            stage="done",
            verdict=verdict,
            message=message,
            operators=case.operators,
            tactics=tactics_run,
        )
    return 0


class Judge:
    """A child process that judges cases. A new one replaces it after a crash or a hang."""

    def __init__(self, program: str | None, device: str, compositions: bool, tactics: bool) -> None:
        self._options = ["--device", device, *(["--program", program] if program else [])]
        self._options += ["--compositions"] * compositions + ["--tactics"] * tactics
        self._seconds = CASE_SECONDS_OF_ALL_TACTICS if tactics else CASE_SECONDS
        self._child: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()
        self._rest = b""

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for pipe in (self._child.stdin, self._child.stdout):
                assert pipe is not None
                pipe.close()
            self._child = None

    def ask(self, *words: object) -> dict[str, Any]:
        """The verdict; "lost" if a reference, not the engine, crashed or hung."""
        if self._child is None:
            self._rest = b""
            self._errors.seek(0)
            self._errors.truncate()
            self._child = subprocess.Popen(
                [sys.executable, __file__, "--serve", *self._options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
            )
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(("\t".join(str(word) for word in words) + "\n").encode())
        self._child.stdin.flush()
        stage = "start"
        end = time.monotonic() + self._seconds
        while True:
            while b"\n" in self._rest:
                line, self._rest = self._rest.split(b"\n", 1)
                if not line.startswith(b"@"):
                    continue
                said = json.loads(line[1:])
                stage = said["stage"]
                if stage == "done":
                    return dict(said)
            ready, _, _ = select.select(
                [self._child.stdout], [], [], max(0, end - time.monotonic())
            )
            data = self._child.stdout.read1(1 << 16) if ready else b""  # type: ignore[attr-defined]
            if data:
                self._rest += data
                continue
            status = None if not ready else self._child.wait()
            self.close()
            self._errors.seek(0, 2)
            self._errors.seek(max(0, self._errors.tell() - 2000))
            tail = self._errors.read().decode(errors="replace")
            if status is None:
                verdict, message = "hung", f"nothing came for {self._seconds} s"
            else:
                verdict, message = "crashed", f"exit status {status}\n{tail}"
            if stage != "engine":
                verdict = "lost"
            return {"verdict": verdict, "message": message, "operators": [], "tactics": []}


def part_of(case: Case, outputs: list[str], cut: bool) -> Case | None:
    """The nodes that these outputs need; with `cut` only the last node, fed by the reference."""
    graph = case.model.graph
    needed, kept = set(outputs), []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.insert(0, node)
            if cut:
                needed = set(node.input)
                break
            needed |= set(node.input)
    made = onnx.ModelProto()
    made.CopyFrom(case.model)
    new = made.graph
    inputs = {name: array for name, array in case.inputs.items() if name in needed}
    if cut:
        between = {name for node in graph.node for name in node.output} & needed
        if any(attribute.HasField("g") for attribute in kept[-1].attribute):
            return None
        if between:
            del new.output[:]
            new.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(between))
            results = references(Case(made, case.inputs))
            if not results:
                return None
            inputs.update(zip(sorted(between), results[0]))
        values = [value for value in graph.input if value.name in needed]
        for name in sorted(between):
            kind = helper.np_dtype_to_tensor_dtype(inputs[name].dtype)
            values.append(helper.make_tensor_value_info(name, kind, inputs[name].shape))
    else:
        values = [value for value in graph.input if value.name in needed]
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    results_of_part = [onnx.ValueInfoProto(name=name) for name in outputs]
    made.graph.CopyFrom(helper.make_graph(kept, "part", values, results_of_part, constants))
    results = references(Case(made, inputs))
    if results:
        for value, array in zip(made.graph.output, results[0]):
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, array.shape))
    else:
        made = onnx.shape_inference.infer_shapes(made)
    return Case(made, inputs)


def reduced(
    case: Case, verdict: str, judge_: Judge, folder: Path
) -> tuple[Case, dict[str, Any] | None]:
    """The smallest part of the case that has the same verdict."""
    for cut in (True, False):
        for node in case.model.graph.node:
            outputs = [name for name in node.output if name]
            try:
                part = part_of(case, outputs, cut)
            except Exception:
                continue
            if part is None or len(part.model.graph.node) >= len(case.model.graph.node) > 1:
                continue
            part.save(folder)
            answer = judge_.ask("judge", folder)
            if answer["verdict"] == verdict:
                return part, answer
    return case, None


def describe(case: Case) -> str:
    lines = [f"opset {case.model.opset_import[0].version}"]
    for node in case.model.graph.node:
        attributes = ", ".join(
            f"{a.name}={helper.get_attribute_value(a)}"
            for a in node.attribute
            if not a.HasField("g")
        )
        lines.append(
            f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)}; {attributes})"
        )
    for name, array in case.inputs.items():
        values = array.ravel()[:12].tolist()
        lines.append(f"input {name}: {array.dtype}{list(array.shape)} {values}")
    for tensor in case.model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        values = array.ravel()[:12].tolist()
        lines.append(f"initializer {tensor.name}: {array.dtype}{list(array.shape)} {values}")
    return "\n".join(lines)


def likeness(verdict: str, operators: list[str], message: str) -> str:
    """A key that is equal for similar findings, which are written once."""
    text = re.sub(r"'[^']*'|[-+\d.]+(e[-+]?\d+)?|\[[^\]]*\]|\([^)]*\)", "", message)
    if verdict == "refused":
        return f"{verdict} {operators[-1]} {text}"[:120]
    return f"{verdict} {'+'.join(sorted(set(operators)))}"[:300]


def fuzz(arguments: argparse.Namespace) -> int:
    end = time.monotonic() + arguments.seconds
    if arguments.case:
        arguments.seed, number = (int(part) for part in arguments.case.split("/"))
        numbers = range(number, number + 1)
    else:
        numbers = range(arguments.first, arguments.first + arguments.cases)
    seen: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    tactics: dict[str, dict[str, Any]] = {}
    ran = lost = 0
    judge_ = Judge(arguments.program, arguments.device, arguments.compositions, arguments.tactics)
    with tempfile.TemporaryDirectory() as scratch_name:
        scratch = Path(scratch_name)
        for number in numbers:
            if time.monotonic() > end:
                break
            answer = judge_.ask("make", arguments.seed, number, scratch / "case")
            ran += 1
            operators.update(set(answer["operators"]))
            tactics.update((json.dumps(line), line) for line in answer["tactics"])
            verdict = answer["verdict"]
            lost += verdict == "lost"
            if verdict == "lost" and arguments.case:
                print(answer["message"])
            if verdict in ("ok", "lost"):
                continue
            case = Case.load(scratch / "case")
            small, again = reduced(case, verdict, judge_, scratch / "part")
            message = again["message"] if again else answer["message"]
            key = likeness(verdict, small.operators, message)
            seen[key] += 1
            if seen[key] > 1:
                continue
            operator = "-".join(dict.fromkeys(small.operators))[:60]
            folder = Path(arguments.out) / f"{verdict}-{operator}-{arguments.seed}-{number}"
            small.save(folder)
            report = (
                f"case {arguments.seed}/{number}: {verdict}\n{message}\n\n{describe(small)}\n\n"
                f"Run it again: python3 tools/model_fuzzer.py --run {folder}\n"
            )
            (folder / "report.txt").write_text(report)
            print(report, flush=True)
    judge_.close()
    print(
        f"{ran} cases, {len(operators)} operators, {len(seen)} findings, {lost} lost to a reference"
    )
    if arguments.tactics:
        names = {(t["kind"], t["tactic"], *(p[0] for p in t["inputs"])) for t in tactics.values()}
        kernels = Counter(name[0] for name in names)
        print(f"{len(names)} tactics by type: {dict(sorted(kernels.items()))}")
    if arguments.record:
        with open(arguments.record, "a") as file:
            file.writelines(line + "\n" for line in tactics)
    if arguments.operators:
        print(", ".join(f"{name} {count}" for name, count in sorted(operators.items())))
    return 1 if seen else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare random ONNX models with two references.")
    parser.add_argument("--seconds", type=float, default=60, help="stop after so long")
    parser.add_argument("--cases", type=int, default=10**9, help="stop after so many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="build/fuzz/models", help="the folder for findings")
    parser.add_argument("--case", metavar="SEED/NUMBER", help="this case alone")
    parser.add_argument("--run", metavar="FOLDER", help="judge a finding again, in this process")
    parser.add_argument("--program", help="the native program, which runs each case, too")
    parser.add_argument("--device", default="cpu", help="cpu (the default), cuda or cuda:1")
    parser.add_argument("--operators", action="store_true", help="count the operators that came up")
    parser.add_argument(
        "--compositions", action="store_true", help="kernels and what is fused into them"
    )
    parser.add_argument(
        "--tactics", action="store_true", help="time and verify all tactics of each layer"
    )
    parser.add_argument(
        "--record", metavar="FILE", help="append the tactics there, for tools/tactic_coverage.py"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.program, arguments.device, arguments.compositions, arguments.tactics)
    if arguments.run:
        case = Case.load(Path(arguments.run))
        verdict, message = judge(case, arguments.device, arguments.compositions)
        print(verdict, message)
        return int(verdict != "ok")
    return fuzz(arguments)


if __name__ == "__main__":
    sys.exit(main())
