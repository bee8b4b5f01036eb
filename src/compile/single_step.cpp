#include "compile/single_step.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "base/types.h"
#include "opwright/version.h"
#include "symbolic/substitution.h"

namespace opwright {
namespace {

using Location = PlanTensor::Location;

class SingleStep {
 public:
  SingleStep(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
             const PlannedOperator& op, const SingleStepContext& context)
      : node_(node), ports_(ports), op_(op), context_(context) {
    step_.name = node.name;
    step_.kind = op.kind();
    step_.candidate = candidate;
    schedule_.steps.resize(1);
  }

  Plan make() {
    for (size_t i = 0; i < ports_.inputs.size(); ++i)
      step_.inputs.push_back(ports_.inputs[i].present ? input(i) : -1);
    add_sizes();
    for (size_t i = 0; i < ports_.outputs.size(); ++i) step_.outputs.push_back(output(i));
    add_operator();
    plan_.builder = "opwright " OPWRIGHT_VERSION;
    plan_.device_type = context_.device.type();
    plan_.backend = context_.device.backend().name();
    plan_.architecture = context_.device.architecture();
    plan_.device_identity = context_.device.identity();
    plan_.graphs = false;
    plan_.expressions.assign(expressions_.instructions().begin(),
                             expressions_.instructions().end());
    schedule_.steps = {std::move(step_)};
    plan_.schedules = {std::move(schedule_)};
    return std::move(plan_);
  }

 private:
  int64_t opt(const Expr& expr) const { return context_.ranges.opt(expr); }

  std::vector<int32_t> dims(const Shape& shape) {
    std::vector<int32_t> result;
    for (const int64_t extent : shape) result.push_back(expressions_.add(extent));
    return result;
  }

  int32_t add(PlanTensor tensor) {
    schedule_.tensors.push_back(std::move(tensor));
    return static_cast<int32_t>(schedule_.tensors.size()) - 1;
  }

  /// Whether the kernel, or the runtime for the kernel, reads elements that depend on shapes.
  bool has_values(const GraphValue& value, size_t i) const {
    const PortType type = ports_.inputs[i].type;
    const bool may_have = type.dtype == DataType::kINT32 || type.dtype == DataType::kINT64 ||
                          type.dtype == DataType::kBOOL || type.dtype == DataType::kFLOAT;
    if (value.info.values == nullptr || !may_have || type.format != TensorFormat::kLINEAR)
      return false;
    const int number = static_cast<int>(i);
    return value.is_values() || node_.op->is_shape_input(number) || op_.is_shape_input(number);
  }

  int32_t input(size_t i) {
    const GraphValue& value = *node_.inputs[i];
    const PortDesc& port = ports_.inputs[i];
    PlanTensor tensor;
    tensor.name = value.name;
    tensor.type = port.type;
    tensor.scale = port.scale;
    tensor.dims = dims(port.opt);
    tensor.size = static_cast<uint64_t>(tensor_bytes(port.opt, port.type.dtype, port.type.format));
    if (port.is_constant) {
      tensor.location = Location::kWeight;
      tensor.data = context_.constants.stored(value, port.type);
    } else if (has_values(value, i)) {
      tensor.location = Location::kValues;
      for (const Expr& element : *value.info.values)
        tensor.values.push_back(expressions_.add(opt(element)));
    } else {
      tensor.location = Location::kInput;
      tensor.index = static_cast<int32_t>(plan_.inputs.size());
      PlanPort of_engine;
      of_engine.name = str("input ", i);
      of_engine.type = port.type;
      of_engine.dims = tensor.dims;
      plan_.inputs.push_back(std::move(of_engine));
      schedule_.inputs.push_back({port.opt, port.opt, port.opt});
    }
    return add(std::move(tensor));
  }

