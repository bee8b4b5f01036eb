#include "control/cell_reader.h"

#include <algorithm>

#include "base/half.h"
#include "base/types.h"

namespace opwright::recurrent {
namespace {

constexpr int64_t kMostTerms = 64;

}  // namespace

std::optional<double> number_of(const Tensor& tensor) {
  const TensorInfo& info = tensor.info();
  if (!info.constant || !is_floating(info.dtype) || !is_constant(info.dims)) return std::nullopt;
  const int64_t count = constant_shape(info.dims).numel();
  if (count < 1 || count > int64_t{1} << 20) return std::nullopt;
  std::vector<float> values(static_cast<size_t>(count));
  convert(info.constant.data(), info.dtype, values.data(), DataType::kFLOAT, count);
  for (const float value : values)
    if (value != values[0]) return std::nullopt;
  return values[0];
}

std::optional<Ints> known_integers(const Tensor* tensor) {
  if (tensor == nullptr) return std::nullopt;
  const TensorInfo& info = tensor->info();
  Ints result;
  if (info.values) {
    for (const Expr& value : *info.values) {
      if (!value.is_constant()) return std::nullopt;
      result.push_back(value.constant());
    }
    return result;
  }
  if (!info.constant || !is_constant(info.dims)) return std::nullopt;
  const int64_t count = constant_shape(info.dims).numel();
  if (count > int64_t{1} << 20) return std::nullopt;
  for (int64_t i = 0; i < count; ++i)
    if (info.dtype == DataType::kINT32)
      result.push_back(info.constant.as<int32_t>()[i]);
    else if (info.dtype == DataType::kINT64)
      result.push_back(info.constant.as<int64_t>()[i]);
    else
      return std::nullopt;
  return result;
}

bool hands_on(const Layer& layer) {
  const std::string_view kind = layer.op()->kind();
  return kind == Squeeze::kKind || kind == Unsqueeze::kKind || kind == Reshape::kKind ||
         kind == Identity::kKind;
}

bool append_monomials(const Node* node, bool is_negative, std::vector<Monomial>& to) {
  if (static_cast<int64_t>(to.size()) > kMostTerms) return false;
  if (node->kind == Kind::kSum) {
    for (size_t i = 0; i < node->operands.size(); ++i)
      if (!append_monomials(node->operands[i], is_negative != node->is_negative[i], to))
        return false;
    return true;
  }
  if (node->kind == Kind::kMultiply) {
    std::vector<Monomial> a, b;
    if (!append_monomials(node->operands[0], false, a) ||
        !append_monomials(node->operands[1], false, b) ||
        static_cast<int64_t>(a.size() * b.size()) > kMostTerms)
      return false;
    for (const Monomial& left : a)
      for (const Monomial& right : b) {
        Monomial both{(left.is_negative != right.is_negative) != is_negative, left.factors};
        both.factors.insert(both.factors.end(), right.factors.begin(), right.factors.end());
        to.push_back(std::move(both));
      }
    return true;
  }
  if (node->kind == Kind::kFixed) {
    const std::optional<double> number = number_of(*node->tensor);
    if (number && (*number == 1 || *number == -1)) {
      to.push_back({is_negative != (*number < 0), {}});
      return true;
    }
  }
  to.push_back({is_negative, {node}});
  return true;
}

bool append_terms(const Node* node, std::vector<const Node*>& to) {
  if (static_cast<int64_t>(to.size()) > kMostTerms) return false;
  if (node->kind != Kind::kSum) {
    to.push_back(node);
    return true;
  }
  for (size_t i = 0; i < node->operands.size(); ++i)
    if (node->is_negative[i] || !append_terms(node->operands[i], to)) return false;
  return true;
}

std::optional<int64_t> CellReader::columns(const Tensor& tensor) const {
  const Expr all = numel(tensor.dims());
  const Expr each = floor_div(all, rows_);
  if (!each.is_constant() || !(each * rows_ == all)) return std::nullopt;
  return each.constant();
}

const Node* CellReader::whole(const Tensor& tensor) {
  const std::optional<int64_t> count = columns(tensor);
  return count ? read(tensor, 0, *count) : nullptr;
}

bool CellReader::is_inside(const Tensor& tensor) const {
  return leaves_.contains(&tensor) ||
         (tensor.producer() != nullptr && loop_.layers.contains(tensor.producer()));
}

const Node* CellReader::read(const Tensor& tensor, int64_t start, int64_t size) {
  const Key key(&tensor, start, size);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  if (depth_ >= kMostDepth || nodes_.size() > 4096) return nullptr;
  ++depth_;
  const Node* const node = make(tensor, start, size);
  --depth_;
  return known_[key] = node;
}

const Node* CellReader::keep(Node node) {
  nodes_.push_back(std::move(node));
  return &nodes_.back();
}

const Node* CellReader::make(const Tensor& tensor, int64_t start, int64_t size) {
  if (const auto leaf = leaves_.find(&tensor); leaf != leaves_.end())
    return keep(
        {.kind = leaf->second.first, .start = start, .size = size, .index = leaf->second.second});
  const Layer* const layer = tensor.producer();
  if (layer == nullptr || layer->num_outputs() != 1 || layer->precision() || tensor.is_debug())
    return nullptr;
  if (hands_on(*layer)) return view(*layer, start, size);
  if (const auto* shuffle = params_of<Shuffle>(layer)) {
    if (!keeps_order(shuffle->first_transpose, layer->input(0)->dims()) ||
        !keeps_order(shuffle->second_transpose, tensor.dims()))
      return nullptr;
    return view(*layer, start, size);
  }
  if (const auto* transpose = params_of<Transpose>(layer))
    return keeps_order(transpose->permutation, layer->input(0)->dims()) ? view(*layer, start, size)
                                                                        : nullptr;
  if (const auto* cast = params_of<Cast>(layer))
    return cast->to == layer->input(0)->dtype() ? view(*layer, start, size) : nullptr;
  if (const auto* slice = params_of<Slice>(layer)) return part(*layer, *slice, start, size);
  if (const auto* joined = params_of<Concatenation>(layer))
    return concatenation(*layer, joined->axis, start, size);
  if (const auto* product = params_of<MatrixMultiply>(layer))
    return multiplication(*layer, *product, start, size);
  if (const auto* op = params_of<ElementWise>(layer))
    return elementwise(*layer, op->op, start, size);
  if (const auto* activation = params_of<Activation>(layer)) {
    const Node* const x = read(*layer->input(0), start, size);
    if (x == nullptr) return nullptr;
    return keep(
        {.kind = Kind::kActivation, .size = size, .operands = {x}, .activation = *activation});
  }
  if (params_of<Select>(layer)) return selection(*layer, start, size);
  return nullptr;
}

const Node* CellReader::view(const Layer& layer, int64_t start, int64_t size) {
  const Tensor &from = *layer.input(0), &to = *layer.output(0);
  if (columns(from) != columns(to) || !columns(to)) return nullptr;
  return read(from, start, size);
}

bool CellReader::keeps_order(const Ints& order, const SymShape& dims) {
  int64_t last = -1;
  for (size_t i = 0; i < std::min(order.size(), dims.size()); ++i) {
    const auto axis = static_cast<size_t>(order[i]);
    if (axis >= dims.size()) return false;
    if (order[i] == static_cast<int64_t>(i)) {
      last = std::max(last, order[i]);
      continue;
    }
    if (dims[axis] == Expr(1)) continue;
    if (order[i] < last) return false;
    last = order[i];
  }
  return true;
}

std::optional<size_t> CellReader::row_axes(const SymShape& dims) const {
  Expr product(1);
  for (size_t i = 0;; ++i) {
    if (product == rows_) return i;
    if (i == dims.size()) return std::nullopt;
    product = product * dims[i];
  }
}

int64_t CellReader::behind(const SymShape& dims, size_t axis) {
  int64_t product = 1;
  for (size_t i = axis + 1; i < dims.size(); ++i) product *= dims[i].constant();
  return product;
}

bool CellReader::is_outermost(const SymShape& dims, size_t axis) const {
  const std::optional<size_t> first = row_axes(dims);
  if (!first || axis < *first) return false;
  for (size_t i = *first; i < dims.size(); ++i)
    if (!dims[i].is_constant() || (i < axis && dims[i].constant() != 1)) return false;
  return true;
}

const Node* CellReader::part(const Layer& layer, const SliceParams& params, int64_t start,
                             int64_t size) {
  if (params.mode != SampleMode::kSTRICT_BOUNDS || layer.num_inputs() > 4) return nullptr;
  const Tensor& from = *layer.input(0);
  const SymShape &in = from.dims(), &out = layer.output(0)->dims();
  const auto per_axis = [&](int input, const Ints& given,
                            int64_t otherwise) -> std::optional<Ints> {
    Ints own = given;
    if (layer.num_inputs() > input && layer.input(input) != nullptr) {
      // The value may be unknown even if it does not depend on the iteration. Only known values are
      // read.
      const std::optional<Ints> known = known_integers(layer.input(input));
      if (!known) return std::nullopt;
      own = *known;
    }
    if (params.axes.empty()) {
      own.resize(in.size(), otherwise);
      return own;
    }
    Ints all(in.size(), otherwise);
    for (size_t i = 0; i < params.axes.size() && i < own.size(); ++i) {
      int64_t axis = params.axes[i];
      if (axis < 0) axis += static_cast<int64_t>(in.size());
      if (axis < 0 || axis >= static_cast<int64_t>(in.size())) return std::nullopt;
      all[static_cast<size_t>(axis)] = own[i];
    }
    return all;
  };
  const std::optional<Ints> starts = per_axis(1, params.start, 0);
  const std::optional<Ints> strides = per_axis(3, params.stride, 1);
  if (!starts || !strides || in.size() != out.size()) return nullptr;
  std::optional<size_t> cut;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] == out[i] && (*starts)[i] == 0 && ((*strides)[i] == 1 || in[i] == Expr(1))) continue;
    if (cut || (*strides)[i] != 1 || (*starts)[i] < 0) return nullptr;
    cut = i;
  }
  if (!cut) return view(layer, start, size);
  if (!is_outermost(in, *cut)) return nullptr;
  return read(from, start + (*starts)[*cut] * behind(in, *cut), size);
}

