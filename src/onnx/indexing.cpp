// One-hot vectors, triangles and diagonals, reversed sequences.

#include "operators/indexing.h"

#include <cmath>

#include "onnx/importer.h"
#include "operators/reduce.h"

namespace opwright::onnx {
namespace {

void one_hot(NodeImporter& node) {
  Tensor *indices = node.input(0), *depth = node.input(1), *values = node.input(2);
  const OneHotParams params = {node.axis(node.get_int("axis", -1), indices->rank() + 1)};
  if (is_floating(depth->dtype())) {
    const double given = node.constant_float(depth, "depth");
    if (!(std::abs(given) < 0x1p53)) node.error("depth is ", given);
    depth = node.scalar(given, DataType::kINT64);
  } else if (depth->dtype() != DataType::kINT32) {
    depth = node.scalar_of(node.extent(depth, "depth"));
  }
  if (indices->dtype() != DataType::kINT32) indices = node.cast(indices, DataType::kINT64);
  node.set_output(0, node.add<OneHot>(params, {indices, values, depth}));
}

/// One at the first maximum along the axis, zero elsewhere.
void hardmax(NodeImporter& node) {
  Tensor* x = node.input(0);
  const SymShape dims = x->dims();
  int axis = node.axis(node.get_int("axis", node.opset() < 13 ? 1 : -1), x->rank());
  if (node.opset() < 13) {
    // The axes from `axis` on are joined.
    const Expr outer = numel(std::span(dims).first(static_cast<size_t>(axis)));
    const Expr inner = numel(std::span(dims).subspan(static_cast<size_t>(axis)));
    x = node.reshape(x, SymShape{outer, inner});
    axis = 1;
  }
  const Expr depth = x->dims()[static_cast<size_t>(axis)];
  TopKParams params;
  params.axes = int64_t{1} << axis;
  params.indices_type = DataType::kINT64;
  Layer* layer = node.network().add<TopK>(params, {x}, node.next_name());
  const float values[] = {0, 1};
  Tensor* y =
      node.add<OneHot>({axis}, {node.squeeze(layer->output(1), {axis}),
                                node.constant_of({2}, values, x->dtype()), node.scalar_of(depth)});
  node.set_output(0, node.opset() < 13 ? node.reshape(y, dims) : y);
}

/// column - row of a matrix, [rows, columns].
Tensor* diagonals(NodeImporter& node, const Expr& rows, const Expr& columns) {
  Tensor* row = node.reshape(node.count_up(rows, DataType::kINT64), SymShape{rows, Expr(1)});
  Tensor* column =
      node.reshape(node.count_up(columns, DataType::kINT64), SymShape{Expr(1), columns});
  return node.elementwise(ElementWiseOperation::kSUB, column, row);
}

void trilu(NodeImporter& node) {
  Tensor* x = node.input(0);
  node.require_rank(x, 2);
  const int rank = x->rank();
  const auto last = static_cast<size_t>(rank) - 1;
  const bool upper = node.get_int("upper", 1) != 0;
  Tensor* diagonal = diagonals(node, x->dims()[last - 1], x->dims()[last]);
  Tensor* k = node.optional_input(1);
  k = k == nullptr ? node.scalar(0, DataType::kINT64) : node.cast(k, DataType::kINT64);
  k = node.reshape(k, SymShape{1, 1});
  Tensor* dropped = node.elementwise(
      upper ? ElementWiseOperation::kLESS : ElementWiseOperation::kGREATER, diagonal, k);
  SymShape mask(static_cast<size_t>(rank), 1);
  mask[last - 1] = x->dims()[last - 1], mask[last] = x->dims()[last];
  // The select broadcasts a mask of few elements.
  Tensor* zero = x->dtype() == DataType::kBOOL
                     ? node.cast(node.scalar(0, DataType::kINT32), x->dtype())
                     : node.scalar(0, x->dtype());
  node.set_output(0, node.select(node.reshape(dropped, mask), zero, x));
}

void eye_like(NodeImporter& node) {
  Tensor* x = node.input(0);
  node.require_rank(x, 2, 2);
  const int64_t dtype = node.get_int("dtype", 0);
  const DataType type = dtype == 0 ? x->dtype() : node.element_type("dtype", dtype);
  const double k = static_cast<double>(node.get_int("k", 0));
  Tensor* diagonal = diagonals(node, x->dims()[0], x->dims()[1]);
  node.set_output(0, node.cast(node.elementwise(ElementWiseOperation::kEQUAL, diagonal, k), type));
}

void reverse_sequence(NodeImporter& node) {
  Tensor* x = node.input(0);
  const ReverseSequenceParams params = {node.axis(node.get_int("batch_axis", 1), x->rank()),
                                        node.axis(node.get_int("time_axis", 0), x->rank())};
  node.set_output(0, node.add<ReverseSequence>(params, {x, node.input(1)}));
}

void det(NodeImporter& node) { node.set_output(0, node.add<Determinant>({}, {node.input(0)})); }

/// Takes the middle of the axes, or puts zeros around the input.
void center_crop_pad(NodeImporter& node) {
  Tensor* x = node.input(0);
  const int rank = x->rank();
  Ints axes;
  for (int i = 0; i < rank; ++i) axes.push_back(i);
  axes = node.axes(node.get_ints("axes", axes), rank);
  const std::vector<Expr> shape = node.values(node.input(1), "shape");
  if (shape.size() != axes.size())
    node.error("shape has ", shape.size(), " values; expected ", axes.size());
  std::vector<Expr> start(static_cast<size_t>(rank), 0);
  std::vector<Expr> size(x->dims().begin(), x->dims().end());
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(axes[i]);
    // An odd element is cropped, or padded, at the end.
    const Expr less = max(size[axis] - shape[i], 0), more = max(shape[i] - size[axis], 0);
    start[axis] = floor_div(less, 2) - floor_div(more, 2);
    size[axis] = shape[i];
  }
  node.set_output(
      0, node.slice(x, start, size, Ints(static_cast<size_t>(rank), 1), SampleMode::kFILL));
}

}  // namespace

void add_indexing(NodeTable& table) {
  table["OneHot"] = one_hot;
  table["Hardmax"] = hardmax;
  table["Trilu"] = trilu;
  table["EyeLike"] = eye_like;
  table["ReverseSequence"] = reverse_sequence;
  table["Det"] = det;
  table["CenterCropPad"] = center_crop_pad;
}

}  // namespace opwright::onnx
