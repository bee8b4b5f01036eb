#include "operators/infer.h"

#include <algorithm>
#include <limits>

namespace opwright {

Inference::Inference(const InferContext& context, std::string_view kind,
                     std::initializer_list<std::string_view> names, int least, int most)
    : context_(context), who_(str(kind, " '", context.layer, "'")), names_(names) {
  context.require_inputs(kind, least, most < 0 ? static_cast<int>(names.size()) : most);
}

std::string Inference::port(int i) const {
  if (i < static_cast<int>(names_.size())) return str("input ", i, " (", names_[i], ")");
  return str("input ", i);
}

void Inference::require_type(int i, bool accepted, std::string_view expected) const {
  require(accepted, port(i), " must be ", expected, ", but is ", name(input(i).dtype));
}

void Inference::require_floating(int i) const {
  require_type(i, is_floating(input(i).dtype), "FP32, FP16, BF16 or FP8");
}

void Inference::require_same_type(int i, int j) const {
  require(input(i).dtype == input(j).dtype, port(i), " must have the type of ", port(j), ", ",
          name(input(j).dtype), ", but is ", name(input(i).dtype), "; add a cast");
}

void Inference::require_same_type_or_fp32(int i, int j) const {
  if (input(i).dtype != DataType::kFLOAT) require_same_type(i, j);
}

void Inference::require_rank(int i, int least, int most) const {
  if (rank(i) >= least && rank(i) <= most) return;
  const std::string expected = least == most            ? str("rank ", least)
                               : most >= Dims::MAX_DIMS ? str("rank ", least, " or more")
                                                        : str("rank ", least, " to ", most);
  fail(port(i), " must have ", expected, ", but has shape ", str(input(i).dims));
}

void Inference::require_extent(int i, int axis, const Expr& expected,
                               std::string_view meaning) const {
  require(!conflict(input(i).dims[axis], expected), port(i), " must have extent ", expected.str(),
          " on axis ", axis, " (", meaning, "), but has shape ", str(input(i).dims));
  if (input(i).dims[axis] != expected) tell(i, axis, expected, false);
}

void Inference::tell(int i, int axis, const Expr& expected, bool broadcasts) const {
  if (const auto* listener = dynamic_cast<const ExtentListener*>(&context_))
    listener->agree(i, axis, expected, broadcasts);
}

void Inference::agree(int i, int axis_i, int j, int axis_j) const {
  const Expr& other = input(j).dims[axis_j];
  if (input(i).dims[axis_i] != other) tell(i, axis_i, other, false);
}

void Inference::be_at_least(int i, int axis, const Expr& least) const {
  const Expr& extent = input(i).dims[axis];
  if (extent == least || (extent.is_constant() && least.is_constant())) return;
  if (const auto* listener = dynamic_cast<const ExtentListener*>(&context_))
    listener->bound(i, axis, least);
}

void Inference::agree_to_broadcast(int i, size_t count, std::span<const Expr> shape) const {
  for (size_t k = 0; k < count; ++k) {
    const Expr& extent = input(i).dims[k];
    const Expr& expected = shape[shape.size() - count + k];
    if (extent != expected && extent != Expr(1)) agree_to_be(i, static_cast<int>(k), expected);
  }
}

void Inference::require_broadcasts_to(int i, std::span<const Expr> shape) const {
  const SymShape& from = input(i).dims;
  bool fits = from.size() <= shape.size();
  for (size_t k = 1; fits && k <= from.size(); ++k) {
    const Expr& extent = from[from.size() - k];
    fits = extent == Expr(1) || !conflict(extent, shape[shape.size() - k]);
  }
  require(fits, port(i), " must broadcast to ", str(shape), ", but has shape ", str(from));
  agree_to_broadcast(i, from.size(), shape);
}

void Inference::require_axis(int64_t axis, int rank, std::string_view meaning) const {
  require(axis >= 0 && axis < rank, meaning, " must be in [0, ", rank, "), but is ", axis);
}

std::vector<int> Inference::axes_of(int64_t mask, int rank) const {
  require(mask >= 0 && mask < (int64_t{1} << rank), "the mask of axes must only have bits below ",
          rank, ", the rank of ", port(0), ", but is ", mask);
  std::vector<int> axes;
  for (int i = 0; i < rank; ++i)
    if (mask >> i & 1) axes.push_back(i);
  return axes;
}

SymShape Inference::broadcast(std::initializer_list<int> inputs) const {
  SymShape shape = input(*inputs.begin()).dims;
  for (int i : inputs) {
    try {
      shape = opwright::broadcast(std::span<const Expr>(shape), input(i).dims);
    } catch (const Error&) {
      fail(port(i), " of shape ", str(input(i).dims), " does not broadcast with ", str(shape));
    }
  }
  for (int i : inputs) agree_to_broadcast(i, input(i).dims.size(), shape);
  return shape;
}

const std::vector<Expr>& Inference::shape_values(int i) const {
  const TensorInfo& tensor = input(i);
  require_type(i, tensor.dtype == DataType::kINT32 || tensor.dtype == DataType::kINT64,
               "INT32 or INT64");
  require_rank(i, 0, 1);
  require(tensor.values != nullptr, port(i),
          " decides shapes, so its elements must be known before the engine runs: give a constant, "
          "something computed from shapes, or a network input that is a shape tensor (at most ",
          TensorInfo::kMaxValues, " elements)");
  return *tensor.values;
}

OutputInfo make_output(DataType dtype, SymShape dims, ValuesPtr values) {
  OutputInfo output;
  output.dtype = dtype;
  output.dims = std::move(dims);
  output.values = std::move(values);
  return output;
}

bool conflict(const Expr& a, const Expr& b) {
  return a.is_constant() && b.is_constant() && a.constant() != b.constant();
}

const Expr& merge(const Expr& a, const Expr& b) { return b.is_constant() ? b : a; }

bool carries_values(DataType dtype) {
  return dtype == DataType::kINT32 || dtype == DataType::kINT64 || dtype == DataType::kBOOL;
}

std::optional<int64_t> value_count(DataType dtype, std::span<const Expr> dims) {
  if (!carries_values(dtype) || dims.size() > TensorInfo::kMaxValuesRank) return std::nullopt;
  int64_t count = 1;
  for (const Expr& extent : dims) {
    // Each extent is bounded, so the product cannot overflow.
    if (!extent.is_constant() || extent.constant() < 0 ||
        extent.constant() > TensorInfo::kMaxValues)
      return std::nullopt;
    count *= extent.constant();
  }
  if (count > TensorInfo::kMaxValues) return std::nullopt;
  return count;
}

bool have_aligned_values(std::span<const Expr> dims,
                         std::initializer_list<const TensorInfo*> tensors) {
  for (const TensorInfo* tensor : tensors)
    if (!tensor->values) return false;
  const Expr count = numel(dims);
  return std::ranges::all_of(tensors, [&](const TensorInfo* tensor) {
    const auto own = static_cast<int64_t>(tensor->values->size());
    return own == 1 || count == Expr(own);
  });
}

ValuesPtr make_values(DataType dtype, std::span<const Expr> dims,
                      const std::function<std::optional<Expr>(int64_t)>& element) {
  const std::optional<int64_t> count = value_count(dtype, dims);
  if (!count) return nullptr;
  auto values = std::make_shared<std::vector<Expr>>();
  values->reserve(*count);
  try {
    for (int64_t i = 0; i < *count; ++i) {
      std::optional<Expr> value = element(i);
      if (!value) return nullptr;
      values->push_back(*std::move(value));
    }
  } catch (const Error&) {
    // Overflow or division by zero among constants: the kernel's result is no extent.
    return nullptr;
  }
  return values;
}

const Expr& value_at(const TensorInfo& tensor, int64_t i) {
  return (*tensor.values)[tensor.values->size() == 1 ? 0 : i];
}

Ints per_axis(std::string_view who, std::string_view what, const Ints& given, int count,
              int64_t fallback, int64_t least) {
  if (given.empty()) return Ints(count, fallback);
  require(given.size() == static_cast<size_t>(count), who, ": ", what, " must have ", count,
          " elements, one per spatial axis, but is ", str(given));
  // The upper bound keeps the arithmetic of extents far from overflow.
  const bool in_range = std::ranges::all_of(given, [&](int64_t value) {
    return value >= least && value <= std::numeric_limits<int32_t>::max();
  });
  require(in_range, who, ": ", what, " must be at least ", least,
          " everywhere and fit 31 bits, but is ", str(given));
  return given;
}

void require_permutation(std::string_view who, std::string_view what, const Ints& permutation,
                         int rank) {
  Ints sorted = permutation;
  std::ranges::sort(sorted);
  bool ok = sorted.size() == static_cast<size_t>(rank);
  for (int i = 0; ok && i < rank; ++i) ok = sorted[i] == i;
  require(ok, who, ": ", what, " must be a permutation of 0 to ", rank - 1, ", but is ",
          str(permutation));
}

void require_valid_shape(std::string_view who, std::span<const Expr> shape) {
  require(shape.size() <= static_cast<size_t>(Dims::MAX_DIMS), who,
          ": the output may have at most ", Dims::MAX_DIMS, " axes, but would have ", shape.size());
  for (const Expr& extent : shape)
    require(!extent.is_constant() || extent.constant() >= 0, who,
            ": extents must not be negative, but the output would have shape ", str(shape));
}

std::string str(const Ints& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

}  // namespace opwright
