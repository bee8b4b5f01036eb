#include <algorithm>
#include <optional>

#include "base/types.h"
#include "compile/passes.h"
#include "compile/program.h"
#include "operators/convolution.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/pointwise.h"
#include "operators/reduce.h"
#include "operators/squeeze_excitation.h"

namespace opwright {
namespace {

/// With fewer images, the blocks of these images read as slowly as they can read so many bytes as
/// fast as separate kernels.
constexpr int64_t kManyImages = 8, kManyImageBytes = 2 << 20;
/// Every image reads both matrices. Beyond these bytes, products of all images are faster, unless
/// the images themselves are larger.
constexpr int64_t kManyMatrixBytes = 16 << 20;

/// activation(matrix * input + bias), with a row of the input for each image.
struct DenseLayer {
  GraphNode* node;
  GraphValue *matrix, *bias;
  bool is_transposed;  ///< the matrix has a row for each element of the input
  DenseFunction function;
};

bool all_are(const Ints& values, int64_t value) {
  return std::ranges::all_of(values, [&](int64_t each) { return each == value; });
}

std::optional<DenseLayer> dense_layer(GraphNode* node) {
  if (const auto* op = node->as<Convolution>()) {
    const ConvolutionParams& params = op->params();
    GraphValue* const kernel = node->inputs[1];
    const bool is_dense = params.groups == 1 && all_are(params.pre_padding, 0) &&
                          all_are(params.post_padding, 0) && !params.has_residual &&
                          params.fused.inputs() == 0 && is_floating(node->inputs[0]->info.dtype) &&
                          numel(std::span(kernel->info.dims).subspan(2)) == Expr(1);
    if (!is_dense) return std::nullopt;
    return DenseLayer{node, kernel, node->input(2), false, {params.activation, params.fused}};
  }
  if (const auto* op = node->as<MatrixMultiply>()) {
    const MatrixMultiplyParams& params = op->params();
    const bool is_dense =
        params.op0 == MatrixOperation::kNONE && params.op1 != MatrixOperation::kVECTOR &&
        params.fused.inputs() == 0 && is_floating(node->inputs[0]->info.dtype) &&
        node->inputs[0]->info.dims.size() == 2 && node->inputs[1]->info.dims.size() == 2;
    if (!is_dense) return std::nullopt;
    return DenseLayer{node,
                      node->inputs[1],
                      params.has_bias ? node->input(2) : nullptr,
                      params.op1 == MatrixOperation::kNONE,
                      {params.activation, params.fused}};
  }
  return std::nullopt;
}

/// From a mean over pixels to the gates of the channels.
class GateMatch {
 public:
  GateMatch(Graph& graph, const PassContext& context, GraphNode* mean)
      : graph_(graph), context_(context), nodes_{mean}, x_(mean->inputs[0]) {}

  void replace() {
    if (!is_mean_over_pixels()) return;
    const std::optional<DenseLayer> reduce = next_layer();
    const std::optional<DenseLayer> expand = reduce ? next_layer() : std::nullopt;
    if (!expand || !is_worth(*reduce)) return;
    // Behind a matrix product, a reshape adds the axes of the pixels.
    if (result()->info.dims.size() != x_->info.dims.size() && !step_over_reshape()) return;
    SqueezeExcitationParams params{reduce->function, expand->function, false};
    GraphNode* const product = next();
    params.multiplies = product != nullptr && multiplies_x(*product) && add(product);
    const auto op = std::make_shared<SqueezeExcitation>(params);
    GraphNode* const last = nodes_.back();
    std::vector<GraphValue*> inputs = {x_, matrix(*reduce), reduce->bias, matrix(*expand),
                                       expand->bias};
    if (inputs[SqueezeExcitation::kReduce] == nullptr ||
        inputs[SqueezeExcitation::kExpand] == nullptr || !context_.can_run(*op, *last, inputs))
      return;
    for (size_t i = nodes_.size() - 1; i-- > 0;) join(*nodes_[i], *last);
    graph_.replace(last, op, std::move(inputs));
  }

