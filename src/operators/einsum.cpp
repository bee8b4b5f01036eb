#include "operators/einsum.h"

#include <algorithm>
#include <map>

#include "base/types.h"

namespace opwright {
namespace {

using Labels = std::vector<int>;

/// The first label of the axes that "..." stands for. Letters are their own labels.
constexpr int kEllipsis = 1 << 8;

bool has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

/// A tensor and the label of each of its axes.
struct Operand {
  Tensor* tensor;
  Labels labels;
};

/// The labels of a term. The last axis that "..." stands for has the same label in all terms.
Labels parse_term(LayerWriter& writer, const std::string& term, int ellipsis_axes) {
  Labels labels;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term.compare(i, 3, "...") == 0) {
      for (int axis = ellipsis_axes; axis > 0; --axis) labels.push_back(kEllipsis + axis);
      i += 2;
    } else if ((term[i] >= 'a' && term[i] <= 'z') || (term[i] >= 'A' && term[i] <= 'Z')) {
      labels.push_back(term[i]);
    } else {
      writer.error("the equation has '", term.substr(i, 1), "'; expected letters, ... , and ->");
    }
  }
  return labels;
}

struct Equation {
  std::vector<Operand> operands;
  Labels result;
};

Equation parse_equation(LayerWriter& writer, std::string text, std::span<Tensor* const> inputs) {
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  std::vector<std::string> terms(1);
  for (const char c : text.substr(0, arrow)) {
    if (c == ',')
      terms.emplace_back();
    else
      terms.back().push_back(c);
  }
  if (terms.size() != inputs.size())
    writer.error("the equation '", text, "' has ", terms.size(), " terms for ", inputs.size(),
                 " inputs");
  Equation equation;
  int most_ellipsis_axes = 0;
  std::map<int, int> uses;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& term = terms[i];
    const int letters = static_cast<int>(parse_term(writer, term, 0).size());
    const bool has_ellipsis = term.find("...") != std::string::npos;
    const int rest = inputs[i]->rank() - letters;
    if (rest < 0 || (rest > 0 && !has_ellipsis))
      writer.error("the term '", term, "' has ", letters, " axes, but input ", i, " has rank ",
                   inputs[i]->rank());
    most_ellipsis_axes = std::max(most_ellipsis_axes, has_ellipsis ? rest : 0);
    equation.operands.push_back({inputs[i], parse_term(writer, term, rest)});
    for (const int label : equation.operands.back().labels) ++uses[label];
  }
  if (arrow != std::string::npos) {
    equation.result = parse_term(writer, text.substr(arrow + 2), most_ellipsis_axes);
  } else {
    // The result has the axes of "...", then the letters that occur once, in alphabetical order.
    for (int axis = most_ellipsis_axes; axis > 0; --axis)
      equation.result.push_back(kEllipsis + axis);
    for (const auto& [label, count] : uses)
      if (label < kEllipsis && count == 1) equation.result.push_back(label);
  }
  for (size_t i = 0; i < equation.result.size(); ++i) {
    const int label = equation.result[i];
    const bool is_letter = label < kEllipsis;
    if (is_letter && (!uses.contains(label) ||
                      std::count(equation.result.begin(), equation.result.end(), label) > 1))
      writer.error("the result of the equation '", text, "' has '", static_cast<char>(label),
                   "', which is in no term or there twice");
  }
  return equation;
}

Tensor* permuted(LayerWriter& writer, const Operand& operand, const Labels& order) {
  Ints permutation;
  for (const int label : order)
    permutation.push_back(std::find(operand.labels.begin(), operand.labels.end(), label) -
                          operand.labels.begin());
  return std::is_sorted(permutation.begin(), permutation.end())
             ? operand.tensor
             : writer.transpose(operand.tensor, permutation);
}

/// Takes the diagonal of two axes with the same label.
void take_diagonals(LayerWriter& writer, Operand& operand) {
  for (size_t i = 0; i < operand.labels.size(); ++i)
    for (size_t k = i + 1; k < operand.labels.size(); ++k) {
      if (operand.labels[i] != operand.labels[k]) continue;
      Ints permutation;
      Labels labels;
      for (size_t axis = 0; axis < operand.labels.size(); ++axis)
        if (axis != i && axis != k) {
          permutation.push_back(static_cast<int64_t>(axis));
          labels.push_back(operand.labels[axis]);
        }
      permutation.push_back(static_cast<int64_t>(i));
      permutation.push_back(static_cast<int64_t>(k));
      labels.push_back(operand.labels[i]);
      Tensor* x = writer.transpose(operand.tensor, permutation);
      const Expr extent = x->dims().back();
      if (!extent.is_constant() || !(x->dims()[labels.size() - 1] == extent))
        writer.error(
            "the equation takes a diagonal, whose axes have to be equal and constant, of "
            "shape ",
            operand.tensor->shape());
      SymShape flat(x->dims().begin(), x->dims().end() - 1);
      flat.back() = extent * extent;
      std::vector<Expr> size(flat.begin(), flat.end());
      size.back() = extent;
      Ints stride(flat.size(), 1);
      stride.back() = extent.constant() + 1;
      operand.tensor =
          writer.slice(writer.reshape(x, flat), std::vector<Expr>(flat.size(), 0), size, stride);
      operand.labels = labels;
      i = 0, k = 0;
    }
}

