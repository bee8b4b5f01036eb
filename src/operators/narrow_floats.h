#pragma once

#include "operators/layer_writer.h"

namespace opwright {

// Types that no kernel computes with, in layers that others have kernels for.

/// FP4 numbers as INT8 elements of twice the value, which are exact.
Tensor* doubled_fp4(LayerWriter& writer, Tensor* x);
/// FP32 elements as FP4, rounded half to even and saturated. The last extent is constant and even.
Tensor* as_fp4(LayerWriter& writer, Tensor* x);

/// Powers of two as FP32; 255 stands for NaN.
Tensor* from_e8m0(LayerWriter& writer, Tensor* x);
/// FP32 elements, none negative, as the powers of two that are as large or the next larger ones; 0
/// is the smallest.
Tensor* as_e8m0(LayerWriter& writer, Tensor* x);

}  // namespace opwright
