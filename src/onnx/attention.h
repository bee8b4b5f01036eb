#pragma once

#include "onnx/importer.h"
#include "operators/attention_parts.h"

namespace opwright::onnx {

struct ProjectedInputs {
  Tensor *mask, *past, *bias;  ///< as com.microsoft's Attention has them; each may be null
};
/// Attention over [batch, length, queries, keys and values side by side]. Sets the node's outputs.
void attend_projected(NodeImporter& node, Tensor* all, const ProjectedInputs& given);

/// Sets the node's output by its attributes for RotaryEmbedding. x is [batch, heads, length, size]
/// or [batch, length, heads * size]. The cosines and sines are tables for these positions, or,
/// without positions, belong to each place.
void rotate(NodeImporter& node, Tensor* x, Tensor* cosines, Tensor* sines, Tensor* positions,
            int64_t heads);

}  // namespace opwright::onnx
