// Sigmoid and tanh by approximations of the exponential and the reciprocal, some 1e-7 off.
#pragma once

#include "approximations.cuh"

__device__ inline float quick_sigmoid(float x) {
  return reciprocal(1.0f + power_of_two(-1.44269504f * x));
}
__device__ inline float quick_tanh(float x) {
  return 1.0f - 2.0f * reciprocal(1.0f + power_of_two(2.88539008f * x));
}
