// Reshaping and shape arithmetic.

#include <algorithm>

#include "onnx/importer.h"
#include "operators/movement.h"
#include "operators/source.h"

namespace opwright::onnx {
namespace {

/// Whether values come from an input of the model. Such values may be extents, a 0 to copy one or a
/// -1 to infer one. A value that is computed from shapes is an extent.
bool are_given_by_an_input(NodeImporter& node, std::span<const Expr> values) {
  const SymbolTable& symbols = node.network().symbols();
  std::vector<bool> given(static_cast<size_t>(symbols.size()));
  for (int id = 0; id < symbols.size(); ++id)
    given[static_cast<size_t>(id)] = symbols[id].kind == Symbol::Kind::kInputValue;
  return std::ranges::any_of(values, [&](const Expr& e) { return e.depends_on(given); });
}

/// The extents of a Reshape for values whose meaning is decided at run time.
SymShape dims_as_computed(const Tensor* x, std::span<const Expr> wanted, bool allow_zero) {
  const auto is = [](const Expr& value, int64_t number) {
    return Expr::make(ExprOp::kEqual, value, number);
  };
  SymShape dims;
  Expr known = 1;  // product of the extents that are not inferred
  for (size_t i = 0; i < wanted.size(); ++i) {
    Expr extent = wanted[i];
    if (!allow_zero && i < x->dims().size())
      extent = Expr::select(is(extent, 0), x->dims()[i], extent);
    dims.push_back(extent);
    known = known * Expr::select(is(wanted[i], -1), 1, extent);
  }
  // Both sides of a select are computed, so a product of 0 must not divide.
  const Expr rest = floor_div(numel(x->dims()), max(known, 1));
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!dims[i].is_constant() || dims[i].constant() == -1)
      dims[i] = Expr::select(is(wanted[i], -1), rest, dims[i]);
  return dims;
}

void reshape(NodeImporter& node) {
  Tensor* x = node.input(0);
  const bool allow_zero = node.get_int("allowzero", 0) != 0;
  std::vector<Expr> wanted;
  if (node.opset() < 5) {
    for (int64_t extent : node.get_ints("shape")) wanted.emplace_back(extent);
  } else {
    Tensor* shape = node.input(1);
    const Expr rank = numel(shape->dims());
    // No extent is larger than the number of elements, unless there are none.
    const std::vector<Expr> most(static_cast<size_t>(rank.is_constant() ? rank.constant() : 0),
                                 numel(x->dims()));
    wanted = node.extents(shape, "shape", most);
  }
  SymShape dims(wanted.begin(), wanted.end());
  if (are_given_by_an_input(node, wanted))
    return node.set_output(0, node.reshape(x, dims_as_computed(x, wanted, allow_zero)));
  int inferred = -1;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    if (dims[i] == Expr(0) && !allow_zero) {
      if (i >= x->rank())
        node.error("extent ", i, " is to be copied, but the input has rank ", x->rank());
      dims[i] = x->dims()[i];
    } else if (dims[i] == Expr(-1)) {
      if (inferred >= 0) node.error("two extents are -1");
      inferred = i;
    }
  }
  if (inferred >= 0) {
    dims[inferred] = 1;
    const Expr rest = numel(dims);
    if (rest == Expr(0)) node.error("an extent of -1 cannot be inferred beside one of 0");
    dims[inferred] = floor_div(numel(x->dims()), rest);
  }
  node.set_output(0, node.reshape(x, dims));
}

void flatten(NodeImporter& node) {
  Tensor* x = node.input(0);
  int64_t axis = node.get_int("axis", 1);
  if (axis < -x->rank() || axis > x->rank())
    node.error("axis ", axis, " is out of range for rank ", x->rank());
  if (axis < 0) axis += x->rank();
  const std::span<const Expr> dims = x->dims();
  const SymShape flat = {numel(dims.first(axis)), numel(dims.subspan(axis))};
  node.set_output(0, node.reshape(x, flat));
}

void squeeze(NodeImporter& node) {
  Tensor* x = node.input(0);
  std::optional<Ints> axes = node.axes_of(x->rank(), 13, 1);
  if (!axes) {
    axes.emplace();
    for (int i = 0; i < x->rank(); ++i) {
      if (!x->dims()[i].is_constant())
        node.error_needs(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC, x, "the input",
                         str("needs constant extents where no axes are given, but extent ", i,
                             " is ", x->dims()[i].str()));
      if (x->dims()[i].constant() == 1) axes->push_back(i);
    }
  }
  node.set_output(0, node.squeeze(x, *axes));
}

void unsqueeze(NodeImporter& node) {
  Tensor* x = node.input(0);
  Ints axes =
      node.opset() >= 13 ? node.constant_ints(node.input(1), "axes") : node.get_ints("axes");
  node.set_output(0, node.unsqueeze(x, node.axes(axes, x->rank() + static_cast<int>(axes.size()))));
}

void transpose(NodeImporter& node) {
  Tensor* x = node.input(0);
  Ints permutation = node.get_ints("perm");
  if (permutation.empty())
    for (int i = x->rank() - 1; i >= 0; --i) permutation.push_back(i);
  node.set_output(0, node.transpose(x, permutation));
}

void shape(NodeImporter& node) {
  Tensor* x = node.input(0);
  const int64_t rank = x->rank();
  auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t first = clamp(node.get_int("start", 0));
  const int64_t last = std::max(first, clamp(node.get_int("end", rank)));
  node.set_output(0,
                  node.network().add_values({x->dims().begin() + first, x->dims().begin() + last},
                                            DataType::kINT64, false, node.next_name()));
}

void size(NodeImporter& node) {
  node.set_output(0, node.network().add_values({numel(node.input(0)->dims())}, DataType::kINT64,
                                               true, node.next_name()));
}

void expand(NodeImporter& node) {
  Tensor* x = node.input(0);
  const std::vector<Expr> wanted = node.extents(node.input(1), "shape");
  const SymShape dims = broadcast(x->dims(), wanted);
  node.set_output(0, node.expand(x, dims));
}

}  // namespace

void add_shapes(NodeTable& table) {
  table["Reshape"] = reshape;
  table["Flatten"] = flatten;
  table["Squeeze"] = squeeze;
  table["Unsqueeze"] = unsqueeze;
  table["Transpose"] = transpose;
  table["Shape"] = shape;
  table["Size"] = size;
  table["Expand"] = expand;
}

}  // namespace opwright::onnx
