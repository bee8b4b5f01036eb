#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "network/operator.h"
#include "test_tensors.h"

/// Runs kernels of the CPU device on small tensors and checks that they write nothing beyond their
/// outputs.
namespace opwright::testing {

std::vector<Candidate> candidates_of(const Operator& op, std::span<const TestInput> inputs,
                                     std::span<const TestOutput> outputs,
                                     QueryOptions options = {});

/// A kernel made for a candidate, with what it needs kept alive.
class TestKernel {
 public:
  /// The shapes of `inputs` and `outputs` are the profile's opt and max shape unless `max` says
  /// otherwise. `packed` is what another kernel's packed() returned: the constants that it names
  /// come without their bytes.
  TestKernel(const Operator& op, const Candidate& candidate, std::span<const TestInput> inputs,
             std::span<const TestOutput> outputs, std::span<const PackedInput> packed = {},
             std::span<const Shape> max_inputs = {}, std::span<const Shape> max_outputs = {});

  Kernel& kernel() { return *kernel_; }
  /// Runs with these inputs (constants that were packed are not handed over) and returns the
  /// outputs. With `in_place`, output 0 lies in the memory of that input.
  std::vector<Values> run(std::span<const TestInput> inputs, std::span<const TestOutput> outputs,
                          int in_place = -1);

 private:
  Candidate candidate_;
  std::vector<int> packed_inputs_;
  size_t workspace_size_ = 0;
  std::unique_ptr<Kernel> kernel_;
};

/// Makes a kernel for the candidate and runs it once on its inputs.
std::vector<Values> run_kernel(const Operator& op, const Candidate& candidate,
                               std::span<const TestInput> inputs,
                               std::span<const TestOutput> outputs);

}  // namespace opwright::testing
