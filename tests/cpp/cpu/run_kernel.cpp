#include "cpu/run_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "backend/cpu/cpu_device.h"
#include "base/half.h"

namespace opwright::testing {
namespace {

constexpr unsigned char kGuard = 0xA5;
constexpr size_t kGuardBytes = 256;

/// 64-byte aligned memory between two guards.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t size) : size_(size) {
    memory_ = static_cast<unsigned char*>(cpu_device().allocate(size + 2 * kGuardBytes));
    std::memset(memory_, kGuard, size + 2 * kGuardBytes);
  }
  ~GuardedBuffer() { cpu_device().free(memory_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  unsigned char* data() { return memory_ + kGuardBytes; }
  bool intact() const {
    for (size_t i = 0; i < kGuardBytes; ++i)
      if (memory_[i] != kGuard || memory_[kGuardBytes + size_ + i] != kGuard) return false;
    return true;
  }

 private:
  unsigned char* memory_;
  size_t size_;
};

}  // namespace

std::vector<Candidate> candidates_of(const Operator& op, std::span<const TestInput> inputs,
                                     std::span<const TestOutput> outputs, QueryOptions options) {
  const std::vector<PortDesc> input_ports = describe(inputs), output_ports = describe(outputs);
  CandidateQuery query;
  query.layer = "test";
  query.inputs = input_ports;
  query.outputs = output_ports;
  query.device = &cpu_device();
  query.fp16 = options.fp16, query.bf16 = options.bf16;
  query.strongly_typed = options.strongly_typed;
  return op.candidates(query);
}

TestKernel::TestKernel(const Operator& op, const Candidate& candidate,
                       std::span<const TestInput> inputs, std::span<const TestOutput> outputs,
                       std::span<const PackedInput> packed, std::span<const Shape> max_inputs,
                       std::span<const Shape> max_outputs)
    : candidate_(candidate) {
  std::vector<PortDesc> input_ports = describe(inputs), output_ports = describe(outputs);
  for (size_t i = 0; i < input_ports.size(); ++i) {
    input_ports[i].type = candidate.inputs[i];
    if (input_ports[i].is_constant)
      input_ports[i].constant = to_bytes(inputs[i].values, {candidate.inputs[i].dtype});
    if (!max_inputs.empty()) input_ports[i].max = max_inputs[i];
  }
  for (size_t i = 0; i < output_ports.size(); ++i) {
    output_ports[i].type = candidate.outputs[i];
    if (!max_outputs.empty()) output_ports[i].max = max_outputs[i];
  }
  for (const PackedInput& input : packed) input_ports[input.input].constant = Blob();

  KernelArgs args;
  args.layer = "test";
  args.candidate = &candidate_;
  args.inputs = input_ports;
  args.outputs = output_ports;
  args.packed = packed;
  args.device = &cpu_device();
  kernel_ = op.make_kernel(args);
  workspace_size_ = kernel_->workspace_size();
  for (const PackedInput& input : packed) packed_inputs_.push_back(input.input);
  if (packed.empty())
    for (const PackedInput& input : kernel_->packed()) packed_inputs_.push_back(input.input);
}

std::vector<Values> TestKernel::run(std::span<const TestInput> inputs,
                                    std::span<const TestOutput> outputs, int in_place) {
  std::vector<Shape> input_shapes, output_shapes;
  std::vector<std::unique_ptr<GuardedBuffer>> input_buffers, output_buffers;
  std::vector<const void*> input_pointers;
  std::vector<void*> output_pointers;
  std::vector<Blob> originals;
  for (size_t i = 0; i < inputs.size(); ++i) {
    input_shapes.push_back(inputs[i].values.shape);
    const Blob bytes =
        inputs[i].present ? to_bytes(inputs[i].values, candidate_.inputs[i]) : Blob();
    input_buffers.push_back(std::make_unique<GuardedBuffer>(bytes.size()));
    if (bytes.size() > 0) std::memcpy(input_buffers[i]->data(), bytes.data(), bytes.size());
    const bool packed =
        std::find(packed_inputs_.begin(), packed_inputs_.end(), i) != packed_inputs_.end();
    input_pointers.push_back(inputs[i].present && !packed ? input_buffers[i]->data() : nullptr);
    originals.push_back(bytes);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const PortType type = candidate_.outputs[i];
    output_shapes.push_back(outputs[i].shape);
    output_buffers.push_back(
        std::make_unique<GuardedBuffer>(tensor_bytes(outputs[i].shape, type.dtype, type.format)));
    output_pointers.push_back(output_buffers[i]->data());
  }
  if (in_place >= 0) output_pointers[0] = input_buffers[in_place]->data();

  GuardedBuffer workspace(workspace_size_);
  kernel_->on_shape_change(input_shapes, output_shapes);
  kernel_->enqueue(input_pointers.data(), output_pointers.data(), workspace.data(), nullptr);

  EXPECT_TRUE(workspace.intact()) << "wrote beyond the workspace";
  std::vector<Values> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_TRUE(output_buffers[i]->intact()) << "wrote beyond output " << i;
    results.push_back(from_bytes(output_pointers[i], outputs[i].shape, candidate_.outputs[i]));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(input_buffers[i]->intact()) << "wrote beyond input " << i;
    if (static_cast<int>(i) != in_place && originals[i].size() > 0) {
      EXPECT_EQ(std::memcmp(input_buffers[i]->data(), originals[i].data(), originals[i].size()), 0)
          << "changed input " << i;
    }
  }
  return results;
}

std::vector<Values> run_kernel(const Operator& op, const Candidate& candidate,
                               std::span<const TestInput> inputs,
                               std::span<const TestOutput> outputs) {
  return TestKernel(op, candidate, inputs, outputs).run(inputs, outputs);
}

}  // namespace opwright::testing
