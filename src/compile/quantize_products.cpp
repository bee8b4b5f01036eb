#include <algorithm>
#include <optional>

#include "backend/candidates.h"
#include "base/types.h"
#include "compile/passes.h"
#include "compile/scalar_quantization.h"
#include "operators/convolution.h"
#include "operators/elementwise.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/quantization.h"
#include "operators/type_rules.h"

namespace opwright {
namespace {

/// An operand of a product that is dequantized before the product.
struct ByteOperand {
  GraphValue* bytes = nullptr;  ///< INT8, UINT8 or FP8
  std::vector<float> scales;    ///< one, or one for each output channel
  int64_t zero_point = 0;
  bool is_turned = false;  ///< whether the last two axes change places behind the bytes
};

/// Whether the node only transposes a matrix.
bool is_transpose(const GraphNode& node) {
  const auto* shuffle = node.as<Shuffle>();
  if (shuffle == nullptr || shuffle->params().has_reshape || node.inputs.size() != 1) return false;
  const size_t rank = node.inputs[0]->info.dims.size();
  const Ints turned = {1, 0}, kept = {0, 1};
  const Ints first = Shuffle::permutation(shuffle->params().first_transpose, rank);
  const Ints second = Shuffle::permutation(shuffle->params().second_transpose, rank);
  return rank == 2 && ((first == turned && (second.empty() || second == kept)) ||
                       (second == turned && (first.empty() || first == kept)));
}

/// The bytes from which `value` is dequantized, with one constant zero point and constant scales,
/// either one or one per extent along `axis`. `may_turn`: a transpose may lie between; the axis is
/// the one before it.
std::optional<ByteOperand> byte_operand(const GraphValue& value, int64_t axis,
                                        bool may_turn = false) {
  const GraphNode* node = value.producer;
  if (may_turn && node != nullptr && is_transpose(*node)) {
    auto operand = byte_operand(*node->inputs[0], 1 - axis);
    if (operand) operand->is_turned = true;
    return operand;
  }
  const auto* op = node ? node->as<Dequantize>() : nullptr;
  if (op == nullptr || !is_floating(value.info.dtype)) return std::nullopt;
  GraphValue* const bytes = node->inputs[0];
  const auto scales = fixed_elements(*node->inputs[1]);
  if (!scales || !is_quantized(bytes->info.dtype)) return std::nullopt;
  if (scales->size() != 1 && (node->inputs[1]->info.dims.size() != 1 || op->params().axis != axis))
    return std::nullopt;
  ByteOperand result{bytes, *scales, 0};
  if (const GraphValue* zero = node->input(2)) {
    const auto elements = fixed_elements(*zero);
    if (!elements || elements->empty()) return std::nullopt;
    for (const float element : *elements)
      if (element != elements->front()) return std::nullopt;
    result.zero_point = static_cast<int64_t>(elements->front());
    if (bytes->info.dtype == DataType::kFP8 && elements->front() != 0) return std::nullopt;
  }
  return result;
}

/// Replaces a product of two dequantized operands by a product of bytes.
class ByteProduct {
 public:
  ByteProduct(Graph& graph, const PassContext& context, GraphNode* node)
      : graph_(graph), context_(context), node_(node) {}

  void replace_convolution(const Convolution& op) {
    ConvolutionParams params = op.params();
    if (params.has_residual || params.activation.present() || !match(0, false)) return;
    const Shape kernel = constant_shape(w_.bytes->info.dims);
    channels_ = kernel[0], shape_.assign(kernel.rank(), Expr(1)), shape_[1] = channels_;
    // The kernel subtracts the zero point, also where it pads. Tensor cores do not: a layer without
    // padding subtracts it from the sums.
    const auto is_zero = [](int64_t padding) { return padding == 0; };
    const bool pads = params.padding_mode != PaddingMode::kEXPLICIT_ROUND_DOWN ||
                      !std::ranges::all_of(params.pre_padding, is_zero) ||
                      !std::ranges::all_of(params.post_padding, is_zero);
    if (pads || context_.device.is_host()) {
      params.zero_point = x_.zero_point;
      x_.zero_point = 0;
    }
    const auto product = std::make_shared<Convolution>(params);
    if (!runs(*product)) return;
    const int64_t inner = kernel.numel(1, kernel.rank());
    finish(
        product, x_.bytes, node_->input(2),
        [&](int64_t channel, int64_t k) { return channel * inner + k; }, inner);
  }

