"""Latency of real image classifiers and of the demo's network, against ONNX Runtime with as many threads, and against
the sum of the times that the engine reports for its steps (goal: within 10 %).

python bench/models.py [NAME ...]
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from timing import chosen_names, in_turns, threads

import opwright

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "python" / "support"), str(ROOT / "samples" / "demo")]

import demo  # noqa: E402

import light_models  # noqa: E402


def session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options)


def compare(ours: bytes, theirs: bytes, inputs: dict[str, np.ndarray], **build) -> list[float]:
    """Seconds per run of our engine and of ONNX Runtime, and of our steps. Raises an error if the
    results differ."""
    engine = opwright.build(ours, **build)
    peer = session(theirs)
    names = [o.name for o in peer.get_outputs()]
    result, expected = engine(**inputs), peer.run(names, inputs)
    results = result if isinstance(result, dict) else {names[0]: result}
    for name, want in zip(names, expected):
        error = np.abs(results[name] - want).max() / np.abs(want).max()
        if not error < 1e-4:
            raise SystemExit(f"bench/models: {name} differs from ONNX Runtime by {error:.1e}")
    times = in_turns([lambda: engine(**inputs), lambda: peer.run(names, inputs)])
    return [*times, sum(layer["TimeMs"] for layer in engine.layers) * 1e-3]


def main() -> None:
    chosen = chosen_names(__doc__, [*light_models.NAMES, "demo"])
    ratios = []
    print(f"threads: {threads()}, ONNX Runtime {onnxruntime.__version__}")
    print(f"{'model':14} {'ours ms':>9} {'ONNX Runtime ms':>16} {'ratio':>6} {'of its steps':>12}")
    for name in chosen:
        if name == "demo":
            photo = demo.astronaut().transpose(2, 0, 1)[None]
            inputs = {"x": np.ascontiguousarray(photo, np.float32) / 255}
            ours, theirs = demo.plugin_model(), demo.standard_model()
            times = compare(
                ours.SerializeToString(), theirs.SerializeToString(), inputs, prefer_aot=True
            )
        else:
            model = light_models.randomized(name)
            serialized = model.SerializeToString()
            times = compare(serialized, serialized, light_models.sample_input(model))
        own, peer, steps = times
        ratios.append(own / peer)
        print(
            f"{name:14} {own * 1e3:9.3f} {peer * 1e3:16.3f} {ratios[-1]:6.2f} {own / steps:12.2f}",
            flush=True,
        )
    print(f"median ratio: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