 private:
  GraphValue* result() const { return nodes_.back()->outputs[0]; }
  /// The node that alone reads the last node's result.
  GraphNode* next() const {
    return result()->stored_type ? nullptr : graph_.single_user(*result());
  }
  bool add(GraphNode* node) {
    for (const GraphNode* before : nodes_)
      if (!may_join(*before, *node)) return false;
    nodes_.push_back(node);
    return true;
  }
  bool step_over_reshape() {
    GraphNode* const node = next();
    return node != nullptr && node->as<Reshape>() && has_row_for_each_image(node->outputs[0]) &&
           add(node);
  }
  /// Whether the value is [N, channels] or [N, channels, 1...].
  bool has_row_for_each_image(const GraphValue* value) const {
    const SymShape& dims = value->info.dims;
    return dims.size() >= 2 && dims[0] == x_->info.dims[0] &&
           numel(std::span(dims).subspan(2)) == Expr(1);
  }
  std::optional<DenseLayer> next_layer() {
    step_over_reshape();
    GraphNode* const node = next();
    if (node == nullptr || node->inputs[0] != result() || !has_row_for_each_image(result()))
      return std::nullopt;
    const std::optional<DenseLayer> layer = dense_layer(node);
    const GraphValue* const rows = node->outputs[0];
    if (!layer || !layer->matrix->is_constant() || !has_row_for_each_image(rows) ||
        rows->info.dtype != x_->info.dtype || !add(node))
      return std::nullopt;
    return layer;
  }

  bool is_mean_over_pixels() const {
    const ReduceParams& params = nodes_[0]->as<Reduce>()->params();
    const size_t rank = x_->info.dims.size();
    const int64_t pixels = ((int64_t{1} << rank) - 1) & ~int64_t{3};
    return rank >= 3 && params.op == ReduceOperation::kAVG && params.axes == pixels &&
           is_floating(x_->info.dtype) && x_->info.dims[1].is_constant();
  }
  bool is_worth(const DenseLayer& reduce) const {
    const Shape x = context_.ranges.opt(x_->info.dims);
    const int64_t size = bits(x_->info.dtype) / 8, images = std::max<int64_t>(x[0], 1);
    const int64_t matrices = 2 * numel(reduce.matrix->info.dims).constant() * size;
    return (images >= kManyImages || x.numel() / images * size <= kManyImageBytes) &&
           images * matrices <= std::max(kManyMatrixBytes, x.numel() * size);
  }
  /// Whether the node is x times the last node's result.
  bool multiplies_x(const GraphNode& node) const {
    const auto* pointwise = node.as<Pointwise>();
    if (pointwise == nullptr || node.inputs.size() != 2 || node.outputs.size() != 1 ||
        node.outputs[0]->info.dtype != x_->info.dtype ||
        node.outputs[0]->info.dims != x_->info.dims || result() == x_ ||
        std::ranges::count(node.inputs, x_) != 1)
      return false;
    const std::vector<PointwiseInstruction> program = decode(pointwise->params());
    return program.size() == 3 && program[0].op == opcode(PointwiseOp::kInput) &&
           program[1].op == opcode(PointwiseOp::kInput) &&
           program[2].op == opcode(ElementWiseOperation::kPROD) &&
           program[2].type == DataType::kFLOAT && program[2].a != program[2].b;
  }
  /// The layer's matrix with a row for each of its results. Null where it cannot be turned during
  /// the build.
  GraphValue* matrix(const DenseLayer& layer) {
    if (!layer.is_transposed) return layer.matrix;
    TensorInfo info;
    info.dtype = layer.matrix->info.dtype;
    info.dims = {layer.matrix->info.dims[1], layer.matrix->info.dims[0]};
    GraphNode* const node =
        graph_.insert_before(nodes_[0], std::make_shared<Transpose>(TransposeParams{{1, 0}}),
                             {layer.matrix}, std::move(info), layer.matrix->name + " turned");
    GraphValue* const result = node->outputs[0];
    return fold(graph_, node, context_) ? result : nullptr;
  }

  Graph& graph_;
  const PassContext& context_;
  std::vector<GraphNode*> nodes_;
  GraphValue* const x_;
};

}  // namespace

void recognize_squeeze_excitation(Graph& graph, const PassContext& context) {
  if (context.device.is_host()) return;
  for (GraphNode* node : graph.nodes())
    if (node->as<Reduce>()) GateMatch(graph, context, node).replace();
}

}  // namespace opwright