  void replace_product(const MatrixMultiply& op) {
    const MatrixMultiplyParams& params = op.params();
    const size_t rank = node_->inputs[1]->info.dims.size();
    if (params.has_bias || params.activation.present() || params.op1 == MatrixOperation::kVECTOR ||
        params.op0 != MatrixOperation::kNONE || rank < 2)
      return;
    const bool is_transposed = params.op1 == MatrixOperation::kTRANSPOSE;
    if (!match(static_cast<int64_t>(rank) - (is_transposed ? 2 : 1), true)) return;
    // In a stack, each matrix would have sums and scales of its own.
    if (rank > 2 && (w_.scales.size() != 1 || x_.zero_point != 0)) return;
    MatrixMultiplyParams of_bytes = params;
    const bool transposed = is_transposed != w_.is_turned;
    of_bytes.op1 = transposed ? MatrixOperation::kTRANSPOSE : MatrixOperation::kNONE;
    auto product = std::make_shared<MatrixMultiply>(of_bytes);
    if (!runs(*product)) return;
    const Shape b = constant_shape(w_.bytes->info.dims);
    channels_ = b[b.rank() - (transposed ? 2 : 1)];
    shape_.assign(node_->outputs[0]->info.dims.size(), Expr(1)), shape_.back() = channels_;
    const int64_t inner = b[b.rank() - (transposed ? 1 : 2)];
    const GraphValue* const given = w_.bytes;
    if (!transposed && !context_.device.is_host()) {
      // Tensor cores read bytes along k.
      w_.bytes = exchange_last_axes(graph_, node_, w_.bytes, context_);
      if (w_.bytes != given) {
        of_bytes.op1 = MatrixOperation::kTRANSPOSE;
        product = std::make_shared<MatrixMultiply>(of_bytes);
      }
    }
    // One scale per row lets products of one operand, which then differ only in rows, become one.
    if (!context_.device.is_host() && w_.scales.size() == 1)
      w_.scales.assign(static_cast<size_t>(channels_), w_.scales[0]);
    const bool is_along_k = of_bytes.op1 == MatrixOperation::kTRANSPOSE;
    finish(
        product, x_.bytes, nullptr,
        [&](int64_t channel, int64_t k) {
          return is_along_k ? channel * inner + k : k * channels_ + channel;
        },
        inner);
  }

 private:
  bool match(int64_t channel_axis, bool may_turn) {
    if (node_->precision || !is_floating(node_->outputs[0]->info.dtype)) return false;
    const auto x = byte_operand(*node_->inputs[0], -1);
    const auto w = byte_operand(*node_->inputs[1], channel_axis, may_turn);
    if (!x || !w || x->scales.size() != 1 || w->zero_point != 0) return false;
    const DataType type = w->bytes->info.dtype;
    if (type != (x->bytes->info.dtype == DataType::kFP8 ? DataType::kFP8 : DataType::kINT8))
      return false;
    // The model's weights are floating numbers, which are quantized during the build.
    const GraphNode* const quantizer = w->bytes->producer;
    if (quantizer != nullptr && quantizer->as<Quantize>())
      fold_behind_constants(graph_, w->bytes, context_);
    if (!w->bytes->is_fixed()) return false;
    x_ = *x, w_ = *w;
    return true;
  }

  bool runs(const Operator& op) const {
    const std::vector<GraphValue*> inputs = {x_.bytes, w_.bytes};
    if (!fits(op, node_->name, inputs, node_->outputs)) return false;
    const std::vector<Candidate> found = context_.candidates(op, *node_, inputs);
    return !found.empty() && found.front().tactic_name != kIntegerLoop;
  }

  GraphValue* add(OperatorPtr op, std::vector<GraphValue*> inputs, DataType type, SymShape dims,
                  const char* what) {
    TensorInfo info;
    info.dtype = type, info.dims = std::move(dims);
    return graph_
        .insert_before(node_, std::move(op), std::move(inputs), std::move(info), node_->name + what)
        ->outputs[0];
  }
  GraphValue* elementwise(ElementWiseOperation op, GraphValue* a, GraphValue* b) {
    return add(std::make_shared<ElementWise>(ElementWiseParams{op}), {a, b}, a->info.dtype,
               a->info.dims, " scaled");
  }
  template <class T>
  GraphValue* constant(DataType type, const std::vector<T>& elements, const char* what) {
    Shape shape;
    if (elements.size() != 1) shape = constant_shape(shape_);
    return graph_.add_constant(
        type, shape, Blob::copy(elements.data(), elements.size() * sizeof(T)), node_->name + what);
  }