const Node* CellReader::concatenation(const Layer& layer, int64_t axis, int64_t start,
                                      int64_t size) {
  const SymShape& dims = layer.output(0)->dims();
  if (axis < 0) axis += static_cast<int64_t>(dims.size());
  if (!is_outermost(dims, static_cast<size_t>(axis))) return nullptr;
  Node whole{.kind = Kind::kConcat, .size = size};
  int64_t begin = 0;
  for (const Tensor* input : layer.inputs()) {
    const std::optional<int64_t> count = columns(*input);
    if (!count) return nullptr;
    const int64_t first = std::max(begin, start), end = std::min(begin + *count, start + size);
    if (first < end) {
      whole.operands.push_back(read(*input, first - begin, end - first));
      if (whole.operands.back() == nullptr) return nullptr;
    }
    begin += *count;
  }
  return whole.operands.size() == 1 ? whole.operands[0] : keep(std::move(whole));
}

const Node* CellReader::multiplication(const Layer& layer, const MatrixMultiplyParams& params,
                                       int64_t start, int64_t size) {
  if (params.has_bias || params.activation.present() || params.fused.present()) return nullptr;
  const Tensor &a = *layer.input(0), &b = *layer.input(1);
  const bool weights_first = !is_inside(a);
  const Tensor &x = weights_first ? b : a, &weights = weights_first ? a : b;
  if (!is_inside(x) || is_inside(weights)) return nullptr;
  const MatrixOperation of_x = weights_first ? params.op1 : params.op0;
  const MatrixOperation of_weights = weights_first ? params.op0 : params.op1;
  // A product with the weights on the left gives columns. Only the product with a vector gives them
  // in a row.
  if (of_x == MatrixOperation::kTRANSPOSE || of_weights == MatrixOperation::kVECTOR ||
      (weights_first && of_x != MatrixOperation::kVECTOR) || x.rank() < 1)
    return nullptr;
  const SymShape& dims = weights.dims();
  if (dims.size() < 2 || !is_constant(dims)) return nullptr;
  for (size_t i = 0; i + 2 < dims.size(); ++i)
    if (dims[i].constant() != 1) return nullptr;
  const bool by_output = weights_first == (of_weights == MatrixOperation::kNONE);
  const int64_t rows = dims[dims.size() - 2].constant(), last = dims.back().constant();
  const int64_t inner = by_output ? last : rows, outer = by_output ? rows : last;
  if (columns(x) != inner || !(x.dims().back() == Expr(inner)) ||
      columns(*layer.output(0)) != outer)
    return nullptr;
  const Node* const operand = read(x, 0, inner);
  if (operand == nullptr) return nullptr;
  std::vector<const Node*> pieces = {operand};
  if (operand->kind == Kind::kConcat) pieces = operand->operands;
  Node sum{.kind = Kind::kSum, .size = size};
  int64_t place = 0;
  for (const Node* piece : pieces) {
    sum.operands.push_back(keep({.kind = Kind::kProduct,
                                 .size = size,
                                 .tensor = &weights,
                                 .operands = {piece},
                                 .weight_in = place,
                                 .weight_out = start,
                                 .by_output = by_output}));
    place += piece->size;
  }
  if (sum.operands.size() == 1) return sum.operands[0];
  sum.is_negative.resize(sum.operands.size());
  return keep(std::move(sum));
}

