#pragma once

#include <optional>

#include "compile/graph.h"
#include "operators/fused_attention.h"

namespace opwright {

/// An operand of a product as a view of a tensor that was there before.
struct AttentionSource {
  GraphValue* value = nullptr;
  AttentionLayout layout = AttentionLayout::kHEADS_FIRST;
  SymShape dims;  ///< of the layout, as which the value is read
  int64_t offset = 0, head_stride = 0;
  int64_t heads = 0;
  double scale = 1;
};
/// Where the elements of an operand [batch, heads, length, size] lie before they are moved and
/// scaled: as far back as one of the layouts has them. `is_turned`: the operand is [..., size,
/// length]. `shares`: heads that repeat others may be read once. `may_scale`: factors may be left
/// out, which the source then tells. It has elements of the type: casts to wider ones are no loss.
std::optional<AttentionSource> find_source(GraphValue* operand, DataType type,
                                           const SymShape& heads, bool is_turned, bool shares,
                                           bool may_scale);

/// What reads the result and only moves it, as far as one of the layouts has its elements in order.
struct AttentionTarget {
  GraphNode* node = nullptr;
  AttentionLayout layout = AttentionLayout::kHEADS_FIRST;
};
/// That of the product with the values, which is [batch, heads, queries, size].
AttentionTarget find_target(const Graph& graph, GraphNode* product, const SymShape& heads);

/// Whether a view may tell what the node does.
bool moves_elements(const GraphNode& node);

}  // namespace opwright
