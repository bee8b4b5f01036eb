// A backend that nothing in src/ knows: networks, files, runs, memory, events and plugins on it.

#include "deferred/deferred_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>

#include "add_profile.h"
#include "backend/memory.h"
#include "compile/compile.h"
#include "network/network.h"
#include "operators/elementwise.h"
#include "operators/movement.h"
#include "operators/reduce.h"
#include "opwright/builder.h"
#include "opwright/runtime.h"
#include "plugin/model/function_model.h"
#include "plugin/plugin_test.h"
#include "runtime/context.h"
#include "runtime/inspect.h"

namespace opwright {
namespace {

using Floats = std::vector<float>;

const DeferredDevice& deferred(int ordinal = 0) {
  return static_cast<const DeferredDevice&>(get_device({"deferred", ordinal}));
}

Blob to_file(const Plan& plan) {
  std::vector<std::byte> bytes;
  for (const Blob& piece : serialize(plan))
    bytes.insert(bytes.end(), piece.bytes().begin(), piece.bytes().end());
  return Blob::copy(bytes.data(), bytes.size());
}

/// Elements in the memory of a device.
class Array {
 public:
  explicit Array(const Floats& values, const DeferredDevice& device = deferred())
      : device_(device), count_(values.size()) {
    memory_.grow(device_, count_ * sizeof(float));
    device_.copy(memory_.data(), values.data(), count_ * sizeof(float), nullptr);
  }
  float* data() const { return reinterpret_cast<float*>(memory_.data()); }
  /// Once all work is done.
  Floats get() const {
    Floats values(count_);
    device_.copy(values.data(), data(), count_ * sizeof(float), nullptr);
    return values;
  }

 private:
  const DeferredDevice& device_;
  const size_t count_;
  DeviceMemory memory_;
};

/// y = -x, by a function that gives work to the device, or by code of its own.
class NegatePlugin final : public FunctionPlugin {
 public:
  const std::string& name() const override { return name_; }
  const std::string& plugin_namespace() const override { return name_; }
  const std::vector<FunctionParameter>& parameters() const override { return parameters_; }
  int num_outputs() const override { return 1; }
  bool has_impl(DeviceType device) const override { return device == DeviceType::kGPU; }
  bool has_aot_impl(DeviceType device) const override { return device == DeviceType::kGPU; }
  bool has_autotune() const override { return false; }
  std::vector<std::string> impl_attributes() const override { return {}; }
  std::vector<OutputInfo> infer(InferContext& context, const FieldValues&) const override {
    OutputInfo output;
    static_cast<TensorInfo&>(output) = *context.inputs[0];
    return {output};
  }
  std::vector<Candidate> autotune(const CandidateQuery&, const FieldValues&) const override {
    return {};
  }
  std::unique_ptr<Kernel> attach(const KernelArgs& args, const FieldValues&,
                                 const FunctionOutputs&) const override {
    struct Callback final : Kernel {
      explicit Callback(const Device& d) : device(static_cast<const DeferredDevice&>(d)) {}
      void on_shape_change(std::span<const Shape> in, std::span<const Shape>) override {
        count = in[0].numel();
      }
      void enqueue(void const* const* in, void* const* out, void*, Queue) override {
        device.give([x = static_cast<const float*>(in[0]), y = static_cast<float*>(out[0]),
                     n = count] { std::transform(x, x + n, y, std::negate<>()); });
      }
      const DeferredDevice& device;
      int64_t count = 0;
    };
    return std::make_unique<Callback>(*args.device);
  }
  KernelCode compile(const KernelArgs&, const FieldValues&) const override {
    KernelCode code;
    code.name = "negate";
    code.object = {"the kernel", "deferred", Blob::copy("negate", 6), false};
    code.grid[0] = Expr::symbol(0) * Expr::symbol(1);
    return code;
  }

