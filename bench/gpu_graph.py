"""A chain of 10 compiled plugins on 10x3x32x32 floats: the graph that a context captures by itself, called from
C++, against a graph of the same kernels captured by hand.

python bench/gpu_graph.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import gpu
import numpy as np

import opwright.plugin as trtp

LENGTH = 10


def main() -> None:
    gpu.need_gpu()
    spec = gpu.chain_spec(LENGTH)
    print(f"A chain of {LENGTH} plugins on 10x3x32x32 floats, per run:")
    with tempfile.TemporaryDirectory() as folder:
        for graphs in (True, False):
            engine = gpu.build(
                lambda x: trtp.op.bench.add_one(x), gpu.SMALL, length=LENGTH, graphs=graphs
            )
            x = np.random.default_rng(0).random(gpu.SMALL, np.float32)
            if not np.allclose(engine(x), x + LENGTH, rtol=1e-6):
                raise SystemExit("bench/gpu_graph: the result is wrong")
            t = gpu.run_program("graph", Path(folder), engine, spec)
            name = "engine" if graphs else "engine, cuda_graphs off"
            print(
                f"  {name:24} {t['engine'] * 1e6:7.2f} us, of the host {t['engine_host'] * 1e6:.2f}"
            )
            if graphs:
                print(
                    f"  {'graph by hand':24} {t['by_hand'] * 1e6:7.2f} us, of the host {t['by_hand_host'] * 1e6:.2f}"
                )
                print(f"  {gpu.verdict(t['engine'] / t['by_hand'], 1.1)}")
                print(f"  of the host: {gpu.verdict(t['engine_host'] / t['by_hand_host'], 1.1)}")


if __name__ == "__main__":
    main()
