// The runtime's own cost per layer: runs of 64 kernels that do nothing, against the same kernels
// called in a plain loop.

#include <benchmark/benchmark.h>

#include "runtime/fake_plan.h"

namespace opwright {
namespace {

constexpr int kSteps = 64;

class NoKernel final : public Kernel {
 public:
  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    benchmark::DoNotOptimize(inputs);
    benchmark::DoNotOptimize(outputs);
  }
};

class NoOperator final : public PlannedOperator {
 public:
  std::string_view kind() const override { return "BenchNothing"; }
  bool can_infer() const override { return false; }
  std::vector<OutputInfo> infer(InferContext&) const override { return {}; }
  std::unique_ptr<Kernel> make_kernel(const KernelArgs&) const override {
    return std::make_unique<NoKernel>();
  }
  Attributes attributes() const override { return {}; }
};

void enqueue_nothing(benchmark::State& state) {
  register_operator_kind("BenchNothing", [](const Attributes&, const OperatorLoadContext&) {
    return std::make_shared<NoOperator>();
  });
  FakePlan plan;
  int tensor = plan.input("x", kFp32, {16}, {16}, {16});
  for (int i = 0; i < kSteps; ++i) {
    const std::string name = "t" + std::to_string(i);
    const int next =
        i + 1 == kSteps ? plan.output("z", kFp32, {16}) : plan.arena(name, kFp32, {16}, 64);
    plan.step("step" + name, "BenchNothing", {tensor}, {next});
    tensor = next;
  }
  const auto context = plan.context();
  float x[16] = {}, z[16] = {};
  context->set_input_address(0, x);
  context->set_output_address(0, z);
  for (auto _ : state) context->enqueue();
  state.SetItemsProcessed(state.iterations() * kSteps);
}
BENCHMARK(enqueue_nothing);

void plain_loop(benchmark::State& state) {
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (int i = 0; i < kSteps; ++i) kernels.push_back(std::make_unique<NoKernel>());
  void* pointers[2] = {};
  for (auto _ : state) {
    for (const auto& kernel : kernels) kernel->enqueue(pointers, pointers + 1, nullptr, nullptr);
  }
  state.SetItemsProcessed(state.iterations() * kSteps);
}
BENCHMARK(plain_loop);

}  // namespace
}  // namespace opwright

BENCHMARK_MAIN();
