#include <algorithm>

#include "operators/infer.h"
#include "operators/movement.h"
#include "operators/rationals.h"

namespace opwright {
namespace {

SymShape permuted(std::string_view who, std::string_view what, const SymShape& shape,
                  const Ints& permutation) {
  require_permutation(who, what, permutation, static_cast<int>(shape.size()));
  SymShape result;
  for (int64_t axis : permutation) result.push_back(shape[axis]);
  return result;
}

/// The elements `values` of a tensor of shape `from` after its transposition.
ValuesPtr permuted(const ValuesPtr& values, const SymShape& from, const Ints& permutation) {
  if (!values || permutation != Ints{1, 0}) return values;
  const int64_t rows = from[0].constant(), columns = from[1].constant();
  auto result = std::make_shared<std::vector<Expr>>();
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = 0; row < rows; ++row) result->push_back((*values)[row * columns + column]);
  return result;
}

/// The numbers of elements of `from` and `to` without the extents that occur in both. This keeps
/// quotients simple, and defined when one of those extents is 0 at run time.
struct Counts {
  Expr from, to;
};
Counts remaining(SymShape from, const SymShape& to) {
  SymShape rest;
  for (const Expr& extent : to) {
    const auto same = std::ranges::find(from, extent);
    if (same != from.end() && extent != Expr(0))
      from.erase(same);
    else
      rest.push_back(extent);
  }
  return {numel(from), numel(rest)};
}

/// `wanted` with -1 and 0 replaced. Elements that are not constant stay.
SymShape reshaped(const Inference& inference, const SymShape& from, const std::vector<Expr>& wanted,
                  bool zero_is_placeholder) {
  inference.require(wanted.size() <= static_cast<size_t>(Dims::MAX_DIMS),
                    "a reshape may give at most ", Dims::MAX_DIMS, " axes, but ", wanted.size(),
                    " are asked for");
  SymShape shape, known;
  int inferred = -1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    Expr extent = wanted[i];
    if (extent == Expr(-1)) {
      inference.require(inferred < 0, "a reshape may infer one extent, but ", str(wanted),
                        " has more than one -1");
      inferred = static_cast<int>(i);
      shape.push_back(extent);
      continue;
    }
    if (zero_is_placeholder && extent == Expr(0)) {
      inference.require(i < from.size(), "extent ", i, " of the reshape dimensions ", str(wanted),
                        " is 0, which copies an extent that the input of shape ", str(from),
                        " does not have");
      extent = from[i];
    }
    inference.require(!extent.is_constant() || extent.constant() >= 0,
                      "reshape dimensions must be -1 or more, but are ", str(wanted));
    shape.push_back(extent);
    known.push_back(extent);
  }
  const Counts counts = remaining(from, known);
  const auto mismatch = [&] {
    inference.fail("cannot reshape ", str(from), " to ", str(wanted),
                   ": the number of elements differs");
  };
  if (inferred < 0) {
    if (conflict(counts.from, counts.to)) mismatch();
    return shape;
  }
  if (counts.to.is_constant()) {
    inference.require(counts.to.constant() != 0, "cannot infer an extent of ", str(wanted),
                      ": the others have no elements");
    if (counts.from.is_constant() && counts.from.constant() % counts.to.constant() != 0) mismatch();
  }
  shape[inferred] = floor_div(counts.from, counts.to);
  return shape;
}

/// Per axis of a tensor of that rank, whether input 1 names the axis.
std::vector<bool> named_axes(const Inference& inference, const std::vector<Expr>& axes, int rank) {
  std::vector<bool> named(static_cast<size_t>(rank));
  for (const Expr& each : axes) {
    inference.require(each.is_constant(), inference.port(1), " must be constant, but has ",
                      each.str());
    const int64_t given = each.constant(), axis = given < 0 ? given + rank : given;
    inference.require(axis >= 0 && axis < rank, inference.port(1), " has the axis ", given,
                      "; expected ", -rank, " to ", rank - 1);
    inference.require(!named[static_cast<size_t>(axis)], inference.port(1), " has the axis ", given,
                      " twice");
    named[static_cast<size_t>(axis)] = true;
  }
  return named;
}

