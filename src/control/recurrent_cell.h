#pragma once

#include <optional>
#include <vector>

#include "control/recognize_recurrence.h"
#include "operators/activation.h"
#include "operators/recurrence.h"

namespace opwright::recurrent {

/// Weights times columns of an input or a state.
struct Term {
  int source = 0;  ///< index in Cell::sources; 0 for a state
  int64_t column = 0, columns = 0;
  const Tensor* inside = nullptr;  ///< the weights
  Tensor* outside = nullptr;       ///< the weights if they are multiplied before the loop
  int64_t weight_in = 0, weight_out = 0;
  bool by_output = false;
};
/// A tensor that is added to a gate in all iterations.
struct Bias {
  const Tensor* inside = nullptr;
  Tensor* outside = nullptr;
  int64_t start = 0;
};
struct Gate {
  std::vector<Term> inputs, states;
  std::vector<Bias> biases;
  std::vector<Bias> recurrent_biases;  ///< biases that the reset gate multiplies
  std::optional<Bias> peephole;
  bool is_negated = false;
};

/// The kind of a state of the loop: the cell's, or the number of the iteration.
enum class StateKind : uint8_t { kOther, kFloat, kCounter };

struct Cell {
  RecurrentCell kind = RecurrentCell::kRNN;
  std::vector<Gate> gates;  ///< in ONNX's order
  std::vector<ActivationParams> activations;
  int hidden = -1, memory = -1;  ///< numbers of the states h and c
  bool input_forget = false, linear_before_reset = false;
  /// A part of the input: a tensor whose elements are iterated over.
  struct Source {
    Tensor* whole = nullptr;
    int axis = 0;
    bool is_reverse = false;
    int64_t columns = 0;
  };
  std::vector<Source> sources;
  const Tensor* lengths = nullptr;  ///< inside: lengths of the sequences
  std::vector<StateKind> states;    ///< per state of the loop
  DataType type = DataType::kFLOAT;
  int64_t size = 0;  ///< size of the hidden state
  Expr steps;
};

/// The activation as ONNX's operators have it; empty: they do not.
std::optional<RecurrentActivation> recurrent_activation(const ActivationParams& f);

/// The cell of an LSTM, a GRU or an RNN that a loop repeats; empty for any other loop.
std::optional<Cell> match_cell(const RepeatedLayers& loop);
/// The outer extents of a tensor inside that is a view of the hidden state.
std::optional<SymShape> outer_dims(const RepeatedLayers& loop, size_t hidden, const Tensor& tensor);
/// Writes the cell's iterations as one Recurrence.
RecurrentCellLayers write_cell(const RepeatedLayers& loop, const Cell& cell, LayerWriter& writer);

}  // namespace opwright::recurrent
