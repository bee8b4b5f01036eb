#pragma once

#include <cstdint>

namespace opwright {

/// Hidden units that are computed together; weights are packed in panels of so many columns.
inline constexpr int64_t kRecurrentUnits = 32;

/// out[m][j] = init[m][j] + sum over k of a[m][k] panel[k][j] for kRecurrentUnits columns j;
/// strides between rows are in elements, `init` may be null.
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
  int32_t kind = 0;  ///< RecurrentActivation
  float alpha = 0, beta = 0;
};

/// kRecurrentUnits units of one element of the batch at one step. Gates lie one behind the other,
/// kRecurrentUnits each, in ONNX's order.
struct CellStep {
  const float* projected;       ///< of the input, with biases
  float* recurrent;             ///< of the state
  const float* h;               ///< the state before the step
  float* h_next;                ///< and behind it
  float* c;                     ///< LSTM: the cell, changed
  float* reset;                 ///< GRU: the state times the reset gate
  const float* recurrent_bias;  ///< GRU, linear before reset
  const float* peephole;        ///< LSTM: null, or the weights of the input gate
  int64_t peephole_stride;      ///< from one gate's weights to the next
  const CellActivation* activations;
  float clip;  ///< infinity: not clipped
  bool input_forget;
};
void rnn_step(const CellStep& step);
void lstm_step(const CellStep& step);
/// The update gate, left in `recurrent`, and what the candidate's product needs: in `reset` the
/// state times the reset gate.
void gru_gates(const CellStep& step);
/// What follows that product.
void gru_finish(const CellStep& step);
/// Both at once, where the reset gate multiplies the product.
void gru_step(const CellStep& step);

}  // namespace opwright
