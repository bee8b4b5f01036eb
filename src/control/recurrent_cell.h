#pragma once

#include <optional>
#include <vector>

#include "control/recognize_recurrence.h"
#include "operators/activation.h"
#include "operators/recurrence.h"

namespace opwright::recurrent {

/// Weights times columns of an input or a state.
struct Term {
  int source = 0;  ///< of Cell::sources; of a state 0
  int64_t column = 0, columns = 0;
  const Tensor* inside = nullptr;  ///< the weights
  Tensor* outside = nullptr;       ///< the same where they are multiplied before the loop
  int64_t weight_in = 0, weight_out = 0;
  bool by_output = false;
};
/// Something that is added to a gate in all iterations.
struct Bias {
  const Tensor* inside = nullptr;
  Tensor* outside = nullptr;
  int64_t start = 0;
};
struct Gate {
  std::vector<Term> inputs, states;
  std::vector<Bias> biases;
  std::vector<Bias> recurrent_biases;  ///< those that the reset gate multiplies
  std::optional<Bias> peephole;
  bool is_negated = false;
};

/// What a state of the loop is: the cell's, or the number of the iteration.
enum class StateKind : uint8_t { kOther, kFloat, kCounter };

struct Cell {
  RecurrentCell kind = RecurrentCell::kRNN;
  std::vector<Gate> gates;  ///< in ONNX's order
  std::vector<ActivationParams> activations;
  int hidden = -1, memory = -1;  ///< which states h and c are
  bool input_forget = false, linear_before_reset = false;
  /// What the input is put together from: tensors whose elements are iterated over.
  struct Source {
    Tensor* whole = nullptr;
    int axis = 0;
    bool is_reverse = false;
    int64_t columns = 0;
  };
  std::vector<Source> sources;
  const Tensor* lengths = nullptr;  ///< inside: of the sequences
  std::vector<StateKind> states;    ///< what each state of the loop is
  DataType type = DataType::kFLOAT;
  int64_t size = 0;  ///< of the hidden state
  Expr steps;
};

/// The activation as ONNX's operators have it.
std::optional<RecurrentActivation> recurrent_activation(const ActivationParams& f);

/// The cell of an LSTM, a GRU or an RNN that a loop repeats; nothing where it does anything else.
std::optional<Cell> match_cell(const RepeatedLayers& loop);
/// The extents of a tensor inside that is a view of the hidden state, as the state has them
/// outside.
std::optional<SymShape> outer_dims(const RepeatedLayers& loop, size_t hidden, const Tensor& tensor);
/// Writes the cell's iterations as one Recurrence.
RecurrentCellLayers write_cell(const RepeatedLayers& loop, const Cell& cell, LayerWriter& writer);

}  // namespace opwright::recurrent
