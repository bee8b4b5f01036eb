// The part of cuBLASLt's interface that Opwright uses, with a kernel for the emulated driver.

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "own_kernel.h"

namespace {

using opwright::emulation::function_of;
using opwright::emulation::make_kernel;

enum Status {
  kSuccess = 0,
  kNotInitialized = 1,
  kInvalidValue = 7,
  kExecution = 13,
  kNotSupported = 15
};
constexpr int kReal32 = 0;

struct Desc {
  int compute = 0, transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = 1;
  const void* bias = nullptr;
};
struct Layout {
  int type = 0;
  int64_t rows = 0, columns = 0, leading = 0, stride = 0;
  int32_t count = 1;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  std::array<uint32_t, 4> alignments{256, 256, 256, 256};
};
struct Algorithm {
  uint64_t data[8];
};
struct Result {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

std::atomic<long> products{0};

int version() {
  const char* text = std::getenv("OPWRIGHT_EMULATED_CUBLASLT_VERSION");
  return text != nullptr ? std::atoi(text) : 130200;
}

/// The number of algorithms.
int algorithms() {
  const char* text = std::getenv("OPWRIGHT_EMULATED_CUBLASLT_ALGORITHMS");
  return text != nullptr ? std::atoi(text) : 2;
}

/// One thread for each element. Loads and stores go through FP32.
constexpr char kSource[] = R"(
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__device__ float load(const void* memory, int type, long long at) {
  if (type == 0) return ((const float*)memory)[at];
  if (type == 2) return __half2float(((const __half*)memory)[at]);
  return __bfloat162float(((const __nv_bfloat16*)memory)[at]);
}
__device__ void store(void* memory, int type, long long at, float value) {
  if (type == 0) ((float*)memory)[at] = value;
  else if (type == 2) ((__half*)memory)[at] = __float2half(value);
  else ((__nv_bfloat16*)memory)[at] = __float2bfloat16(value);
}
extern "C" __global__ void product(const void* a, const void* b, const void* bias, void* d,
                                   int type, int transpose_a, int transpose_b, int epilogue,
                                   long long rows, long long columns, long long depth,
                                   long long lead_a, long long lead_b, long long stride_a,
                                   long long stride_b, long long count) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count * rows * columns;
       i += gridDim.x * (long long)blockDim.x) {
    const long long batch = i / (rows * columns), row = i % rows, column = i / rows % columns;
    float sum = 0;
    for (long long k = 0; k < depth; ++k)
      sum += load(a, type, batch * stride_a + (transpose_a ? k + row * lead_a : row + k * lead_a)) *
             load(b, type,
                  batch * stride_b + (transpose_b ? column + k * lead_b : k + column * lead_b));
    if (epilogue & 4) sum += load(bias, type, row);
    if (epilogue & 2) sum = sum > 0 ? sum : 0;
    if (epilogue & 32)
      sum = 0.5f * sum * (1 + tanhf(0.7978845608f * (sum + 0.044715f * sum * sum * sum)));
    store(d, type, i, sum);
  }
}
)";

