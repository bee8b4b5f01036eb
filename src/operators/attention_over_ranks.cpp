#include <limits>

#include "operators/attention_parts.h"
#include "operators/dist_collective.h"

namespace opwright {
namespace {

using Op = ElementWiseOperation;

constexpr double kNothing = -std::numeric_limits<double>::infinity();  // of a masked score
constexpr int kKeys = 3;                                               // the axis of the scores

/// The peak; 0 where it is -infinity, so that numbers less it stay -infinity.
Tensor* finite(LayerWriter& writer, Tensor* peak) {
  return writer.select(writer.elementwise(Op::kEQUAL, peak, kNothing),
                       writer.scalar(0, peak->dtype()), peak);
}

/// x / sum. A sum has its peak's exponential, which is 1, or has no addend and is 0, as x is then.
Tensor* over_sum(LayerWriter& writer, Tensor* x, Tensor* sum) {
  return writer.elementwise(Op::kDIV, x, writer.elementwise(Op::kMAX, sum, 1));
}

Tensor* between_ranks(LayerWriter& writer, Tensor* x, CollectiveOperation op,
                      ReduceOperation reduction, int64_t ranks) {
  DistCollectiveParams params;
  params.op = op, params.reduce_op = reduction, params.num_ranks = ranks;
  return writer.add<DistCollective>(std::move(params), {x});
}

}  // namespace

Tensor* attend_over_ranks(LayerWriter& writer, const Heads& heads, const Mask& mask,
                          const AttentionOptions& options) {
  const int64_t ranks = options.ranks;
  if (ranks < 1 || ranks > kMaxRanks)
    writer.error("works with ", ranks, " ranks; expected 1 to ", kMaxRanks);
  if (options.round || options.sink != nullptr)
    writer.error("its keys are split over ", ranks,
                 " ranks; expected no quantized weights and no sink");
  const bool normalizes = options.normalizes;
  const DataType type = heads.query->dtype(), wide = DataType::kFLOAT;
  const int64_t group = heads_per_group(writer, heads.query->dims()[1], heads.key->dims()[1]);
  Tensor* scores = writer.cast(multiply_grouped(writer, scaled(writer, heads.query, options.scale),
                                                heads.key, MatrixOperation::kTRANSPOSE, group),
                               wide);
  if (options.cap != 0) scores = capped(writer, scores, options.cap);
  if (mask.bias != nullptr)
    scores = writer.elementwise(Op::kSUM, scores, writer.cast(mask.bias, wide));
  if (mask.allowed != nullptr)
    scores = writer.select(mask.allowed, scores, writer.scalar(normalizes ? kNothing : 0.0, wide));
  const auto of_values = [&](Tensor* weights) {
    return writer.cast(multiply_grouped(writer, writer.cast(weights, type), heads.value,
                                        MatrixOperation::kNONE, group),
                       wide);
  };
  if (!normalizes)
    return writer.cast(between_ranks(writer, of_values(scores), CollectiveOperation::kALL_REDUCE,
                                     ReduceOperation::kSUM, ranks),
                       type);

  Tensor* const peak = finite(writer, writer.reduce(ReduceOperation::kMAX, scores, {kKeys}, true));
  Tensor* const powers =
      writer.unary(UnaryOperation::kEXP, writer.elementwise(Op::kSUB, scores, peak));
  Tensor* const sum = writer.reduce(ReduceOperation::kSUM, powers, {kKeys}, true);
  Tensor* const part = of_values(over_sum(writer, powers, sum));
  Tensor* const logarithm =
      writer.elementwise(Op::kSUM, peak, writer.unary(UnaryOperation::kLOG, sum));

  Tensor* const mine = writer.concatenate({part, logarithm}, kKeys);
  Tensor* all =
      between_ranks(writer, mine, CollectiveOperation::kALL_GATHER, ReduceOperation::kNONE, ranks);
  SymShape by_rank = mine->dims();
  const Expr size = part->dims()[kKeys];
  by_rank.insert(by_rank.begin(), ranks);
  all = writer.reshape(all, by_rank);
  Tensor* const parts = writer.slice_axis(all, kKeys + 1, 0, size);
  Tensor* const logarithms = writer.slice_at(all, kKeys + 1, size);
  Tensor* const highest =
      finite(writer, writer.reduce(ReduceOperation::kMAX, logarithms, {0}, true));
  Tensor* const shares =
      writer.unary(UnaryOperation::kEXP, writer.elementwise(Op::kSUB, logarithms, highest));
  Tensor* const shared = writer.reduce(ReduceOperation::kSUM,
                                       writer.elementwise(Op::kPROD, parts, shares), {0}, false);
  Tensor* const total = writer.reduce(ReduceOperation::kSUM, shares, {0}, false);
  return writer.cast(over_sum(writer, shared, total), type);
}

}  // namespace opwright
