#include "compile/mask_parts.h"

#include <algorithm>
#include <optional>

#include "compile/program.h"
#include "compile/single_operation.h"
#include "compile/strided_view.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// Whether the expression is certainly not negative.
bool is_not_negative(const SymbolTable& symbols, const Expr& number) {
  if (number.is_constant()) return number.constant() >= 0;
  if (number.op() == ExprOp::kSymbol)
    return symbols[number.symbol_id()].kind != Symbol::Kind::kInputValue;
  if (number.op() != ExprOp::kSum && number.op() != ExprOp::kProd) return false;
  for (int i = 0; i < number.arity(); ++i)
    if (!is_not_negative(symbols, number.operand(i))) return false;
  return true;
}
/// Whether the form is at least 0 at all positions of a tensor of these extents.
bool is_always_met(const SymbolTable& symbols, const AffineForm& form, const SymShape& dims) {
  Expr least = form.constant;
  for (size_t i = 0; i < dims.size(); ++i) {
    const Expr& factor = form.factors[i];
    if (!factor.is_constant()) return false;
    if (factor.constant() < 0) least = least + factor * (dims[i] - Expr(1));
  }
  return is_not_negative(symbols, least);
}

/// The causal mask that the condition is, over a tensor of extents `dims`; kNONE: all keys are
/// allowed. Nothing where it is another mask.
std::optional<CausalMaskKind> causal_kind(const SymbolTable& symbols,
                                          const PositionCondition& condition, const SymShape& dims,
                                          const Expr& queries, const Expr& keys) {
  if (!condition.zero.empty()) return std::nullopt;
  CausalMaskKind kind = CausalMaskKind::kNONE;
  for (const AffineForm& form : condition.at_least_zero) {
    if (is_always_met(symbols, form, dims)) continue;
    const size_t rank = dims.size();
    if (rank < 2 || !(dims[rank - 2] == queries) || !(dims[rank - 1] == keys) ||
        !(form.factors[rank - 2] == Expr(1)) || !(form.factors[rank - 1] == Expr(-1)))
      return std::nullopt;
    for (size_t i = 0; i + 2 < rank; ++i)
      if (!(form.factors[i] == Expr(0))) return std::nullopt;
    CausalMaskKind own = CausalMaskKind::kNONE;
    if (form.constant == Expr(0))
      own = CausalMaskKind::kUPPER_LEFT;
    else if (form.constant == keys - queries && is_not_negative(symbols, form.constant))
      own = CausalMaskKind::kLOWER_RIGHT;
    else
      return std::nullopt;
    if (kind != CausalMaskKind::kNONE && kind != own) return std::nullopt;
    kind = own;
  }
  return kind;
}

PositionCondition joined(const PositionCondition& a, const PositionCondition& b) {
  PositionCondition result = a;
  result.at_least_zero.insert(result.at_least_zero.end(), b.at_least_zero.begin(),
                              b.at_least_zero.end());
  result.zero.insert(result.zero.end(), b.zero.begin(), b.zero.end());
  return result;
}

/// The condition over the positions of `dims`, to which a tensor of extents `own` is broadcast.
std::optional<PositionCondition> lifted(const PositionCondition& condition, const SymShape& own,
                                        const SymShape& dims) {
  PositionCondition result = condition;
  const size_t shift = dims.size() - own.size();
  for (std::vector<AffineForm>* forms : {&result.at_least_zero, &result.zero})
    for (AffineForm& form : *forms) {
      for (size_t i = 0; i < own.size(); ++i)
        if (!(form.factors[i] == Expr(0)) && !(own[i] == dims[i + shift])) return std::nullopt;
      form.factors.insert(form.factors.begin(), shift, Expr(0));
    }
  return result;
}

}  // namespace

void MaskParts::take_causal(Mask& mask, const Expr& queries, const Expr& keys, bool excludes,
                            CausalMaskKind& kind) {
  if (mask.value == nullptr) return;
  const SymShape& dims = mask.value->info.dims;
  std::optional<PositionCondition> condition = forms_.condition(mask.value);
  if (condition && mask.is_forbidden) condition = negated(*condition);
  GraphValue* rest = nullptr;
  if (!condition) {
    if (!excludes || mask.is_forbidden || mask.value->info.dtype != DataType::kBOOL) return;
    Rest parts = separate(mask.value);
    if (parts.value == mask.value) return;
    condition = std::move(parts.taken), rest = parts.value;
  }
  for (std::vector<AffineForm>* forms : {&condition->at_least_zero, &condition->zero})
    for (AffineForm& form : *forms) form.factors.resize(dims.size(), Expr(0));
  const std::optional<CausalMaskKind> own =
      causal_kind(graph_.symbols(), *condition, dims, queries, keys);
  if (!own) return;
  if (*own != CausalMaskKind::kNONE && kind != CausalMaskKind::kNONE && kind != *own) return;
  if (*own != CausalMaskKind::kNONE) kind = *own;
  mask = {rest, false};
}

