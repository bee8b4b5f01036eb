"""A server in a process of its own, and engines for it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx.parser

import opwright


def build_rows(path: Path, factor: float = 2.0, highest: int = 16) -> None:
    """Builds y = x * factor + n for rows x[batch, 4] and n[batch, 1] of int32, and z = not flag."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 19]>
        net (float[b, 4] x, int32[b, 1] n, bool[b, 2] flag) => (float[b, 4] y, bool[b, 2] z)
        {{ k = Constant <value = float {{{factor}}}> ()  m = Mul (x, k)
           f = Cast <to = 1> (n)  y = Add (m, f)  z = Not (flag) }}"""
    )
    extents = {"x": 4, "n": 1, "flag": 2}
    shapes = {name: ((1, k), (4, k), (highest, k)) for name, k in extents.items()}
    opwright.build(model, shapes=shapes).save(path)


def rows(n, seed=0):
    """Inputs of `n` rows for the engine of build_rows()."""
    random = np.random.default_rng(seed)
    return {
        "x": random.standard_normal((n, 4)).astype(np.float32),
        "n": random.integers(-9, 9, (n, 1)).astype(np.int32),
        "flag": random.integers(0, 2, (n, 2)).astype(bool),
    }


def build_slow(path: Path) -> None:
    """Builds w = a chain of products of a fixed 768 x 768 square, which takes some ten milliseconds
    a run."""
    size, names = 768, "abcdefghijkl"
    steps = "\n".join(f"{b} = MatMul ({a}, x)" for a, b in zip("x" + names, names + "w"))
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 19]>
        slow (float[{size}, {size}] x) => (float[{size}, {size}] w) {{ {steps} }}"""
    )
    opwright.build(model, timing=False).save(path)


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The host and port of `opwright serve ARGUMENTS`, and the process."""
    command = [sys.executable, "-m", "opwright", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        while (found := re.search(r"http://(\S+:\d+)", line)) is None:
            assert line, "the server ended before it served"
            line = process.stderr.readline()
        yield found[1], process
    finally:
        process.terminate()
        process.wait(30)
