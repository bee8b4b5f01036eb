#pragma once

#include "operators/layer_writer.h"

namespace opwright {

// Writes types that no kernel computes with as layers for which there are kernels.

/// FP4 numbers as INT8 elements of twice the value. These are exact.
Tensor* doubled_fp4(LayerWriter& writer, Tensor* x);
/// FP32 elements as FP4, rounded half to even and saturated. The last extent is constant and even.
Tensor* as_fp4(LayerWriter& writer, Tensor* x);

/// Powers of two as FP32; 255 stands for NaN.
Tensor* from_e8m0(LayerWriter& writer, Tensor* x);
/// FP32 elements, none of them negative, rounded up to powers of two. 0 becomes the smallest power.
Tensor* as_e8m0(LayerWriter& writer, Tensor* x);

}  // namespace opwright
