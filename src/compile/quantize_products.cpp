#include <algorithm>
#include <optional>

#include "backend/candidates.h"
#include "base/half.h"
#include "compile/passes.h"
#include "operators/convolution.h"
#include "operators/elementwise.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/quantization.h"

namespace opwright {
namespace {

/// An operand that is dequantized before it is multiplied.
struct ByteOperand {
  GraphValue* bytes = nullptr;
  std::vector<float> scales;  ///< one, or one for each output channel
  int64_t zero_point = 0;
};

std::optional<std::vector<float>> fixed_elements(const GraphValue& value) {
  if (!value.is_fixed()) return std::nullopt;
  std::vector<float> elements(constant_shape(value.info.dims).numel());
  convert(value.info.constant.data(), value.info.dtype, elements.data(), DataType::kFLOAT,
          static_cast<int64_t>(elements.size()));
  return elements;
}

/// What `value` is dequantized from, with constant scales along `axis` at most and one constant
/// zero point.
std::optional<ByteOperand> byte_operand(const GraphValue& value, int64_t axis) {
  const GraphNode* node = value.producer;
  const auto* op = node ? node->as<Dequantize>() : nullptr;
  if (op == nullptr || value.info.dtype != DataType::kFLOAT) return std::nullopt;
  GraphValue* const bytes = node->inputs[0];
  const auto scales = fixed_elements(*node->inputs[1]);
  if (!scales || (bytes->info.dtype != DataType::kINT8 && bytes->info.dtype != DataType::kUINT8))
    return std::nullopt;
  if (scales->size() != 1 && (node->inputs[1]->info.dims.size() != 1 || op->params().axis != axis))
    return std::nullopt;
  ByteOperand result{bytes, *scales, 0};
  if (const GraphValue* zero = node->input(2)) {
    const auto elements = fixed_elements(*zero);
    if (!elements || elements->empty()) return std::nullopt;
    for (const float element : *elements)
      if (element != elements->front()) return std::nullopt;
    result.zero_point = static_cast<int64_t>(elements->front());
  }
  return result;
}

/// Builds what takes the place of a product of two dequantized operands.
class ByteProduct {
 public:
  ByteProduct(Graph& graph, const PassContext& context, GraphNode* node)
      : graph_(graph), context_(context), node_(node) {}

  void replace_convolution(const Convolution& op) {
    ConvolutionParams params = op.params();
    if (params.has_residual || params.activation.present() || !match(0)) return;
    const Shape kernel = constant_shape(w_.bytes->info.dims);
    channels_ = kernel[0], shape_.assign(kernel.rank(), Expr(1)), shape_[1] = channels_;
    // The kernel takes the zero point off, also where it pads.
    params.zero_point = x_.zero_point;
    x_.zero_point = 0;
    const auto product = std::make_shared<Convolution>(params);
    if (!runs(*product)) return;
    const int64_t inner = kernel.numel(1, kernel.rank());
    finish(
        product, x_.bytes, node_->input(2),
        [&](int64_t channel, int64_t k) { return channel * inner + k; }, inner);
  }

  void replace_product(const MatrixMultiply& op) {
    const MatrixMultiplyParams& params = op.params();
    const bool transposed = params.op1 == MatrixOperation::kTRANSPOSE;
    if (params.has_bias || params.activation.present() || params.op1 == MatrixOperation::kVECTOR ||
        params.op0 != MatrixOperation::kNONE || node_->inputs[1]->info.dims.size() != 2 ||
        !match(transposed ? 0 : 1) || !runs(op))
      return;
    const Shape b = constant_shape(w_.bytes->info.dims);
    channels_ = b[transposed ? 0 : 1];
    shape_.assign(node_->outputs[0]->info.dims.size(), Expr(1)), shape_.back() = channels_;
    const int64_t inner = b[transposed ? 1 : 0];
    finish(
        node_->op, x_.bytes, nullptr,
        [&](int64_t channel, int64_t k) {
          return transposed ? channel * inner + k : k * channels_ + channel;
        },
        inner);
  }

 private:
  bool match(int64_t channel_axis) {
    if (node_->precision || node_->outputs[0]->info.dtype != DataType::kFLOAT) return false;
    const auto x = byte_operand(*node_->inputs[0], -1);
    const auto w = byte_operand(*node_->inputs[1], channel_axis);
    if (!x || !w || x->scales.size() != 1 || w->zero_point != 0 || !w->bytes->is_fixed() ||
        w->bytes->info.dtype != DataType::kINT8)
      return false;
    x_ = *x, w_ = *w;
    return true;
  }

  bool runs(const Operator& op) const {
    const std::vector<Candidate> found = context_.candidates(op, *node_, {x_.bytes, w_.bytes});
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

  /// (sums - zero point * sums of weights) * scales + bias
  template <class At>
  void finish(OperatorPtr op, GraphValue* x, GraphValue* bias, const At& at, int64_t inner) {
    const SymShape& dims = node_->outputs[0]->info.dims;
    GraphValue* y = add(std::move(op), {x, w_.bytes}, DataType::kINT32, dims, " in bytes");
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
    y = add(std::make_shared<Cast>(CastParams{DataType::kFLOAT}), {y}, DataType::kFLOAT, dims,
            " as FP32");
    std::vector<float> scales = w_.scales;
    for (float& scale : scales) scale *= x_.scales[0];
    GraphValue* const factor = constant(DataType::kFLOAT, scales, " scales");
    using Op = ElementWiseOperation;
    if (bias == nullptr)
      return graph_.replace(node_, std::make_shared<ElementWise>(ElementWiseParams{Op::kPROD}),
                            {y, factor});
    y = elementwise(Op::kPROD, y, factor);
    if (bias->info.dims != shape_)
      bias = add(std::make_shared<Reshape>(), {bias}, bias->info.dtype, shape_, " bias");
    graph_.replace(node_, std::make_shared<ElementWise>(ElementWiseParams{Op::kSUM}), {y, bias});
  }

  Graph& graph_;
  const PassContext& context_;
  GraphNode* node_;
  ByteOperand x_, w_;
  int64_t channels_ = 0;
  SymShape shape_;  ///< of a vector along the output's channels
};

}  // namespace

void quantize_products(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes()) {
    if (const auto* op = node->as<Convolution>())
      ByteProduct(graph, context, node).replace_convolution(*op);
    else if (const auto* op = node->as<MatrixMultiply>())
      ByteProduct(graph, context, node).replace_product(*op);
  }
}

}  // namespace opwright
