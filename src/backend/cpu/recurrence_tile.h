#pragma once

#include <cstdint>

namespace opwright {

/// Hidden units that are computed together. Weights are packed in panels with this number of
/// columns.
inline constexpr int64_t kRecurrentUnits = 32;

/// out[m][j] = init[m][j] + sum over k of a[m][k] panel[k][j] for kRecurrentUnits columns j.
/// Strides between rows are in elements, `init` may be null.
struct PanelProduct {
  const float* a;
  int64_t a_stride, rows, k;
  const float* panel;
  const float* init;
  int64_t init_stride;
  float* out;
  int64_t out_stride;
};
void multiply_panel(const PanelProduct& product);

struct CellActivation {
  int32_t kind = 0;  ///< a RecurrentActivation
  float alpha = 0, beta = 0;
};

/// One step of kRecurrentUnits units of one element of the batch. Gates lie one behind the other,
/// kRecurrentUnits each, in ONNX's order.
struct CellStep {
  const float* projected;       ///< the input's contribution to the gates, with biases
  float* recurrent;             ///< the state's contribution to the gates
  const float* h;               ///< the state before the step
  float* h_next;                ///< the state after the step
  float* c;                     ///< LSTM: the cell, which the step changes
  float* reset;                 ///< GRU: the state times the reset gate
  const float* recurrent_bias;  ///< GRU, for linear before reset
  const float* peephole;        ///< LSTM: null, or the weights of the input gate
  int64_t peephole_stride;      ///< from one gate's weights to the next
  const CellActivation* activations;
  float clip;  ///< infinity: not clipped
  bool input_forget;
};
void rnn_step(const CellStep& step);
void lstm_step(const CellStep& step);
/// Computes the update gate into `recurrent`, and the operand of the candidate's product into
/// `reset`: the state times the reset gate.
void gru_gates(const CellStep& step);
/// Finishes the step after the candidate's product.
void gru_finish(const CellStep& step);
/// Does a whole step, where the reset gate multiplies the product.
void gru_step(const CellStep& step);

}  // namespace opwright
