"""Circular padding in FP32 and FP16, of a small and a large tensor: an engine against torch and NumPy.

The engine runs the faster of the compiled kernel's tactics, as the tuner found: rows by memcpy, or rows
gathered in a buffer that streams past the cache, or rows on one thread alone. The peers are PyTorch's
F.pad(mode="circular"), where it is installed, and numpy.pad(mode="wrap"); copying the bytes of the
output with as many threads is the limit.

python bench/circ_pad.py
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from timing import in_turns, threads

import opwright as trt
import opwright.plugin as trtp
from opwright import aot

CASES = [((10, 3, 32, 32), 1), ((32, 64, 224, 224), 3)]
TACTICS = {1: "rows", 2: "stream", 3: "rows, one thread"}

SOURCE = """
#include <cstdint>
#include <cstring>
#ifdef __AVX2__
#include <immintrin.h>
#endif

// Collects output in a buffer that stays in the cache and writes it in whole lines that do not: memory that is
// only written need not be read first.
class Stream {
 public:
  explicit Stream(void* out) : skip_(reinterpret_cast<uintptr_t>(out) % 64), fill_(skip_) {
    out_ = static_cast<char*>(out) - skip_;
  }
  ~Stream() { emit(); }
  void write(const void* data, int64_t size) {
    while (size > 0) {
      const int64_t part = size < kSize - fill_ ? size : kSize - fill_;
      std::memcpy(buffer_ + fill_, data, part);
      data = static_cast<const char*>(data) + part;
      fill_ += part, size -= part;
      if (fill_ == kSize) emit();
    }
  }

 private:
  static constexpr int64_t kSize = 4096;
  // buffer_[skip_, fill_) belongs at out_[skip_, fill_); out_ is the start of a line.
  void emit() {
    int64_t at = skip_;
    const int64_t line = (at + 63) / 64 * 64, head = line < fill_ ? line : fill_;
    std::memcpy(out_ + at, buffer_ + at, head - at);
    at = head;
#ifdef __AVX2__
    for (; at + 32 <= fill_; at += 32)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(out_ + at),
                          _mm256_load_si256(reinterpret_cast<const __m256i*>(buffer_ + at)));
#endif
    std::memcpy(out_ + at, buffer_ + at, fill_ - at);
    out_ += kSize;
    skip_ = fill_ = 0;
  }
  alignas(64) char buffer_[kSize];
  char* out_;
  int64_t skip_, fill_;
};

template <class T>
void image_rows(const T* x, int32_t height, int32_t width, int32_t pad, T* y, int64_t image) {
  const int64_t columns = width + 2 * pad;
  x += image * height * width;
  y += image * (height + 2 * pad) * columns;
  for (int32_t row = -pad; row < height + pad; ++row, y += columns) {
    const T* source = x + int64_t{(row + height) % height} * width;
    std::memcpy(y, source + width - pad, sizeof(T) * pad);
    std::memcpy(y + pad, source, sizeof(T) * width);
    std::memcpy(y + pad + width, source, sizeof(T) * pad);
  }
}

template <class T>
void image_stream(const T* x, int32_t height, int32_t width, int32_t pad, T* y, int64_t image) {
  x += image * height * width;
  Stream out(y + image * (height + 2 * pad) * (width + 2 * pad));
  for (int32_t row = -pad; row < height + pad; ++row) {
    const T* source = x + int64_t{(row + height) % height} * width;
    out.write(source + width - pad, sizeof(T) * pad);
    out.write(source, sizeof(T) * width);
    out.write(source, sizeof(T) * pad);
  }
}

// A cell of the launch grid is a range of images.
template <class T>
void rows(const T* x, int32_t height, int32_t width, int32_t pad, int32_t images, T* y, int64_t cell,
          int64_t, int64_t) {
  for (int64_t i = cell * images; i < (cell + 1) * images; ++i)
    image_rows(x, height, width, pad, y, i);
}

