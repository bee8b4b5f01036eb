// Tensor maps in our own form, TensorMapImage, which the prelude of kernels reads.

#include <cstring>

#include "driver/kernel_image.h"
#include "driver/state.h"

namespace emulation {
namespace {

static_assert(sizeof(TensorMapImage) <= sizeof(CUtensorMap));

int element_size(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
      return 4;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    default:
      return 0;
  }
}

/// Makes the part that both modes share, with the limits that CUDA documents. Only types,
/// interleaving and swizzling that the emulation supports are allowed.
CUresult make(TensorMapImage* image, CUtensorMapDataType type, cuuint32_t rank, void* address,
              const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* steps,
              CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle) {
  const uint64_t size = element_size(type);
  const auto start = reinterpret_cast<uint64_t>(address);
  if (size == 0 || rank < 1 || rank > 5 || start % 16 || address == nullptr ||
      interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle != CU_TENSOR_MAP_SWIZZLE_128B)
    return CUDA_ERROR_INVALID_VALUE;
  *image = {};
  image->address = start;
  image->magic = TensorMapImage::kMagic;
  image->element_size = static_cast<uint8_t>(size);
  image->rounds = type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  image->rank = static_cast<uint8_t>(rank);
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (extents[i] < 1 || extents[i] > 1ull << 32 || steps[i] < 1 || steps[i] > 8)
      return CUDA_ERROR_INVALID_VALUE;
    image->last[i] = static_cast<uint32_t>(extents[i] - 1);
    image->steps[i] = static_cast<uint8_t>(steps[i]);
    if (i == 0) continue;
    if (strides[i - 1] % 16 || strides[i - 1] >= 1ull << 40) return CUDA_ERROR_INVALID_VALUE;
    image->strides[i - 1] = strides[i - 1];
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace emulation

using namespace emulation;

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* extents, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return call(__func__, [&] {
    TensorMapImage image;
    if (reinterpret_cast<uint64_t>(map) % 64) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result =
        make(&image, type, rank, address, extents, strides, steps, interleave, swizzle);
    if (result != CUDA_SUCCESS) return result;
    for (cuuint32_t i = 0; i < rank; ++i) {
      if (box[i] < 1 || box[i] > 256) return CUDA_ERROR_INVALID_VALUE;
      image.box[i] = static_cast<uint16_t>(box[i]);
    }
    if (box[0] * element_size(type) > 128) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(map, &image, sizeof image);
    return CUDA_SUCCESS;
  });
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                 void* address, const cuuint64_t* extents,
                                 const cuuint64_t* strides, const int* lower, const int* upper,
                                 cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return call(__func__, [&] {
    TensorMapImage image;
    if (reinterpret_cast<uint64_t>(map) % 64 || rank < 3) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result =
        make(&image, type, rank, address, extents, strides, steps, interleave, swizzle);
    if (result != CUDA_SUCCESS) return result;
    if (channels < 1 || channels > 256 || pixels < 1 || pixels > 1024 ||
        channels * element_size(type) > 128)
      return CUDA_ERROR_INVALID_VALUE;
    image.has_windows = 1;
    image.box[0] = static_cast<uint16_t>(channels);
    image.box[1] = static_cast<uint16_t>(pixels);
    const int most = rank == 3 ? 1 << 15 : rank == 4 ? 1 << 7 : 1 << 4;
    for (cuuint32_t i = 0; i + 2 < rank; ++i) {
      for (const int corner : {lower[i], upper[i]})
        if (corner < -most || corner >= most) return CUDA_ERROR_INVALID_VALUE;
      image.lower[i] = static_cast<int16_t>(lower[i]);
      image.upper[i] = static_cast<int16_t>(upper[i]);
    }
    std::memcpy(map, &image, sizeof image);
    return CUDA_SUCCESS;
  });
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  return call(__func__, [&] {
    TensorMapImage image;
    std::memcpy(&image, map, sizeof image);
    const auto start = reinterpret_cast<uint64_t>(address);
    if (image.magic != TensorMapImage::kMagic || start % 16 || start == 0)
      return CUDA_ERROR_INVALID_VALUE;
    image.address = start;
    std::memcpy(map, &image, sizeof image);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
