"""Models that packages on PyPI ship, on real input: the largest difference from ONNX Runtime, and both times.

    python bench/real_models.py [PART OF A NAME ...]

Prints a table in Markdown of the models that are installed, the first of each one's inputs timed, in turns.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import onnx
import onnxruntime
from timing import in_turns, threads

import opwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python"))

from real_models import MODELS, Missing, Model, difference, onnx_runtime  # noqa: E402


def row(model: Model) -> tuple[str, float]:
    data, calls = model.read(), model.make()
    wanted = onnx_runtime(data, calls)
    start = time.perf_counter()
    engine = opwright.build(data, shapes=model.shapes(calls), device="cpu")
    building = time.perf_counter() - start
    worst = 0.0
    for call, expected in zip(calls, wanted):
        results = engine(**call)
        if not isinstance(results, dict):
            results = {next(iter(expected)): results}
        worst = max(worst, *(difference(results[name], array) for name, array in expected.items()))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    call = calls[0]
    own, theirs = in_turns([lambda: engine(**call), lambda: session.run(None, call)])
    nodes = len(onnx.load_from_string(data).graph.node)
    verdict = f"{worst:.0e}" if worst <= model.tolerance else f"**{worst:.0e}**"
    return (
        f"| {model.package} | {Path(model.file).name} | {nodes} | {len(calls)} | {verdict} | {building:.2f} |"
        f" {own * 1e3:.2f} | {theirs * 1e3:.2f} | {own / theirs:.2f} |"
    ), own / theirs


def main(chosen: list[str]) -> None:
    print(
        f"ONNX Runtime {onnxruntime.__version__}, {threads()} threads. Differences are in units of an output's"
        " largest element.\n"
    )
    print(
        "| package | model | nodes | shapes | difference | build s | ms | ONNX Runtime ms | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    ratios, missing = [], []
    for model in MODELS:
        if chosen and not any(part in f"{model.package}/{model.file}" for part in chosen):
            continue
        try:
            line, ratio = row(model)
        except Missing as problem:
            missing.append(str(problem))
            continue
        except opwright.Error as error:
            line = f"| {model.package} | {Path(model.file).name} | refused: {str(error)[:120]} |"
            print(line, flush=True)
            continue
        print(line, flush=True)
        ratios.append(ratio)
    print(f"\nThe median ratio of {len(ratios)} models is {statistics.median(ratios):.2f}.")
    for problem in missing:
        print(f"Left out: {problem}.")


if __name__ == "__main__":
    main(sys.argv[1:])
