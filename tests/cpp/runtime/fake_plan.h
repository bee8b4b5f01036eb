#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "error_of.h"
#include "network/operator_registry.h"
#include "plan/plan.h"
#include "runtime/context.h"

namespace opwright {

/// What a fake kernel was asked to do, by the name of its layer.
struct FakeCalls {
  int made = 0, runs = 0;
  std::vector<std::pair<std::vector<Shape>, std::vector<Shape>>> shapes;
  std::vector<Shape> inputs() const { return shapes.back().first; }
  std::vector<Shape> outputs() const { return shapes.back().second; }
};
inline std::map<std::string, FakeCalls>& fake_calls() {
  static std::map<std::string, FakeCalls> calls;
  return calls;
}

/// Held while kernels, which threads of their own may run, write there.
inline std::mutex& fake_calls_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// What runs: the ports' pointers, the shapes that were told last, the scratch memory.
struct FakeRun {
  void const* const* inputs;
  void* const* outputs;
  const std::vector<Shape>& input_shapes;
  const std::vector<Shape>& output_shapes;
  void* workspace;
  Queue queue;
  template <class T>
  const T* in(int i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <class T>
  T* out(int i) const {
    return static_cast<T*>(outputs[i]);
  }
};
using FakeFunction = std::function<void(const FakeRun&)>;

struct FakeKind {
  FakeFunction run = {};
  ExecutionDomain* domain = nullptr;
  size_t workspace = 0;
  std::function<void()> on_shape_change = {};
  std::string capture_obstacle = {};
};

class FakeKernel final : public Kernel {
 public:
  FakeKernel(const FakeKind& kind, std::string_view layer)
      : kind_(kind), calls_(count_made(layer)) {}
  size_t workspace_size() const override { return kind_.workspace; }
  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    if (kind_.on_shape_change) kind_.on_shape_change();
    inputs_.assign(inputs.begin(), inputs.end());
    outputs_.assign(outputs.begin(), outputs.end());
    const std::lock_guard lock(fake_calls_mutex());
    calls_.shapes.emplace_back(inputs_, outputs_);
  }
  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    {
      const std::lock_guard lock(fake_calls_mutex());
      ++calls_.runs;
    }
    kind_.run({inputs, outputs, inputs_, outputs_, workspace, queue});
  }
  std::string capture_obstacle() const override { return kind_.capture_obstacle; }
  ExecutionDomain* domain() const override { return kind_.domain; }

 private:
  static FakeCalls& count_made(std::string_view layer) {
    const std::lock_guard lock(fake_calls_mutex());
    FakeCalls& calls = fake_calls()[std::string(layer)];
    ++calls.made;
    return calls;
  }

  FakeKind kind_;
  FakeCalls& calls_;
  std::vector<Shape> inputs_, outputs_;
};

class FakeOperator final : public PlannedOperator {
 public:
  FakeOperator(std::string kind, FakeKind fake) : kind_(std::move(kind)), fake_(std::move(fake)) {}
  std::string_view kind() const override { return kind_; }
  std::vector<OutputInfo> infer(InferContext&) const override { return {}; }
  bool can_infer() const override { return false; }
  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    return std::make_unique<FakeKernel>(fake_, args.layer);
  }
  Attributes attributes() const override { return {}; }

 private:
  std::string kind_;
  FakeKind fake_;
};

inline void register_fake(const std::string& kind, FakeKind fake) {
  register_operator_kind(kind, [kind, fake](const Attributes&, const OperatorLoadContext&) {
    return std::make_shared<FakeOperator>(kind, fake);
  });
}

inline constexpr PortType kFp32{DataType::kFLOAT, TensorFormat::kLINEAR};
inline constexpr PortType kInt64{DataType::kINT64, TensorFormat::kLINEAR};
inline constexpr PortType kInt32{DataType::kINT32, TensorFormat::kLINEAR};

/// Makes plans of one profile by hand.
class FakePlan {
 public:
  explicit FakePlan(const Device& device = get_device(DeviceType::kCPU)) {
    plan_.name = "fake";
    plan_.builder = "a test";
    plan_.architecture = device.architecture();
    plan_.device_identity = device.identity();
    plan_.device_type = device.type();
    plan_.backend = device.backend().name();
    plan_.schedules.resize(1);
  }

