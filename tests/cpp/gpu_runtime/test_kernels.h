#pragma once

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "gpu_runtime/test_gpu.h"
#include "runtime/fake_plan.h"

namespace opwright {

using FloatVector = std::vector<float>;

/// `first`, `first` + 1, ...
inline FloatVector ramp(size_t count, float first = 1) {
  FloatVector values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

inline FloatVector times(float factor, FloatVector values) {
  for (float& value : values) value *= factor;
  return values;
}

inline constexpr char kTestKernels[] = R"cuda(
extern "C" __global__ void twice(const float* x, float* y, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
extern "C" __global__ void half(const float* x, float* y, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] / 2;
}
extern "C" __global__ void add(const float* x, const float* w, float* y, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + w[i];
}
extern "C" __global__ void to_float(const long long* x, float* y, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (float)x[i];
}
// Keeps the positive elements; a first element of 1000 makes the count wrong.
extern "C" __global__ void keep_positive(const float* x, int* count, float* kept, long long n) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  int found = 0;
  for (long long i = 0; i < n; ++i)
    if (x[i] > 0) kept[found++] = x[i];
  *count = n > 0 && x[0] == 1000 ? 99 : found;
}
extern "C" __global__ void out_of_bounds(const float* x, float* y, long long n) {
  *(float*)16 = x[0];
}
)cuda";

/// Runs the function of kTestKernels: inputs, outputs and the elements of the first input.
inline void launch(const std::string& name, const FakeRun& run) {
  static const CodeObject code = compile_cuda(kTestKernels, "test_kernels.cu");
  static std::map<std::string, std::shared_ptr<const DeviceFunction>> functions;
  auto& function = functions[name];
  if (function == nullptr) function = test_gpu().load_function(code, name);
  std::vector<void*> pointers;
  for (size_t i = 0; i < run.input_shapes.size(); ++i)
    pointers.push_back(const_cast<void*>(run.inputs[i]));
  for (size_t i = 0; i < run.output_shapes.size(); ++i) pointers.push_back(run.outputs[i]);
  int64_t count = run.input_shapes[0].numel();
  std::vector<void*> arguments;
  for (void*& pointer : pointers) arguments.push_back(&pointer);
  arguments.push_back(&count);
  LaunchShape shape;
  shape.block = {32, 1, 1};
  shape.grid = {static_cast<uint32_t>(count / 32 + 1), 1, 1};
  function->launch(shape, arguments.data(), run.queue);
}

/// Registers operators of the kinds "Gpu:twice", "Gpu:add", ...
inline void register_gpu_kinds() {
  for (const std::string name :
       {"twice", "half", "add", "to_float", "keep_positive", "out_of_bounds"})
    register_fake("Gpu:" + name, {.run = [name](const FakeRun& run) { launch(name, run); }});
}

}  // namespace opwright
