"""MatMulNBits, whose weights stay packed, beside ONNX Runtime: python bench/packed_weights.py"""

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

from test_matmul_nbits import Product  # noqa: E402

# Vectors, columns, rows and bits, for decoding and for reading a prompt.
CASES = [
    (1, 4096, 4096, 4),
    (1, 2048, 8192, 4),
    (4, 4096, 4096, 4),
    (128, 4096, 4096, 4),
    (1, 4096, 4096, 8),
]


def measure(vectors, columns, rows, bits, seconds):
    product = Product(rows, columns, bits, 32, "packed")
    model = product.model((vectors, columns))
    a = np.random.default_rng(1).normal(size=(vectors, columns)).astype(np.float32)
    engine = opwright.build(model, timing=False, device="cpu")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads()
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"A": a})[0]
    np.testing.assert_allclose(engine(A=a), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())
    times = in_turns(
        [lambda: engine(A=a), lambda: session.run(None, {"A": a})], seconds=seconds, rounds=3
    )
    return *times, len(memoryview(engine.engine.serialize()))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each turn")
    arguments = parser.parse_args()
    print(f"{threads()} threads; milliseconds a call, megabytes of the engine\n")
    print(f"{'':28}{'opwright':>10}{'runtime':>10}{'ratio':>8}{'engine':>10}{'as FP32':>10}")
    for vectors, columns, rows, bits in CASES:
        ours, theirs, size = measure(vectors, columns, rows, bits, arguments.seconds)
        print(
            f"{f'{vectors}x{columns}x{rows}, {bits} bits':28}{ours * 1e3:10.3f}{theirs * 1e3:10.3f}"
            f"{ours / theirs:8.2f}{size / 1e6:10.1f}{rows * columns * 4 / 1e6:10.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