  /// Computes (sums - zero point * sums of weights) * scales + bias.
  template <class At>
  void finish(OperatorPtr op, GraphValue* x, GraphValue* bias, const At& at, int64_t inner) {
    const SymShape& dims = node_->outputs[0]->info.dims;
    const DataType type = node_->outputs[0]->info.dtype;
    const DataType sums = type_of_product(x->info.dtype);
    GraphValue* y = add(std::move(op), {x, w_.bytes}, sums, dims, " in bytes");
    if (x_.zero_point != 0) {
      const auto* weights = w_.bytes->info.constant.as<int8_t>();
      std::vector<int32_t> moved(channels_);
      for (int64_t channel = 0; channel < channels_; ++channel) {
        int64_t sum = 0;
        for (int64_t k = 0; k < inner; ++k) sum += weights[at(channel, k)];
        moved[channel] = static_cast<int32_t>(sum * x_.zero_point);
      }
      y = elementwise(ElementWiseOperation::kSUB, y,
                      constant(DataType::kINT32, moved, " zero points"));
    }
    const auto cast = [&](GraphValue* from, DataType to, const char* what) {
      if (from->info.dtype == to) return from;
      return add(std::make_shared<Cast>(CastParams{to}), {from}, to, from->info.dims, what);
    };
    y = cast(y, DataType::kFLOAT, " as FP32");
    std::vector<float> scales = w_.scales;
    for (float& scale : scales) scale *= x_.scales[0];
    GraphValue* const factor = constant(DataType::kFLOAT, scales, " scales");
    using Op = ElementWiseOperation;
    if (bias != nullptr) {
      y = elementwise(Op::kPROD, y, factor);
      if (bias->info.dims != shape_)
        bias = add(std::make_shared<Reshape>(), {bias}, bias->info.dtype, shape_, " bias");
      bias = cast(bias, DataType::kFLOAT, " bias as FP32");
    }
    const Op last = bias == nullptr ? Op::kPROD : Op::kSUM;
    GraphValue* const operand = bias == nullptr ? factor : bias;
    if (type == DataType::kFLOAT)
      return graph_.replace(node_, std::make_shared<ElementWise>(ElementWiseParams{last}),
                            {y, operand});
    // The last operation takes two FP32 operands, and its result is rounded once.
    graph_.replace(node_, std::make_shared<Cast>(CastParams{type}),
                   {elementwise(last, y, operand)});
  }

  Graph& graph_;
  const PassContext& context_;
  GraphNode* node_;
  ByteOperand x_, w_;
  int64_t channels_ = 0;
  SymShape shape_;  ///< the shape of a vector along the output's channels
};

/// The product of bytes from which the value is computed, element by element, by nodes that are
/// each read only by the next. Null where there is none.
const GraphNode* product_behind(const Graph& graph, const GraphValue& value) {
  const GraphValue* at = &value;
  while (at->producer != nullptr) {
    const GraphNode& node = *at->producer;
    if (node.as<Convolution>() || node.as<MatrixMultiply>())
      return is_quantized(node.inputs[0]->info.dtype) ? &node : nullptr;
    if (!node.as<ElementWise>() && !node.as<Activation>() && !node.as<Cast>()) return nullptr;
    const GraphValue* next = nullptr;
    for (const GraphValue* input : node.inputs) {
      if (input->is_of_constants()) continue;
      if (next != nullptr) return nullptr;
      next = input;
    }
    if (next == nullptr || graph.single_user(*next) != &node) return nullptr;
    at = next;
  }
  return nullptr;
}

/// Stores the bytes of one of two products that are quantized and added up. The later product takes
/// the sum, and reads the other one's bytes, not its sums, from memory.
void store_summand(const Graph& graph, const GraphNode& sum, const std::vector<GraphNode*>& order) {
  if (sum.inputs.size() != 2 || sum.as<ElementWise>()->params().op != ElementWiseOperation::kSUM)
    return;
  GraphValue* bytes[2] = {};
  const GraphNode* products[2] = {};
  for (int i = 0; i < 2; ++i) {
    const GraphNode* const dequantize = sum.inputs[i]->producer;
    if (dequantize == nullptr || !dequantize->as<Dequantize>() ||
        graph.single_user(*sum.inputs[i]) != &sum)
      return;
    bytes[i] = dequantize->inputs[0];
    const GraphNode* const quantize = bytes[i]->producer;
    if (quantize == nullptr || !quantize->as<Quantize>() ||
        graph.single_user(*bytes[i]) != dequantize)
      return;
    products[i] = product_behind(graph, *quantize->inputs[0]);
    if (products[i] == nullptr) return;
  }
  const bool is_second_first =
      std::ranges::find(order, products[1]) < std::ranges::find(order, products[0]);
  bytes[is_second_first ? 1 : 0]->is_stored = true;
}

}  // namespace

void quantize_products(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes()) {
    if (const auto* op = node->as<Convolution>())
      ByteProduct(graph, context, node).replace_convolution(*op);
    else if (const auto* op = node->as<MatrixMultiply>())
      ByteProduct(graph, context, node).replace_product(*op);
  }
  const std::vector<GraphNode*> order = graph.nodes();
  for (const GraphNode* node : order)
    if (node->as<ElementWise>()) store_summand(graph, *node, order);
}

}  // namespace opwright
