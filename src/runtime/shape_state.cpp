#include "runtime/shape_state.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "plan/shapes.h"

namespace opwright {
namespace {

int64_t element(DataType type, const void* data, size_t index) {
  return type == DataType::kINT32 ? static_cast<const int32_t*>(data)[index]
                                  : static_cast<const int64_t*>(data)[index];
}

bool within(std::span<const int64_t> numbers, const ProfileInput& range) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int axis = static_cast<int>(i);
    if (numbers[i] < range.min[axis] || numbers[i] > range.max[axis]) return false;
  }
  return true;
}

}  // namespace

ShapeState::ShapeState(const Plan& plan, int profile)
    : plan_(plan),
      schedule_(plan.schedules[profile]),
      profile_(profile),
      symbol_inputs_(symbol_inputs(plan)),
      known_(resolving_steps(plan, schedule_)),
      symbols_(plan.symbols.size(), 0),
      values_(plan.expressions.size(), 0),
      upper_values_(plan.expressions.size(), 0),
      symbols_before_(plan.symbols.size(), 0),
      values_before_(plan.expressions.size(), 0) {
  for (const Symbol& symbol : plan.symbols) has_sizes_ |= symbol.kind == Symbol::Kind::kSizeTensor;
  reset();
}

void ShapeState::reset() {
  inputs_.assign(plan_.inputs.size(), {});
  unset_ = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const ProfileInput& range = schedule_.inputs[i];
    Input& input = inputs_[i];
    if (range.values) {
      for (const int32_t dim : plan_.inputs[i].dims) {
        input.shape.push_back(plan_.expressions[dim].value);
      }
      input.is_set = true;
      input.values.assign(range.min.rank(), 0);
      input.has_values = range.min.rank() == 0;
    } else {
      input.is_set = range.min == range.max;
      input.shape = declared_shape(plan_, plan_.inputs[i]);
      for (int axis = 0; axis < range.min.rank(); ++axis)
        if (range.min[axis] == range.max[axis]) input.shape[axis] = range.min[axis];
    }
    if (!input.is_set) ++unset_;
  }
  is_current_ = sizes_known_ = false;
}

bool ShapeState::set_shape(int number, const Shape& shape) {
  Input& input = inputs_[number];
  if (input.is_set && shape == input.shape) return false;
  const ProfileInput& range = schedule_.inputs[number];
  const std::string& name = plan_.inputs[number].name;
  if (range.values) {
    fail("input '", name, "' has the fixed shape ", input.shape, ", not ", shape);
  }
  require(shape.rank() == range.min.rank(), "input '", name, "' has rank ", range.min.rank(),
          ", but the shape ", shape, " has rank ", shape.rank());
  if (!within({shape.begin(), shape.end()}, range)) {
    if (range.min == range.max)
      fail("shape ", shape, " of input '", name, "' is outside of profile ", profile_,
           ", which has only ", range.min, "; give that shape, or build the engine for others");
    for (int axis = 0; axis < shape.rank(); ++axis)
      require(range.min[axis] != range.max[axis] || shape[axis] == range.min[axis], "shape ", shape,
              " of input '", name, "' is outside of profile ", profile_, ": extent ", axis,
              " must be ", range.min[axis]);
    fail("shape ", shape, " of input '", name, "' is outside of profile ", profile_,
         ", which goes from ", range.min, " to ", range.max,
         "; choose a shape within, or build the engine with a profile that includes it");
  }
  input.shape = shape;
  if (!std::exchange(input.is_set, true)) --unset_;
  is_current_ = false;
  return true;
}

bool ShapeState::all_set() const {
  return std::all_of(inputs_.begin(), inputs_.end(),
                     [](const Input& input) { return input.is_set && input.has_values; });
}

bool ShapeState::differs(int number, const void* data) const {
  const Input& input = inputs_[number];
  if (!input.has_values) return true;
  const DataType type = plan_.inputs[number].type.dtype;
  for (size_t i = 0; i < input.values.size(); ++i) {
    if (element(type, data, i) != input.values[i]) return true;
  }
  return false;
}

void ShapeState::take_values(int number, const void* data) {
  Input& input = inputs_[number];
  if (!differs(number, data)) return;
  const PlanPort& port = plan_.inputs[number];
  const ProfileInput& range = schedule_.inputs[number];
  Shape taken;
  for (size_t i = 0; i < input.values.size(); ++i) {
    taken.push_back(element(port.type.dtype, data, i));
  }
  if (!within({taken.begin(), taken.end()}, range)) {
    const std::string range_text = range.min == range.max
                                       ? str("has only ", range.min)
                                       : str("goes from ", range.min, " to ", range.max);
    fail("the values ", taken, " of shape input '", port.name, "' are outside of profile ",
         profile_, ", which ", range_text);
  }
  std::copy(taken.begin(), taken.end(), input.values.begin());
  input.has_values = true;
  is_current_ = false;
}

