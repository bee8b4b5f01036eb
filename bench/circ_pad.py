"""Circular padding of 32x64x224x224 FP32 by 3: the compiled kernel against copying the output's bytes.

The copy uses as many threads. The kernel has two tactics: rows by memcpy, and rows gathered in a
buffer that streams past the cache, of which the tuner chooses.

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

SHAPE = (32, 64, 224, 224)
PAD = 3

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
void rows(const T* x, int32_t height, int32_t width, int32_t pad, T* y, int64_t image, int64_t,
          int64_t) {
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
void stream(const T* x, int32_t height, int32_t width, int32_t pad, T* y, int64_t image, int64_t,
            int64_t) {
  x += image * height * width;
  Stream out(y + image * (height + 2 * pad) * (width + 2 * pad));
  for (int32_t row = -pad; row < height + pad; ++row) {
    const T* source = x + int64_t{(row + height) % height} * width;
    out.write(source + width - pad, sizeof(T) * pad);
    out.write(source, sizeof(T) * width);
    out.write(source, sizeof(T) * pad);
  }
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
    return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2])]


@trtp.aot_impl("bench::circ_pad")
def circ_pad_aot(
    x: trtp.TensorDesc, pad: int, outputs: tuple[trtp.TensorDesc], tactic: int
) -> tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
    n, c, height, width = x.shape_expr
    extra = trtp.SymIntExprs.from_tuple([trtp.SymInt32(v) for v in (height, width, pad)])
    name = "rows" if tactic == 1 else "stream"
    code = aot.cpp(SOURCE, name, inputs=[x], extra=extra, outputs=outputs)
    return code.name, code, trtp.KernelLaunchParams(grid_x=n * c), extra


def main() -> None:
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, SHAPE)
    layer = network.add_plugin(trt.plugin.op.bench.circ_pad(x, pad=PAD), aot=True)
    y = layer.get_output(0)
    y.name = "y"
    network.mark_output(y)
    engine = builder.build_engine_with_config(network, builder.create_builder_config())
    chosen = trt.Engine(engine).layers[0]

    source = np.random.default_rng(0).random(SHAPE, np.float32)
    result = np.empty((*SHAPE[:2], SHAPE[2] + 2 * PAD, SHAPE[3] + 2 * PAD), np.float32)
    other, target = np.ones_like(result), np.empty_like(result)
    context = engine.create_execution_context()
    context.set_tensor_address("x", source.ctypes.data)
    context.set_tensor_address("y", result.ctypes.data)

    count = threads()
    part = result.nbytes // count
    pool = ThreadPoolExecutor(count)

    def copy_part(index: int) -> None:
        size = part if index + 1 < count else result.nbytes - part * (count - 1)
        ctypes.memmove(target.ctypes.data + part * index, other.ctypes.data + part * index, size)

    def copy() -> None:
        list(pool.map(copy_part, range(count)))

    times = in_turns([lambda: context.execute_async_v3(0), copy], seconds=1.0)
    widths = [(0, 0), (0, 0), (PAD, PAD), (PAD, PAD)]
    if not np.array_equal(result[:2], np.pad(source[:2], widths, mode="wrap")):
        raise SystemExit("bench/circ_pad: the result differs from numpy.pad")
    print(f"threads: {count}; tactic chosen: {('rows', 'stream')[chosen['TacticValue'] - 1]}")
    print(f"compiled kernel {times[0] * 1e3:8.2f} ms")
    print(f"memcpy          {times[1] * 1e3:8.2f} ms")
    print(f"speed relative to memcpy: {times[1] / times[0]:.2f}")


if __name__ == "__main__":
    main()
