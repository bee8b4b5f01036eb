#pragma once

/// \file
/// Attention and the other layers of transformers.

#include "layer.h"

namespace opwright {

/// The function that normalizes an attention's scores.
enum class AttentionNormalizationOp : int32_t {
  kNONE = 0,
  kSOFTMAX = 1,  ///< Over the keys.
};

/// Order of the axes of an attention's tensors.
enum class AttentionIOForm : int32_t {
  kPADDED_BHND = 0,  ///< [batch, heads, tokens, size]
  kPACKED_NHD = 1,   ///< [tokens of all batches, heads, size]
};

/// The keys that a query may meet, besides a mask.
enum class CausalMaskKind : int32_t {
  kNONE = 0,         ///< All keys.
  kUPPER_LEFT = 1,   ///< Query i meets the keys up to key i.
  kLOWER_RIGHT = 2,  ///< The last query meets all keys, each one before it one less.
};

/// The place of a cache's new tokens.
enum class KVCacheMode : int32_t {
  kLINEAR = 0,  ///< One behind the other, from an index on.
};

/// The activation of a mixture's experts.
enum class MoEActType : int32_t {
  kNONE = 0,
  kSILU = 1,  ///< x * sigmoid(x)
};

namespace impl {
template <>
struct EnumMaxImpl<AttentionNormalizationOp> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<AttentionIOForm> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<CausalMaskKind> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<KVCacheMode> {
  static constexpr int32_t kVALUE = 1;
};
template <>
struct EnumMaxImpl<MoEActType> {
  static constexpr int32_t kVALUE = 2;
};
}  // namespace impl

/// softmax(Q K^T + mask) V. The query or the key is already multiplied by the scale of the scores.
/// The attention is one layer of the network, of type kATTENTION_OUTPUT, which has the inputs.
/// Owned by the network.
class IAttention : public INoCopy {
 public:
  virtual bool setNormalizationOperation(AttentionNormalizationOp op) noexcept = 0;
  virtual AttentionNormalizationOp getNormalizationOperation() const noexcept = 0;
  /// \param mask broadcasts to [batch, heads, queries, keys]: kBOOL, true where a key is met, or of
  ///     the query's type, added to the scores. Not together with a causal mask.
  virtual bool setMask(ITensor& mask) noexcept = 0;
  virtual ITensor* getMask() noexcept = 0;
  /// True: CausalMaskKind::kUPPER_LEFT.
  virtual bool setCausal(bool isCausal) noexcept = 0;
  virtual bool getCausal() const noexcept = 0;
  virtual bool setCausalKind(CausalMaskKind kind) noexcept = 0;
  virtual CausalMaskKind getCausalKind() const noexcept = 0;
  /// Whether the attention may be run as several layers where no single kernel computes it. It
  /// always may.
  virtual bool setDecomposable(bool decomposable) noexcept = 0;
  virtual bool getDecomposable() const noexcept = 0;
  /// Inputs in the layer's order: query, key, value, mask, scale of the quantization.
  virtual bool setInput(int32_t index, ITensor& input) noexcept = 0;
  virtual int32_t getNbInputs() const noexcept = 0;
  virtual ITensor* getInput(int32_t index) const noexcept = 0;
  virtual int32_t getNbOutputs() const noexcept = 0;
  virtual ITensor* getOutput(int32_t index) const noexcept = 0;
  virtual bool setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;
  virtual bool setMetadata(char const* metadata) noexcept = 0;
  virtual char const* getMetadata() const noexcept = 0;
  /// Rounds the weights to multiples of the scale before the values are summed.
  virtual bool setNormalizationQuantizeScale(ITensor& tensor) noexcept = 0;
  virtual ITensor* getNormalizationQuantizeScale() const noexcept = 0;
  /// kFP8 or kINT8; kFLOAT: not quantized, or quantized to kFP8 where there is a scale.
  virtual bool setNormalizationQuantizeToType(DataType type) noexcept = 0;
  virtual DataType getNormalizationQuantizeToType() const noexcept = 0;
  /// kPADDED_BHND; a network with another form cannot be built.
  virtual bool setQueryForm(AttentionIOForm form) noexcept = 0;
  virtual AttentionIOForm getQueryForm() const noexcept = 0;
  virtual bool setKeyValueForm(AttentionIOForm form) noexcept = 0;
  virtual AttentionIOForm getKeyValueForm() const noexcept = 0;
  /// The numbers of queries, and of keys, that count in each batch: kINT32 or kINT64, [batch].
  virtual bool setQueryLengths(ITensor& lengths) noexcept = 0;
  virtual ITensor* getQueryLengths() const noexcept = 0;
  virtual bool setKeyValueLengths(ITensor& lengths) noexcept = 0;
  virtual ITensor* getKeyValueLengths() const noexcept = 0;
  virtual int32_t getNbRanks() const noexcept = 0;
  /// Over how many ranks the keys, the values and the mask are split by the keys' axis; 1: none.
  /// All ranks have the same queries, and all get the result. Not together with a causal mask,
  /// whose positions a rank does not know, nor with quantized weights.
  virtual bool setNbRanks(int32_t nbRanks) noexcept = 0;

 protected:
  ~IAttention() noexcept override = default;
};

/// A layer at the border of an attention.
class IAttentionBoundaryLayer : public ILayer {
 public:
  virtual IAttention* getAttention() const noexcept = 0;

