"""Kernels that the makers of the languages publish as examples, as they are there: what each is called
with, and what it makes. The sources are not part of this repository.

`load` runs the definitions of a file without its program; a `Case` has arrays, a reference in NumPy and
how opwright.aot takes the kernel, or the words with which it refuses it.
"""

from __future__ import annotations

import ast
import json
import math
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import opwright as trt
from opwright import aot
from opwright.plugin import SymFloat32, SymInt32

TYPES = {np.float32: trt.float32, np.float16: trt.float16, np.int32: trt.int32}


def load(path: Path) -> dict[str, Any]:
    """What the file defines. A statement that fails is passed over: those that run the program want a
    GPU. Of a notebook the cells of code are taken."""
    if path.parent.parts[-4:] == ("experimental", "pallas", "ops", "gpu"):
        import importlib

        return vars(importlib.import_module(f"jax.experimental.pallas.ops.gpu.{path.stem}"))
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = [c["source"] for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
        lines = [line for cell in cells for line in [*"".join(cell).splitlines(), ""]]
        text = "\n".join("" if line.startswith(("%", "!")) else line for line in lines)
        import linecache

        path = path.with_suffix(".py")
        linecache.cache[str(path)] = (len(text), None, text.splitlines(True), str(path))
    module = types.ModuleType(f"example_{path.stem.replace('-', '_')}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    program = (ast.Expr, ast.For, ast.While, ast.With, ast.Try)
    sys.path.insert(0, str(path.parent))
    try:
        for node in ast.parse(text).body:
            if not isinstance(node, program):
                try:
                    code = compile(ast.Module([node], []), str(path), "exec", dont_inherit=True)
                    exec(code, module.__dict__)
                except Exception:
                    pass
    finally:
        sys.path.remove(str(path.parent))
    return vars(module)


Arrays = list[np.ndarray]


@dataclass
class Case:
    language: str
    file: str
    kernel: str
    inputs: Callable[[np.random.Generator], Arrays]
    reference: Callable[..., list[np.ndarray]]
    make: Callable[..., aot.Code]
    """Of the file's definitions, and of the arguments of all makers."""
    extra: list[Any] = field(default_factory=list)
    grid: tuple[int, ...] | None = ()
    """Empty where the kernel has it; None of one that is refused."""
    block: int = 0
    tolerance: float = 1e-5
    refused: str = ""
    in_place: dict[int, int] = field(default_factory=dict)
    """Of outputs in the memory of an input: its number."""

    @property
    def name(self) -> str:
        return f"{self.language}-{Path(self.file).stem}-{self.kernel}"

    def arrays(self) -> tuple[Arrays, Arrays]:
        inputs = self.inputs(np.random.default_rng(0))
        return inputs, self.reference(*inputs)

    def tensors(self) -> dict[str, Any]:
        inputs, outputs = (
            [(TYPES[a.dtype.type], list(a.shape)) for a in arrays] for arrays in self.arrays()
        )
        for output, number in self.in_place.items():
            outputs[output] = aot.aliased(inputs[number])
        return {"inputs": inputs, "outputs": outputs, "extra": self.extra}


def normal(*shapes: tuple[int, ...], dtype: Any = np.float32) -> Callable[..., Arrays]:
    return lambda rng: [rng.standard_normal(shape, np.float32).astype(dtype) for shape in shapes]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(x.dtype)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Of (batch, heads, length, size)."""
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    return (softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])) @ v).astype(np.float16)


def layer_norm(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    mean = x.mean(-1, dtype=np.float64)
    rstd = 1 / np.sqrt(x.var(-1, dtype=np.float64) + 1e-5)
    y = (x - mean[:, None]) * rstd[:, None] * w + b
    return [each.astype(np.float32) for each in (y, mean, rstd)]


def rms(x: np.ndarray, epsilon: float) -> np.ndarray:
    return (x / np.sqrt(np.mean(x.astype(np.float64) ** 2, -1, keepdims=True) + epsilon)).astype(
        x.dtype
    )


def triton(kernel: str, constants: dict[str, Any], order: str, **options: Any) -> Any:
    def make(names: dict[str, Any], **tensors: Any) -> aot.Code:
        function = names[kernel]
        function = getattr(function, "fn", function) if hasattr(function, "configs") else function
        tensors["inputs"] = [each[0] for each in tensors["inputs"]]
        tensors["outputs"] = [each[0] for each in tensors["outputs"]]
        return aot.triton(function, constants, order=order.split(), **options, **tensors)

    return make


def cutile(kernel: str, constants: dict[str, Any], **options: Any) -> Any:
    return lambda names, **tensors: aot.cutile(names[kernel], constants, **options, **tensors)


def warp(kernel: str, dim: Any, **options: Any) -> Any:
    return lambda names, **tensors: aot.warp(names[kernel], dim, **options, **tensors)


def tilelang(kernel: str, options: dict[str, Any] | None = None, **constants: Any) -> Any:
    def make(names: dict[str, Any], **tensors: Any) -> aot.Code:
        function = names[kernel]
        function = getattr(function, "jit_impl", function)
        return aot.tilelang(function.get_tir(**constants), options=options, **tensors)

    return make


def cute(kernel: str, constants: dict[str, Any] | None = None, **options: Any) -> Any:
    return lambda names, **tensors: aot.cute(names[kernel], constants, **options, **tensors)


def pallas(kernel: str, *further: Any, **options: Any) -> Any:
    def make(names: dict[str, Any], **tensors: Any) -> aot.Code:
        def function(*arrays: Any) -> Any:
            return names[kernel](*arrays, *further, **options)

        del tensors["extra"]
        return aot.pallas(function, **tensors)

    return make


N = 98432  # no multiple of a block
SQUARE = {"a": (512, 256), "b": (256, 384)}
MATMUL = "a_ptr b_ptr M N K stride_am stride_ak stride_bk stride_bn stride_cm stride_cn c_ptr"
SIZES = [SymInt32(n) for n in (512, 384, 256, 256, 1, 384, 1, 384, 1)]
BLOCKS = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8}

TRITON = [
    Case(
        "triton",
        "01-vector-add.py",
        "add_kernel",
        normal((N,), (N,)),
        lambda x, y: [x + y],
        triton("add_kernel", {"BLOCK_SIZE": 1024}, "x_ptr y_ptr n_elements output_ptr"),
        [SymInt32(N)],
        (97,),
    ),
    Case(
        "triton",
        "02-fused-softmax.py",
        "softmax_kernel",
        normal((1823, 781)),
        lambda x: [softmax(x)],
        triton(
            "softmax_kernel",
            {"BLOCK_SIZE": 1024, "num_stages": 4},
            "input_ptr input_row_stride output_row_stride n_rows n_cols output_ptr",
            num_warps=8,
        ),
        [SymInt32(n) for n in (781, 781, 1823, 781)],
        (264,),
    ),
    Case(
        "triton",
        "03-matrix-multiplication.py",
        "matmul_kernel",
        normal(*SQUARE.values(), dtype=np.float16),
        lambda a, b: [
            np.where(product(a, b) >= 0, product(a, b), product(a, b) * np.float16(0.01))
        ],
        triton("matmul_kernel", {**BLOCKS, "ACTIVATION": "leaky_relu"}, MATMUL),
        SIZES,
        (12,),
        tolerance=3e-2,
    ),
    Case(
        "triton",
        "04-low-memory-dropout.py",
        "_dropout",
        lambda rng: [rng.random(N, np.float32), rng.integers(0, 2, N).astype(np.int32)],
        lambda x, keep: [x * keep.astype(np.float32) * np.float32(2)],
        triton("_dropout", {"BLOCK_SIZE": 1024}, "x_ptr x_keep_ptr n_elements p output_ptr"),
        [SymInt32(N), SymFloat32(0.5)],
        (97,),
    ),
    Case(
        "triton",
        "05-layer-norm.py",
        "_layer_norm_fwd_fused",
        normal((301, 1000), (1000,), (1000,)),
        lambda x, w, b: layer_norm(x, w, b),
        triton("_layer_norm_fwd_fused", {"BLOCK_SIZE": 1024}, "X W B stride N eps Y Mean Rstd"),
        [SymInt32(1000), SymInt32(1000), SymFloat32(1e-5)],
        (301,),
    ),
    Case(
        "triton",
        "06-fused-attention.py",
        "_attn_fwd",
        normal(*[(2, 4, 256, 64)] * 3, dtype=np.float16),
        lambda q, k, v: [attention(q, k, v), _logsum(q, k)],
        triton(
            "_attn_fwd",
            {
                "HEAD_DIM": 64,
                "BLOCK_M": 64,
                "BLOCK_N": 64,
                "FP8_OUTPUT": False,
                "STAGE": 1,
                "warp_specialize": False,
                "IS_HOPPER": True,
            },
            "desc_q desc_k desc_v sm_scale Z H N_CTX desc_o M",
            multiples_of_16=["desc_q", "desc_k", "desc_v", "desc_o"],
        ),
        [SymFloat32(0.125), SymInt32(2), SymInt32(4), SymInt32(256)],
        (4, 8),
        tolerance=5e-3,
    ),
    Case(
        "triton",
        "07-extern-functions.py",
        "asin_kernel",
        lambda rng: [rng.uniform(-1, 1, N).astype(np.float32)],
        lambda x: [np.arcsin(x)],
        triton("asin_kernel", {"BLOCK_SIZE": 1024}, "x_ptr n_elements y_ptr"),
        [SymInt32(N)],
        (97,),
    ),
    Case(
        "triton",
        "09-persistent-matmul.py",
        "matmul_kernel_persistent",
        normal(*SQUARE.values(), dtype=np.float16),
        lambda a, b: [product(a, b)],
        triton("matmul_kernel_persistent", {**BLOCKS, "NUM_SMS": 132}, MATMUL, num_warps=8),
        SIZES,
        (12,),
        tolerance=3e-2,
    ),
]


def _logsum(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """The logarithm to base 2 of the sum of each row's exponentials, of (batch * heads, length)."""
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return np.log2(np.exp(scores).sum(-1)).astype(np.float32).reshape(-1, q.shape[2])


SAMPLES = "samples/"
GYM = "skills/tilegym-converting-cutile-to-triton/examples/"
CUTILE = [
    Case(
        "cutile",
        SAMPLES + "VectorAddition.py",
        "vec_add_kernel_1d",
        normal((N,), (N,)),
        lambda a, b: [a + b],
        cutile("vec_add_kernel_1d", {"TILE": 1024}),
        grid=(97,),
    ),
    Case(
        "cutile",
        SAMPLES + "VectorAddition.py",
        "vec_add_kernel_2d_gather",
        normal((333, 555), (333, 555)),
        lambda a, b: [a + b],
        cutile("vec_add_kernel_2d_gather", {"TILE_X": 16, "TILE_Y": 64}),
        grid=(21, 9),
    ),
    Case(
        "cutile",
        SAMPLES + "Transpose.py",
        "transpose_kernel",
        normal((333, 555)),
        lambda x: [np.ascontiguousarray(x.T)],
        cutile("transpose_kernel", {"tm": 32, "tn": 64}),
        grid=(11, 9),
    ),
    Case(
        "cutile",
        SAMPLES + "LayerNorm.py",
        "layer_norm_fwd",
        normal((301, 1000), (1000,), (1000,)),
        lambda x, w, b: layer_norm(x, w, b),
        cutile("layer_norm_fwd", {"TILE_N": 1024}, order="X W B eps Y Mean Rstd".split()),
        [SymFloat32(1e-5)],
        (301,),
    ),
    Case(
        "cutile",
        SAMPLES + "MatMul.py",
        "matmul_kernel",
        normal(*SQUARE.values(), dtype=np.float16),
        lambda a, b: [product(a, b)],
        cutile("matmul_kernel", {"tm": 128, "tn": 128, "tk": 64}),
        grid=(12,),
        tolerance=3e-2,
    ),
    Case(
        "cutile",
        SAMPLES + "BatchMatMul.py",
        "batch_matmul_kernel",
        normal((3, 256, 128), (3, 128, 192), dtype=np.float16),
        lambda a, b: [product(a, b)],
        cutile("batch_matmul_kernel", {"tm": 64, "tn": 64, "tk": 32}),
        grid=(3, 4, 3),
        tolerance=3e-2,
    ),
    Case(
        "cutile",
        SAMPLES + "AttentionFMHA.py",
        "fmha_kernel",
        normal(*[(2, 4, 256, 64)] * 3, dtype=np.float16),
        lambda q, k, v: [attention(q, k, v)],
        cutile(
            "fmha_kernel",
            {
                "TILE_D": 64,
                "H": 4,
                "TILE_M": 64,
                "TILE_N": 64,
                "QUERY_GROUP_SIZE": 1,
                "CAUSAL": False,
                "EVEN_K": True,
            },
            order="Q K V qk_scale input_pos Out".split(),
        ),
        [SymFloat32(0.125), SymInt32(0)],
        (4, 8),
        tolerance=5e-3,
    ),
    Case(
        "cutile",
        SAMPLES + "MoE.py",
        "silu_and_mul_kernel",
        normal((301, 1024), (301, 1024)),
        lambda a, b: [a / (1 + np.exp(-a)) * b],
        cutile("silu_and_mul_kernel", {"TILE_N": 1024}),
        grid=(301,),
    ),
    Case(
        "cutile",
        GYM + "02_softmax/cutile_kernel.py",
        "softmax_kernel",
        normal((301, 781)),
        lambda x: [softmax(x)],
        cutile(
            "softmax_kernel",
            {"n_rows": 301, "TILE_SIZE": 1024, "n_cols": 781},
            order=["input", "output"],
        ),
        grid=(301,),
    ),
]


def _nothing(*arrays: np.ndarray) -> list[np.ndarray]:
    """Of a kernel that is refused: an output like the first input."""
    return [arrays[0]]


def _heights(heights: np.ndarray, vertices: np.ndarray) -> list[np.ndarray]:
    return [np.stack([vertices[:, 0], heights, vertices[:, 2]], -1)]


def _waves(previous: np.ndarray, current: np.ndarray) -> list[np.ndarray]:
    """A step of waves over a field of 24 rows, 32 columns, whose border repeats itself."""
    h0, h1 = (h.astype(np.float64).reshape(24, 32) for h in (previous, current))
    wide = np.pad(h1, 1, mode="edge")
    sides = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    force = 1.5 * (sides - 4 * h1) * 2**2 - 0.25 * (h1 - h0)
    return [(2 * h1 - h0 + 0.125**2 * force).astype(np.float32).ravel()]


def _drop(current: np.ndarray, previous: np.ndarray) -> list[np.ndarray]:
    y, x = np.mgrid[:24, :32]
    is_near = ((x - 12.5) ** 2 + (y - 9.5) ** 2 < 36).ravel()
    return [np.where(is_near, np.float32(2 * np.sin(0.75)), h) for h in (current, previous)]


def _bodies(p: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    """Gravity with softening, a step in time: positions and velocities."""
    r = p[None].astype(np.float64) - p[:, None]
    acceleration = (r / ((r * r).sum(-1) + 0.01)[..., None] ** 1.5).sum(1)
    v = v + acceleration * 0.016
    return [(p + v * 0.016).astype(np.float32), v.astype(np.float32)]


_FIELD = [SymInt32(32), SymInt32(24)]
WARP = [
    Case(
        "warp",
        "core/example_wave.py",
        "grid_update",
        normal((1000,), (1000, 3)),
        _heights,
        warp("grid_update", 1000),
        in_place={0: 1},
    ),
    Case(
        "warp",
        "core/example_wave.py",
        "wave_solve",
        normal((768,), (768,)),
        _waves,
        warp("wave_solve", 768),
        [*_FIELD, SymFloat32(2), SymFloat32(1.5), SymFloat32(0.25), SymFloat32(0.125)],
        in_place={0: 0},
    ),
    Case(
        "warp",
        "core/example_wave.py",
        "wave_displace",
        normal((768,), (768,)),
        _drop,
        warp("wave_displace", 768),
        [*_FIELD, *map(SymFloat32, (12.5, 9.5, 6.0, 2.0, 0.75))],
        in_place={0: 0, 1: 1},
    ),
    Case(
        "warp",
        "core/example_wave.py",
        "wave_solve",
        normal((768,), (768,)),
        _nothing,
        warp("wave_solve", 768),
        [*_FIELD, SymFloat32(2), SymFloat32(1.5), SymFloat32(0.25), SymFloat32(0.125)],
        grid=None,
        refused="it has 8 parameters, but 2 inputs, 6 extra arguments and 1 outputs come",
    ),
    Case(
        "warp",
        "core/example_fluid.py",
        "pressure_solve",
        normal((256, 128), (256, 128)),
        lambda p, d: [_pressure(p, d)],
        warp("pressure_solve", (256, 128), order=["p0", "div", "p1"]),
    ),
    Case(
        "warp",
        "core/example_fluid.py",
        "advect",
        lambda rng: [
            np.zeros((256, 128, 2), np.float32),
            rng.standard_normal((256, 128), np.float32),
        ],
        lambda u, rho: [u, rho],
        warp("advect", (256, 128), order=["u0", "rho0", "dt", "u1", "rho1"]),
        [SymFloat32(0.1)],
    ),
    Case(
        "warp",
        "core/example_sph.py",
        "compute_density",
        normal((1000, 3)),
        lambda x: [x[:, 0].copy()],
        warp(
            "compute_density",
            1000,
            order=[
                "particle_x",
                "grid",
                "density_normalization",
                "smoothing_length",
                "particle_rho",
            ],
        ),
        [SymInt32(0), SymFloat32(1), SymFloat32(1)],
        None,
        refused="'grid' is no int32, which extra argument 0 is",
    ),
    Case(
        "warp",
        "core/example_dem.py",
        "integrate",
        normal((1000, 3), (1000, 3), (1000, 3)),
        _nothing,
        warp("integrate", 1000),
        [SymFloat32(0), SymFloat32(0)],
        None,
        refused="'gravity' is no float32",
    ),
    Case(
        "warp",
        "tile/example_tile_nbody.py",
        "integrate_bodies_tiled",
        normal((1024, 3), (1024, 3)),
        _bodies,
        warp(
            "integrate_bodies_tiled",
            1024,
            block_dim=64,
            order=["old_position", "velocity", "num_bodies", "new_position"],
        ),
        [SymInt32(1024)],
        tolerance=1e-3,
        in_place={1: 1},
    ),
    Case(
        "warp",
        "tile/example_tile_stream_compaction.py",
        "stream_compaction_kernel",
        lambda rng: [rng.integers(0, 2, 1024).astype(np.int32), rng.random(1024, np.float32)],
        lambda valid, data: [np.zeros(1, np.int32), data],
        warp("stream_compaction_kernel", (4, 256), block_dim=256),
        grid=None,
    ),
    Case(
        "warp",
        "tile/example_tile_matmul.py",
        "tile_gemm",
        normal((128, 64), (64, 96)),
        lambda a, b: [product(a, b)],
        warp("tile_gemm", (16, 24, 64), block_dim=64),
        grid=None,
        refused="has elements of another type than the tensor's",
    ),
    Case(
        "warp",
        "tile/example_tile_cholesky.py",
        "cholesky",
        normal((4, 4), (4,)),
        lambda a, x: [a, x],
        warp("cholesky", (1, 128), block_dim=128),
        grid=None,
        refused="has elements of another type than the tensor's",
    ),
]


def _pressure(p: np.ndarray, d: np.ndarray) -> np.ndarray:
    """A Jacobi step, whose neighbours beyond the edges are those at the edges."""
    e = np.pad(p, 1, mode="edge")
    return (e[:-2, 1:-1] + e[2:, 1:-1] + e[1:-1, :-2] + e[1:-1, 2:] - d) * np.float32(0.25)


TILELANG = [
    Case(
        "tilelang",
        "elementwise/example_elementwise_add.py",
        "elementwise_add",
        normal((512, 384), (512, 384)),
        lambda a, b: [a + b],
        tilelang(
            "elementwise_add",
            M=512,
            N=384,
            block_M=32,
            block_N=32,
            threads=128,
            in_dtype="float32",
            out_dtype="float32",
        ),
    ),
    Case(
        "tilelang",
        "quickstart.py",
        "matmul",
        normal(*SQUARE.values(), dtype=np.float16),
        lambda a, b: [np.maximum(product(a, b), 0)],
        tilelang("matmul", M=512, N=384, K=256, block_M=128, block_N=128, block_K=32),
        tolerance=3e-2,
    ),
    Case(
        "tilelang",
        "gemm/example_gemm.py",
        "matmul",
        normal(*SQUARE.values(), dtype=np.float16),
        lambda a, b: [product(a, b)],
        tilelang("matmul", M=512, N=384, K=256, block_M=128, block_N=128, block_K=32),
        tolerance=3e-2,
    ),
    Case(
        "tilelang",
        "dynamic_shape/example_dynamic.py",
        "matmul_dynamic_mnk",
        normal(*SQUARE.values(), dtype=np.float16),
        lambda a, b: [product(a, b)],
        tilelang(
            "matmul_dynamic_mnk",
            block_M=128,
            block_N=128,
            block_K=32,
            trans_A=False,
            trans_B=False,
            in_dtype="float16",
            out_dtype="float16",
            accum_dtype="float32",
            num_stages=3,
            threads=128,
        ),
        grid=None,
        refused="Downcast from tirx.Sub",
        tolerance=3e-2,
    ),
    Case(
        "tilelang",
        "norm/rms_norm.py",
        "rms_norm",
        normal((256, 1024)),
        lambda x: [rms(x, 1e-12)],
        tilelang("rms_norm", M=256, N=1024, blk_m=1),
    ),
    Case(
        "tilelang",
        "norm/rms_norm.py",
        "rms_norm_splitk",
        normal((256, 1024)),
        lambda x: [rms(x, 1e-12)],
        tilelang("rms_norm_splitk", M=256, N=1024, blk_m=1, blk_k=512),
    ),
    Case(
        "tilelang",
        "gemv/example_gemv.py",
        "naive_gemv",
        normal((512,), (256, 512), dtype=np.float16),
        lambda a, b: [product(b, a)],
        tilelang("naive_gemv", N=256, K=512, BLOCK_N=128, BLOCK_K=128),
        tolerance=3e-2,
    ),
    Case(
        "tilelang",
        "online_softmax/online_softmax.py",
        "softmax_kernel",
        normal((8192, 8192), dtype=np.float16),
        lambda x: [softmax(x)],
        tilelang("softmax_kernel"),
        tolerance=1e-3,
    ),
    Case(
        "tilelang",
        "flash_attention/example_mha_fwd_bhsd.py",
        "flashattn",
        normal(*[(2, 4, 256, 64)] * 3, dtype=np.float16),
        lambda q, k, v: [attention(q, k, v)],
        tilelang(
            "flashattn",
            batch=2,
            heads=4,
            seq_q=256,
            seq_kv=256,
            dim=64,
            is_causal=False,
            block_M=64,
            block_N=64,
            num_stages=1,
            threads=128,
            options={"tl.enable_fast_math": True},
        ),
        tolerance=5e-3,
    ),
    Case(
        "tilelang",
        "convolution/example_convolution.py",
        "convolution",
        normal((2, 16, 16, 64), (3, 3, 64, 64), dtype=np.float16),
        lambda x, w: [_convolution(x, w)],
        tilelang(
            "convolution",
            N=2,
            C=64,
            H=16,
            W=16,
            F=64,
            K=3,
            S=1,
            D=1,
            P=1,
            block_M=64,
            block_N=64,
            block_K=32,
            num_stages=3,
            threads=256,
        ),
        grid=None,
        refused="it takes 'data_desc'",
        tolerance=5e-2,
    ),
]


def _convolution(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of (batch, height, width, channels) by 3 x 3, padded by one."""
    n, height, width, _ = x.shape
    padded = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    made = np.zeros((n, height, width, w.shape[-1]), np.float32)
    for i in range(3):
        for j in range(3):
            made += padded[:, i : i + height, j : j + width] @ w[i, j].astype(np.float32)
    return made.astype(np.float16)


DSL = "examples/python/CuTeDSL/"
CUTE = [
    Case(
        "cute",
        DSL + "cute/notebooks/elementwise_add.ipynb",
        "naive_elementwise_add_kernel",
        normal((512, 384), (512, 384), dtype=np.float16),
        lambda a, b: [a + b],
        cute("naive_elementwise_add_kernel", block=256),
        grid=(768,),
        tolerance=1e-3,
    ),
    Case(
        "cute",
        DSL + "cute/notebooks/elementwise_add.ipynb",
        "vectorized_elementwise_add_kernel",
        normal((512, 384), (512, 384), dtype=np.float16),
        lambda a, b: [a + b],
        cute("vectorized_elementwise_add_kernel", block=256),
        grid=None,
        refused="does not compile",
    ),
    Case(
        "cute",
        DSL + "cute/ampere/kernel/elementwise/elementwise_add.py",
        "elementwise_add_kernel",
        normal((512, 384), (512, 384)),
        lambda a, b: [a + b],
        cute("elementwise_add_kernel", block=128),
        grid=None,
        refused="parameters",
    ),
    Case(
        "cute",
        DSL + "dsl_tutorials/launch_completion_and_programmatic_events.py",
        "simple_kernel",
        lambda rng: [],
        lambda: [np.full((64, 32), 7, np.int32)],
        cute("simple_kernel", block=64, order=["value", "out"]),
        [SymInt32(7)],
        (32,),
    ),
    Case(
        "cute",
        DSL + "dsl_tutorials/inline_ptx.py",
        "vote_kernel",
        lambda rng: [],
        lambda: [np.full(32, n, np.int32) for n in (1023, 1, 0, 0)],
        cute("vote_kernel", {"use_inline_ptx": True}, block=32),
        grid=(1,),
    ),
    Case(
        "cute",
        DSL + "dsl_tutorials/dataclass_immutable.py",
        "memcpy_kernel",
        normal((1024,)),
        lambda x: [x],
        cute("memcpy_kernel", block=128),
        grid=None,
        refused="does not compile",
    ),
]

PALLAS = [
    Case(
        "pallas",
        "softmax.py",
        "softmax",
        normal((301, 781)),
        lambda x: [softmax(x)],
        pallas("softmax"),
    ),
    Case(
        "pallas",
        "layer_norm.py",
        "layer_norm_forward",
        normal((3, 100, 1000), (1000,), (1000,)),
        lambda x, w, b: [layer_norm(x.reshape(-1, 1000), w, b)[0].reshape(x.shape)],
        lambda names, extra, **t: aot.pallas(lambda x, w, b: names["layer_norm"](x, w, b), **t),
    ),
    Case(
        "pallas",
        "rms_norm.py",
        "rms_norm",
        normal((3, 100, 1000), (1000,), (1000,)),
        lambda x, w, b: [rms(x, 1e-5) * w + b],
        pallas("rms_norm"),
    ),
    Case(
        "pallas",
        "attention.py",
        "mha",
        normal(*[(2, 256, 4, 64)] * 3, dtype=np.float16),
        lambda q, k, v: [attention(*(x.swapaxes(1, 2) for x in (q, k, v))).swapaxes(1, 2).copy()],
        pallas("mha", None, 0.125),
        tolerance=5e-3,
    ),
    Case(
        "pallas",
        "decode_attention.py",
        "mqa",
        normal((2, 16, 64), (2, 1024, 64), (2, 1024, 64), dtype=np.float16),
        lambda q, k, v: [q.astype(np.float32)],
        pallas("mqa"),
        grid=None,
        refused="must be one pallas_call and nothing else",
    ),
]

CASES = [*TRITON, *CUTILE, *WARP, *TILELANG, *CUTE, *PALLAS]
FOLDERS = {"triton": "triton", "cutile": "cutile", "tilelang": "tilelang", "cute": "cutlass"}


def file_of(case: Case, sources: Path) -> Path:
    """The file in a folder with the vendors' repositories; Warp's and JAX's are in their packages."""
    if case.language == "warp":
        import warp

        return Path(warp.__file__).parent / "examples" / case.file
    if case.language == "pallas":
        import jax

        return Path(jax.__file__).parent / "experimental" / "pallas" / "ops" / "gpu" / case.file
    under = {"triton": "python/tutorials", "tilelang": "examples"}.get(case.language, "")
    repository = "TileGym" if case.file.startswith(GYM) else FOLDERS[case.language]
    return sources / repository / under / case.file
