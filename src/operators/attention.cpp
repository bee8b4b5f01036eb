#include "operators/attention.h"

#include "base/types.h"
#include "operators/attention_parts.h"
#include "operators/indexing.h"
#include "operators/infer.h"
#include "operators/quantization.h"

namespace opwright {
namespace {

using Op = ElementWiseOperation;

constexpr bool is_index(DataType type) {
  return type == DataType::kINT32 || type == DataType::kINT64;
}

/// x rounded to the values that quantized elements have.
Tensor* rounded(LayerWriter& writer, Tensor* x, Tensor* scale, DataType to) {
  QuantizationParams quantize, dequantize;
  quantize.to = to;
  dequantize.to = x->dtype();
  Tensor* quantized = writer.add<Quantize>(quantize, {x, scale});
  return writer.add<Dequantize>(dequantize, {quantized, scale});
}

/// [batch] as [batch, 1, 1, 1] of INT64; null where the input is absent.
Tensor* per_batch(ComposedWriter& writer, size_t input, const Expr& batch, std::string_view what) {
  Tensor* lengths = writer.input(input);
  if (lengths == nullptr) return nullptr;
  writer.require_rank(input, 1, 1, what);
  writer.require_type(input, is_index(lengths->dtype()), what, "INT32 or INT64");
  writer.require_extent(input, 0, batch, what);
  const SymShape dims = {batch, 1, 1, 1};
  return writer.reshape(writer.cast(lengths, DataType::kINT64), dims);
}

}  // namespace

std::vector<Tensor*> Attention::compose(Network& network, std::span<Tensor* const> inputs,
                                        const std::string& layer) const {
  ComposedWriter writer(network, *this, layer, inputs, 3, 7);
  const Heads heads{inputs[0], inputs[1], inputs[2]};
  for (const AttentionIOForm form : {params().query_form, params().key_value_form})
    if (form != AttentionIOForm::kPADDED_BHND)
      writer.error("tensors in the form PACKED_NHD are not supported; expected PADDED_BHND");
  writer.require_floating(0, "query");
  constexpr const char* kNames[] = {"query", "key", "value"};
  for (size_t i = 0; i < 3; ++i) {
    writer.require_rank(i, 4, 4, kNames[i]);
    writer.require_same_type(i, 0, kNames[i]);
    writer.require_extent(i, 0, heads.query->dims()[0], kNames[i]);
  }
  writer.require_extent(1, 3, heads.query->dims()[3], "key");
  writer.require_extent(2, 1, heads.key->dims()[1], "value");
  writer.require_extent(2, 2, heads.key->dims()[2], "value");
  const Expr batch = heads.query->dims()[0], queries = heads.query->dims()[2];
  const Expr keys = heads.key->dims()[2];

  Mask mask;
  if (Tensor* given = writer.input(kMask)) {
    if (params().causal_kind != CausalMaskKind::kNONE)
      writer.error("has a mask and is causal; expected one of both");
    writer.require_rank(kMask, 1, 4, "mask");
    const bool is_bool = given->dtype() == DataType::kBOOL;
    if (!is_bool) writer.require_same_type(kMask, 0, "mask");
    (is_bool ? mask.allowed : mask.bias) = given;
  }
  Tensor* const query_lengths = per_batch(writer, kQueryLengths, batch, "query lengths");
  Tensor* const key_lengths = per_batch(writer, kKeyValueLengths, batch, "key and value lengths");
  if (key_lengths != nullptr)
    mask.allowed = both_allowed(writer, mask.allowed,
                                writer.elementwise(Op::kLESS, writer.count_up(keys), key_lengths));
  if (params().causal_kind == CausalMaskKind::kUPPER_LEFT) {
    mask.allowed = both_allowed(writer, mask.allowed, causal_mask(writer, heads, 0));
  } else if (params().causal_kind == CausalMaskKind::kLOWER_RIGHT) {
    if (key_lengths == nullptr && query_lengths == nullptr) {
      mask.allowed = both_allowed(writer, mask.allowed, causal_mask(writer, heads, keys - queries));
    } else {
      // The last query that counts meets the last key that counts.
      Tensor* const all = key_lengths != nullptr ? key_lengths : writer.scalar_of(keys);
      Tensor* const asked = query_lengths != nullptr ? query_lengths : writer.scalar_of(queries);
      Tensor* const place =
          writer.elementwise(Op::kSUM, writer.unsqueeze(writer.count_up(queries), {1}),
                             writer.elementwise(Op::kSUB, all, asked));
      mask.allowed =
          both_allowed(writer, mask.allowed,
                       not_greater(writer, writer.unsqueeze(writer.count_up(keys), {0}), place));
    }
  } else if (params().causal_kind != CausalMaskKind::kNONE) {
    writer.error("its causal mask is of kind ", static_cast<int>(params().causal_kind),
                 "; expected NONE, UPPER_LEFT or LOWER_RIGHT");
  }

  AttentionOptions options;
  options.normalizes = params().norm_op == AttentionNormalizationOp::kSOFTMAX;
  if (!options.normalizes && params().norm_op != AttentionNormalizationOp::kNONE)
    writer.error("its normalization is ", static_cast<int>(params().norm_op),
                 "; expected NONE or SOFTMAX");
  Tensor* const scale = writer.input(kQuantizeScale);
  DataType to = params().quantize_to;
  // A scale without a type is for FP8, as in TensorRT.
  if (scale != nullptr && to == DataType::kFLOAT) to = DataType::kFP8;
  if (scale != nullptr && to != DataType::kFP8 && to != DataType::kINT8)
    writer.error("its weights are to be quantized to ", opwright::name(to),
                 "; expected FP8 or INT8");
  if (scale == nullptr && to != DataType::kFLOAT)
    writer.error("its weights are to be quantized to ", opwright::name(to),
                 ", but there is no scale: set normalization_quantize_scale");
  if (scale != nullptr)
    options.round = [&](Tensor* weights) { return rounded(writer, weights, scale, to); };
  options.ranks = params().num_ranks;
  if (options.ranks > 1 && params().causal_kind != CausalMaskKind::kNONE)
    writer.error("is causal, and its keys are split over ", options.ranks,
                 " ranks: a rank does not know where its keys begin among all; give each rank its "
                 "part of the mask");
  return {attend(writer, heads, mask, options)};
}

std::vector<Tensor*> RaggedSoftmax::compose(Network& network, std::span<Tensor* const> inputs,
                                            const std::string& layer) const {
  ComposedWriter writer(network, *this, layer, inputs, 2, 2);
  Tensor *const x = inputs[0], *const bounds = inputs[1];
  writer.require_floating(0, "x");
  writer.require_rank(0, 2, 3, "x");
  writer.require_rank(1, x->rank(), x->rank(), "bounds");
  writer.require_type(1, is_index(bounds->dtype()), "bounds", "INT32 or INT64");
  const int last = x->rank() - 1;
  for (int i = 0; i < last; ++i)
    writer.require_extent(1, i, x->dims()[static_cast<size_t>(i)], "bounds");
  writer.require_extent(1, last, 1, "bounds");
  Tensor* const counts =
      writer.elementwise(Op::kLESS, writer.count_up(x->dims().back(), bounds->dtype()), bounds);
  Mask mask;
  mask.allowed = counts;
  Tensor* const kept =
      writer.select(counts, x, writer.scalar(-std::numeric_limits<double>::infinity(), x->dtype()));
  return {masked_softmax(writer, kept, mask)};
}

std::vector<Tensor*> Moe::compose(Network& network, std::span<Tensor* const> inputs,
                                  const std::string& layer) const {
  ComposedWriter writer(network, *this, layer, inputs, 3, 10);
  for (size_t i = kGate; i < kGate + 3; ++i)
    if (writer.input(i) == nullptr) writer.error("has no weights; set them by set_gated_weights");
  Tensor *const x = inputs[0], *const selected = inputs[1], *const scores = inputs[2];
  writer.require_floating(0, "hidden states");
  for (size_t i = 0; i < 6; ++i)
    writer.require_rank(i, 3, 3, i < 3 ? "hidden states, experts or scores" : "weights");
  writer.require_type(1, is_index(selected->dtype()), "selected experts", "INT32 or INT64");
  writer.require_same_type(2, 0, "scores");
  for (size_t i = 1; i <= 2; ++i)
    for (int axis = 0; axis < 2; ++axis)
      writer.require_extent(i, axis, x->dims()[static_cast<size_t>(axis)], "experts or scores");
  writer.require_extent(2, 2, selected->dims()[2], "scores");
  const Expr hidden = x->dims()[2], experts = inputs[kGate]->dims()[0];
  const Expr inner = inputs[kGate]->dims()[2];
  for (size_t i = kGate; i < kGate + 3; ++i) {
    writer.require_same_type(i, 0, "weights");
    writer.require_extent(i, 0, experts, "weights");
    writer.require_extent(i, 1, i == kGate + 2 ? inner : hidden, "weights");
    writer.require_extent(i, 2, i == kGate + 2 ? hidden : inner, "weights");
  }
  if (!params().quantization_block_shape.empty())
    writer.error(
        "quantizes blocks dynamically, which needs FP4 and is not supported; expected no "
        "quantization or a static scale");
  const auto biased = [&](Tensor* y, size_t input) {
    Tensor* const bias = writer.input(input);
    if (bias == nullptr) return y;
    writer.require_rank(input, 2, 2, "bias");
    writer.require_same_type(input, 0, "bias");
    writer.require_extent(input, 0, experts, "bias");
    return writer.elementwise(Op::kSUM, y, writer.unsqueeze(bias, {1}));
  };
  const SymShape tokens = {1, x->dims()[0] * x->dims()[1], hidden};
  Tensor* const flat = writer.reshape(x, tokens);
  Tensor* gate = biased(writer.multiply_matrices(flat, inputs[kGate]), kBiases);
  Tensor* up = biased(writer.multiply_matrices(flat, inputs[kGate + 1]), kBiases + 1);
  const double limit = params().swiglu_limit;
  if (!(limit > 0)) writer.error("swiglu_param_limit is ", limit, "; expected more than 0");
  if (limit != std::numeric_limits<double>::infinity()) {
    gate = writer.elementwise(Op::kMIN, gate, limit);
    up = writer.elementwise(Op::kMAX, writer.elementwise(Op::kMIN, up, limit), -limit);
  }
  if (params().activation_type == MoEActType::kSILU)
    gate = writer.swish(gate, static_cast<float>(params().swiglu_alpha));
  else if (params().activation_type != MoEActType::kNONE)
    writer.error("its activation is ", static_cast<int>(params().activation_type),
                 "; expected NONE or SILU");
  if (params().swiglu_beta != 0) up = writer.elementwise(Op::kSUM, up, params().swiglu_beta);
  Tensor* product = writer.elementwise(Op::kPROD, gate, up);
  if (Tensor* scale = writer.input(kScale)) {
    if (params().quantization_to_type != DataType::kFP8)
      writer.error("quantizes to ", opwright::name(params().quantization_to_type),
                   "; expected FP8");
    if (scale->rank() > 1) writer.require_rank(kScale, 0, 1, "scale");
    if (scale->rank() == 1 && !(scale->dims()[0] == Expr(1))) {
      writer.require_extent(kScale, 0, experts, "scale");
      QuantizationParams quantize, dequantize;
      quantize.to = DataType::kFP8, dequantize.to = product->dtype();
      quantize.axis = dequantize.axis = 0;
      product = writer.add<Dequantize>(dequantize,
                                       {writer.add<Quantize>(quantize, {product, scale}), scale});
    } else {
      product = rounded(writer, product, scale, DataType::kFP8);
    }
  }
  // [experts, tokens, hidden]
  Tensor* const down = biased(writer.multiply_matrices(product, inputs[kGate + 2]), kBiases + 2);
  // The score of each expert, [experts, tokens, 1].
  const SymShape choices = {tokens[1], selected->dims()[2], 1};
  Tensor* const number = writer.count_up(experts, selected->dtype());
  Tensor* const is_chosen =
      writer.elementwise(Op::kEQUAL, writer.reshape(selected, choices), number);
  Tensor* const score =
      writer.select(is_chosen, writer.reshape(scores, choices), writer.scalar(0, scores->dtype()));
  Tensor* const sums = writer.reduce(ReduceOperation::kSUM, score, {1}, false);
  Tensor* const weights = writer.unsqueeze(writer.transpose(sums, {1, 0}), {2});
  // An expert that nobody chose may compute NaN.
  Tensor* const is_used = writer.elementwise(Op::kEQUAL, weights, 0.0);
  Tensor* const weighted = writer.select(is_used, writer.scalar(0, down->dtype()),
                                         writer.elementwise(Op::kPROD, down, weights));
  Tensor* const y = writer.reduce(ReduceOperation::kSUM, weighted, {0}, false);
  return {writer.reshape(y, x->dims())};
}

}  // namespace opwright
