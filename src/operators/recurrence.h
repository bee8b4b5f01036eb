#pragma once

#include "operators/builtin.h"

namespace opwright {

enum class RecurrentCell : int32_t { kRNN = 0, kGRU = 1, kLSTM = 2 };
enum class RecurrentDirection : int32_t { kFORWARD = 0, kREVERSE = 1, kBIDIRECTIONAL = 2 };
/// The functions that ONNX lists for its recurrent operators.
enum class RecurrentActivation : int32_t {
  kRELU = 0,
  kTANH = 1,
  kSIGMOID = 2,
  kAFFINE = 3,            ///< alpha x + beta
  kLEAKY_RELU = 4,        ///< alpha x where x is negative
  kTHRESHOLDED_RELU = 5,  ///< 0 where x is below alpha
  kSCALED_TANH = 6,       ///< alpha tanh(beta x)
  kHARD_SIGMOID = 7,      ///< alpha x + beta within [0, 1]
  kELU = 8,               ///< alpha (e^x - 1) where x is negative
  kSOFTSIGN = 9,
  kSOFTPLUS = 10,
};
inline constexpr int kRecurrentActivations = 11;

/// Number of matrices of a cell for its input. It has as many for its state.
constexpr int gate_count(RecurrentCell cell) {
  return cell == RecurrentCell::kLSTM ? 4 : cell == RecurrentCell::kGRU ? 3 : 1;
}
/// Number of activations of a direction: f; f and g; f, g and h.
constexpr int activation_count(RecurrentCell cell) {
  return cell == RecurrentCell::kLSTM ? 3 : cell == RecurrentCell::kGRU ? 2 : 1;
}

struct RecurrenceParams {
  RecurrentCell cell = RecurrentCell::kLSTM;
  RecurrentDirection direction = RecurrentDirection::kFORWARD;
  /// RecurrentActivation, alpha and beta of each activation, direction by direction.
  Ints activations;
  Floats alphas, betas;
  double clip = 0;                   ///< the gates' sums are clipped to [-clip, clip]; 0: no
                                     ///< clipping
  bool input_forget = false;         ///< LSTM: the forget gate is 1 minus the input gate
  bool linear_before_reset = false;  ///< GRU: the reset gate multiplies the product
  template <class V>
  void visit(V& v) {
    v("cell", cell), v("direction", direction), v("activations", activations);
    v("alphas", alphas), v("betas", betas), v("clip", clip), v("input_forget", input_forget);
    v("linear_before_reset", linear_before_reset);
  }
  int directions() const { return direction == RecurrentDirection::kBIDIRECTIONAL ? 2 : 1; }
};

/// ONNX's RNN, GRU and LSTM over sequences [steps, batch, input], with its order of gates. Inputs:
/// x, w, r, b, sequence_lens, initial_h, initial_c, p. Those from b on may be absent. Outputs: y
/// [steps, directions, batch, hidden], y_h and, for LSTM, y_c.
class Recurrence final : public BuiltinOperator<Recurrence, RecurrenceParams> {
 public:
  static constexpr std::string_view kKind = "Recurrence";
  using BuiltinOperator::BuiltinOperator;
  std::optional<int> num_outputs() const override {
    return params().cell == RecurrentCell::kLSTM ? 3 : 2;
  }
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
