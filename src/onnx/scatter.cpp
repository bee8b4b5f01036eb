// Operators that put elements at the places that indices name.

#include "operators/scatter.h"

#include <numeric>

#include "onnx/importer.h"
#include "operators/kv_cache.h"

namespace opwright::onnx {
namespace {

ScatterReduction reduction_of(NodeImporter& node) {
  const std::string reduction = node.get_text("reduction", "none");
  if (reduction == "none") return ScatterReduction::kNONE;
  if (reduction == "add") return ScatterReduction::kADD;
  if (reduction == "mul") return ScatterReduction::kMUL;
  if (reduction == "min") return ScatterReduction::kMIN;
  if (reduction == "max") return ScatterReduction::kMAX;
  node.error("reduction is '", reduction, "'; expected none, add, mul, min or max");
}

void scatter_elements(NodeImporter& node) {
  Tensor* data = node.input(0);
  ScatterParams params;
  params.axis = node.axis(node.get_int("axis", 0), data->rank());
  params.reduction = reduction_of(node);
  node.set_output(0, node.add<Scatter>(params, {data, node.input(1), node.input(2)}));
}

void scatter_nd(NodeImporter& node) {
  ScatterParams params;
  params.mode = ScatterMode::kND;
  params.reduction = reduction_of(node);
  node.set_output(0, node.add<Scatter>(params, {node.input(0), node.input(1), node.input(2)}));
}

/// Each tuple of indices is a batch, a place in the axes before the written axis, and a place in
/// that axis.
void tensor_scatter(NodeImporter& node) {
  Tensor *cache = node.input(0), *update = node.input(1);
  const int rank = cache->rank();
  const int axis = node.axis(node.get_int("axis", -2), rank);
  if (axis == 0) node.error("axis is 0, the batch; expected one behind it");
  node.require_rank(update, rank, rank);
  const std::string mode = node.get_text("mode", "linear");
  if (mode != "linear" && mode != "circular")
    node.error("mode is '", mode, "'; expected linear or circular");
  const SymShape dims = cache->dims(), written = update->dims();
  if (rank == 4 && axis == 2 && mode == "linear" && is_floating(cache->dtype())) {
    FillParams zeros;
    zeros.to_type = DataType::kINT64;
    Tensor* start = node.optional_input(2);
    if (start == nullptr) start = node.fill(zeros, std::span(dims).first(1));
    return node.set_output(0, node.add<KvCacheWrite>({}, {cache, update, start}));
  }
  const auto along = static_cast<size_t>(axis);
  const Expr between = numel(std::span(dims).subspan(1, along - 1));
  const auto folded = [&](const SymShape& shape) {
    SymShape result = {shape[0], between};
    result.insert(result.end(), shape.begin() + axis, shape.end());
    return result;
  };
  const SymShape places = {dims[0], between, written[along]};
  Tensor* index = node.reshape(node.count_up(written[along], DataType::kINT64),
                               SymShape{Expr(1), Expr(1), written[along]});
  if (Tensor* start = node.optional_input(2)) {
    start = node.reshape(start, SymShape{dims[0], Expr(1), Expr(1)});
    index = node.elementwise(ElementWiseOperation::kSUM, start, index);
  }
  if (mode == "circular") {
    Tensor* extent = node.reshape(node.scalar_of(dims[along]), SymShape{1, 1, 1});
    Tensor* turns = node.elementwise(ElementWiseOperation::kFLOOR_DIV, index, extent);
    index = node.elementwise(ElementWiseOperation::kSUB, index,
                             node.elementwise(ElementWiseOperation::kPROD, turns, extent));
  }
  Tensor* batch = node.reshape(node.count_up(dims[0], DataType::kINT64), SymShape{dims[0], 1, 1});
  Tensor* middle = node.reshape(node.count_up(between, DataType::kINT64), SymShape{1, between, 1});
  std::vector<Tensor*> parts;
  for (Tensor* part : {batch, middle, index})
    parts.push_back(node.unsqueeze(node.expand(part, places), {3}));
  ScatterParams params;
  params.mode = ScatterMode::kND;
  Tensor* result =
      node.add<Scatter>(params, {node.reshape(cache, folded(dims)), node.concatenate(parts, 3),
                                 node.reshape(update, folded(written))});
  node.set_output(0, node.reshape(result, dims));
}

/// Puts elements at their indices among all of the output; the rest is zero.
void max_unpool(NodeImporter& node) {
  Tensor *x = node.input(0), *indices = node.input(1);
  node.require_rank(x, 3);
  const size_t spatial = static_cast<size_t>(x->rank()) - 2;
  const Ints window = node.get_ints("kernel_shape");
  const Ints strides = node.get_ints("strides", Ints(spatial, 1));
  const Ints pads = node.get_ints("pads", Ints(2 * spatial, 0));
  if (window.size() != spatial || strides.size() != spatial || pads.size() != 2 * spatial)
    node.error("kernel_shape, strides and pads must have ", spatial, ", ", spatial, " and ",
               2 * spatial, " values, but have ", window.size(), ", ", strides.size(), " and ",
               pads.size());
  SymShape inferred = {x->dims()[0], x->dims()[1]};
  for (size_t i = 0; i < spatial; ++i)
    inferred.push_back((x->dims()[i + 2] - 1) * strides[i] + window[i] - pads[i] -
                       pads[i + spatial]);
  Tensor* y = node.add<MaxUnpool>({}, {x, indices, node.network().add_values(inferred)});
  if (Tensor* given = node.optional_input(2)) {
    std::vector<Expr> shape = node.values(given, "output_shape");
    if (shape.size() != inferred.size())
      node.error("output_shape has ", shape.size(), " values; expected ", inferred.size());
    // Indices count the elements of the inferred shape. Further elements stay zero.
    if (shape != inferred)
      y = node.slice(y, std::vector<Expr>(shape.size(), 0), shape, Ints(shape.size(), 1),
                     SampleMode::kFILL);
  }
  node.set_output(0, y);
}

}  // namespace

void add_scatter(NodeTable& table) {
  table["Scatter"] = scatter_elements;
  table["ScatterElements"] = scatter_elements;
  table["ScatterND"] = scatter_nd;
  table["TensorScatter"] = tensor_scatter;
  table["MaxUnpool"] = max_unpool;
}

}  // namespace opwright::onnx
