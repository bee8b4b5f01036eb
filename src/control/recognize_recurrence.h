#pragma once

#include <functional>
#include <optional>
#include <unordered_set>
#include <vector>

#include "operators/layer_writer.h"

namespace opwright {

/// A loop before it becomes layers. Tensors that are `inside` belong to the network with the
/// repeated layers. All others belong to the network that gets the loop's layers.
struct RepeatedLayers {
  /// An iteration's element of a tensor: the part at the iteration's number along an axis, without
  /// that axis. In reverse order it begins with the last part.
  struct Element {
    const Tensor* inside = nullptr;
    Tensor* whole = nullptr;
    int axis = 0;
    bool is_reverse = false;
  };
  std::unordered_set<const Layer*> layers;  ///< all layers that depend on the iteration
  std::vector<const Tensor*> states, next;  ///< inside: in an iteration, and for the next one
  std::vector<Tensor*> first;               ///< the states before the first iteration
  std::vector<Element> elements;
  const Tensor* iteration = nullptr;         ///< inside: the iteration; null: not read
  std::vector<const Tensor*> stacked;        ///< inside
  std::vector<std::optional<Expr>> lengths;  ///< of the stacked tensors; absent: all iterations
  Tensor* limit = nullptr;                   ///< the number of iterations, one INT32 or INT64
  std::optional<Expr> count;                 ///< the same, if it follows from shapes
  /// The outer tensor for a tensor inside that does not depend on the iteration.
  std::function<Tensor*(const Tensor& inside)> outside;
  /// Whether `outside` has the tensor; null: it has all.
  std::function<bool(const Tensor& inside)> may_leave;
};

struct RecurrentCellLayers {
  std::vector<Tensor*> last;     ///< the states after the last iteration
  std::vector<Tensor*> stacked;  ///< along a new first axis, in the order of the sequence
  bool is_reverse = false;       ///< whether the first iteration has the last place
};

/// Writes a loop as one Recurrence if it repeats the cell of an LSTM, a GRU or an RNN; otherwise
/// returns nothing and adds no layer. Gates may be columns of one product or separate products, in
/// any order, of one or several inputs, which may be multiplied before the loop. A state may stay
/// unchanged behind the end of each sequence.
std::optional<RecurrentCellLayers> recognize_recurrence(const RepeatedLayers& loop,
                                                        LayerWriter& writer);

}  // namespace opwright
