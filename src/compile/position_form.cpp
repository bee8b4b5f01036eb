#include "compile/position_form.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "base/types.h"
#include "compile/attention_pattern.h"
#include "compile/single_operation.h"
#include "compile/strided_view.h"
#include "operators/movement.h"
#include "operators/reduce.h"
#include "operators/source.h"

namespace opwright {
namespace {

/// The most nodes that are followed in one direction.
constexpr int kMostDepth = 64;
/// Numbers of a larger magnitude might overflow where they are added.
constexpr int64_t kMostNumber = int64_t{1} << 30;
/// The most elements of a constant that is examined.
constexpr int64_t kMostElements = int64_t{1} << 26;

bool is_index_type(DataType type) { return type == DataType::kINT32 || type == DataType::kINT64; }
bool is_modest(const Expr& number) {
  return !number.is_constant() ||
         (number.constant() <= kMostNumber && number.constant() >= -kMostNumber);
}
AffineForm uniform(Expr number, size_t rank) {
  return {std::move(number), SymShape(rank, Expr(0))};
}

AffineForm combined(const AffineForm& a, const AffineForm& b, int64_t factor) {
  AffineForm result = a;
  result.constant = a.constant + Expr(factor) * b.constant;
  for (size_t i = 0; i < a.factors.size(); ++i)
    result.factors[i] = a.factors[i] + Expr(factor) * b.factors[i];
  return result;
}
bool equal(const AffineForm& a, const AffineForm& b) {
  return a.constant == b.constant && a.factors == b.factors;
}
bool is_constant_form(const AffineForm& form) {
  return form.is_uniform() && form.constant.is_constant();
}

PositionCondition never(size_t rank) { return {{uniform(Expr(-1), rank)}, {}}; }
bool is_never(const PositionCondition& condition) {
  return std::ranges::any_of(condition.at_least_zero, [](const AffineForm& form) {
    return is_constant_form(form) && form.constant.constant() < 0;
  });
}

/// Leaves out what always holds.
PositionCondition simplified(const PositionCondition& condition, size_t rank) {
  PositionCondition result;
  for (const AffineForm& form : condition.at_least_zero) {
    if (is_constant_form(form)) {
      if (form.constant.constant() < 0) return never(rank);
      continue;
    }
    if (std::ranges::none_of(result.at_least_zero,
                             [&](const AffineForm& other) { return equal(form, other); }))
      result.at_least_zero.push_back(form);
  }
  for (const AffineForm& form : condition.zero) {
    if (is_constant_form(form)) {
      if (form.constant.constant() != 0) return never(rank);
      continue;
    }
    result.zero.push_back(form);
  }
  return result;
}

PositionCondition both(const PositionCondition& a, const PositionCondition& b, size_t rank) {
  PositionCondition result = a;
  result.at_least_zero.insert(result.at_least_zero.end(), b.at_least_zero.begin(),
                              b.at_least_zero.end());
  result.zero.insert(result.zero.end(), b.zero.begin(), b.zero.end());
  return simplified(result, rank);
}

/// Where one of the conditions holds.
std::optional<PositionCondition> either(const PositionCondition& a, const PositionCondition& b) {
  if (a.is_always() || is_never(b)) return a;
  if (b.is_always() || is_never(a)) return b;
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (one->at_least_zero.size() != 1 || !one->zero.empty()) continue;
    const AffineForm& form = one->at_least_zero[0];
    // x - 1 >= 0 or x = 0 is x >= 0.
    if (other->at_least_zero.empty() && other->zero.size() == 1)
      for (const int64_t sign : {1, -1}) {
        const AffineForm zero =
            combined(uniform(Expr(0), form.factors.size()), other->zero[0], sign);
        AffineForm wider = form;
        wider.constant = wider.constant + Expr(1);
        if (equal(wider, zero)) return PositionCondition{{wider}, {}};
      }
  }
  return std::nullopt;
}

/// The form for positions of `dims`, to which the tensor of extents `own` is broadcast. Nothing
/// where extents that have to agree may differ.
std::optional<AffineForm> broadcast_form(const AffineForm& form, const SymShape& own,
                                         const SymShape& dims) {
  if (own.size() > dims.size()) return std::nullopt;
  AffineForm result = uniform(form.constant, dims.size());
  const size_t shift = dims.size() - own.size();
  for (size_t i = 0; i < own.size(); ++i) {
    if (form.factors[i] == Expr(0)) continue;
    if (!(own[i] == dims[i + shift])) return std::nullopt;
    result.factors[i + shift] = form.factors[i];
  }
  return result;
}

/// Applies `change` to all forms. It returns nothing where the result is no form.
template <class Change>
std::optional<AffineForm> changed(const std::optional<AffineForm>& form, const Change& change) {
  return form ? change(*form) : std::nullopt;
}
template <class Change>
std::optional<PositionCondition> changed(const std::optional<PositionCondition>& condition,
                                         const Change& change) {
  if (!condition) return std::nullopt;
  PositionCondition result;
  for (const auto& [from, to] : {std::pair(&condition->at_least_zero, &result.at_least_zero),
                                 std::pair(&condition->zero, &result.zero)})
    for (const AffineForm& form : *from) {
      std::optional<AffineForm> one = change(form);
      if (!one) return std::nullopt;
      to->push_back(std::move(*one));
    }
  return result;
}

/// Where a fixed tensor of these truths is true: everywhere, nowhere, or at and below a diagonal of
/// its last two axes. Nothing where it is another tensor.
std::optional<PositionCondition> triangle(const std::vector<char>& truths, const Shape& shape) {
  const auto rank = static_cast<size_t>(shape.rank());
  if (std::ranges::all_of(truths, [](char one) { return one != 0; })) return PositionCondition{};
  if (std::ranges::none_of(truths, [](char one) { return one != 0; })) return never(rank);
  if (rank < 2) return std::nullopt;
  const int64_t rows = shape[shape.rank() - 2], columns = shape[shape.rank() - 1],
                matrix = rows * columns;
  // All matrices have to be the same.
  for (int64_t at = matrix; at < std::ssize(truths); at += matrix)
    if (std::memcmp(truths.data(), truths.data() + at, static_cast<size_t>(matrix)) != 0)
      return std::nullopt;
  // The first row with a true element tells the diagonal.
  int64_t first = 0, count = 0;
  for (; first < rows && count == 0; ++first)
    while (count < columns && truths[static_cast<size_t>(first * columns + count)] != 0) ++count;
  const int64_t shift = count - first;  // column <= row + shift
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      if ((truths[static_cast<size_t>(row * columns + column)] != 0) != (column <= row + shift))
        return std::nullopt;
  AffineForm form = uniform(Expr(shift), rank);
  if (rows != 1) form.factors[rank - 2] = Expr(1);
  if (columns != 1) form.factors[rank - 1] = Expr(-1);
  return PositionCondition{{form}, {}};
}

/// The numbers as an affine function of their positions.
std::optional<AffineForm> affine(const std::vector<Expr>& numbers, const Shape& shape) {
  const auto rank = static_cast<size_t>(shape.rank());
  AffineForm form = uniform(numbers[0], rank);
  std::vector<int64_t> strides(rank, 1);
  for (size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * shape[static_cast<int>(i)];
  for (size_t i = 0; i < rank; ++i)
    if (shape[static_cast<int>(i)] > 1)
      form.factors[i] = numbers[static_cast<size_t>(strides[i])] - numbers[0];
  for (size_t at = 0; at < numbers.size(); ++at) {
    Expr expected = form.constant;
    auto rest = static_cast<int64_t>(at);
    for (size_t i = 0; i < rank; ++i) {
      expected = expected + form.factors[i] * Expr(rest / strides[i]);
      rest %= strides[i];
    }
    if (!(expected == numbers[at])) return std::nullopt;
  }
  return form;
}
/// The same for constant numbers, which may be many.
std::optional<AffineForm> affine(const std::vector<int64_t>& numbers, const Shape& shape) {
  const auto rank = static_cast<size_t>(shape.rank());
  std::vector<int64_t> strides(rank, 1), factors(rank, 0);
  for (size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * shape[static_cast<int>(i)];
  for (const int64_t number : numbers)
    if (!is_modest(Expr(number))) return std::nullopt;
  for (size_t i = 0; i < rank; ++i)
    if (shape[static_cast<int>(i)] > 1)
      factors[i] = numbers[static_cast<size_t>(strides[i])] - numbers[0];
  for (size_t at = 0; at < numbers.size(); ++at) {
    int64_t expected = numbers[0];
    auto rest = static_cast<int64_t>(at);
    for (size_t i = 0; i < rank; ++i)
      expected += factors[i] * (rest / strides[i]), rest %= strides[i];
    if (expected != numbers[at]) return std::nullopt;
  }
  AffineForm form = uniform(Expr(numbers[0]), rank);
  for (size_t i = 0; i < rank; ++i) form.factors[i] = Expr(factors[i]);
  return form;
}

size_t axis_of(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

}  // namespace

bool AffineForm::is_uniform() const {
  return std::ranges::all_of(factors, [](const Expr& factor) { return factor == Expr(0); });
}

std::optional<PositionCondition> negated(const PositionCondition& condition) {
  if (condition.is_always()) return PositionCondition{{{Expr(-1), {}}}, {}};
  if (is_never(condition)) return PositionCondition{};
  if (condition.at_least_zero.size() != 1 || !condition.zero.empty()) return std::nullopt;
  AffineForm form = condition.at_least_zero[0];
  form.constant = Expr(-1) - form.constant;
  for (Expr& factor : form.factors) factor = Expr(0) - factor;
  return PositionCondition{{std::move(form)}, {}};
}

std::optional<AffineForm> PositionForms::number(const GraphValue* value) {
  return form(value).number;
}
std::optional<PositionCondition> PositionForms::condition(const GraphValue* value) {
  return form(value).condition;
}

const PositionForms::Form& PositionForms::form(const GraphValue* value) {
  static const Form kNone;
  if (value == nullptr || depth_ > kMostDepth) return kNone;
  if (const auto found = forms_.find(value); found != forms_.end()) return found->second;
  ++depth_;
  Form made = compute(*value);
  --depth_;
  const SymShape& dims = value->info.dims;
  const auto cleaned = [&](AffineForm form) -> std::optional<AffineForm> {
    if (form.factors.size() != dims.size()) form.factors.resize(dims.size(), Expr(0));
    for (size_t i = 0; i < dims.size(); ++i)
      if (dims[i] == Expr(1)) form.factors[i] = Expr(0);
    const bool is_sound = is_modest(form.constant) && std::ranges::all_of(form.factors, is_modest);
    return is_sound ? std::optional(std::move(form)) : std::nullopt;
  };
  made.number = changed(made.number, cleaned);
  made.condition = changed(made.condition, cleaned);
  if (made.condition) made.condition = simplified(*made.condition, dims.size());
  return forms_.emplace(value, std::move(made)).first->second;
}

PositionForms::Form PositionForms::compute(const GraphValue& value) {
  if (value.is_known()) return known(value);
  const GraphNode* node = value.producer;
  if (node == nullptr || node->outputs.size() != 1 || !node->op->is_pure()) return {};
  if (node->as<Pointwise>()) return computed(*node);
  if (node->as<Concatenation>()) return joined(*node);
  if (node->as<Gather>()) return gathered(*node);
  if (const auto* fill = node->as<Fill>()) {
    const FillParams& params = fill->params();
    const size_t rank = value.info.dims.size();
    if (params.operation != FillOperation::kLINSPACE || !is_index_type(value.info.dtype) ||
        static_cast<double>(static_cast<int64_t>(params.alpha)) != params.alpha ||
        static_cast<double>(static_cast<int64_t>(params.beta)) != params.beta)
      return {};
    const auto start = integers_of(*node, 1, {static_cast<int64_t>(params.alpha)}),
               steps = integers_of(*node, 2, {static_cast<int64_t>(params.beta)});
    if (!start || start->size() != 1 || !steps || rank == 0) return {};
    AffineForm form = uniform((*start)[0], rank);
    if (steps->size() == 1)
      form.factors.back() = (*steps)[0];
    else if (steps->size() == rank)
      form.factors = *steps;
    else
      return {};
    return {form, {}};
  }
  if (const auto* sum = node->as<Cumulative>()) {
    const CumulativeParams& params = sum->params();
    const std::optional<std::vector<Expr>> axis = integers_of(*node, 1, {params.axis});
    std::optional<AffineForm> each = number(node->inputs[0]);
    if (!each || !each->is_uniform() || params.product || !axis || axis->size() != 1 ||
        !(*axis)[0].is_constant() || params.op != CumulativeOperation::kSUM)
      return {};
    if (each->constant == Expr(0)) return {each, {}};
    if (params.exclusive || params.reverse) return {};
    each->factors[axis_of((*axis)[0].constant(), each->factors.size())] = each->constant;
    return {each, {}};
  }
  return moved(*node);
}

PositionForms::Form PositionForms::known(const GraphValue& value) const {
  if (value.may_change) return {};
  const DataType type = value.info.dtype;
  if (!is_constant(value.info.dims)) return {};
  const Shape shape = constant_shape(value.info.dims);
  const int64_t count = shape.numel();
  if (count < 1 || count > kMostElements) return {};
  if (!value.is_constant()) {
    const std::vector<Expr>& elements = *value.info.values;
    if (is_index_type(type)) return {affine(elements, shape), {}};
    if (type != DataType::kBOOL) return {};
    std::vector<char> truths;
    for (const Expr& element : elements) {
      if (!element.is_constant()) return {};
      truths.push_back(element.constant() != 0);
    }
    return {{}, triangle(truths, shape)};
  }
  const void* const data = value.info.constant.data();
  std::vector<char> truths(static_cast<size_t>(count));
  if (type == DataType::kBOOL) {
    std::memcpy(truths.data(), data, truths.size());
  } else if (is_index_type(type)) {
    std::vector<int64_t> numbers(static_cast<size_t>(count));
    convert(data, type, numbers.data(), DataType::kINT64, count);
    return {affine(numbers, shape), {}};
  } else if (is_floating(type) && bits(type) >= 16) {
    std::vector<float> numbers(static_cast<size_t>(count));
    convert(data, type, numbers.data(), DataType::kFLOAT, count);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] != 0 && !(numbers[i] <= kForbiddenScore)) return {};
      truths[i] = numbers[i] == 0;
    }
  } else {
    return {};
  }
  std::optional<PositionCondition> found = triangle(truths, shape);
  if (!found) {
    for (char& truth : truths) truth = truth == 0;
    if (const auto opposite = triangle(truths, shape)) found = negated(*opposite);
  }
  return {{}, found};
}

