// The online softmax of a warp's rows: the largest score of each row, times log2(e), and the sums
// relative to it. `Unit` defines the rows and columns of a lane, and multiplies weights with
// values. The Unit::kLanes lanes that share a row are Unit::kLaneStep apart.
#pragma once

#include "attention.cuh"

template <class Unit>
struct AttentionState {
  static constexpr int kNumbers = Unit::kRows * (2 + Unit::kOutputs);  // numbers per lane
  float most[Unit::kRows], sum[Unit::kRows], sums[Unit::kRows][Unit::kOutputs];
  __device__ AttentionState() {
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i) {
      most[i] = nothing(), sum[i] = 0.0f;
#pragma unroll
      for (int j = 0; j < Unit::kOutputs; ++j) sums[i][j] = 0.0f;
    }
  }
  // Raises the largest score of a row. Returns the number to subtract from scores, which is never
  // -infinity.
  __device__ float raise(int i, float score) {
    const float next = fmaxf(most[i], score), base = next == nothing() ? 0.0f : next;
    const float factor = power_of_two(most[i] - base);
    most[i] = next;
    sum[i] *= factor;
#pragma unroll
    for (int j = 0; j < Unit::kOutputs; ++j) sums[i][j] *= factor;
    return base;
  }
  // Adds a tile: turns the scores into weights and adds the weighted values, which the unit reads.
  template <class... Values>
  __device__ void add(float (&scores)[Unit::kRows][Unit::kColumns], const Unit& unit,
                      const Values*... values) {
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i) {
      float largest = scores[i][0];
#pragma unroll
      for (int j = 1; j < Unit::kColumns; ++j) largest = fmaxf(largest, scores[i][j]);
#pragma unroll
      for (int distance = 1; distance < Unit::kLanes; distance *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance * Unit::kLaneStep));
      const float base = raise(i, largest);
#pragma unroll
      for (int j = 0; j < Unit::kColumns; ++j) {
        scores[i][j] = power_of_two(scores[i][j] - base);
        sum[i] += scores[i][j];
      }
    }
    unit.add_values(sums, scores, values...);
  }
  // Adds up the row sums of the lanes that share a row.
  __device__ void add_lanes() {
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i)
#pragma unroll
      for (int distance = 1; distance < Unit::kLanes; distance *= 2)
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], distance * Unit::kLaneStep);
  }
  // save() stores the state's numbers `threads` elements apart. add_saved() merges a state that was
  // saved in this way.
  __device__ void save(float* to, int threads) const {
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i) {
      *to = most[i], to += threads;
      *to = sum[i], to += threads;
#pragma unroll
      for (int j = 0; j < Unit::kOutputs; ++j, to += threads) *to = sums[i][j];
    }
  }
  template <bool is_global>
  __device__ static float saved(const float* from) {
    return is_global ? __ldcg(from) : *from;
  }
  template <bool is_global>
  __device__ void add_saved(const float* from, int threads) {
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i) {
      const float score = saved<is_global>(from);
      const float factor = power_of_two(score - raise(i, score));
      from += threads;
      sum[i] = fmaf(saved<is_global>(from), factor, sum[i]), from += threads;
#pragma unroll
      for (int j = 0; j < Unit::kOutputs; ++j, from += threads)
        sums[i][j] = fmaf(saved<is_global>(from), factor, sums[i][j]);
    }
  }
};