const Node* CellReader::operand_of(const Layer& layer, const Tensor& operand, int64_t start,
                                   int64_t size) {
  const SymShape& out = layer.output(0)->dims();
  if (is_inside(operand))
    return numel(operand.dims()) == numel(out) ? read(operand, start, size) : nullptr;
  const SymShape& dims = operand.dims();
  if (!is_constant(dims)) return nullptr;
  Node fixed{.kind = Kind::kFixed, .start = start, .size = size, .tensor = &operand};
  if (numel(dims) == Expr(1)) {
    fixed.start = 0, fixed.size = 1;
    return keep(std::move(fixed));
  }
  const std::optional<size_t> first = row_axes(out);
  if (!first || dims.size() > out.size()) return nullptr;
  const size_t missing = out.size() - dims.size();
  for (size_t i = 0; i < out.size(); ++i) {
    const Expr extent = i < missing ? Expr(1) : dims[i - missing];
    if (!(extent == (i < *first ? Expr(1) : out[i]))) return nullptr;
  }
  return keep(std::move(fixed));
}

const Node* CellReader::elementwise(const Layer& layer, ElementWiseOperation op, int64_t start,
                                    int64_t size) {
  const bool is_sum = op == ElementWiseOperation::kSUM || op == ElementWiseOperation::kSUB;
  if (!is_sum && op != ElementWiseOperation::kPROD) return nullptr;
  const Node* const a = operand_of(layer, *layer.input(0), start, size);
  const Node* const b = operand_of(layer, *layer.input(1), start, size);
  if (a == nullptr || b == nullptr) return nullptr;
  Node made{.kind = is_sum ? Kind::kSum : Kind::kMultiply, .size = size, .operands = {a, b}};
  if (is_sum) made.is_negative = {false, op == ElementWiseOperation::kSUB};
  return keep(std::move(made));
}

const Node* CellReader::selection(const Layer& layer, int64_t start, int64_t size) {
  const Tensor& condition = *layer.input(0);
  // The condition has one element for each row.
  if (!is_inside(condition) || columns(condition) != 1) return nullptr;
  const SymShape &out = layer.output(0)->dims(), &given = condition.dims();
  const std::optional<size_t> first = row_axes(out);
  if (!first || given.size() != out.size()) return nullptr;
  for (size_t i = 0; i < out.size(); ++i)
    if (!(given[i] == (i < *first ? out[i] : Expr(1)))) return nullptr;
  const Node* const a = operand_of(layer, *layer.input(1), start, size);
  const Node* const b = operand_of(layer, *layer.input(2), start, size);
  if (a == nullptr || b == nullptr) return nullptr;
  return keep({.kind = Kind::kSelect, .size = size, .tensor = &condition, .operands = {a, b}});
}

}  // namespace opwright::recurrent