 protected:
  ~IAttentionBoundaryLayer() noexcept override = default;
};

/// For sources that name this class. Networks have no such layer.
class IAttentionInputLayer : public IAttentionBoundaryLayer {
 protected:
  ~IAttentionInputLayer() noexcept override = default;
};

class IAttentionOutputLayer : public IAttentionBoundaryLayer {
 protected:
  ~IAttentionOutputLayer() noexcept override = default;
};

/// Turns pairs of elements of each head by angles that depend on positions. Input 3 is optional:
/// the position of each token, kINT32 or kINT64, [batch, tokens].
class IRotaryEmbeddingLayer : public ILayer {
 public:
  /// Whether the elements of a pair are neighbours. If not, they are half a head apart.
  void setInterleaved(bool interleaved) noexcept { set("interleaved", interleaved); }
  bool getInterleaved() const noexcept { return get<bool>("interleaved"); }
  /// Number of elements of a head that are turned; 0 for all.
  bool setRotaryEmbeddingDim(int32_t rotaryEmbeddingDim) noexcept {
    return set("rotary_embedding_dim", rotaryEmbeddingDim);
  }
  int32_t getRotaryEmbeddingDim() const noexcept { return get<int32_t>("rotary_embedding_dim"); }

 protected:
  ~IRotaryEmbeddingLayer() noexcept override = default;
};

/// Writes new tokens into a cache. The output is in the cache's memory.
class IKVCacheUpdateLayer : public ILayer {
 public:
  bool setCacheMode(KVCacheMode cacheMode) noexcept { return set("cache_mode", cacheMode); }
  KVCacheMode getCacheMode() const noexcept { return get<KVCacheMode>("cache_mode"); }
  bool setUpdateForm(AttentionIOForm form) noexcept { return set("update_form", form); }
  AttentionIOForm getUpdateForm() const noexcept { return get<AttentionIOForm>("update_form"); }
  /// For kPACKED_NHD: where the tokens of each batch begin, kINT32 or kINT64, [batch + 1]. Input 3.
  bool setUpdateLengths(ITensor& lengths) noexcept {
    setInput(3, lengths);
    return true;
  }
  ITensor* getUpdateLengths() const noexcept { return getNbInputs() > 3 ? getInput(3) : nullptr; }

 protected:
  ~IKVCacheUpdateLayer() noexcept override = default;
};

/// A mixture of experts, each a gated linear unit: down(activation(gate(x)) * up(x)).
class IMoELayer : public ILayer {
 public:
  /// \param fcGateWeights, fcUpWeights [experts, hidden, inner]
  /// \param fcDownWeights [experts, inner, hidden]
  void setGatedWeights(ITensor& fcGateWeights, ITensor& fcUpWeights, ITensor& fcDownWeights,
                       MoEActType activationType) noexcept {
    setInput(3, fcGateWeights), setInput(4, fcUpWeights), setInput(5, fcDownWeights);
    setActivationType(activationType);
  }
  /// \param fcGateBiases, fcUpBiases [experts, inner]
  /// \param fcDownBiases [experts, hidden]
  void setGatedBiases(ITensor& fcGateBiases, ITensor& fcUpBiases, ITensor& fcDownBiases) noexcept {
    setInput(6, fcGateBiases), setInput(7, fcUpBiases), setInput(8, fcDownBiases);
  }
  void setActivationType(MoEActType activationType) noexcept {
    set("activation_type", activationType);
  }
  MoEActType getActivationType() const noexcept { return get<MoEActType>("activation_type"); }
  /// Rounds the input of down to multiples of the scale.
  /// \param fcDownActivationScale one element, or [experts]
  /// \param dataType kFP8
  void setQuantizationStatic(ITensor& fcDownActivationScale, DataType dataType) noexcept {
    setInput(9, fcDownActivationScale);
    setQuantizationToType(dataType);
  }
  /// Not supported, because it needs FP4. A network with it cannot be built.
  void setQuantizationDynamicDblQ(ITensor& fcDownActivationDblQScale, DataType dataType,
                                  Dims const& blockShape, DataType dynQOutputScaleType) noexcept {
    setQuantizationStatic(fcDownActivationDblQScale, dataType);
    setQuantizationBlockShape(blockShape);
    setDynQOutputScaleType(dynQOutputScaleType);
  }
  void setDynQOutputScaleType(DataType type) noexcept { set("dyn_q_output_scale_type", type); }
  DataType getDynQOutputScaleType() const noexcept {
    return get<DataType>("dyn_q_output_scale_type");
  }
  void setQuantizationToType(DataType type) noexcept { set("quantization_to_type", type); }
  DataType getQuantizationToType() const noexcept { return get<DataType>("quantization_to_type"); }
  /// Blocks are not supported. A network with a block shape cannot be built.
  void setQuantizationBlockShape(Dims const& blockShape) noexcept {
    set("quantization_block_shape", blockShape);
  }
  Dims getQuantizationBlockShape() const noexcept { return get<Dims>("quantization_block_shape"); }
  /// Limits the gate to at most `limit`, and up to the range from -limit to limit. The activation
  /// is x * sigmoid(alpha * x), and beta is added to up.
  void setSwigluParams(float limit, float alpha, float beta) noexcept {
    setSwigluParamLimit(limit), setSwigluParamAlpha(alpha), setSwigluParamBeta(beta);
  }
  void setSwigluParamLimit(float limit) noexcept { set("swiglu_param_limit", double{limit}); }
  float getSwigluParamLimit() const noexcept { return get<float>("swiglu_param_limit"); }
  void setSwigluParamAlpha(float alpha) noexcept { set("swiglu_param_alpha", double{alpha}); }
  float getSwigluParamAlpha() const noexcept { return get<float>("swiglu_param_alpha"); }
  void setSwigluParamBeta(float beta) noexcept { set("swiglu_param_beta", double{beta}); }
  float getSwigluParamBeta() const noexcept { return get<float>("swiglu_param_beta"); }

 protected:
  ~IMoELayer() noexcept override = default;
};

}  // namespace opwright