/// Sums over the axes whose labels are not needed.
void sum_out(LayerWriter& writer, Operand& operand, const Labels& needed) {
  Ints axes;
  Labels kept;
  for (size_t i = 0; i < operand.labels.size(); ++i) {
    if (has(needed, operand.labels[i]))
      kept.push_back(operand.labels[i]);
    else
      axes.push_back(static_cast<int64_t>(i));
  }
  if (axes.empty()) return;
  operand.tensor = writer.reduce(ReduceOperation::kSUM, operand.tensor, axes, false);
  operand.labels = kept;
}

/// The tensor with one axis per label. An axis that the operand lacks has extent 1.
Tensor* with_axes(LayerWriter& writer, const Operand& operand, const Labels& labels) {
  Labels own;
  Ints missing;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (has(operand.labels, labels[i]))
      own.push_back(labels[i]);
    else
      missing.push_back(static_cast<int64_t>(i));
  }
  Tensor* x = permuted(writer, operand, own);
  return missing.empty() ? x : writer.unsqueeze(x, missing);
}

/// The extents of the axes with these labels, from the first operand that has an axis with an
/// extent other than 1.
SymShape extents(const Labels& labels, const Operand& a, const Operand& b) {
  SymShape dims;
  for (const int label : labels) {
    Expr extent = 1;
    for (const Operand* operand : {&a, &b}) {
      const auto found = std::find(operand->labels.begin(), operand->labels.end(), label);
      if (found == operand->labels.end()) continue;
      const auto axis = static_cast<size_t>(found - operand->labels.begin());
      if (extent == Expr(1)) extent = operand->tensor->dims()[axis];
    }
    dims.push_back(extent);
  }
  return dims;
}

/// The product of both operands, summed over the labels that neither the result nor a later operand
/// needs.
Operand contract(LayerWriter& writer, const Operand& a, const Operand& b, const Labels& needed) {
  Labels batch, left, right, summed;
  for (const int label : a.labels) {
    if (!has(b.labels, label))
      left.push_back(label);
    else
      (has(needed, label) ? batch : summed).push_back(label);
  }
  for (const int label : b.labels)
    if (!has(a.labels, label)) right.push_back(label);
  Labels result = batch;
  result.insert(result.end(), left.begin(), left.end());
  result.insert(result.end(), right.begin(), right.end());
  bool broadcasts = false;  // an extent of 1 against another one
  for (const Labels* shared : {&batch, &summed})
    for (const int label : *shared) {
      const Labels one = {label};
      broadcasts |= !(extents(one, a, a) == extents(one, b, b));
    }
  if (summed.empty() || broadcasts || !is_floating(a.tensor->dtype())) {
    Labels all = result;
    all.insert(all.end(), summed.begin(), summed.end());
    Operand product{writer.elementwise(ElementWiseOperation::kPROD, with_axes(writer, a, all),
                                       with_axes(writer, b, all)),
                    all};
    sum_out(writer, product, result);
    return product;
  }
  const auto stacked = [&](const Operand& operand, const Labels& rows, const Labels& columns) {
    Labels order = batch;
    order.insert(order.end(), rows.begin(), rows.end());
    order.insert(order.end(), columns.begin(), columns.end());
    SymShape dims = extents(batch, operand, operand);
    dims.push_back(numel(extents(rows, operand, operand)));
    dims.push_back(numel(extents(columns, operand, operand)));
    return writer.reshape(permuted(writer, operand, order), dims);
  };
  Tensor* y = writer.multiply_matrices(stacked(a, left, summed), stacked(b, summed, right));
  return {writer.reshape(y, extents(result, a, b)), result};
}

}  // namespace

Tensor* write_einsum(LayerWriter& writer, const std::string& equation_text,
                     std::span<Tensor* const> inputs) {
  Equation equation = parse_equation(writer, equation_text, inputs);
  std::vector<Operand>& operands = equation.operands;
  // Labels that the result and the operands behind each operand need.
  std::vector<Labels> needed(operands.size(), equation.result);
  for (size_t i = operands.size() - 1; i > 0; --i) {
    needed[i - 1] = needed[i];
    needed[i - 1].insert(needed[i - 1].end(), operands[i].labels.begin(), operands[i].labels.end());
  }
  for (Operand& operand : operands) take_diagonals(writer, operand);
  for (size_t i = 0; i < operands.size(); ++i) {
    Labels others = equation.result;
    for (size_t k = 0; k < operands.size(); ++k)
      if (k != i) others.insert(others.end(), operands[k].labels.begin(), operands[k].labels.end());
    sum_out(writer, operands[i], others);
  }
  Operand result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i)
    result = contract(writer, result, operands[i], needed[i]);
  // Terms without "..." may have fewer axes than the result.
  return with_axes(writer, result, equation.result);
}

std::vector<Tensor*> Einsum::compose(Network& network, std::span<Tensor* const> inputs,
                                     const std::string& layer) const {
  ComposedWriter writer(network, *this, layer, inputs, 1);
  if (std::ranges::find(inputs, nullptr) != inputs.end())
    writer.error("an input is missing; expected one for each term");
  for (const Tensor* input : inputs)
    if (input->dtype() != inputs[0]->dtype())
      writer.error("its inputs are ", name(inputs[0]->dtype()), " and ", name(input->dtype()),
                   "; expected one type");
  return {write_einsum(writer, params().equation, inputs)};
}

}  // namespace opwright
