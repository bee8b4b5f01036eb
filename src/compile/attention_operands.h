#pragma once

#include <optional>

#include "compile/graph.h"
#include "operators/fused_attention.h"

namespace opwright {

/// An operand of a product as a view of an earlier tensor.
struct AttentionSource {
  GraphValue* value = nullptr;
  AttentionLayout layout = AttentionLayout::kHEADS_FIRST;
  SymShape dims;  ///< extents of the layout in which the value is read
  int64_t offset = 0, head_stride = 0;
  int64_t heads = 0;
  double scale = 1;
};
/// Follows an operand [batch, heads, length, size] back through the nodes that move and scale its
/// elements, as far as one of the layouts describes where the elements lie. `is_turned`: the
/// operand is [..., size, length]. `shares`: repeated heads may be read once. `may_scale`: factors
/// may be left out; the source then has their product. The source has elements of `type`: a cast to
/// a wider type loses nothing.
std::optional<AttentionSource> find_source(GraphValue* operand, DataType type,
                                           const SymShape& heads, bool is_turned, bool shares,
                                           bool may_scale);

/// The last node behind a product that only moves the product's elements into one of the layouts.
struct AttentionTarget {
  GraphNode* node = nullptr;
  AttentionLayout layout = AttentionLayout::kHEADS_FIRST;
};
/// Target of the product with the values, which is [batch, heads, queries, size].
AttentionTarget find_target(const Graph& graph, GraphNode* product, const SymShape& heads);

/// Whether a view can describe how the node moves elements.
bool moves_elements(const GraphNode& node);

}  // namespace opwright