  /// Adds the size tensors that the node computes as symbols with the graph's numbers. All other
  /// symbols have their values at the opt shapes.
  void add_sizes() {
    if (!node_.defines_sizes()) return;
    step_.size_symbols.assign(node_.size_symbols.begin(), node_.size_symbols.end());
    const auto count = 1 + static_cast<size_t>(std::ranges::max(node_.size_symbols));
    Symbol none;
    none.kind = Symbol::Kind::kSizeTensor;
    plan_.symbols.assign(count, none);
    const int32_t zero = expressions_.add(0);
    plan_.size_bounds.assign(count, {zero, zero});
    for (const int symbol : node_.size_symbols) {
      if (symbol < 0) continue;
      const Expr size = Expr::symbol(symbol);
      const Shape most = context_.ranges.unwritten({&size, 1}, node_.size_symbols);
      plan_.size_bounds[static_cast<size_t>(symbol)] = {expressions_.add(opt(size)),
                                                        expressions_.add(most[0])};
    }
  }

  Expr extent(const Expr& expr) {
    settle(expr);
    return settled_(expr);
  }

  void settle(const Expr& expr) {
    if (expr.op() == ExprOp::kSymbol) {
      if (std::ranges::find(node_.size_symbols, expr.symbol_id()) == node_.size_symbols.end())
        settled_.add(expr, opt(expr));
      return;
    }
    for (int i = 0; i < expr.arity(); ++i) settle(expr.operand(i));
  }

  int32_t output(size_t i) {
    const GraphValue& value = *node_.outputs[i];
    const PortDesc& port = ports_.outputs[i];
    const int aliased = node_.aliased_input(static_cast<int>(i));
    PlanPort of_engine;
    of_engine.name = str("output ", i);
    of_engine.type = port.type;
    for (const Expr& each : value.info.dims)
      of_engine.dims.push_back(expressions_.add(extent(each)));
    PlanTensor tensor;
    tensor.name = value.name;
    tensor.type = port.type;
    tensor.scale = port.scale;
    tensor.dims = of_engine.dims;
    tensor.location = Location::kOutput;
    tensor.index = static_cast<int32_t>(i);
    const int32_t index = static_cast<int32_t>(schedule_.tensors.size());
    if (aliased >= 0) {
      const PlanTensor& from =
          schedule_.tensors[static_cast<size_t>(step_.inputs[static_cast<size_t>(aliased)])];
      require(from.location == Location::kInput, "it computes in place on what is known");
      tensor.location = Location::kInput;
      tensor.index = from.index;
      tensor.dims = of_engine.dims = from.dims;
      of_engine.aliased_input = from.index;
      schedule_.copies.push_back({index, static_cast<int32_t>(i)});
    }
    plan_.outputs.push_back(std::move(of_engine));
    return add(std::move(tensor));
  }

  void add_operator() {
    KernelArgs args;
    args.layer = node_.name;
    args.candidate = &step_.candidate;
    args.inputs = ports_.inputs;
    args.outputs = ports_.outputs;
    args.device = &context_.device;
    args.services = &context_.services;
    const std::unique_ptr<Kernel> kernel = op_.make_kernel(args);
    step_.packed = kernel->packed();
    schedule_.workspace_size = kernel->workspace_size();
    step_.attributes = op_.attributes();
    for (CodeObject& object : op_.code()) {
      step_.code.push_back(static_cast<int32_t>(plan_.code.size()));
      plan_.code.push_back(std::move(object));
    }
    plan_.requirements = op_.requirements();
  }

  const GraphNode& node_;
  const NodePorts& ports_;
  const PlannedOperator& op_;
  const SingleStepContext& context_;
  Plan plan_;
  Schedule schedule_;
  PlanStep step_;
  ExprProgramBuilder expressions_;
  Substitution settled_;
};

}  // namespace

Plan single_step_plan(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
                      const PlannedOperator& op, const SingleStepContext& context) {
  return SingleStep(node, ports, candidate, op, context).make();
}

}  // namespace opwright