 private:
  const std::string name_ = "deferred_negate";
  const std::vector<FunctionParameter> parameters_ = {
      {.name = "x", .kind = ParameterKind::kTensor}};
};

BuilderConfig config_for(DeviceId device, std::initializer_list<const char*> inputs) {
  BuilderConfig config(std::move(device));
  config.max_aux_streams = 0;
  OptimizationProfile profile;
  for (const char* input : inputs) profile.set_shape(input, {1, 8}, {4, 8}, {16, 8});
  add_profile(config, profile);
  return config;
}

/// sum = the sums of the rows of all = -(x + w), [n, 8] both; without a mode nothing is negated.
std::unique_ptr<Network> sum_network(std::optional<FunctionMode> mode = {}) {
  auto network = std::make_unique<Network>();
  const auto add = [&](OperatorPtr op, std::vector<Tensor*> inputs, const char* name) {
    return network->add_layer(std::move(op), inputs, name)->output(0);
  };
  Tensor* const x = network->add_input("x", DataType::kFLOAT, {-1, 8});
  Tensor* const w = network->add_input("w", DataType::kFLOAT, {-1, 8});
  Tensor* y = add(std::make_shared<ElementWise>(), {x, w}, "add");
  if (mode) {
    const auto plugin = std::make_shared<NegatePlugin>();
    register_function_plugin(plugin);
    y = add(make_function_operator(plugin, {}, *mode), {y}, "negate");
  }
  ReduceParams params;
  params.axes = 2;
  Tensor* const sum = add(std::make_shared<Reduce>(params), {y}, "reduce");
  sum->set_name("sum");
  network->mark_output(*sum);
  ShuffleParams flat;
  flat.has_reshape = true;
  flat.reshape_dims = {-1};
  Tensor* const all = add(std::make_shared<Shuffle>(flat), {y}, "reshape");
  all->set_name("all");
  network->mark_output(*all);
  return network;
}

LoadOptions trusting(int ordinal = -1) {
  LoadOptions options;
  options.allow_device_code = true;
  options.device_ordinal = ordinal;
  return options;
}

/// Runs with x = 0, 1, 2, ... and w = 0.5, and expects `sign` times their sums.
void expect_runs(Context& context, int64_t rows, float sign, const DeferredDevice& device) {
  Floats values(static_cast<size_t>(rows * 8)), sums(static_cast<size_t>(rows)), all;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
    all.push_back(sign * (values[i] + 0.5F));
    sums[i / 8] += all.back();
  }
  const Array x(values, device), w(Floats(values.size(), 0.5F), device),
      sum(Floats(sums.size(), 99), device), flat(Floats(all.size(), 99), device);
  device.synchronize(nullptr);
  for (int input = 0; input < 2; ++input) context.set_input_shape(input, {rows, 8});
  context.set_input_address(0, x.data());
  context.set_input_address(1, w.data());
  context.set_output_address(0, sum.data());
  context.set_output_address(1, flat.data());
  context.enqueue();
  EXPECT_GT(device.waiting(), 0u) << "nobody has waited for it";
  EXPECT_EQ(sum.data()[0], 99);
  context.synchronize();
  EXPECT_EQ(device.waiting(), 0u);
  EXPECT_EQ(sum.get(), sums);
  EXPECT_EQ(flat.get(), all);
}

TEST(DeferredBackend, IsFoundByItsName) {
  EXPECT_EQ(get_device({"deferred"}).ordinal(), 0);
  EXPECT_EQ(get_device(parse_device("deferred:1", "here")).ordinal(), 1);
  EXPECT_EQ(str(parse_device("deferred:1", "here")), "deferred:1");
  EXPECT_EQ(error_of([] {
              get_device({"deferred", 2});
            }),
            "GPU 2 was asked for, and there are 2, numbered from 0");
  EXPECT_EQ(error_of([] { parse_device("tpu", "here"); }),
            "here is 'tpu'; expected cpu, cuda, deferred or deferred:1 (with the number of one of "
            "several devices)");
  EXPECT_EQ(error_of([] { register_backend(get_backend("deferred")); }),
            "there is a backend 'deferred' already");
}

TEST(DeferredBackend, StandsForTheGpuWhereItIsChosen) {
  setenv("OPWRIGHT_DEVICE", "deferred:1", 1);
  EXPECT_EQ(str(default_device()), "deferred");
  EXPECT_EQ(&get_device(DeviceType::kGPU), &deferred(1));
  EXPECT_EQ(&get_device({"deferred"}), &deferred(1));
  EXPECT_EQ(&get_device(DeviceType::kGPU, 0), &deferred(0));
  unsetenv("OPWRIGHT_DEVICE");
  // The first that is registered and can be used: CUDA's where there is such a GPU.
  EXPECT_EQ(device_of(DeviceType::kGPU).backend,
            get_backend("cuda").obstacle().empty() ? "cuda" : "deferred");
}

TEST(DeferredBackend, BuildsStoresLoadsAndRuns) {
  const Plan plan = compile(*sum_network(), config_for({"deferred"}, {"x", "w"}));
  EXPECT_EQ(plan.backend, "deferred");
  EXPECT_NE(inspect_text(plan).find("for GPU deferred (deferred)\n"), std::string::npos);
  const auto engine = Engine::load(deserialize(to_file(plan)), {});
  EXPECT_EQ(&engine->device(), &deferred());
  Context context(engine);
  for (const int64_t rows : {4, 16, 1, 4, 4, 4, 4, 4, 4}) expect_runs(context, rows, 1, deferred());
}

TEST(DeferredBackend, RunsOnTheDeviceThatIsNamed) {
  const Plan plan = compile(*sum_network(), config_for({"deferred", 1}, {"x", "w"}));
  Context context(Engine::load(plan, trusting(1)));
  expect_runs(context, 3, 1, deferred(1));
  EXPECT_CONTAINS(error_of([&] { Engine::load(plan, trusting(2)); }), "there are 2");
}

TEST(DeferredBackend, CallsPluginsAndTheirCode) {
  for (const FunctionMode mode : {FunctionMode::kCallback, FunctionMode::kCompiled}) {
    const Plan plan = compile(*sum_network(mode), config_for({"deferred"}, {"x", "w"}));
    EXPECT_EQ(plan.code.size(), mode == FunctionMode::kCompiled ? 1u : 0u);
    Context context(Engine::load(deserialize(to_file(plan)), trusting()));
    expect_runs(context, 5, -1, deferred());
  }
  Plan plan = compile(*sum_network(FunctionMode::kCompiled), config_for({"deferred"}, {"x", "w"}));
  EXPECT_CONTAINS(inspect_text(plan), "\nits code runs on deferred devices\n");
  plan.code[0].target = "sm_90";
  EXPECT_CONTAINS(error_of([&] { Engine::load(plan, trusting()); }),
                  "which cannot run 'the kernel' (sm_90). Build the engine again here, or with "
                  "kernels as the name of a function");
}

TEST(DeferredBackend, RefusesMemoryOfOthers) {
  Context context(Engine::load(compile(*sum_network(), config_for({"deferred"}, {"x", "w"})), {}));
  Floats on_host(8 * 4);
  EXPECT_CONTAINS(error_of([&] {
                    for (int input = 0; input < 2; ++input) {
                      context.set_input_shape(input, {4, 8});
                      context.set_input_address(input, on_host.data());
                      context.set_output_address(input, on_host.data());
                    }
                    context.enqueue();
                  }),
                  "is not memory of the deferred device");
}

TEST(DeferredBackend, FreesMemoryAfterTheWorkThatUsesIt) {
  const size_t before = deferred().allocations();
  Floats result(2);
  {
    const Array from({1, 2}), to({0, 0});
    deferred().copy(to.data(), from.data(), 8, nullptr);
    EXPECT_GT(deferred().waiting(), 0u);
    deferred().copy(result.data(), to.data(), 8, nullptr);
    deferred().copy(from.data(), to.data(), 8, nullptr);
    EXPECT_EQ(deferred().allocations(), before + 2);
  }
  EXPECT_EQ(result, (Floats{1, 2}));
  EXPECT_EQ(deferred().allocations(), before);
}

TEST(DeferredBackend, EventsAreReachedInOrder) {
  const auto begin = deferred().make_event(true), end = deferred().make_event(true);
  begin->record(nullptr);
  bool is_done = false;
  deferred().give([&] { is_done = true; });
  end->record(nullptr);
  EXPECT_FALSE(is_done);
  end->synchronize();
  EXPECT_TRUE(is_done);
  EXPECT_GE(end->milliseconds_since(*begin), 0);
}

TEST(DeferredBackend, LayersThatItLacksAreNamedOrRunOnTheCpu) {
  Network network;
  Tensor* const x = network.add_input("x", DataType::kFLOAT, {-1, 8});
  Tensor* const inputs[] = {x};
  Layer* const layer = network.add_layer(std::make_shared<Unary>(), inputs, "the exponential");
  network.mark_output(*layer->output(0));
  BuilderConfig config = config_for({"deferred"}, {"x"});
  EXPECT_CONTAINS(error_of([&] { compile(network, config); }), "the exponential");
  config.is_device_chosen = false;
  EXPECT_EQ(compile(network, config).backend, "cpu");
}

}  // namespace
}  // namespace opwright
