#include "compile/attention_operands.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/types.h"
#include "compile/attention_pattern.h"
#include "compile/single_operation.h"
#include "compile/strided_view.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// The stride of each axis of a view. An axis of extent 1 has no stride, which is -1. Returns
/// nothing where an axis has several strides.
std::optional<SymShape> strides_of(const StridedView& view) {
  SymShape strides;
  for (size_t axis = 0; axis < view.rank(); ++axis) {
    const std::vector<StridedView::Part> parts = view.parts(axis);
    if (parts.size() > 1) return std::nullopt;
    strides.push_back(parts.empty() ? Expr(-1) : parts[0].stride);
  }
  return strides;
}
bool agrees(const Expr& stride, const Expr& expected) {
  return stride == Expr(-1) || stride == expected;
}

/// Describes the source as the layout of [batch, heads, length, size] that has these strides.
bool choose_layout(AttentionSource& source, const SymShape& heads, const SymShape& strides,
                   const Expr& offset) {
  const Expr &batch = heads[0], &length = heads[2], &size = heads[3];
  const Expr all = numel(source.value->info.dims);
  if (!offset.is_constant() || !agrees(strides[3], 1)) return false;
  source.offset = offset.constant();
  const Expr head_stride = strides[1] == Expr(-1) ? Expr(0) : strides[1];
  if (head_stride.is_constant()) {
    source.head_stride = head_stride.constant();
    const int64_t end = source.offset + (source.heads - 1) * source.head_stride + size.constant();
    for (const bool batch_first : {true, false}) {
      const Expr &inner = strides[batch_first ? 2 : 0], &outer = strides[batch_first ? 0 : 2];
      const Expr& inner_extent = batch_first ? length : batch;
      Expr row = inner;
      if (row == Expr(-1)) row = outer == Expr(-1) ? all : outer;
      if (!row.is_constant() || end > row.constant() || !(batch * length * row == all) ||
          !agrees(outer, inner_extent * row))
        continue;
      source.layout = batch_first ? AttentionLayout::kBATCH_FIRST : AttentionLayout::kLENGTH_FIRST;
      source.dims = batch_first ? SymShape{batch, length, row} : SymShape{length, batch, row};
      return true;
    }
  }
  const Expr head = length * size;
  if (source.offset != 0 || !(all == batch * Expr(source.heads) * head) ||
      !agrees(strides[2], size) || !agrees(strides[1], head) ||
      !agrees(strides[0], Expr(source.heads) * head))
    return false;
  source.layout = AttentionLayout::kHEADS_FIRST, source.head_stride = 0;
  source.dims = {batch, Expr(source.heads), length, size};
  return true;
}

}  // namespace

std::optional<AttentionSource> find_source(GraphValue* operand, DataType type,
                                           const SymShape& heads, bool is_turned, bool shares,
                                           bool may_scale) {
  std::vector<const GraphNode*> moves;
  GraphValue* value = operand;
  std::optional<AttentionSource> best;
  double scale = 1;
  for (int step = 0; step < kMostFollowed; ++step) {
    StridedView view(value->info.dims);
    bool is_view = value->info.dtype == type;
    for (size_t i = moves.size(); i-- > 0 && is_view;) is_view = view.apply(*moves[i]);
    if (is_view) {
      if (is_turned) {
        Ints turn;
        for (size_t i = 0; i < view.rank(); ++i) turn.push_back(static_cast<int64_t>(i));
        std::swap(turn[turn.size() - 1], turn[turn.size() - 2]);
        view.transpose(turn);
      }
      is_view = view.reshape(heads);
    }
    if (is_view) {
      AttentionSource source;
      source.value = value, source.scale = scale, source.heads = heads[1].constant();
      SymShape shown = heads;
      // Repeated heads are stored once, so the source has fewer heads.
      if (const auto parts = view.parts(1);
          shares && !parts.empty() && parts.back().stride == Expr(0) &&
          parts.back().extent.is_constant() && parts.size() <= 2) {
        source.heads /= parts.back().extent.constant();
        shown[1] = source.heads;
        SymShape apart = heads;
        apart[1] = source.heads;
        apart.insert(apart.begin() + 2, parts.back().extent);
        SymShape strides;
        if (StridedView split = view; split.reshape(apart))
          if (const std::optional<SymShape> all = strides_of(split)) {
            strides = *all;
            strides.erase(strides.begin() + 2);
            if (choose_layout(source, shown, strides, view.offset())) best = source;
          }
      } else if (const std::optional<SymShape> strides = strides_of(view);
                 strides && choose_layout(source, shown, *strides, view.offset())) {
        best = source;
      }
    }
    const GraphNode* node = value->producer;
    if (node == nullptr || node->outputs.size() != 1) break;
    GraphValue* next = nullptr;
    if (moves_elements(*node)) {
      next = node->inputs[0];
      moves.push_back(node);
    } else if (const auto op = single_operation(node)) {
      if (is_floating_identity(*op, *node)) {
        if (bits(op->a.value->info.dtype) < bits(value->info.dtype)) next = op->a.value;
      } else if (const auto factor = may_scale ? factor_of(*op, next) : std::nullopt) {
        if (!(next->info.dims == value->info.dims)) break;
        scale *= *factor;
      }
    }
    if (next == nullptr) break;
    value = next;
  }
  return best;
}

AttentionTarget find_target(const Graph& graph, GraphNode* product, const SymShape& heads) {
  AttentionTarget best{product, AttentionLayout::kHEADS_FIRST};
  // The extents of the product's own result may be less definite.
  const SymShape& own = product->outputs[0]->info.dims;
  StridedView view(own.size() == 4 && own[1] == heads[1] ? heads : own);
  const Expr &size = heads[3], head = heads[2] * size;
  const Expr strides[] = {heads[1] * head, head, size, 1};  // of batch, heads, length, size
  constexpr std::pair<AttentionLayout, int> kFirst[] = {{AttentionLayout::kBATCH_FIRST, 0},
                                                        {AttentionLayout::kLENGTH_FIRST, 2}};
  GraphNode* node = product;
  for (int step = 0; step < kMostFollowed; ++step) {
    GraphNode* user = graph.single_user(*node->outputs[0]);
    if (user == nullptr || !(user->as<Transpose>() || user->as<Reshape>()) || !view.apply(*user))
      break;
    node = user;
    for (const auto& [layout, first] : kFirst) {
      const int order[] = {first, 2 - first, 1, 3};
      SymShape dims;
      for (const int axis : order) dims.push_back(heads[static_cast<size_t>(axis)]);
      StridedView seen = view;
      if (!seen.reshape(dims)) continue;
      const std::optional<SymShape> found = strides_of(seen);
      bool is_so = found.has_value();
      for (size_t i = 0; is_so && i < 4; ++i) is_so = agrees((*found)[i], strides[order[i]]);
      if (is_so) {
        best = {node, layout};
        break;
      }
    }
    StridedView seen = view;
    if (best.node != node && seen.reshape(heads)) {
      const std::optional<SymShape> found = strides_of(seen);
      bool is_so = found.has_value();
      for (size_t i = 0; is_so && i < 4; ++i) is_so = agrees((*found)[i], strides[i]);
      if (is_so) best = {node, AttentionLayout::kHEADS_FIRST};
    }
  }
  return best;
}

bool moves_elements(const GraphNode& node) {
  return node.as<Transpose>() || node.as<Reshape>() || node.as<Slice>() || node.as<Gather>();
}

}  // namespace opwright
