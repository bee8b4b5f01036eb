"""The operator of samples/aot from each language, as an engine on the device: rows x columns of 4096, times by
events, and the lines of each kernel.

A language that is not installed is taken from the folder, where another machine saved its kernels:
python samples/aot/run.py --arch sm_90 --kernels DIR --shape 4096x4096

python bench/gpu_languages.py [DIR]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import gpu
import numpy as np

import opwright as trt

SAMPLES = gpu.ROOT / "samples" / "aot"
sys.path.insert(0, str(SAMPLES))
import run  # noqa: E402  (the sample's runner)

SHAPE = (4096, 4096)
FILES = {"cuda": "rms_norm.cu", "cpp": "rms_norm.cpp"}


def lines(language: str) -> int:
    """The number of the kernel's lines without imports, empty lines, comments and docstrings."""
    path = SAMPLES / FILES.get(language, f"rms_norm_{language}.py")
    text = path.read_text()
    if path.suffix != ".py":
        return sum(
            bool(line.strip()) and not line.strip().startswith(("//", "#include"))
            for line in text.splitlines()
        )
    tree = ast.parse(text)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, (ast.Import, ast.ImportFrom)):
            skipped |= set(range(node.lineno, node.end_lineno + 1))
    kept = [
        line
        for number, line in enumerate(text.splitlines(), 1)
        if number not in skipped and line.strip() and not line.strip().startswith("#")
    ]
    return len(kept)


def engine_of(tactic: run.Tactic, precision: str, kernels: Path | None) -> trt.Engine | None:
    """The engine, or None if the language is neither installed nor among the saved kernels."""
    fixed = SHAPE if tactic == run.Tactic.PALLAS else None
    for folder in (kernels, None):
        run.rms_norm.kernels = folder
        run.FIXED = SHAPE
        if not run.lacks(tactic, precision):
            return run.build(tactic, precision, fixed)
    return None


def compare(precision: str, kernels: Path | None) -> None:
    import torch

    kind = {"fp32": torch.float32, "fp16": torch.float16}[precision]
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.uniform(-1, 1, SHAPE)).to("cuda", kind)
    scale = torch.from_numpy(rng.uniform(-1, 1, SHAPE[1])).to("cuda", kind)
    wide = x.double()
    expected = wide / torch.sqrt((wide * wide).mean(-1, keepdim=True) + run.EPSILON) * scale
    y, stream = torch.empty_like(x), torch.cuda.current_stream().cuda_stream
    functions: dict[str, Callable[[], object]] = {"copy": lambda: y.copy_(x)}
    errors: dict[str, float] = {}
    keep = []
    for tactic in run.FOR_GPU:
        name = tactic.name.lower()
        try:
            engine = engine_of(tactic, precision, kernels)
        except trt.Error as error:
            print(f"{name}: {error}")
            continue
        if engine is None:
            print(f"{name}: neither installed nor saved")
            continue
        context = engine.engine.create_execution_context()
        context.set_input_shape("x", SHAPE)
        context.set_input_shape("scale", SHAPE[1:])
        for tensor, memory in (("x", x), ("scale", scale), ("y", y)):
            context.set_tensor_address(tensor, memory.data_ptr())
        keep.append((engine, context))
        functions[name] = lambda context=context: context.execute_async_v3(stream)
        y.fill_(-1)
        functions[name]()
        torch.cuda.synchronize()
        errors[name] = float((y.double() - expected).abs().max())
    functions["torch rms_norm"] = lambda: torch.nn.functional.rms_norm(
        x, SHAPE[1:], scale, run.EPSILON
    )
    seconds = gpu.device_times(list(functions.values()))
    print(
        f"RMS normalization of {SHAPE[0]} x {SHAPE[1]}, {precision}, {torch.cuda.get_device_name()}:"
    )
    for name, time in sorted(zip(functions, seconds), key=lambda pair: pair[1]):
        known = f"{lines(name):3} lines, error {errors[name]:.1e}" if name in errors else ""
        print(
            f"  {name:15} {time * 1e6:8.1f} us   {seconds[0] / time:5.2f} of the copy's speed  {known}"
        )


def main() -> None:
    gpu.need_gpu()
    kernels = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for precision in run.TYPES:
        compare(precision, kernels)


if __name__ == "__main__":
    main()
