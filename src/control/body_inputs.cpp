#include "control/body_inputs.h"

#include <algorithm>

#include "base/error.h"
#include "control/body.h"
#include "operators/elementwise.h"

namespace opwright {

Tensor* BodyInputs::add(const std::string& name, const Tensor& outside) {
  Tensor* made = body_.add_input(name, outside.dtype(), outside.shape());
  for (int i = 0; i < outside.rank(); ++i)
    if (const Expr& extent = outside.dims()[static_cast<size_t>(i)]; !extent.is_constant())
      made->set_dimension_name(i, name_of(extent));
  return made;
}

Tensor* BodyInputs::capture(Tensor* outside) {
  if (const auto found = captured_.find(outside); found != captured_.end()) return found->second;
  Tensor* made = nullptr;
  const TensorInfo& info = outside->info();
  if (info.constant) {
    made = body_.add_constant(info.dtype, constant_shape(info.dims), info.constant);
    copy_name(*outside, *made->producer());
  } else if (const auto values = values_inside(*outside)) {
    made = body_.add_values(*values, info.dtype, outside->rank() == 0);
  } else {
    const auto place = std::find(outside_.begin(), outside_.end(), outside);
    made = add(capture_input(static_cast<int>(place - outside_.begin())), *outside);
    if (place == outside_.end()) outside_.push_back(outside);
  }
  captured_[outside] = made;
  return made;
}

/// Names the body's weights as they are named outside, so that an engine is refitted by these
/// names.
void BodyInputs::copy_name(const Tensor& outside, const Layer& made) {
  const Layer* const from = outside.producer();
  const WeightNames& names = outside.network().weight_names();
  if (from != nullptr && has_refittable_weights(*from))
    body_.weight_names().set_name(made, names.name(*from));
  else
    body_.weight_names().fix(made);
}

/// The elements of a shape-like tensor in the body's symbols.
std::optional<std::vector<Expr>> BodyInputs::values_inside(const Tensor& outside) {
  const TensorInfo& info = outside.info();
  if (!info.values || outside.rank() > 1 || info.dtype == DataType::kBOOL) return std::nullopt;
  std::vector<Expr> inside;
  for (const Expr& element : *info.values) {
    const std::optional<Expr> value = inside_of(element, outside.network(), 0);
    if (!value) return std::nullopt;
    inside.push_back(*value);
  }
  return inside;
}

/// The expression in the body's symbols. Empty if it does not follow from the extents of the
/// network's inputs, or is too deep.
std::optional<Expr> BodyInputs::inside_of(const Expr& e, Network& network, int depth) {
  constexpr int kMostDepth = 16;
  if (e.is_constant()) return e;
  if (depth > kMostDepth) return std::nullopt;
  if (e.op() == ExprOp::kSymbol) {
    const Symbol& symbol = network.symbols()[e.symbol_id()];
    Tensor* const input = network.find_tensor(symbol.tensor);
    if (symbol.kind != Symbol::Kind::kInputExtent || input == nullptr) return std::nullopt;
    const Tensor* const made = capture(input);
    for_extents_.push_back(made);
    return made->dims()[static_cast<size_t>(symbol.index)];
  }
  std::vector<Expr> operands;
  for (int i = 0; i < e.arity(); ++i) {
    const std::optional<Expr> operand = inside_of(e.operand(i), network, depth + 1);
    if (!operand) return std::nullopt;
    operands.push_back(*operand);
  }
  if (e.op() == ExprOp::kSelect) return Expr::select(operands[0], operands[1], operands[2]);
  Expr result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) result = Expr::make(e.op(), result, operands[i]);
  return result;
}

std::string BodyInputs::name_of(const Expr& extent) {
  const auto number = std::find(extents_.begin(), extents_.end(), extent) - extents_.begin();
  if (number == std::ssize(extents_)) extents_.push_back(extent);
  return str("extent ", number);
}

void mark_body_output(Network& body, Tensor* tensor) {
  if (tensor->is_network_input() || tensor->is_network_output())
    tensor = body.add<Identity>({}, {tensor})->output(0);
  body.mark_output(*tensor);
}

void remove_unused_inputs(Network& body, const std::vector<const Tensor*>& for_extents) {
  const std::vector<Tensor*> all(body.inputs().begin(), body.inputs().end());
  for (Tensor* input : all)
    if (input->num_users() == 0 &&
        std::find(for_extents.begin(), for_extents.end(), input) == for_extents.end())
      body.remove_tensor(*input);
}

}  // namespace opwright
