"""Every operator that the parser takes, each a model of that one node, against ONNX Runtime with as many threads:
microseconds per call as programs call them, results in new arrays, the worst ratio first. Results are compared; a
model that one of both refuses is listed as such.

python bench/operators.py [--json FILE] [--rounds N] [--seconds S] [NAME ...]

Names are those of operators (`Conv`, `Reduce*`).
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import statistics
from typing import Any

import numpy as np
import onnx
import onnxruntime
from operator_models import RANDOM, Case, cases, model, size
from timing import in_turns, threads

import opwright

TOLERANCE = 2e-3  # relative to the largest element, since quantization and the order of sums differ


def first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


def difference(ours: np.ndarray, theirs: np.ndarray) -> str:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype} {ours.shape} here, {theirs.dtype} {theirs.shape} there"
    if not ours.size:
        return ""
    wide, other = ours.astype(np.float64), theirs.astype(np.float64)
    # A quantized element between two bytes may be rounded either way.
    slack = 1 if ours.dtype in (np.uint8, np.int8) else TOLERANCE * np.nanmax(np.abs(other))
    if np.allclose(wide, other, rtol=TOLERANCE, atol=slack, equal_nan=True):
        return ""
    return f"results differ by up to {np.nanmax(np.abs(wide - other)):.1e}"


def measure(case: Case, rounds: int, seconds: float) -> dict[str, Any]:
    row: dict[str, Any] = {"operator": case.op, "case": case.title, "size": size(case)}
    serialized, inputs = model(case)
    try:
        engine = opwright.build(serialized)
    except opwright.Error as error:
        return {**row, "note": "refused here: " + first_line(error)}
    result = engine(**inputs)
    results = list(result.values()) if isinstance(result, dict) else [result]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.log_severity_level = 4
    try:
        peer = onnxruntime.InferenceSession(serialized, options)
        expected = peer.run(None, inputs)
    except Exception as error:  # onnxruntime raises another class for each kind of refusal
        (own,) = in_turns([lambda: engine(**inputs)], rounds=rounds, seconds=seconds)
        note = "ONNX Runtime refuses: " + first_line(error)
        return {**row, "opwright_us": own * 1e6, "note": note}
    note = ""
    if case.op not in RANDOM:
        note = "; ".join(filter(None, map(difference, results, map(np.asarray, expected))))
    own, other = in_turns(
        [lambda: engine(**inputs), lambda: peer.run(None, inputs)], rounds=rounds, seconds=seconds
    )
    times = {"opwright_us": own * 1e6, "onnxruntime_us": other * 1e6, "ratio": own / other}
    return {**row, **times, "note": note}


def untried(chosen: list[Case]) -> list[str]:
    """Operators of the standard that the parser supports but no case covers."""
    names = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    supported = {name for name in names if opwright.OnnxParser.supports_operator(name)}
    return sorted(supported - {case.op for case in chosen})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.03, help="of each turn")
    arguments = parser.parse_args()
    everything = cases()
    chosen = [
        case
        for case in everything
        if not arguments.names or any(fnmatch.fnmatchcase(case.op, n) for n in arguments.names)
    ]
    if not chosen:
        raise SystemExit(f"bench/operators: no operator is named {' or '.join(arguments.names)}")
    rows = [measure(case, arguments.rounds, arguments.seconds) for case in chosen]
    rows.sort(key=lambda row: -row.get("ratio", 0))
    print(f"threads: {threads()}, ONNX Runtime {onnxruntime.__version__}")
    print(
        f"{'operator':26} {'case':18} {'first input':16} {'ours us':>9} {'ORT us':>9} {'ratio':>6}"
    )
    for row in rows:
        times = (row.get(key) for key in ("opwright_us", "onnxruntime_us"))
        ours, theirs = (f"{t:.1f}" if t else "-" for t in times)
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else "-"
        print(
            f"{row['operator']:26} {row['case']:18} {row['size']:16} {ours:>9} {theirs:>9} {ratio:>6}"
            f"  {row['note']}".rstrip()
        )
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    if ratios:
        above = sum(ratio > 1.5 for ratio in ratios)
        print(f"median ratio: {statistics.median(ratios):.2f}; above 1.5: {above} of {len(ratios)}")
    if not arguments.names and (missing := untried(everything)):
        print(f"without a case: {', '.join(missing)}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(
                {"threads": threads(), "onnxruntime": onnxruntime.__version__, "operators": rows},
                file,
                indent=1,
            )


if __name__ == "__main__":
    main()
