// The cells of recurrent layers: activations, and how the sums of a unit's gates become its state.
#pragma once

#include "quick_activations.cuh"
#include "recurrence.cuh"

// ONNX's activations, which Config::f, g and h call.
__device__ inline float relu(float x) { return x < 0.0f ? 0.0f : x; }
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float affine(float x, float alpha, float beta) { return alpha * x + beta; }
__device__ inline float leaky_relu(float x, float alpha) { return x < 0.0f ? alpha * x : x; }
__device__ inline float thresholded_relu(float x, float alpha) { return x < alpha ? 0.0f : x; }
__device__ inline float scaled_tanh(float x, float alpha, float beta) {
  return alpha * tanhf(beta * x);
}
__device__ inline float quick_scaled_tanh(float x, float alpha, float beta) {
  return alpha * quick_tanh(beta * x);
}
__device__ inline float hard_sigmoid(float x, float alpha, float beta) {
  return fminf(fmaxf(alpha * x + beta, 0.0f), 1.0f);
}
__device__ inline float elu(float x, float alpha) { return x < 0.0f ? alpha * expm1f(x) : x; }
__device__ inline float softsign(float x) { return x / (1.0f + fabsf(x)); }
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

template <class C>
__device__ inline float clip(float x) {
  if constexpr (C::kIsClipped) return x > C::kClip ? C::kClip : x < -C::kClip ? -C::kClip : x;
  return x;
}
template <class C>
__device__ inline float activate_f(float sum, Index direction) {
  return C::f(clip<C>(sum), direction);
}
template <class C>
__device__ inline float activate_g(float sum, Index direction) {
  return C::g(clip<C>(sum), direction);
}

// GRU: the update gate z mixes the candidate with the previous state.
template <class C>
__device__ inline float mix_states(float z, float sum, float before, Index direction) {
  const float candidate = activate_g<C>(sum, direction);
  return candidate + z * (before - candidate);
}
// LSTM: returns the next state and replaces `cell` by the next cell state. The cell state is not
// the sum of a gate, so it is not clipped before h, as in ONNX Runtime.
template <class C>
__device__ inline float next_lstm_state(const float (&slots)[4], const float (&peepholes)[3],
                                        float& cell, Index direction) {
  const auto gate = [&](int slot) {
    float sum = slots[slot];
    if constexpr (C::kHasPeepholes) sum += peepholes[slot] * cell;
    return activate_f<C>(sum, direction);
  };
  const float in = gate(0);
  const float forget = C::kForgetsRest ? 1.0f - in : gate(2);
  cell = forget * cell + in * activate_g<C>(slots[3], direction);
  const float out = gate(1);
  return out * C::h(cell, direction);
}
// Returns the state of a unit after a step. Not for a GRU that resets first. Only an LSTM has
// `cell`.
template <class C>
__device__ inline float next_state(const float (&slots)[4], const float (&peepholes)[3],
                                   float before, float& cell, Index direction) {
  if constexpr (C::kIsLstm) {
    return next_lstm_state<C>(slots, peepholes, cell, direction);
  } else if constexpr (C::kIsGru) {
    const float z = activate_f<C>(slots[0], direction), reset = activate_f<C>(slots[1], direction);
    return mix_states<C>(z, slots[2] + reset * slots[3], before, direction);
  } else {
    return activate_f<C>(slots[0], direction);
  }
}