PositionForms::Form PositionForms::computed(const GraphNode& node) {
  const std::optional<SingleOperation> op = single_operation(&node);
  if (!op) return {};
  const GraphValue& output = *node.outputs[0];
  const SymShape& dims = output.info.dims;
  const size_t rank = dims.size();
  const auto fitted = [&](const Operand& operand) {
    return [&](const AffineForm& form) {
      return broadcast_form(form, operand.value->info.dims, dims);
    };
  };
  const auto number_at = [&](const Operand& operand) -> std::optional<AffineForm> {
    if (operand.value) return changed(number(operand.value), fitted(operand));
    const auto whole = static_cast<int64_t>(operand.number);
    if (static_cast<double>(whole) != operand.number) return std::nullopt;
    return uniform(Expr(whole), rank);
  };
  // Of a number, a register's type tells what it means.
  const auto condition_at = [&](const Operand& operand) -> std::optional<PositionCondition> {
    if (operand.value) return changed(condition(operand.value), fitted(operand));
    if (op->type == DataType::kBOOL) return operand.number != 0 ? PositionCondition{} : never(rank);
    if (operand.number == 0) return PositionCondition{};
    if (operand.number <= kForbiddenScore) return never(rank);
    return std::nullopt;
  };
  const bool gives_integer = is_index_type(output.info.dtype),
             gives_bool = output.info.dtype == DataType::kBOOL,
             gives_floating = is_floating(output.info.dtype) && bits(output.info.dtype) >= 16;
  if (op->is(PointwiseOp::kInput) || op->is(PointwiseOp::kCast)) {
    if (op->a.value == nullptr) return {};
    const DataType from = op->a.value->info.dtype;
    if (gives_integer && is_index_type(from)) return {number_at(op->a), {}};
    if (gives_bool && from == DataType::kBOOL) return {{}, condition_at(op->a)};
    if (gives_floating && is_floating_identity(*op, node)) return {{}, condition_at(op->a)};
    if (gives_integer && from == DataType::kBOOL) {
      const auto found = condition_at(op->a);
      if (!found || !(found->is_always() || is_never(*found))) return {};
      return {uniform(Expr(found->is_always() ? 1 : 0), rank), {}};
    }
    if (gives_bool && is_index_type(from)) {
      const auto found = number_at(op->a);
      if (!found || !is_constant_form(*found)) return {};
      return {{}, found->constant.constant() != 0 ? PositionCondition{} : never(rank)};
    }
    return {};
  }
  if (gives_integer) {
    const auto a = number_at(op->a);
    if (op->is(UnaryOperation::kNEG) && a) return {combined(uniform(Expr(0), rank), *a, -1), {}};
    const bool is_sum = op->is(ElementWiseOperation::kSUM),
               is_difference = op->is(ElementWiseOperation::kSUB);
    if (!is_sum && !is_difference && !op->is(ElementWiseOperation::kPROD)) return {};
    const auto b = number_at(op->b);
    if (!a || !b) return {};
    if (is_sum || is_difference) return {combined(*a, *b, is_sum ? 1 : -1), {}};
    for (const auto& [x, factor] : {std::pair(&*a, &*b), std::pair(&*b, &*a)})
      if (is_constant_form(*factor))
        return {combined(uniform(Expr(0), rank), *x, factor->constant.constant()), {}};
    return {};
  }
  if (op->is(PointwiseOp::kSelect) && op->a.value && (gives_bool || gives_floating)) {
    const auto choice = changed(condition(op->a.value), fitted(op->a));
    if (!choice) return {};
    const auto opposite = negated(*choice);
    const auto a = condition_at(op->b), b = condition_at(op->c);
    if (choice->is_always()) return {{}, a};
    if (is_never(*choice)) return {{}, b};
    if (!a || !b) return {};
    if (is_never(*a) && opposite) return {{}, both(*opposite, *b, rank)};
    if (is_never(*b)) return {{}, both(*choice, *a, rank)};
    if (a->is_always()) return {{}, either(*choice, *b)};
    if (b->is_always() && opposite) return {{}, either(*opposite, *a)};
    return {};
  }
  if (gives_floating) {
    if (!op->is(ElementWiseOperation::kSUM)) return {};
    const auto a = condition_at(op->a), b = condition_at(op->b);
    return a && b ? Form{{}, both(*a, *b, rank)} : Form{};
  }
  if (!gives_bool) return {};
  if (op->is(UnaryOperation::kNOT)) {
    const auto a = condition_at(op->a);
    return a ? Form{{}, negated(*a)} : Form{};
  }
  if (op->is(ElementWiseOperation::kAND) || op->is(ElementWiseOperation::kOR)) {
    const auto a = condition_at(op->a), b = condition_at(op->b);
    if (!a || !b) return {};
    if (op->is(ElementWiseOperation::kAND)) return {{}, both(*a, *b, rank)};
    return {{}, either(*a, *b)};
  }
  const bool is_less = op->is(ElementWiseOperation::kLESS),
             is_greater = op->is(ElementWiseOperation::kGREATER),
             is_equal = op->is(ElementWiseOperation::kEQUAL);
  if (!is_less && !is_greater && !is_equal) return {};
  for (const Operand* operand : {&op->a, &op->b})
    if (operand->value && !is_index_type(operand->value->info.dtype)) return {};
  const auto a = number_at(op->a), b = number_at(op->b);
  if (!a || !b || (!op->a.value && !op->b.value)) return {};
  AffineForm difference = is_less ? combined(*b, *a, -1) : combined(*a, *b, -1);
  if (is_equal) return {{}, PositionCondition{{}, {std::move(difference)}}};
  difference.constant = difference.constant - Expr(1);
  return {{}, PositionCondition{{std::move(difference)}, {}}};
}