void ShapeState::update() {
  if (is_current_) return;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    require(inputs_[i].is_set, "the shape of input '", plan_.inputs[i].name, "' is not set");
    require(inputs_[i].has_values, "the values of shape input '", plan_.inputs[i].name,
            "' are not known: its address is not set");
  }
  for (size_t i = 0; i < symbols_.size(); ++i) {
    if (symbol_inputs_[i] < 0) continue;
    const Input& input = inputs_[symbol_inputs_[i]];
    const int index = plan_.symbols[i].index;
    symbols_[i] = plan_.symbols[i].kind == Symbol::Kind::kInputValue ? input.values[index]
                                                                     : input.shape[index];
  }
  evaluate_with_sizes(plan_, OptProfileSelector::kMAX, symbols_, values_);
  check_agreement();
  upper_values_ = values_;
  ++epoch_;
  is_current_ = true;
  sizes_known_ = false;
}

void ShapeState::check_agreement() const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const PlanPort& port = plan_.inputs[i];
    for (size_t axis = 0; axis < port.dims.size(); ++axis) {
      const int64_t given = inputs_[i].shape[static_cast<int>(axis)];
      const int64_t wanted = values_[port.dims[axis]];
      if (given == wanted) continue;
      const ExprInstruction& expression = plan_.expressions[port.dims[axis]];
      std::string assertion;
      for (const Symbol& own : plan_.symbols)
        if (own.tensor == port.name && own.index == static_cast<int>(axis) &&
            own.kind == Symbol::Kind::kInputExtent && !own.assertion.empty())
          assertion = str("; ", own.assertion);
      if (expression.op != ExprOp::kSymbol) {
        fail("dimension ", axis, " of input '", port.name, "' must be ", wanted,
             " with the shapes of the other inputs, not ", given, assertion);
      }
      const Symbol& symbol = plan_.symbols[expression.value];
      const bool is_named =
          axis < port.dimension_names.size() && port.dimension_names[axis] == symbol.name;
      fail("dimension ", axis, " of input '", port.name, "' is ", given, ", but dimension ",
           symbol.index, " of input '", symbol.tensor, "' is ", wanted,
           !assertion.empty() ? assertion
           : is_named         ? str("; both are '", symbol.name, "' and must be equal")
                              : "; the model needs them to be equal");
    }
  }
}

bool ShapeState::set_size(int32_t symbol, int64_t value) {
  const int64_t upper = values_[plan_.size_bounds[symbol].second];
  require(value >= 0 && value <= upper, "the size tensor '", plan_.symbols[symbol].name,
          "' was computed as ", value, ", which is not between 0 and its upper bound ", upper);
  if (symbols_[symbol] == value) return false;
  symbols_[symbol] = value;
  return true;
}

void ShapeState::evaluate() {
  opwright::evaluate(plan_.expressions, symbols_, values_);
  ++epoch_;
}

std::span<const int64_t> ShapeState::values_before(std::span<const int32_t> size_symbols) {
  std::copy(symbols_.begin(), symbols_.end(), symbols_before_.begin());
  for (const int32_t symbol : size_symbols) {
    if (symbol >= 0) symbols_before_[symbol] = values_[plan_.size_bounds[symbol].second];
  }
  opwright::evaluate(plan_.expressions, symbols_before_, values_before_);
  return values_before_;
}

bool ShapeState::depends_on_sizes(int output) const {
  const std::vector<int32_t>& dims = plan_.outputs[output].dims;
  return std::any_of(dims.begin(), dims.end(), [&](int32_t dim) { return known_[dim] >= 0; });
}

Shape ShapeState::output_shape(int output) const {
  Shape shape;
  for (const int32_t dim : plan_.outputs[output].dims) {
    const ExprInstruction& expression = plan_.expressions[dim];
    if (expression.op == ExprOp::kConstant) {
      shape.push_back(expression.value);
    } else {
      shape.push_back(is_current_ && (known_[dim] < 0 || sizes_known_) ? values_[dim] : -1);
    }
  }
  return shape;
}

Shape ShapeState::max_output_shape(int output) const {
  require(is_current_, "the largest shape of output '", plan_.outputs[output].name,
          "' is not known before the shapes of all inputs are set");
  return shape_of(plan_.outputs[output].dims, upper_values_);
}

}  // namespace opwright
