#include "cpu/check_steps.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace opwright::testing {
namespace {

struct Family {
  std::vector<Step> (*steps)();
  std::vector<FaultCase> (*cases)();
};
std::vector<Family>& families() {
  static std::vector<Family> all;
  return all;
}

class Guarded {
 public:
  explicit Guarded(size_t size) : all_(size + 2 * kGuard, std::byte{0xA5}), size_(size) {}
  std::span<std::byte> bytes() { return std::span(all_).subspan(kGuard, size_); }
  bool is_intact() const {
    const auto is_guard = [](std::byte each) { return each == std::byte{0xA5}; };
    return std::all_of(all_.begin(), all_.begin() + kGuard, is_guard) &&
           std::all_of(all_.end() - kGuard, all_.end(), is_guard);
  }

 private:
  static constexpr size_t kGuard = 4096;
  std::vector<std::byte> all_;
  size_t size_;
};

}  // namespace

RegisteredChecks::RegisteredChecks(std::vector<Step> (*steps)(),
                                   std::vector<FaultCase> (*cases)()) {
  families().push_back({steps, cases});
}

std::vector<Step> registered_steps() {
  std::vector<Step> result;
  for (const Family& each : families())
    for (Step& step : each.steps()) result.push_back(std::move(step));
  return result;
}

std::vector<FaultCase> registered_cases() {
  std::vector<FaultCase> result;
  for (const Family& each : families())
    for (FaultCase& one : each.cases()) result.push_back(std::move(one));
  return result;
}

PortDesc port(const Shape& shape, DataType type, TensorFormat format) {
  PortDesc result;
  result.type = {type, format};
  result.min = result.opt = result.max = shape;
  return result;
}

PortDesc weights(const Shape& shape, DataType type) {
  PortDesc result = port(shape, type);
  result.is_constant = true;
  return result;
}

void set_all(Step& step, PortType type) {
  for (auto* ports : {&step.inputs, &step.outputs})
    for (PortDesc& each : *ports) each.type = type;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string refusal(const Step& step) {
  Candidate candidate;
  for (const PortDesc& each : step.inputs) candidate.inputs.push_back(each.type);
  for (const PortDesc& each : step.outputs) candidate.outputs.push_back(each.type);
  return error_of(
      [&] { check_ports(*step.op, candidate, step.inputs, step.outputs, step.packed); });
}

std::string obstacle(const Step& step) {
  return error_of([&] { Made made(step); });
}

Made::Made(Step step) : step_(std::move(step)) {
  for (const PortDesc& each : step_.inputs) candidate_.inputs.push_back(each.type);
  for (const PortDesc& each : step_.outputs) candidate_.outputs.push_back(each.type);
  KernelArgs args;
  args.layer = "test";
  args.candidate = &candidate_;
  args.inputs = step_.inputs;
  args.outputs = step_.outputs;
  args.packed = step_.packed;
  args.device = &test_device();
  planned_ = step_.op->plan(args);
  kernel_ = planned_->make_kernel(args);
  for (const auto& [input, elements] : step_.values) kernel_->on_values_change(input, elements);
}

void Made::tell(int input, std::vector<int64_t> elements) {
  kernel_->on_values_change(input, elements);
}

std::string Made::tell(std::vector<Shape> inputs, std::vector<Shape> outputs) {
  inputs_ = std::move(inputs), outputs_ = std::move(outputs);
  return error_of([&] { kernel_->on_shape_change(inputs_, outputs_); });
}

std::string Made::tell_opt() {
  std::vector<Shape> inputs, outputs;
  for (const PortDesc& each : step_.inputs) inputs.push_back(each.opt);
  for (const PortDesc& each : step_.outputs) outputs.push_back(each.opt);
  return tell(std::move(inputs), std::move(outputs));
}

std::vector<std::byte> Made::run(std::mt19937& random) {
  std::vector<Guarded> memory;
  memory.reserve(inputs_.size() + outputs_.size() + 1);
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  const auto add = [&](const PortDesc& desc, const Shape& shape) {
    memory.emplace_back(desc.present ? tensor_bytes(shape, desc.type.dtype, desc.type.format) : 0);
    for (std::byte& each : memory.back().bytes()) each = static_cast<std::byte>(random());
    return memory.back().bytes().data();
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    inputs.push_back(add(step_.inputs[i], inputs_[i]));
    const std::vector<PackedInput> packed = kernel_->packed();
    for (const PackedInput& each : packed)
      if (each.input == static_cast<int>(i)) inputs.back() = nullptr;
  }
  for (size_t i = 0; i < outputs_.size(); ++i)
    outputs.push_back(add(step_.outputs[i], outputs_[i]));
  memory.emplace_back(kernel_->workspace_size());
  kernel_->enqueue(inputs.data(), outputs.data(), memory.back().bytes().data(), nullptr);
  for (size_t i = 0; i < memory.size(); ++i)
    EXPECT_TRUE(memory[i].is_intact()) << "wrote beyond memory " << i;
  const auto bytes = memory[inputs_.size()].bytes();
  return {bytes.begin(), bytes.end()};
}

void run_on_any_bytes(const Step& step) {
  SCOPED_TRACE(step.op->kind());
  std::mt19937 random(5);
  Made made(step);
  EXPECT_EQ(made.tell_opt(), "");
  for (int i = 0; i < 100; ++i) made.run(random);
}

}  // namespace opwright::testing
