#pragma once

#include <vector>

#include "control/cell_reader.h"
#include "control/recurrent_cell.h"

namespace opwright::recurrent {

bool same(const ActivationParams& a, const ActivationParams& b);
/// The node where it is an activation that cells have, else null.
const Node* as_activation(const Node* node);
/// Whether the node is that state, all columns of it.
bool is_whole_state(const Node& node, size_t state, int64_t size);

/// Reads what the gates of a cell add up: products of inputs and of the hidden state, biases,
/// peepholes.
class GateReader {
 public:
  /// `next`: what the states become. The cell has its kind and its states; sources are added to it.
  GateReader(const RepeatedLayers& loop, const CellReader& reader,
             const std::vector<const Node*>& next, Cell& cell, int64_t size)
      : loop_(loop), reader_(reader), next_(next), cell_(cell), size_(size) {}

  bool read(const Node* sum, Gate& gate);
  /// The sum of a GRU's candidate, in which the reset gate, which is read as well, multiplies the
  /// state or its product.
  bool read_candidate(const Node* sum);

 private:
  bool is_state(const Node* node) const {
    return is_whole_state(*node, static_cast<size_t>(cell_.hidden), size_);
  }
  const Node* multiplied_state(const Node* node) const;
  /// r (U h + c)
  template <class SetReset>
  bool read_reset_product(const Node& product, const SetReset& set_reset);
  bool read_term(const Node* term, Gate& gate, bool takes_state);
  bool read_peephole(const Node& term, Gate& gate);
  /// What is iterated over may be the product with the weights of all steps.
  bool read_projected(const Node& node, Gate& gate);
  int source_of(Tensor* whole, int axis, bool is_reverse, int64_t columns);

  const RepeatedLayers& loop_;
  const CellReader& reader_;
  const std::vector<const Node*>& next_;
  Cell& cell_;
  const int64_t size_;
};

}  // namespace opwright::recurrent
