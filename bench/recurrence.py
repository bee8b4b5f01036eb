"""ONNX's LSTM, GRU and RNN beside ONNX Runtime, measured in turns: python bench/recurrence.py"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from timing import in_turns, threads

import opwright

TESTS = Path(__file__).parent.parent / "tests" / "python"
sys.path[:0] = [str(TESTS / "layers"), str(TESTS / "support")]

from test_recurrence import feeds, make_arrays, make_model  # noqa: E402

# Kind, steps, batch, input, hidden, direction, from voice detection and speech recognition.
CASES = [
    *[("LSTM", steps, 1, 128, 128, "forward") for steps in (1, 4, 16, 64)],
    ("LSTM", 100, 8, 256, 512, "forward"),
    ("GRU", 1, 1, 128, 128, "forward"),
    ("GRU", 64, 1, 128, 128, "forward"),
    ("GRU", 100, 8, 256, 512, "forward"),
    ("RNN", 64, 1, 128, 128, "forward"),
    ("LSTM", 64, 1, 128, 128, "bidirectional"),
    ("LSTM", 100, 1, 256, 512, "forward"),
    ("LSTM", 100, 32, 128, 128, "forward"),
]


def measure(kind, steps, batch, size, hidden, direction, seconds):
    optional = ["B", "initial_h"] + ["initial_c"] * (kind == "LSTM")
    directions = 2 if direction == "bidirectional" else 1
    arrays = make_arrays(kind, steps, batch, size, hidden, directions, optional)
    arrays["R"] *= 0.1
    options = {"linear_before_reset": 1} if kind == "GRU" else {}
    model = make_model(kind, arrays, direction=direction, **options).SerializeToString()
    inputs = feeds(arrays)
    engine = opwright.build(model, timing=False)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads()
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    for ours, theirs in zip(engine(**inputs).values(), session.run(None, inputs)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    return in_turns(
        [lambda: engine(**inputs), lambda: session.run(None, inputs)], seconds=seconds, rounds=3
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each turn")
    parser.add_argument("--only", default="", help="kinds whose name contains it")
    arguments = parser.parse_args()
    print(f"{threads()} threads; microseconds a call\n")
    print(f"{'':44}{'opwright':>10}{'runtime':>10}{'ratio':>8}")
    for case in CASES:
        if arguments.only not in case[0]:
            continue
        kind, steps, batch, size, hidden, direction = case
        ours, theirs = measure(*case, arguments.seconds)
        what = f"{kind} [{steps}, {batch}, {size}] hidden {hidden} {direction}"
        print(f"{what:44}{ours * 1e6:10.1f}{theirs * 1e6:10.1f}{ours / theirs:8.2f}", flush=True)


if __name__ == "__main__":
    main()