PositionForms::Form PositionForms::moved(const GraphNode& node) {
  if (!node.as<Reshape>() && !node.as<Transpose>() && !node.as<Slice>()) return {};
  const Form& before = form(node.inputs[0]);
  const SymShape &in = node.inputs[0]->info.dims, &out = node.outputs[0]->info.dims;
  const auto apply = [&](const auto& change) {
    return Form{changed(before.number, change), changed(before.condition, change)};
  };
  if (const auto* op = node.as<Transpose>()) {
    const Ints& permutation = op->params().permutation;
    return apply([&](const AffineForm& form) -> std::optional<AffineForm> {
      AffineForm result{form.constant, {}};
      for (const int64_t axis : permutation)
        result.factors.push_back(form.factors[static_cast<size_t>(axis)]);
      return result;
    });
  }
  if (node.as<Reshape>()) {
    const std::optional<std::vector<int>> kept = kept_axes(in, out);
    return apply([&](const AffineForm& form) -> std::optional<AffineForm> {
      AffineForm result = uniform(form.constant, out.size());
      if (form.is_uniform()) return result;
      if (!kept) return std::nullopt;
      for (size_t i = 0; i < out.size(); ++i)
        if ((*kept)[i] >= 0) result.factors[i] = form.factors[static_cast<size_t>((*kept)[i])];
      return result;
    });
  }
  if (node.as<Slice>()->params().mode != SampleMode::kSTRICT_BOUNDS) return {};
  const std::optional<std::vector<SlicedAxis>> axes = sliced_axes(node);
  return apply([&](const AffineForm& form) -> std::optional<AffineForm> {
    if (form.is_uniform()) return form;
    if (!axes) return std::nullopt;
    AffineForm result = form;
    for (const auto& [axis, start, stride] : *axes) {
      const bool is_whole = in[axis] == out[axis] && stride == repeating_stride(in[axis]);
      result.constant = result.constant + start * form.factors[axis];
      result.factors[axis] = form.factors[axis] * (is_whole ? Expr(1) : stride);
    }
    return result;
  });
}