template <class T>
void stream(const T* x, int32_t height, int32_t width, int32_t pad, int32_t images, T* y,
            int64_t cell, int64_t, int64_t) {
  for (int64_t i = cell * images; i < (cell + 1) * images; ++i)
    image_stream(x, height, width, pad, y, i);
}
"""


@trtp.register("bench::circ_pad")
def circ_pad_desc(x: trtp.TensorDesc, pad: int) -> trtp.TensorDesc:
    out = x.like()
    out.shape_expr[2] += 2 * pad
    out.shape_expr[3] += 2 * pad
    return out


@trtp.autotune("bench::circ_pad")
def circ_pad_autotune(
    x: trtp.TensorDesc, pad: int, outputs: tuple[trtp.TensorDesc]
) -> list[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR", list(TACTICS))]


@trtp.aot_impl("bench::circ_pad")
def circ_pad_aot(
    x: trtp.TensorDesc, pad: int, outputs: tuple[trtp.TensorDesc], tactic: int
) -> tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
    n, c, height, width = x.shape_expr
    cells = 1 if "one thread" in TACTICS[tactic] else n * c
    arguments = (height, width, pad, trtp.cdiv(n * c, cells))
    extra = trtp.SymIntExprs.from_tuple([trtp.SymInt32(v) for v in arguments])
    name = TACTICS[tactic].split(",")[0]
    code = aot.cpp(SOURCE, name, inputs=[x], extra=extra, outputs=outputs)
    return code.name, code, trtp.KernelLaunchParams(grid_x=cells), extra


def make_engine(shape, pad: int, dtype: trt.DataType) -> trt.Engine:
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    x = network.add_input("x", dtype, shape)
    layer = network.add_plugin(trt.plugin.op.bench.circ_pad(x, pad=pad), aot=True)
    y = layer.get_output(0)
    y.name = "y"
    network.mark_output(y)
    return trt.build(network)


def copier(size: int):
    """A function that copies so many bytes with as many threads as the kernel may use."""
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    count = threads()
    pool = ThreadPoolExecutor(count)
    bounds = [size * i // count for i in range(count + 1)]

    def copy_part(index: int) -> None:
        begin, end = bounds[index], bounds[index + 1]
        ctypes.memmove(target.ctypes.data + begin, source.ctypes.data + begin, end - begin)

    def copy() -> None:
        if size < 1 << 20:  # threads take longer
            ctypes.memmove(target.ctypes.data, source.ctypes.data, size)
        else:
            list(pool.map(copy_part, range(count)))

    return copy


def torch_pad(source: np.ndarray, pad: int):
    try:
        import torch
    except ImportError:
        return None
    x = torch.from_numpy(source)
    return lambda: torch.nn.functional.pad(x, (pad,) * 4, mode="circular")


def compare(shape, pad: int, dtype: trt.DataType) -> None:
    source = np.random.default_rng(0).random(shape, np.float32).astype(trt.nptype(dtype))
    widths = [(0, 0), (0, 0), (pad, pad), (pad, pad)]
    expected_shape = (*shape[:2], shape[2] + 2 * pad, shape[3] + 2 * pad)
    result = np.empty(expected_shape, source.dtype)
    engine = make_engine(shape, pad, dtype)
    context = engine.engine.create_execution_context()
    context.set_tensor_address("x", source.ctypes.data)
    context.set_tensor_address("y", result.ctypes.data)
    functions = {
        "engine": lambda: context.execute_async_v3(0),
        'torch F.pad(mode="circular")': torch_pad(source, pad),
        'numpy.pad(mode="wrap")': lambda: np.pad(source, widths, mode="wrap"),
        "copy of the output's bytes": copier(result.nbytes),
    }
    functions = {name: function for name, function in functions.items() if function is not None}
    seconds = in_turns(list(functions.values()), seconds=0.2)
    if not np.array_equal(result[:2], np.pad(source[:2], widths, mode="wrap")):
        raise SystemExit("bench/circ_pad: the result differs from numpy.pad")
    tactic = TACTICS[engine.layers[0]["TacticValue"]]
    size = "x".join(map(str, shape))
    print(f"{size}, padded by {pad}, {dtype.name}; tactic chosen: {tactic}")
    for name, time in zip(functions, seconds):
        print(f"  {name:30} {time * 1e3:9.4f} ms   {time / seconds[0]:6.2f} times the engine's")


def main() -> None:
    print(f"threads: {threads()}")
    for shape, pad in CASES:
        for dtype in (trt.float32, trt.float16):
            compare(shape, pad, dtype)


if __name__ == "__main__":
    main()