MaskParts::Rest MaskParts::separate(GraphValue* mask) {
  if (const auto found = known_.find(mask); found != known_.end()) return found->second;
  Rest result{mask, {}};
  GraphNode* const node = mask->producer;
  if (auto condition = forms_.condition(mask)) {
    result = {nullptr, std::move(*condition)};
  } else if (node != nullptr && node->outputs.size() == 1) {
    const std::optional<SingleOperation> op = single_operation(node);
    if (op && op->is(ElementWiseOperation::kAND) && op->a.value && op->b.value) {
      result = separate_both(*node, op->a.value, op->b.value);
    } else if (op && op->is(PointwiseOp::kInput) && op->a.value &&
               op->a.value->info.dims == mask->info.dims) {
      if (Rest before = separate(op->a.value); before.value != op->a.value)
        result = std::move(before);
    } else if (node->as<Reshape>()) {
      const SymShape &in = node->inputs[0]->info.dims, &out = mask->info.dims;
      const std::optional<std::vector<int>> axes = kept_axes(in, out);
      if (!axes) return result;
      Rest before = separate(node->inputs[0]);
      if (before.value == node->inputs[0]) return result;
      for (std::vector<AffineForm>* forms : {&before.taken.at_least_zero, &before.taken.zero})
        for (AffineForm& form : *forms) {
          SymShape factors;
          for (const int axis : *axes)
            factors.push_back(axis < 0 ? Expr(0) : form.factors[static_cast<size_t>(axis)]);
          form.factors = std::move(factors);
        }
      result = {before.value == nullptr ? nullptr : reshaped(*node, before.value),
                std::move(before.taken)};
    } else if (only_repeats(*node)) {
      Rest before = separate(node->inputs[0]);
      if (before.value == node->inputs[0]) return result;
      result = std::move(before);
    }
  }
  return known_.emplace(mask, std::move(result)).first->second;
}

MaskParts::Rest MaskParts::separate_both(GraphNode& node, GraphValue* a, GraphValue* b) {
  GraphValue* const mask = node.outputs[0];
  const SymShape& dims = mask->info.dims;
  Rest parts[] = {separate(a), separate(b)};
  const bool is_same = parts[0].value == a && parts[1].value == b;
  const auto first = lifted(parts[0].taken, a->info.dims, dims),
             second = lifted(parts[1].taken, b->info.dims, dims);
  if (is_same || !first || !second) return {mask, {}};
  Rest result{parts[0].value ? parts[0].value : parts[1].value, joined(*first, *second)};
  if (parts[0].value && parts[1].value) {
    ProgramWriter writer;
    const int both[] = {writer.binary(ElementWiseOperation::kAND, writer.input(0, DataType::kBOOL),
                                      writer.input(1, DataType::kBOOL))};
    std::vector<int> used;
    TensorInfo info;
    info.dtype = DataType::kBOOL;
    info.dims = broadcast(parts[0].value->info.dims, parts[1].value->info.dims);
    result.value =
        graph_
            .insert_before(&node, std::make_shared<Pointwise>(writer.finish(both, &used)),
                           {parts[0].value, parts[1].value}, std::move(info), node.name + " data")
            ->outputs[0];
  }
  return result;
}

GraphValue* MaskParts::reshaped(GraphNode& node, GraphValue* rest) {
  const SymShape &in = node.inputs[0]->info.dims, &out = node.outputs[0]->info.dims;
  const std::vector<int> axes = *kept_axes(in, out);
  const SymShape& own = rest->info.dims;
  SymShape dims;
  for (const int axis : axes) {
    const int at = axis - static_cast<int>(in.size() - own.size());
    dims.push_back(axis < 0 || at < 0 ? Expr(1) : own[static_cast<size_t>(at)]);
  }
  if (dims == own) return rest;
  TensorInfo info;
  info.dtype = rest->info.dtype, info.dims = std::move(dims);
  return graph_
      .insert_before(&node, std::make_shared<Reshape>(), {rest}, std::move(info),
                     node.name + " data")
      ->outputs[0];
}

}  // namespace opwright
