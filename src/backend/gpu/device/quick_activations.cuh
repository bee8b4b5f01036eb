// Sigmoid and tanh from approximations of the exponential and the reciprocal. The error is about
// 1e-7.
#pragma once

#include "approximations.cuh"

__device__ inline float quick_sigmoid(float x) {
  return reciprocal(1.0f + power_of_two(-1.44269504f * x));
}
__device__ inline float quick_tanh(float x) {
  return 1.0f - 2.0f * reciprocal(1.0f + power_of_two(2.88539008f * x));
}
