#pragma once

#include "onnx/importer.h"
#include "operators/attention_parts.h"

namespace opwright::onnx {

struct ProjectedInputs {
  Tensor *mask, *past, *bias;  ///< as com.microsoft's Attention has them; each may be null
};
/// Attention over [batch, length, queries, keys and values side by side]: the node's outputs are
/// set.
void attend_projected(NodeImporter& node, Tensor* all, const ProjectedInputs& given);

/// The node's output, of its attributes for RotaryEmbedding: x, [batch, heads, length, size] or
/// [batch, length, heads * size], with cosines and sines of those positions, or without positions
/// of each place.
void rotate(NodeImporter& node, Tensor* x, Tensor* cosines, Tensor* sines, Tensor* positions,
            int64_t heads);

}  // namespace opwright::onnx