/// The elements in another shape with as many elements.
OutputInfo in_shape(InferContext& context, const Operation& op, SymShape shape) {
  const TensorInfo& x = *context.inputs[0];
  const bool carries = shape.size() <= TensorInfo::kMaxValuesRank;
  return with_moved_rationals(context, op,
                              make_output(x.dtype, std::move(shape), carries ? x.values : nullptr));
}

}  // namespace

std::vector<OutputInfo> Squeeze::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "axes"}, 1);
  const SymShape& x = inference.input(0).dims;
  std::vector<bool> goes;
  if (inference.optional(1) != nullptr)
    goes = named_axes(inference, inference.shape_values(1), inference.rank(0));
  else
    // All axes go that have extent 1 for all shapes.
    for (const Expr& extent : x) goes.push_back(extent == Expr(1));
  SymShape shape;
  for (size_t i = 0; i < x.size(); ++i) {
    inference.require(!goes[i] || !x[i].is_constant() || x[i] == Expr(1), "axis ", i, " of ",
                      inference.port(0), " has extent ", x[i].str(),
                      "; only an axis of extent 1 can be removed");
    if (!goes[i]) shape.push_back(x[i]);
  }
  return {in_shape(context, *this, std::move(shape))};
}

std::vector<OutputInfo> Unsqueeze::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "axes"}, 2);
  const SymShape& x = inference.input(0).dims;
  const std::vector<Expr>& axes = inference.shape_values(1);
  const size_t rank = x.size() + axes.size();
  inference.require(rank <= static_cast<size_t>(Dims::MAX_DIMS), "the output would have ", rank,
                    " axes; at most ", Dims::MAX_DIMS, " are possible");
  const std::vector<bool> comes = named_axes(inference, axes, static_cast<int>(rank));
  SymShape shape;
  auto next = x.begin();
  for (size_t i = 0; i < rank; ++i) shape.push_back(comes[i] ? Expr(1) : *next++);
  return {in_shape(context, *this, std::move(shape))};
}

std::vector<OutputInfo> Shuffle::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "reshape dimensions"}, 1);
  const ShuffleParams& params = this->params();
  const TensorInfo& x = inference.input(0);
  SymShape shape = x.dims;
  ValuesPtr values = x.values;
  if (!params.first_transpose.empty()) {
    const Ints first = permutation(params.first_transpose, shape.size());
    shape = permuted(inference.who(), "the first transpose", shape, first);
    values = permuted(values, x.dims, first);
  }
  if (inference.optional(1)) {
    inference.require_rank(1, 1, 1);
    shape = reshaped(inference, shape, inference.shape_values(1), params.zero_is_placeholder);
  } else if (params.has_reshape) {
    shape = reshaped(inference, shape, {params.reshape_dims.begin(), params.reshape_dims.end()},
                     params.zero_is_placeholder);
  }
  if (!is_constant(shape) || shape.size() > TensorInfo::kMaxValuesRank) values = nullptr;
  if (!params.second_transpose.empty()) {
    const Ints second = permutation(params.second_transpose, shape.size());
    SymShape moved = permuted(inference.who(), "the second transpose", shape, second);
    values = permuted(values, shape, second);
    shape = std::move(moved);
  }
  return {with_moved_rationals(context, *this,
                               make_output(x.dtype, std::move(shape), std::move(values)))};
}

std::vector<OutputInfo> Transpose::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const TensorInfo& x = inference.input(0);
  const Ints& permutation = params().permutation;
  SymShape shape = permuted(inference.who(), "the permutation", x.dims, permutation);
  return {make_output(x.dtype, std::move(shape), permuted(x.values, x.dims, permutation))};
}

std::vector<OutputInfo> Reshape::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  inference.fail(
      "its output shape belongs to the compiled graph and cannot be inferred; add a Shuffle "
      "instead");
}

std::vector<OutputInfo> Reformat::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const TensorInfo& x = inference.input(0);
  return {make_output(x.dtype, x.dims, x.values)};
}

}  // namespace opwright
