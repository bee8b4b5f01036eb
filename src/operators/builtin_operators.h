#pragma once

#include "operators/activation.h"
#include "operators/assertion.h"
#include "operators/attention.h"
#include "operators/bit_cast.h"
#include "operators/boundary.h"
#include "operators/convolution.h"
#include "operators/einsum.h"
#include "operators/elementwise.h"
#include "operators/indexing.h"
#include "operators/kv_cache.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pointwise.h"
#include "operators/pooling.h"
#include "operators/quantization.h"
#include "operators/recurrence.h"
#include "operators/reduce.h"
#include "operators/sampling.h"
#include "operators/scatter.h"
#include "operators/selection.h"
#include "operators/source.h"
#include "operators/window_reduction.h"

namespace opwright {

/// All built-in operators, and those of them that the API has layers of: what plans can load, and
/// what the languages show.
template <class Visitor>
void each_builtin_operator(Visitor&& visitor) {
  const auto visit = [&]<class... Ops>() { (visitor.template operator()<Ops>(), ...); };
  visit.template
  operator()<Activation, Assertion, Attention, BitCast, Cast, ChannelShuffle, Concatenation,
             ConditionalInputBoundary, ConditionalOutputBoundary, ConditionBoundary, Convolution,
             Cumulative, Deconvolution, DeformableColumns, Dequantize, Determinant, Einsum,
             ElementWise, Fill, Gather, GridSample, Identity, IndexedMaxPooling, IteratorBoundary,
             KvCacheUpdate, LoopOutputBoundary, LpPooling, Lrn, MatrixMultiply, Moe, Nms, NonZero,
             Normalization, OneHot, ParametricRelu, Pointwise, Pooling, Quantize, RaggedSoftmax,
             Recurrence, RecurrenceBoundary, Reduce, Reformat, Reshape, Resize, ReverseSequence,
             RoiAlign, RoiPool, RotaryEmbedding, Scale, Scatter, Select, ShapeOf, Shuffle, Slice,
             Softmax, Squeeze, TopK, Transpose, TripLimitBoundary, Unary, Unique, Unsqueeze>();
}
template <class Visitor>
void each_layer(Visitor&& visitor) {
  each_builtin_operator([&]<class Op>() {
    if constexpr (requires { Op::kLayer; }) visitor.template operator()<Op>();
  });
}

}  // namespace opwright
