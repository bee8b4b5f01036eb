"""Models that packages on PyPI ship, on real input: the largest difference from ONNX Runtime, and the times of both
and of OpenVINO, where it is installed.

    python bench/real_models.py [PART OF A NAME ...]

Prints a table in Markdown of the models that are installed, the first of each one's inputs timed, in turns. OpenVINO
computes in FP32, as the others do.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import onnx
import onnxruntime
import peers
from timing import in_turns, threads

import opwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python" / "support"))

from real_models import MODELS, Missing, Model, difference, onnx_runtime  # noqa: E402


def row(model: Model) -> tuple[str, list[float]]:
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
    call = calls[0]
    others = [peers.onnx_runtime(data, call), peers.openvino(data, calls)]
    times = iter(in_turns([lambda: engine(**call), *(other for other in others if other)]))
    own = next(times)
    runtime, openvino = (next(times) if other else float("nan") for other in others)
    nodes = len(onnx.load_from_string(data).graph.node)
    verdict = f"{worst:.0e}" if worst <= model.tolerance else f"**{worst:.0e}**"
    return (
        f"| {model.package} | {Path(model.file).name} | {nodes} | {len(calls)} | {verdict} | {building:.2f} |"
        f" {own * 1e3:.2f} | {runtime * 1e3:.2f} | {openvino * 1e3:.2f} | {own / runtime:.2f} |"
        f" {own / openvino:.2f} |"
    ), [own / runtime, own / openvino]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="of models' names")
    chosen = parser.parse_args().parts
    print(
        f"ONNX Runtime {onnxruntime.__version__}, {threads()} threads. Differences are in units of an output's"
        " largest element.\n"
    )
    print(
        "| package | model | nodes | shapes | difference | build s | ms | ONNX Runtime ms | OpenVINO ms |"
        " of ONNX Runtime | of OpenVINO |"
    )
    print("|" + "---|" * 11)
    ratios, missing = [], []
    for model in MODELS:
        if chosen and not any(part in f"{model.package}/{model.file}" for part in chosen):
            continue
        try:
            line, found = row(model)
        except Missing as problem:
            missing.append(str(problem))
            continue
        except opwright.Error as error:
            line = f"| {model.package} | {Path(model.file).name} | refused: {str(error)[:120]} |"
            print(line, flush=True)
            continue
        print(line, flush=True)
        ratios.append(found)
    for peer, column in zip(("ONNX Runtime", "OpenVINO"), zip(*ratios)):
        known = [ratio for ratio in column if ratio == ratio]
        if known:
            print(
                f"\nOf {peer}'s time: {statistics.median(known):.2f} in the median of {len(known)} models,"
                f" {max(known):.2f} at most; {sum(ratio > 1 for ratio in known)} above 1."
            )
    for problem in missing:
        print(f"Left out: {problem}.")


if __name__ == "__main__":
    main()
