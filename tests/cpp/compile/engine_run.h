#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/types.h"
#include "compile/compile.h"
#include "runtime/context.h"

namespace opwright {

/// Floats of a fixed pseudo-random sequence in [-1, 1).
inline std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = seed * 2654435761u + 12345u;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1;
  }
  return values;
}

inline Blob blob_of(const std::vector<float>& values) {
  return Blob::copy(values.data(), values.size() * sizeof(float));
}

/// A configuration for the CPU that times little.
inline BuilderConfig quick_config() {
  BuilderConfig config{DeviceId{"cpu"}};
  config.avg_timing_iterations = 1;
  return config;
}

/// Runs a plan with FP32 inputs of these shapes; gives the FP32 outputs.
inline std::vector<std::vector<float>> run_plan(Plan plan, const std::vector<Shape>& shapes,
                                                const std::vector<std::vector<float>>& inputs,
                                                int profile = 0) {
  Context context(Engine::load(std::move(plan), {}), profile);
  for (size_t i = 0; i < inputs.size(); ++i) {
    context.set_input_shape(static_cast<int>(i), shapes[i]);
    context.set_input_address(static_cast<int>(i), inputs[i].data());
  }
  std::vector<std::vector<float>> outputs(context.engine()->plan().outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].resize(static_cast<size_t>(context.output_shape(static_cast<int>(i)).numel()));
    context.set_output_address(static_cast<int>(i), outputs[i].data());
  }
  context.enqueue();
  return outputs;
}

inline void expect_near(const std::vector<float>& values, const std::vector<float>& expected,
                        float tolerance = 1e-4f) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
}

}  // namespace opwright
