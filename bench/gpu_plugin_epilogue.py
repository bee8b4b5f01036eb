"""What it gives that an element-wise plugin becomes a part of the convolution or product before it: ResNet-50,
BERT-base and ViT in FP16 with a custom activation, x * sigmoid(1.702 x), after each convolution or in each feed-forward
network. It is written once as an expression (`pointwise_impl`), which the tuner fuses where that is faster, and once as
a CUDA kernel of its own (`aot_impl`), a pass over memory in whichever layout its neighbours have. The expression has
two more engines, whose times in the timing cache have every chain fused, and none. All engines run in turns in one
process.

python bench/gpu_plugin_epilogue.py [--only NAME ...] [--cache FILE] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import gpu
import gpu_models
import torch

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from opwright.plugin import elements

FACTOR = 1.702
# The kernel reads and writes eight neighbours of 2 bytes at once.
KERNEL = """
#include <cuda_fp16.h>
__device__ void quick_gelu(const __half* x, int64_t packs, __half* y) {
  const int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i >= packs) return;
  uint4 vector = ((const uint4*)x)[i];
  __half* const element = (__half*)&vector;
  for (int k = 0; k < 8; ++k) {
    const float value = __half2float(element[k]);
    element[k] = __float2half(value / (1 + __expf(-1.702f * value)));
  }
  ((uint4*)y)[i] = vector;
}
"""


@trtp.register("epilogue::expression")
def expression_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.pointwise_impl("epilogue::expression")
def expression_elements(x: Any) -> Any:
    return x * elements.sigmoid(FACTOR * x)


@trtp.register("epilogue::kernel")
def kernel_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.autotune("epilogue::kernel")
def kernel_autotune(
    x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc]
) -> list[trtp.AutoTuneCombination]:
    """Accepts any order of the elements, with channels in multiples of 8."""
    return [trtp.AutoTuneCombination("FP16, FP16", "LINEAR|HWC|HWC8")]


@trtp.aot_impl("epilogue::kernel", device="cuda")
def kernel_code(
    x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc], tactic: int
) -> tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
    count = x.shape_expr.numel()
    extra = trtp.SymExprs.from_tuple([trtp.SymInt64(count // 8)])
    code = aot.cuda(KERNEL, "quick_gelu", inputs=[x], extra=extra, outputs=outputs)
    return code.name, code, code.launch(grid_x=trtp.cdiv(count, 8 * 256), block_x=256), extra


class Quick(torch.autograd.Function):
    """The activation, which an exported model has as a node of the plugin."""

    plugin = ""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(FACTOR * x)

    @staticmethod
    def symbolic(graph: Any, x: Any) -> Any:
        return graph.op(f"epilogue::{Quick.plugin}", x).setType(x.type())


class Activation(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Quick.apply(x)


def with_activation(model: torch.nn.Module) -> torch.nn.Module:
    """Replaces each ReLU and GELU by the activation."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.ReLU) or "GELU" in type(child).__name__:
                setattr(module, name, Activation())
    return model


def pinned(times: Path, fused: bool, to: Path) -> Path:
    """Writes the times with a millisecond added: with `fused` to separate programs, else to
    products with a fused program."""
    cache = trt.ITimingCache.load(str(times))
    for key in cache.queryKeys():
        text = str(key)
        is_product = text.startswith(("MatrixMultiply|", "Convolution|"))
        has_program = re.search(r"activation=(?!-1)|fused_code=\[[^\]]", text) is not None
        if text.startswith("Pointwise|") if fused else is_product and has_program:
            value = cache.query(key)
            value.timingMSec += 1
            assert cache.update(key, value)
    cache.save(str(to))
    return to


def steps(engine: Any) -> str:
    """The number of steps, and how many products or convolutions run in two steps because that is
    faster."""
    parts = [
        any(c["TacticName"].startswith("fused: ") for c in layer["Candidates"])
        for layer in engine.layers
    ]
    return f"{len(engine.layers)}, {sum(parts) // 2}"


def measure(case: gpu_models.Case, cache: Path) -> str:
    torch.manual_seed(1)
    model = with_activation(case.make().eval().cuda())
    x = case.inputs()[0].cuda()
    engines = {}
    with torch.inference_mode():
        torch.backends.mha.set_fastpath_enabled(False)
        expected = model(x)
        model.half()
        if x.is_floating_point():
            x = x.half()

        def build(name: str, plugin: str, times: Path) -> None:
            Quick.plugin = plugin
            engines[name] = trt.build(
                gpu_models.export(model, x), device="cuda", timing_cache=times
            )
            error = gpu_models.difference(engines[name](x), expected)
            if not error < gpu_models.MAX_ERROR:
                raise SystemExit(f"{case.name}, {name}, is off by {error:.1e}")

        start = time.perf_counter()
        build("tuned", "expression", cache)
        seconds = time.perf_counter() - start
        build("kernel", "kernel", cache.with_suffix(".kernel"))
        build("always", "expression", pinned(cache, True, cache.with_suffix(".fused")))
        build("never", "expression", pinned(cache, False, cache.with_suffix(".unfused")))
        times = gpu_models.in_turns([lambda e=e: e(x) for e in engines.values()])
    row = dict(zip(engines, times))
    columns = ("kernel", "never", "always", "tuned")
    cells = [f"{1e3 * row[name]:.3f}" for name in columns]
    cells += [steps(engines[name]) for name in columns] + [f"{seconds:.0f}"]
    return f"| {case.name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=["ResNet", "BERT", "ViT"])
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    gpu.need_gpu()
    lines = [
        "| model | kernel of its own, ms | never fused, ms | always, ms | tuned, ms "
        "| steps, fusions given up: kernel | never | always | tuned | built in, s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    print(torch.cuda.get_device_name(), *lines, sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for case in gpu_models.CASES:
            if any(name in case.name for name in options.only):
                lines.append(measure(case, options.cache or Path(folder) / "times"))
                print(lines[-1], flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