struct Handle {
  CUfunction product = nullptr;
};

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return static_cast<size_t>(version()); }
int cublasLtCreate(Handle** handle) {
  *handle = new Handle;
  (*handle)->product = make_kernel(kSource, "cublaslt.cu", "product");
  return (*handle)->product != nullptr ? kSuccess : kNotInitialized;
}
int cublasLtMatmulDescCreate(Desc** desc, int compute, int scale) {
  if (scale != kReal32) return kNotSupported;
  *desc = new Desc;
  (*desc)->compute = compute;
  return kSuccess;
}
int cublasLtMatmulDescDestroy(Desc* desc) {
  delete desc;
  return kSuccess;
}
int cublasLtMatmulDescSetAttribute(Desc* desc, int attribute, const void* value, size_t bytes) {
  const auto take = [&](auto& to) {
    if (bytes != sizeof to) return kInvalidValue;
    std::memcpy(&to, value, bytes);
    return kSuccess;
  };
  switch (attribute) {
    case 3:
      return take(desc->transpose_a);
    case 4:
      return take(desc->transpose_b);
    case 7:
      return take(desc->epilogue);
    case 8:
      return take(desc->bias);
    default:
      return kInvalidValue;
  }
}
int cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns,
                               int64_t leading) {
  *layout = new Layout;
  (*layout)->type = type;
  (*layout)->rows = static_cast<int64_t>(rows);
  (*layout)->columns = static_cast<int64_t>(columns);
  (*layout)->leading = leading;
  return kSuccess;
}
int cublasLtMatrixLayoutDestroy(Layout* layout) {
  delete layout;
  return kSuccess;
}
int cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* value,
                                     size_t bytes) {
  if (attribute == 5 && bytes == sizeof layout->count) {
    std::memcpy(&layout->count, value, bytes);
  } else if (attribute == 6 && bytes == sizeof layout->stride) {
    std::memcpy(&layout->stride, value, bytes);
  } else {
    return kInvalidValue;
  }
  return kSuccess;
}
int cublasLtMatmulPreferenceCreate(Preference** preference) {
  *preference = new Preference;
  return kSuccess;
}
int cublasLtMatmulPreferenceDestroy(Preference* preference) {
  delete preference;
  return kSuccess;
}
int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value,
                                         size_t bytes) {
  if (attribute == 1 && bytes == sizeof preference->workspace) {
    std::memcpy(&preference->workspace, value, bytes);
  } else if (attribute == 3 && bytes == sizeof preference->reductions) {
    std::memcpy(&preference->reductions, value, bytes);
  } else if (attribute >= 5 && attribute <= 8 && bytes == sizeof(uint32_t)) {
    std::memcpy(&preference->alignments[static_cast<size_t>(attribute - 5)], value, bytes);
  } else {
    return kInvalidValue;
  }
  return kSuccess;
}
/// Lists algorithms. There is none for results with 13 columns.
int cublasLtMatmulAlgoGetHeuristic(void*, Desc* desc, Layout* a, Layout* b, Layout*, Layout* d,
                                   Preference* preference, int asked, Result* results, int* found) {
  *found = 0;
  const int64_t rows = desc->transpose_a ? a->columns : a->rows;
  const int64_t depth = desc->transpose_a ? a->rows : a->columns;
  const int64_t b_depth = desc->transpose_b ? b->columns : b->rows;
  const int64_t columns = desc->transpose_b ? b->rows : b->columns;
  if (rows != d->rows || columns != d->columns || depth != b_depth) return kInvalidValue;
  if (d->rows == 13 || (preference->reductions & 1) != 0) return kNotSupported;
  for (; *found < asked && *found < algorithms(); ++*found) {
    Result& result = results[*found];
    result = {};
    result.algorithm.data[0] = static_cast<uint64_t>(*found);
    // The alignment for which the algorithm was made.
    result.algorithm.data[1] = preference->alignments[0];
    result.workspace = *found == 0 ? 0 : 1024;
  }
  return *found > 0 ? kSuccess : kNotSupported;
}
int cublasLtMatmul(Handle* handle, Desc* desc, const float* alpha, const void* a, Layout* a_layout,
                   const void* b, Layout* b_layout, const float* beta, const void*, Layout*,
                   void* d, Layout* d_layout, const Algorithm* algorithm, void* workspace,
                   size_t bytes, CUstream stream) {
  if (*alpha != 1 || *beta != 0) return kNotSupported;
  const uint64_t alignment = algorithm->data[1];
  for (const void* pointer : {a, b, static_cast<const void*>(d)})
    if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) return kInvalidValue;
  if (algorithm->data[0] != 0 && (workspace == nullptr || bytes < 1024)) return kInvalidValue;
  ++products;
  const void* bias = (desc->epilogue & 4) != 0 ? desc->bias : nullptr;
  int type = d_layout->type, epilogue = static_cast<int>(desc->epilogue);
  int64_t depth = desc->transpose_a != 0 ? a_layout->rows : a_layout->columns;
  int64_t count = d_layout->count;
  void* arguments[] = {&a,
                       &b,
                       &bias,
                       &d,
                       &type,
                       &desc->transpose_a,
                       &desc->transpose_b,
                       &epilogue,
                       &d_layout->rows,
                       &d_layout->columns,
                       &depth,
                       &a_layout->leading,
                       &b_layout->leading,
                       &a_layout->stride,
                       &b_layout->stride,
                       &count};
  using Launch = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, CUstream, void**, void**);
  const auto launch = function_of<Launch*>("OPWRIGHT_CUDA_DRIVER", "cuLaunchKernel");
  const CUresult result = launch(handle->product, 4, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr);
  return result == CUDA_SUCCESS ? kSuccess : kExecution;
}

/// The number of computed products.
long opwright_emulation_products() { return products; }

}  // extern "C"
