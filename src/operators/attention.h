#pragma once

#include <limits>

#include "operators/composed.h"

namespace opwright {

class AttentionBoundaryLayer : public Layer {};

template <>
inline constexpr auto kEnumeration<AttentionNormalizationOp> =
    enumeration<AttentionNormalizationOp>(
        "AttentionNormalizationOp", "What becomes of an attention's scores.",
        {
            {"NONE", AttentionNormalizationOp::kNONE, "They stay."},
            {"SOFTMAX", AttentionNormalizationOp::kSOFTMAX, "A softmax over the keys."},
        });

template <>
inline constexpr auto kEnumeration<CausalMaskKind> = enumeration<CausalMaskKind>(
    "CausalMaskKind", "Which keys a query meets, besides what a mask says.",
    {
        {"NONE", CausalMaskKind::kNONE, "All of them."},
        {"UPPER_LEFT", CausalMaskKind::kUPPER_LEFT, "Query i those up to key i."},
        {"LOWER_RIGHT", CausalMaskKind::kLOWER_RIGHT,
         "The last query all of them, each one before it one less."},
    });

template <>
inline constexpr auto kEnumeration<AttentionIOForm> = enumeration<AttentionIOForm>(
    "AttentionIOForm", "How the axes of an attention's tensors lie.",
    {
        {"PADDED_BHND", AttentionIOForm::kPADDED_BHND, "[batch, heads, tokens, size]"},
        {"PACKED_NHD", AttentionIOForm::kPACKED_NHD, "[tokens of all batches, heads, size]"},
    });

struct AttentionParams {
  AttentionNormalizationOp norm_op = AttentionNormalizationOp::kSOFTMAX;
  CausalMaskKind causal_kind = CausalMaskKind::kNONE;
  bool decomposable = false;
  DataType quantize_to = DataType::kFLOAT;  ///< of the weights; kFLOAT: not quantized
  AttentionIOForm query_form = AttentionIOForm::kPADDED_BHND;
  AttentionIOForm key_value_form = AttentionIOForm::kPADDED_BHND;
  int64_t num_ranks = 1;  ///< over which keys, values and the mask are split by the keys' axis
  template <class V>
  void visit(V& v) {
    v("norm_op", norm_op), v("causal_kind", causal_kind), v("decomposable", decomposable);
    v("normalization_quantize_to_type", quantize_to);
    v("query_form", query_form), v("key_value_form", key_value_form);
    v("num_ranks", num_ranks);
  }
};
/// softmax(Q K^T + mask) V. The query or the key is already multiplied by the scale of the scores.
/// Inputs: query [batch, heads, queries, size], key and value [batch, shared heads, keys, size]; a
/// mask that broadcasts to [batch, heads, queries, keys], BOOL (true: may be met) or of the query's
/// type (added); the scale that quantizes the weights; the numbers of queries and of keys that
/// count in each batch, [batch]. The output has the query's shape.
class Attention final : public ComposedOperator<Attention, AttentionParams> {
 public:
  using LayerBase = AttentionBoundaryLayer;
  static constexpr std::string_view kKind = "Attention";
  static constexpr LayerClass<class IAttentionOutputLayer> kLayer{
      LayerType::kATTENTION_OUTPUT, "IAttentionOutputLayer",
      "An attention: `attention` is what sets it up."};
  static constexpr int kMask = 3, kQuantizeScale = 4, kQueryLengths = 5, kKeyValueLengths = 6;
  using ComposedOperator::ComposedOperator;
  bool is_pure() const override { return !communicates(); }
  bool communicates() const override { return params().num_ranks > 1; }
  std::vector<Tensor*> compose(Network& network, std::span<Tensor* const> inputs,
                               const std::string& layer) const override;
};

/// softmax over the first elements of each row. Inputs: x of two or three axes, and as INT32 the
/// number of elements that count, of x's shape except for the last axis, which is 1. The other
/// elements become 0.
class RaggedSoftmax final : public ComposedOperator<RaggedSoftmax, NoParams> {
 public:
  static constexpr std::string_view kKind = "RaggedSoftmax";
  static constexpr LayerClass<class IRaggedSoftMaxLayer> kLayer{
      LayerType::kRAGGED_SOFTMAX, "IRaggedSoftMaxLayer",
      "A softmax over the first elements of each row; the others become 0."};
  using ComposedOperator::ComposedOperator;
  std::vector<Tensor*> compose(Network& network, std::span<Tensor* const> inputs,
                               const std::string& layer) const override;
};

template <>
inline constexpr auto kEnumeration<MoEActType> =
    enumeration<MoEActType>("MoEActType", "The activation of a mixture's experts.",
                            {
                                {"NONE", MoEActType::kNONE, "None."},
                                {"SILU", MoEActType::kSILU, "x sigmoid(x)"},
                            });

struct MoeParams {
  MoEActType activation_type = MoEActType::kNONE;
  DataType quantization_to_type = DataType::kFLOAT;  ///< kFLOAT: nothing is quantized
  Ints quantization_block_shape;
  DataType dyn_q_output_scale_type = DataType::kFLOAT;
  double swiglu_limit = std::numeric_limits<double>::infinity();
  double swiglu_alpha = 1, swiglu_beta = 0;
  template <class V>
  void visit(V& v) {
    v("activation_type", activation_type), v("quantization_to_type", quantization_to_type);
    v("quantization_block_shape", quantization_block_shape);
    v("dyn_q_output_scale_type", dyn_q_output_scale_type);
    v("swiglu_param_limit", swiglu_limit), v("swiglu_param_alpha", swiglu_alpha);
    v("swiglu_param_beta", swiglu_beta);
  }
};
/// A mixture of experts, each a gated linear unit. Inputs: hidden states [batch, length, hidden],
/// the selected experts (INT32 or INT64) and their scores [batch, length, k]; the weights of gate
/// and up [experts, hidden, inner] and of down [experts, inner, hidden]; their biases, [experts,
/// inner] twice and [experts, hidden]; the scale that quantizes the input of down. Every expert
/// computes every token. Experts that a token does not select get the score 0.
class Moe final : public ComposedOperator<Moe, MoeParams> {
 public:
  static constexpr std::string_view kKind = "MoE";
  static constexpr LayerClass<class IMoELayer> kLayer{
      LayerType::kMOE, "IMoELayer",
      "A mixture of experts: for each token the sum of those that were selected, by their scores."};
  static constexpr int kGate = 3, kBiases = 6, kScale = 9;
  using ComposedOperator::ComposedOperator;
  std::vector<Tensor*> compose(Network& network, std::span<Tensor* const> inputs,
                               const std::string& layer) const override;
};

}  // namespace opwright
