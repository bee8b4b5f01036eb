#include "operators/attention_parts.h"

#include <cmath>
#include <limits>

namespace opwright {
namespace {

using Op = ElementWiseOperation;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

Tensor* masked_softmax(LayerWriter& writer, Tensor* scores, const Mask& mask, Tensor* sink) {
  const int axis = scores->rank() - 1;
  const int64_t last = int64_t{1} << axis;
  Tensor* all = scores;
  if (sink != nullptr) {
    SymShape column = scores->dims();
    column.back() = 1;
    all = writer.concatenate({scores, writer.expand(writer.cast(sink, scores->dtype()), column)},
                             axis);
  }
  Tensor* y = writer.add<Softmax>({last, false}, {all});
  if (sink != nullptr) y = writer.slice_axis(y, axis, 0, scores->dims().back());
  Tensor* zero = writer.scalar(0, y->dtype());
  if (mask.bias != nullptr) {
    Tensor* peak = writer.reduce(ReduceOperation::kMAX, scores, {axis}, true);
    y = writer.select(writer.elementwise(Op::kEQUAL, peak, -kInfinity), zero, y);
  }
  return mask.allowed != nullptr ? writer.select(mask.allowed, y, zero) : y;
}

Tensor* scaled(LayerWriter& writer, Tensor* x, double factor) {
  return factor == 1 ? x : writer.elementwise(Op::kPROD, x, factor);
}

Tensor* capped(LayerWriter& writer, Tensor* scores, double cap) {
  return scaled(writer, writer.activation(ActivationType::kTANH, scaled(writer, scores, 1 / cap)),
                cap);
}

int64_t heads_per_group(LayerWriter& writer, const Expr& heads, const Expr& shared) {
  if (heads == shared) return 1;
  if (!heads.is_constant() || !shared.is_constant() || shared.constant() < 1 ||
      heads.constant() % shared.constant() != 0)
    writer.error("there are ", heads.str(), " heads of queries and ", shared.str(),
                 " of keys; expected a constant multiple");
  return heads.constant() / shared.constant();
}

Tensor* multiply_grouped(LayerWriter& writer, Tensor* a, Tensor* b, MatrixOperation op,
                         int64_t group) {
  if (group == 1) return writer.multiply_matrices(a, b, MatrixOperation::kNONE, op);
  const SymShape d = a->dims();
  const SymShape stacked = {d[0], floor_div(d[1], group), d[2] * group, d[3]};
  Tensor* y = writer.multiply_matrices(writer.reshape(a, stacked), b, MatrixOperation::kNONE, op);
  const SymShape apart = {d[0], d[1], d[2], y->dims()[3]};
  return writer.reshape(y, apart);
}

Tensor* not_greater(LayerWriter& writer, Tensor* a, Tensor* b) {
  return writer.unary(UnaryOperation::kNOT, writer.elementwise(Op::kGREATER, a, b));
}

SymShape heads_apart(LayerWriter& writer, Tensor* x, int64_t heads, std::string_view attribute) {
  if (heads < 1) writer.error(attribute, " is ", heads, "; inputs of rank 3 need at least 1");
  const SymShape d = x->dims();
  return {d[0], d[1], heads, floor_div(d[2], heads)};
}

Tensor* split_heads(LayerWriter& writer, Tensor* x, int64_t heads, std::string_view attribute) {
  return writer.transpose(writer.reshape(x, heads_apart(writer, x, heads, attribute)),
                          {0, 2, 1, 3});
}

Tensor* join_heads(LayerWriter& writer, Tensor* x) {
  const SymShape d = x->dims();
  const SymShape joined = {d[0], d[2], d[1] * d[3]};
  return writer.reshape(writer.transpose(x, {0, 2, 1, 3}), joined);
}

Tensor* both_allowed(LayerWriter& writer, Tensor* a, Tensor* b) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  return writer.elementwise(Op::kAND, a, b);
}

Tensor* attend(LayerWriter& writer, const Heads& heads, const Mask& mask,
               const AttentionOptions& options) {
  if (options.ranks != 1) return attend_over_ranks(writer, heads, mask, options);
  const auto show = [&](AttentionStage stage, Tensor* scores) {
    if (options.show) options.show(stage, scores);
  };
  const DataType type = heads.query->dtype();
  const int64_t group = heads_per_group(writer, heads.query->dims()[1], heads.key->dims()[1]);
  Tensor* scores = multiply_grouped(writer, scaled(writer, heads.query, options.scale), heads.key,
                                    MatrixOperation::kTRANSPOSE, group);
  show(AttentionStage::kProduct, scores);
  if (options.cap != 0) scores = capped(writer, scores, options.cap);
  show(AttentionStage::kCapped, scores);
  if (options.precision) scores = writer.cast(scores, *options.precision);
  if (mask.bias != nullptr)
    scores = writer.elementwise(Op::kSUM, scores, writer.cast(mask.bias, scores->dtype()));
  if (mask.allowed != nullptr)
    scores = writer.select(mask.allowed, scores,
                           writer.scalar(options.normalizes ? -kInfinity : 0, scores->dtype()));
  show(AttentionStage::kMasked, scores);
  Tensor* weights =
      options.normalizes ? masked_softmax(writer, scores, mask, options.sink) : scores;
  weights = writer.cast(weights, type);
  if (options.round) weights = options.round(weights);
  show(AttentionStage::kWeights, weights);
  return multiply_grouped(writer, weights, heads.value, MatrixOperation::kNONE, group);
}

double default_scale(LayerWriter& writer, const Expr& size) {
  if (!size.is_constant() || size.constant() < 1)
    writer.error("heads have ", size.str(),
                 " elements; expected a constant of at least 1, or the attribute scale");
  return 1 / std::sqrt(static_cast<double>(size.constant()));
}

Tensor* causal_mask(LayerWriter& writer, const Heads& heads, const Expr& offset) {
  Tensor* place = writer.unsqueeze(writer.count_up(heads.query->dims()[2]), {1});
  if (!(offset == Expr(0))) place = writer.elementwise(Op::kSUM, place, writer.scalar_of(offset));
  return not_greater(writer, writer.unsqueeze(writer.count_up(heads.key->dims()[2]), {0}), place);
}

}  // namespace opwright