  Expr symbol(Symbol::Kind kind, const std::string& name, const std::string& tensor, int index,
              Expr opt = {}, Expr upper = {}) {
    Symbol symbol;
    symbol.kind = kind;
    symbol.name = name;
    symbol.tensor = tensor;
    symbol.index = index;
    plan_.symbols.push_back(symbol);
    const bool is_size = kind == Symbol::Kind::kSizeTensor;
    plan_.size_bounds.emplace_back(is_size ? program_.add(opt) : -1,
                                   is_size ? program_.add(upper) : -1);
    return Expr::symbol(static_cast<int>(plan_.symbols.size()) - 1);
  }
  /// Extent `index` of input `tensor`.
  Expr extent(const std::string& name, const std::string& tensor, int index) {
    return symbol(Symbol::Kind::kInputExtent, name, tensor, index);
  }

  int input(const std::string& name, PortType type, const SymShape& dims, Shape min, Shape max,
            bool values = false) {
    PlanPort port;
    port.name = name;
    port.type = type;
    port.dims = indices(dims);
    for (const Expr& extent : dims)
      port.dimension_names.push_back(
          extent.op() == ExprOp::kSymbol ? plan_.symbols[extent.symbol_id()].name : "");
    port.is_shape_input = values;
    plan_.inputs.push_back(port);
    schedule().inputs.push_back({min, max, max, values});
    const int tensor = add(name, type, dims, PlanTensor::Location::kInput);
    schedule().tensors[tensor].index = static_cast<int32_t>(plan_.inputs.size()) - 1;
    return tensor;
  }
  int output(const std::string& name, PortType type, const SymShape& dims, int aliased = -1) {
    const int tensor = add(name, type, dims, PlanTensor::Location::kOutput);
    schedule().tensors[tensor].index = port(name, type, dims, aliased);
    return tensor;
  }
  /// A network output that no tensor stands for; its number.
  int port(const std::string& name, PortType type, const SymShape& dims, int aliased = -1) {
    PlanPort port;
    port.name = name;
    port.type = type;
    port.dims = indices(dims);
    port.aliased_input = aliased;
    plan_.outputs.push_back(port);
    return static_cast<int>(plan_.outputs.size()) - 1;
  }
  int arena(const std::string& name, PortType type, const SymShape& dims, uint64_t size) {
    const int tensor = add(name, type, dims, PlanTensor::Location::kArena);
    schedule().tensors[tensor].offset = schedule().arena_size;
    schedule().tensors[tensor].size = size;
    schedule().arena_size += (size + 63) / 64 * 64;
    return tensor;
  }
  int weight(const std::string& name, PortType type, const SymShape& dims, Blob data) {
    const int tensor = add(name, type, dims, PlanTensor::Location::kWeight);
    schedule().tensors[tensor].size = data.size();
    schedule().tensors[tensor].data = std::move(data);
    return tensor;
  }
  int values(const std::string& name, PortType type, const SymShape& values) {
    const int tensor =
        add(name, type, {static_cast<int64_t>(values.size())}, PlanTensor::Location::kValues);
    schedule().tensors[tensor].values = indices(values);
    return tensor;
  }
  PlanStep& step(const std::string& name, const std::string& kind, std::vector<int> inputs,
                 std::vector<int> outputs) {
    PlanStep step;
    step.name = name;
    step.kind = kind;
    step.inputs.assign(inputs.begin(), inputs.end());
    step.outputs.assign(outputs.begin(), outputs.end());
    for (const int i : inputs) {
      step.candidate.inputs.push_back(i < 0 ? PortType{} : schedule().tensors[i].type);
    }
    for (const int i : outputs) step.candidate.outputs.push_back(schedule().tensors[i].type);
    schedule().steps.push_back(std::move(step));
    return schedule().steps.back();
  }
  Schedule& schedule() { return plan_.schedules[0]; }
  Plan& plan() { return plan_; }

  /// The plan, validated.
  Plan finish() {
    plan_.expressions.assign(program_.instructions().begin(), program_.instructions().end());
    validate(plan_);
    return plan_;
  }
  std::unique_ptr<Context> context(const LoadOptions& options = {}) {
    fake_calls().clear();
    return std::make_unique<Context>(Engine::load(finish(), options));
  }

 private:
  std::vector<int32_t> indices(const SymShape& dims) {
    std::vector<int32_t> result;
    for (const Expr& dim : dims) result.push_back(program_.add(dim));
    return result;
  }
  int add(const std::string& name, PortType type, const SymShape& dims,
          PlanTensor::Location location) {
    PlanTensor tensor;
    tensor.name = name;
    tensor.type = type;
    tensor.dims = indices(dims);
    tensor.location = location;
    schedule().tensors.push_back(tensor);
    return static_cast<int>(schedule().tensors.size()) - 1;
  }

  Plan plan_;
  ExprProgramBuilder program_;
};

#define EXPECT_ERROR(statement, text)                            \
  {                                                              \
    const std::string message = error_of([&] { statement; });    \
    EXPECT_NE(message.find(text), std::string::npos) << message; \
  }

}  // namespace opwright
