#pragma once

#include <vector>

#include "control/cell_reader.h"
#include "control/recurrent_cell.h"

namespace opwright::recurrent {

bool same(const ActivationParams& a, const ActivationParams& b);
/// The node if it is an activation that cells support, else null.
const Node* as_activation(const Node* node);
/// Whether the node is that state, with all of its columns.
bool is_whole_state(const Node& node, size_t state, int64_t size);

/// Reads the sums of a cell's gates: products of inputs and of the hidden state, biases, peepholes.
class GateReader {
 public:
  /// `next`: the states after an iteration. `cell` has its kind and states; the reader adds
  /// sources.
  GateReader(const RepeatedLayers& loop, const CellReader& reader,
             const std::vector<const Node*>& next, Cell& cell, int64_t size)
      : loop_(loop), reader_(reader), next_(next), cell_(cell), size_(size) {}

  bool read(const Node* sum, Gate& gate);
  /// Reads the sum of a GRU's candidate, and its reset gate, which multiplies the state or the
  /// state's product.
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
  /// Reads a product with an input's weights that is computed before the loop for all steps.
  bool read_projected(const Node& node, Gate& gate);
  int source_of(Tensor* whole, int axis, bool is_reverse, int64_t columns);

  const RepeatedLayers& loop_;
  const CellReader& reader_;
  const std::vector<const Node*>& next_;
  Cell& cell_;
  const int64_t size_;
};

}  // namespace opwright::recurrent
