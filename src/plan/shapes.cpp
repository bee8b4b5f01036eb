#include "plan/shapes.h"

#include <algorithm>

#include "base/error.h"

namespace opwright {
namespace {

constexpr OptProfileSelector kSelectors[] = {OptProfileSelector::kMIN, OptProfileSelector::kOPT,
                                             OptProfileSelector::kMAX};

}  // namespace

int input_number(const Plan& plan, std::string_view name) {
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    if (plan.inputs[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

Shape declared_shape(const Plan& plan, const PlanPort& port) {
  Shape shape;
  for (const int32_t dim : port.dims) {
    const ExprInstruction& extent = plan.expressions[dim];
    shape.push_back(extent.op == ExprOp::kConstant ? extent.value : -1);
  }
  return shape;
}

void evaluate_with_sizes(const Plan& plan, OptProfileSelector selector, std::span<int64_t> symbols,
                         std::span<int64_t> values) {
  bool has_sizes = false;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (plan.symbols[i].kind != Symbol::Kind::kSizeTensor) continue;
    symbols[i] = 1;  // rather than 0, by which an expression may divide
    has_sizes = true;
  }
  evaluate(plan.expressions, symbols, values);
  if (!has_sizes || selector == OptProfileSelector::kMIN) return;
  // A bound may depend on the sizes before it, so they are settled one after the other.
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (plan.symbols[i].kind != Symbol::Kind::kSizeTensor) continue;
    const auto [opt, upper] = plan.size_bounds[i];
    symbols[i] = values[selector == OptProfileSelector::kOPT ? opt : upper];
    evaluate(plan.expressions, symbols, values);
  }
}

ProfileValues::ProfileValues(const Plan& plan, std::span<const ProfileInput> inputs) {
  std::vector<int64_t> symbols(plan.symbols.size(), 0);
  for (const auto selector : kSelectors) {
    for (size_t i = 0; i < symbols.size(); ++i) {
      const Symbol& symbol = plan.symbols[i];
      if (symbol.kind == Symbol::Kind::kSizeTensor) continue;
      const ProfileInput& input = inputs[input_number(plan, symbol.tensor)];
      const Shape& shape = selector == OptProfileSelector::kMIN   ? input.min
                           : selector == OptProfileSelector::kOPT ? input.opt
                                                                  : input.max;
      symbols[i] = shape[symbol.index];
    }
    auto& values = values_[static_cast<int>(selector)];
    values.resize(plan.expressions.size());
    evaluate_with_sizes(plan, selector, symbols, values);
  }
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

Shape shape_of(std::span<const int32_t> dims, std::span<const int64_t> values) {
  Shape shape;
  for (const int32_t dim : dims) shape.push_back(values[dim]);
  for (const int64_t extent : shape) {
    require(extent >= 0, "an extent comes out as ", extent, " in the shape ", shape,
            "; extents must not be negative");
  }
  return shape;
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
