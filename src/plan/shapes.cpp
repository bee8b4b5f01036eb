#include "plan/shapes.h"

#include <algorithm>

#include "base/error.h"

namespace opwright {
namespace {

constexpr OptProfileSelector kSelectors[] = {OptProfileSelector::kMIN, OptProfileSelector::kOPT,
                                             OptProfileSelector::kMAX};

}  // namespace

std::vector<int32_t> symbol_inputs(const Plan& plan) {
  std::unordered_map<std::string_view, int32_t> numbers;
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    numbers.emplace(plan.inputs[i].name, static_cast<int32_t>(i));
  std::vector<int32_t> inputs;
  for (const Symbol& symbol : plan.symbols) {
    const auto found = numbers.find(symbol.tensor);
    const bool is_size = symbol.kind == Symbol::Kind::kSizeTensor;
    inputs.push_back(is_size || found == numbers.end() ? -1 : found->second);
  }
  return inputs;
}

bool is_view(const PlanTensor& tensor, const PlanPort& port) {
  return tensor.type != port.type || tensor.dims != port.dims;
}

Shape declared_shape(const Plan& plan, const PlanPort& port) {
  Shape shape;
  for (size_t axis = 0; axis < port.dims.size(); ++axis) {
    const ExprInstruction& extent = plan.expressions[port.dims[axis]];
    const bool is_open = extent.op != ExprOp::kConstant || (port.open_axes >> axis & 1U) != 0;
    shape.push_back(is_open ? -1 : extent.value);
  }
  return shape;
}

void evaluate_with_sizes(const Plan& plan, OptProfileSelector selector, std::span<int64_t> symbols,
                         std::span<int64_t> values) {
  const std::span<const ExprInstruction> expressions = plan.expressions;
  size_t done = 0;
  const auto evaluate_to = [&](size_t end) {
    if (end <= done) return;
    evaluate(expressions, symbols, values, done, end);
    done = end;
  };
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (plan.symbols[i].kind != Symbol::Kind::kSizeTensor) continue;
    if (selector == OptProfileSelector::kMIN) {
      symbols[i] = 1;  // not 0, as an expression may divide by it
      continue;
    }
    const auto [opt, upper] = plan.size_bounds[i];
    const int32_t bound = selector == OptProfileSelector::kOPT ? opt : upper;
    evaluate_to(static_cast<size_t>(bound) + 1);
    symbols[i] = values[bound];
  }
  evaluate_to(expressions.size());
}

ProfileValues::ProfileValues(const Plan& plan, std::span<const ProfileInput> inputs) : plan_(plan) {
  std::vector<int64_t> symbols(plan.symbols.size(), 0);
  const std::vector<int32_t> numbers = symbol_inputs(plan);
  for (const auto selector : kSelectors) {
    for (size_t i = 0; i < symbols.size(); ++i) {
      const Symbol& symbol = plan.symbols[i];
      if (symbol.kind == Symbol::Kind::kSizeTensor) continue;
      symbols[i] = shape_at(inputs[numbers[i]], selector)[symbol.index];
    }
    auto& values = values_[static_cast<int>(selector)];
    values.resize(plan.expressions.size());
    evaluate_with_sizes(plan, selector, symbols, values);
  }
}

int64_t ProfileValues::size(int32_t symbol, OptProfileSelector selector) const {
  if (selector == OptProfileSelector::kMIN) return 1;
  const auto [opt, upper] = plan_.size_bounds[symbol];
  return at(selector)[selector == OptProfileSelector::kOPT ? opt : upper];
}

Shape ProfileValues::shape(std::span<const int32_t> dims, OptProfileSelector selector) const {
  if (selector != OptProfileSelector::kMIN) return shape_of(dims, at(selector));
  Shape shape;
  for (const int32_t dim : dims) shape.push_back(std::max<int64_t>(0, at(selector)[dim]));
  return shape;
}

uint64_t ProfileValues::largest_bytes(PortType type, std::span<const int32_t> dims) const {
  int64_t largest = 0;
  for (const auto selector : kSelectors) {
    largest = std::max(largest, tensor_bytes(shape(dims, selector), type.dtype, type.format));
  }
  return static_cast<uint64_t>(largest);
}

uint64_t ProfileValues::most_bytes(PortType type, std::span<const int32_t> dims) const {
  return static_cast<uint64_t>(
      tensor_bytes(shape(dims, OptProfileSelector::kMAX), type.dtype, type.format));
}

std::unordered_map<int32_t, int32_t> size_tensors(const Schedule& schedule) {
  std::unordered_map<int32_t, int32_t> sizes;
  for (const PlanStep& step : schedule.steps)
    for (size_t i = 0; i < step.size_symbols.size(); ++i)
      if (step.size_symbols[i] >= 0) sizes.emplace(step.outputs[i], step.size_symbols[i]);
  return sizes;
}

Shape shape_of(std::span<const int32_t> dims, std::span<const int64_t> values) {
  Shape shape;
  for (const int32_t dim : dims) shape.push_back(values[dim]);
  for (const int64_t extent : shape) {
    require(extent >= 0, "an extent comes out as ", extent, " in the shape ", shape,
            "; extents must not be negative");
  }
  return shape;
}

std::vector<bool> fixed_expressions(const Plan& plan, const Schedule& schedule) {
  const std::vector<int32_t> numbers = symbol_inputs(plan);
  const auto is_fixed = [&](int64_t id) {
    if (numbers[id] < 0) return false;
    const ProfileInput& input = schedule.inputs[numbers[id]];
    const int index = plan.symbols[id].index;
    return input.min[index] == input.max[index];
  };
  std::vector<bool> fixed(plan.expressions.size());
  for (size_t i = 0; i < fixed.size(); ++i) {
    const ExprInstruction& e = plan.expressions[i];
    switch (e.op) {
      case ExprOp::kConstant:
        fixed[i] = true;
        break;
      case ExprOp::kSymbol:
        fixed[i] = is_fixed(e.value);
        break;
      case ExprOp::kSelect:
        fixed[i] = fixed[e.a] && fixed[e.b] && fixed[e.c];
        break;
      default:
        fixed[i] = fixed[e.a] && fixed[e.b];
    }
  }
  return fixed;
}

std::vector<int32_t> resolving_steps(const Plan& plan, const Schedule& schedule) {
  std::vector<int32_t> writer(plan.symbols.size(), -1);
  for (size_t i = 0; i < writer.size(); ++i) {
    if (plan.symbols[i].kind == Symbol::Kind::kSizeTensor) writer[i] = kNeverKnown;
  }
  for (size_t step = 0; step < schedule.steps.size(); ++step) {
    for (const int32_t symbol : schedule.steps[step].size_symbols) {
      if (symbol >= 0) writer[symbol] = static_cast<int32_t>(step);
    }
  }
  std::vector<int32_t> known(plan.expressions.size(), -1);
  for (size_t i = 0; i < known.size(); ++i) {
    const ExprInstruction& e = plan.expressions[i];
    switch (e.op) {
      case ExprOp::kConstant:
        break;
      case ExprOp::kSymbol:
        known[i] = writer[e.value];
        break;
      case ExprOp::kSelect:
        known[i] = std::max({known[e.a], known[e.b], known[e.c]});
        break;
      default:
        known[i] = std::max(known[e.a], known[e.b]);
    }
  }
  return known;
}

}  // namespace opwright