/// Parts whose numbers continue each other.
PositionForms::Form PositionForms::joined(const GraphNode& node) {
  const SymShape& out = node.outputs[0]->info.dims;
  const size_t axis = axis_of(node.as<Concatenation>()->params().axis, out.size());
  std::vector<AffineForm> parts;
  for (const GraphValue* input : node.inputs) {
    const Form& part = form(input);
    if (part.number) {
      parts.push_back(*part.number);
    } else if (part.condition && (part.condition->is_always() || is_never(*part.condition))) {
      parts.push_back(uniform(Expr(part.condition->is_always() ? 1 : 0), out.size()));
    } else {
      return {};
    }
  }
  // The step along the axis is that of a part of several elements, or from one part to the next.
  Expr step = 0;
  for (size_t i = 0; i < parts.size(); ++i)
    if (!(node.inputs[i]->info.dims[axis] == Expr(1))) step = parts[i].factors[axis];
  if (parts.size() > 1 && std::ranges::all_of(node.inputs, [&](const GraphValue* x) {
        return x->info.dims[axis] == Expr(1);
      }))
    step = parts[1].constant - parts[0].constant;
  Expr place = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    AffineForm& part = parts[i];
    const Expr& extent = node.inputs[i]->info.dims[axis];
    if (!(extent == Expr(1)) && !(part.factors[axis] == step)) return {};
    part.factors[axis] = step;
    part.constant = part.constant - place * step;
    if (!equal(part, parts[0])) return {};
    place = place + extent;
  }
  if (node.outputs[0]->info.dtype == DataType::kBOOL) {
    if (!is_constant_form(parts[0])) return {};
    return {{}, parts[0].constant == Expr(0) ? never(out.size()) : PositionCondition{}};
  }
  return is_index_type(node.outputs[0]->info.dtype) ? Form{parts[0], {}} : Form{};
}

PositionForms::Form PositionForms::gathered(const GraphNode& node) {
  const size_t rank = node.outputs[0]->info.dims.size();
  const Form& data = form(node.inputs[0]);
  // Indices out of range give 0.
  if (data.number && data.number->is_uniform() && data.number->constant == Expr(0))
    return {uniform(Expr(0), rank), {}};
  if (data.condition && is_never(*data.condition) && node.outputs[0]->info.dtype == DataType::kBOOL)
    return {{}, never(rank)};
  return {};
}

}  // namespace opwright
