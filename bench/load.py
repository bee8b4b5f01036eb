"""Loading a saved engine of VGG-19 (550 MB): time and added memory, against a session of ONNX Runtime.

Each load happens in a process of its own. Both are measured with the file in the page cache.

python bench/load.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python" / "support"))

CHILD = """
import json, sys, time
import numpy

def memory():
    # Private bytes: pages of a mapped file belong to the page cache, not to the process.
    fields = dict(line.split(":") for line in open("/proc/self/smaps_rollup") if ":" in line)
    resident = int(fields["Rss"].split()[0])
    return int(fields["Anonymous"].split()[0]) / 1024, resident / 1024

kind, path = sys.argv[1:]
if kind == "onnxruntime":
    import onnxruntime
    onnxruntime.set_default_logger_severity(3)
    before = memory()
    start = time.perf_counter()
    engine = onnxruntime.InferenceSession(path)
else:
    import opwright
    before = memory()
    start = time.perf_counter()
    engine = opwright.load(path, verify_weights=kind == "verified")
seconds = time.perf_counter() - start
after = memory()
print(json.dumps({"ms": seconds * 1e3, "anonymous": after[0] - before[0], "resident": after[1] - before[1]}))
"""


def measure(kind: str, path: Path, runs: int = 5) -> dict[str, float]:
    """Measures several runs and returns the one with the smallest time."""
    results = []
    for _ in range(runs):
        command = [sys.executable, "-c", CHILD, kind, str(path)]
        results.append(
            json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        )
    return min(results, key=lambda r: r["ms"])


def main() -> None:
    import light_models
    import opwright

    with tempfile.TemporaryDirectory() as folder:
        model = light_models.randomized("vgg19").SerializeToString()
        onnx_path, engine_path = Path(folder) / "vgg19.onnx", Path(folder) / "vgg19.engine"
        onnx_path.write_bytes(model)
        opwright.build(model).save(engine_path)
        del model
        print(f"engine file: {engine_path.stat().st_size / 2**20:.0f} MiB")
        print(f"{'':34} {'ms':>8} {'anonymous MiB':>14} {'resident MiB':>13}")
        figures = {}
        for kind, path, label in (
            ("verified", engine_path, "opwright.load"),
            ("deferred", engine_path, "opwright.load, weights not hashed"),
            ("onnxruntime", onnx_path, "onnxruntime.InferenceSession"),
        ):
            r = figures[kind] = measure(kind, path)
            print(f"{label:34} {r['ms']:8.1f} {r['anonymous']:14.1f} {r['resident']:13.1f}")
        for kind in ("verified", "deferred"):
            ratio = figures[kind]["ms"] / figures["onnxruntime"]["ms"]
            print(f"ratio of times, {kind}: {ratio:.3f}")


if __name__ == "__main__":
    main()
