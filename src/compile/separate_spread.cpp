#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "compile/passes.h"
#include "compile/program.h"
#include "compile/strided_view.h"
#include "operators/convolution.h"
#include "operators/movement.h"
#include "operators/pointwise.h"

namespace opwright {
namespace {

/// With fewer pixels, one convolution of all channels is as fast.
constexpr int64_t kSeparatedPixels = 64;

/// Channels of the joined tensor.
struct Channels {
  GraphValue* value = nullptr;
  int64_t first = 0, count = 0;
};

/// The tensor of one pixel whose channels the value has at all pixels. Null for other values.
GraphValue* spread_pixel(const GraphValue& value) {
  const GraphNode* const node = value.producer;
  if (node == nullptr || value.stored_type || node->precision ||
      (!only_repeats(*node) && node->as<Resize>() == nullptr))
    return nullptr;
  GraphValue* const pixel = node->inputs[0];
  const SymShape &from = pixel->info.dims, &to = value.info.dims;
  const bool is_pixel = from.size() == to.size() && from[0] == to[0] && from[1] == to[1] &&
                        are_ones(std::span(from).subspan(2));
  return is_pixel ? pixel : nullptr;
}

bool is_one_by_one(const GraphNode& node, const ConvolutionParams& params) {
  const auto all = [](const Ints& values, int64_t expected) {
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == expected; });
  };
  return params.groups == 1 && params.zero_point == 0 && !params.has_residual &&
         !params.fused.present() && !params.activation.present() && all(params.stride, 1) &&
         all(params.pre_padding, 0) && all(params.post_padding, 0) && node.inputs.size() <= 3 &&
         node.inputs[1]->is_constant() &&
         are_ones(std::span(node.inputs[1]->info.dims).subspan(2)) &&
         is_floating(node.inputs[1]->info.dtype);
}

/// A convolution of one tap over joined channels, some of which are the same at all pixels. It
/// becomes one of the other channels, and one of a single pixel whose results all pixels add.
class Separation {
 public:
  Separation(Graph& graph, const PassContext& context, GraphNode* node)
      : graph_(graph), context_(context), node_(node) {}

  void run() {
    const auto* op = node_->as<Convolution>();
    if (op == nullptr || node_->precision || node_->outputs[0]->stored_type ||
        !is_one_by_one(*node_, op->params()) || !find_channels())
      return;
    params_ = op->params();
    GraphValue* const varied = convolution(varied_, false);
    GraphValue* const spread = varied ? convolution(spread_, true) : nullptr;
    if (spread == nullptr) return;
    ProgramWriter writer;
    const DataType type = node_->outputs[0]->info.dtype;
    const int results[] = {
        writer.binary(ElementWiseOperation::kSUM, writer.input(0, type), writer.input(1, type))};
    std::vector<int> used;
    PointwiseParams program = writer.finish(results, &used);
    graph_.replace(node_, std::make_shared<Pointwise>(std::move(program)), {varied, spread});
  }

 private:
  /// Sorts the channels of the concatenation that the convolution reads. It may read them with axes
  /// of extent 1 added. Returns whether there are channels of both kinds.
  bool find_channels() {
    const GraphValue* joined = node_->inputs[0];
    const SymShape& x = joined->info.dims;
    if (joined->producer != nullptr && joined->producer->as<Reshape>() && !joined->stored_type) {
      joined = joined->producer->inputs[0];
      const std::optional<std::vector<int>> kept = kept_axes(joined->info.dims, x);
      if (!kept || (*kept)[0] != 0 || (*kept)[1] != 1) return false;
    }
    const GraphNode* const join = joined->producer;
    const auto* op = join != nullptr ? join->as<Concatenation>() : nullptr;
    if (op == nullptr || op->params().axis != 1 || join->precision || joined->stored_type ||
        joined->info.dims.size() < 3)
      return false;
    const Shape pixels = context_.ranges.opt(x);
    if (pixels.numel(2, pixels.rank()) < kSeparatedPixels) return false;
    int64_t first = 0;
    for (GraphValue* part : join->inputs) {
      const Expr& count = part->info.dims[1];
      if (!count.is_constant()) return false;
      GraphValue* const pixel = spread_pixel(*part);
      (pixel ? spread_ : varied_).push_back({pixel ? pixel : part, first, count.constant()});
      first += count.constant();
    }
    return !spread_.empty() && !varied_.empty();
  }

  GraphValue* add(OperatorPtr op, std::vector<GraphValue*> inputs, SymShape dims) {
    TensorInfo info;
    info.dtype = inputs[0]->info.dtype, info.dims = std::move(dims);
    return graph_
        .insert_before(node_, std::move(op), std::move(inputs), std::move(info), node_->name)
        ->outputs[0];
  }
  GraphValue* join(const std::vector<GraphValue*>& parts) {
    if (parts.size() == 1) return parts[0];
    SymShape dims = parts[0]->info.dims;
    for (size_t i = 1; i < parts.size(); ++i) dims[1] = dims[1] + parts[i]->info.dims[1];
    return add(std::make_shared<Concatenation>(ConcatenationParams{1}), parts, std::move(dims));
  }
  /// The kernel's elements for these channels. Null where they cannot be computed.
  GraphValue* kernel(const std::vector<Channels>& channels) {
    GraphValue* const all = node_->inputs[1];
    std::vector<GraphValue*> parts;
    for (const Channels& each : channels) {
      SliceParams part;
      SymShape dims = all->info.dims;
      dims[1] = each.count;
      for (const Expr& extent : dims) {
        part.start.push_back(0), part.stride.push_back(1);
        part.size.push_back(extent.constant());
      }
      part.start[1] = each.first;
      parts.push_back(add(std::make_shared<Slice>(part), {all}, std::move(dims)));
      if (!fold(graph_, parts.back()->producer, context_)) return nullptr;
    }
    GraphValue* const result = join(parts);
    if (parts.size() > 1 && !fold(graph_, result->producer, context_)) return nullptr;
    return result;
  }
  /// The convolution of these channels; the other one has the bias where they are of one pixel.
  GraphValue* convolution(const std::vector<Channels>& channels, bool are_pixels) {
    std::vector<GraphValue*> parts;
    parts.reserve(channels.size());
    for (const Channels& each : channels) parts.push_back(each.value);
    GraphValue* x = join(parts);
    SymShape from = node_->inputs[0]->info.dims, to = node_->outputs[0]->info.dims;
    from[1] = x->info.dims[1];
    if (are_pixels) std::fill(from.begin() + 2, from.end(), Expr(1));
    if (are_pixels) std::fill(to.begin() + 2, to.end(), Expr(1));
    if (!(x->info.dims == from)) x = add(std::make_shared<Reshape>(), {x}, std::move(from));
    std::vector<GraphValue*> inputs = {x, kernel(channels)};
    if (inputs[1] == nullptr) return nullptr;
    if (!are_pixels && node_->inputs.size() > 2) inputs.push_back(node_->inputs[2]);
    GraphValue* const result = add(std::make_shared<Convolution>(params_), inputs, std::move(to));
    const GraphNode& made = *result->producer;
    return context_.can_run(*made.op, made, made.inputs) ? result : nullptr;
  }

  Graph& graph_;
  const PassContext& context_;
  GraphNode* node_;
  ConvolutionParams params_;
  std::vector<Channels> varied_, spread_;
};

}  // namespace

void separate_spread(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes()) Separation(graph, context, node).run();
}

}  // namespace opwright
