#pragma once

#include <functional>
#include <optional>
#include <unordered_set>
#include <vector>

#include "operators/layer_writer.h"

namespace opwright {

/// A loop before it becomes layers. What is `inside` are tensors of the network in which the layers
/// that are repeated lie; others are of the network that the loop becomes layers of.
struct RepeatedLayers {
  /// What an iteration reads of a tensor: that at its number along an axis, which goes; in the
  /// opposite order from the last iteration on.
  struct Element {
    const Tensor* inside = nullptr;
    Tensor* whole = nullptr;
    int axis = 0;
    bool is_reverse = false;
  };
  std::unordered_set<const Layer*> layers;  ///< all that depend on the iteration
  std::vector<const Tensor*> states, next;  ///< inside; in an iteration, and for the next one
  std::vector<Tensor*> first;               ///< the states before the first iteration
  std::vector<Element> elements;
  const Tensor* iteration = nullptr;         ///< inside: its number; null where nobody has it
  std::vector<const Tensor*> stacked;        ///< inside
  std::vector<std::optional<Expr>> lengths;  ///< of what is stacked; absent: all iterations
  Tensor* limit = nullptr;                   ///< how often, one INT32 or INT64
  std::optional<Expr> count;                 ///< the same, where it follows from shapes
  /// What a tensor is that does not depend on the iteration.
  std::function<Tensor*(const Tensor& inside)> outside;
  /// Whether `outside` knows of such a tensor; null: of all.
  std::function<bool(const Tensor& inside)> may_leave;
};

struct RecurrentCellLayers {
  std::vector<Tensor*> last;     ///< the states behind the last iteration
  std::vector<Tensor*> stacked;  ///< along a new first axis, by the place in what is iterated over
  bool is_reverse = false;       ///< whether the last place is that of the first iteration
};

/// Writes a loop as one Recurrence where it repeats the cell of an LSTM, a GRU or an RNN; nothing,
/// and no layer, where it does anything else. Gates may be columns of one product or products of
/// their own, in any order, of one or several inputs, which may be multiplied before the loop; and
/// a state may stay as it is behind the end of each sequence.
std::optional<RecurrentCellLayers> recognize_recurrence(const RepeatedLayers& loop,
                                                        LayerWriter& writer);

}  // namespace opwright
