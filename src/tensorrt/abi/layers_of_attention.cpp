#include "tensorrt/abi/layer_tables.h"

namespace opwright::tensorrt {

const Table attention_boundary_layer_table = {
    "VAttentionBoundaryLayer",
    {
        OPWRIGHT_SAME(IAttentionBoundaryLayer, getAttention),
    }};

const Table attention_input_layer_table = {"VAttentionInputLayer", {}};

const Table attention_output_layer_table = {"VAttentionOutputLayer", {}};

const Table attention_table = {
    "VAttention",
    {
        OPWRIGHT_SAME(IAttention, setInput),
        OPWRIGHT_SAME(IAttention, getNbInputs),
        OPWRIGHT_SAME(IAttention, getInput),
        OPWRIGHT_SAME(IAttention, getNbOutputs),
        OPWRIGHT_SAME(IAttention, getOutput),
        OPWRIGHT_PROPERTY(IAttention, Name),
        OPWRIGHT_PROPERTY(IAttention, NormalizationOperation),
        OPWRIGHT_PROPERTY(IAttention, Causal),
        OPWRIGHT_PROPERTY(IAttention, Mask),
        OPWRIGHT_PROPERTY(IAttention, Decomposable),
        OPWRIGHT_PROPERTY(IAttention, NormalizationQuantizeScale),
        OPWRIGHT_PROPERTY(IAttention, NormalizationQuantizeToType),
        OPWRIGHT_PROPERTY(IAttention, Metadata),
        OPWRIGHT_PROPERTY(IAttention, NbRanks),
        since_11(OPWRIGHT_SAME(IAttention, setCausalKind)),
        since_11(OPWRIGHT_SAME(IAttention, getCausalKind)),
        since_11(OPWRIGHT_SAME(IAttention, setQueryForm)),
        since_11(OPWRIGHT_SAME(IAttention, getQueryForm)),
        since_11(OPWRIGHT_SAME(IAttention, setKeyValueForm)),
        since_11(OPWRIGHT_SAME(IAttention, getKeyValueForm)),
        since_11(OPWRIGHT_OTHER(IAttention, setQueryLengths,
                                [](IAttention& self, ITensor* lengths) {
                                  return lengths == nullptr
                                             ? lacks("IAttention::setQueryLengths(nullptr)")
                                             : self.setQueryLengths(*lengths);
                                })),
        since_11(OPWRIGHT_SAME(IAttention, getQueryLengths)),
        since_11(OPWRIGHT_OTHER(IAttention, setKeyValueLengths,
                                [](IAttention& self, ITensor* lengths) {
                                  return lengths == nullptr
                                             ? lacks("IAttention::setKeyValueLengths(nullptr)")
                                             : self.setKeyValueLengths(*lengths);
                                })),
        since_11(OPWRIGHT_SAME(IAttention, getKeyValueLengths)),
    }};

const Table quantize_layer_table = {"VQuantizeLayer",
                                    {
                                        OPWRIGHT_SAME(IQuantizeLayer, getAxis),
                                        OPWRIGHT_SAME(IQuantizeLayer, setAxis),
                                        OPWRIGHT_SAME(IQuantizeLayer, getToType),
                                        OPWRIGHT_SAME(IQuantizeLayer, setToType),
                                        OPWRIGHT_SAME(IQuantizeLayer, getBlockShape),
                                        OPWRIGHT_SAME(IQuantizeLayer, setBlockShape),
                                    }};

const Table dequantize_layer_table = {"VDequantizeLayer",
                                      {
                                          OPWRIGHT_SAME(IDequantizeLayer, getAxis),
                                          OPWRIGHT_SAME(IDequantizeLayer, setAxis),
                                          OPWRIGHT_SAME(IDequantizeLayer, getToType),
                                          OPWRIGHT_SAME(IDequantizeLayer, setToType),
                                          OPWRIGHT_SAME(IDequantizeLayer, getBlockShape),
                                          OPWRIGHT_SAME(IDequantizeLayer, setBlockShape),
                                      }};

const Table dynamic_quantize_layer_table = {"VDynamicQuantizeLayer",
                                            {
                                                OPWRIGHT_SAME(IDynamicQuantizeLayer, getAxis),
                                                OPWRIGHT_SAME(IDynamicQuantizeLayer, setAxis),
                                                OPWRIGHT_SAME(IDynamicQuantizeLayer, getBlockSize),
                                                OPWRIGHT_SAME(IDynamicQuantizeLayer, setBlockSize),
                                                OPWRIGHT_SAME(IDynamicQuantizeLayer, getScaleType),
                                                OPWRIGHT_SAME(IDynamicQuantizeLayer, setScaleType),
                                                OPWRIGHT_SAME(IDynamicQuantizeLayer, getToType),
                                                OPWRIGHT_SAME(IDynamicQuantizeLayer, setToType),
                                                OPWRIGHT_SAME(IDynamicQuantizeLayer, getBlockShape),
                                                OPWRIGHT_SAME(IDynamicQuantizeLayer, setBlockShape),
                                            }};

const Table normalization_layer_table = {
    "VNormalizationLayer",
    {
        OPWRIGHT_PROPERTY(INormalizationLayer, Epsilon),
        OPWRIGHT_PROPERTY(INormalizationLayer, Axes),
        OPWRIGHT_PROPERTY(INormalizationLayer, NbGroups),
        until_10(OPWRIGHT_OTHER(INormalizationLayer, setComputePrecision,
                                [](INormalizationLayer&, DataType type) {
                                  if (type != DataType::kFLOAT)
                                    lacks("INormalizationLayer::setComputePrecision");
                                })),
        until_10(OPWRIGHT_OTHER(INormalizationLayer, getComputePrecision,
                                [](INormalizationLayer const&) { return DataType::kFLOAT; })),
        OPWRIGHT_SAME(INormalizationLayer, isV2),
    }};

const Table rotary_embedding_layer_table = {
    "VRotaryEmbeddingLayer",
    {
        OPWRIGHT_PROPERTY(IRotaryEmbeddingLayer, Interleaved),
        OPWRIGHT_PROPERTY(IRotaryEmbeddingLayer, RotaryEmbeddingDim),
        OPWRIGHT_SAME(IRotaryEmbeddingLayer, setInput),
    }};

const Table kv_cache_update_layer_table = {
    "VKVCacheUpdateLayer",
    {
        OPWRIGHT_PROPERTY(IKVCacheUpdateLayer, CacheMode),
        since_11(OPWRIGHT_SAME(IKVCacheUpdateLayer, setUpdateForm)),
        since_11(OPWRIGHT_SAME(IKVCacheUpdateLayer, getUpdateForm)),
        since_11(OPWRIGHT_OTHER(IKVCacheUpdateLayer, setUpdateLengths,
                                [](IKVCacheUpdateLayer& self, ITensor* lengths) {
                                  return lengths == nullptr
                                             ? lacks(
                                                   "IKVCacheUpdateLayer::setUpdateLengths(nullptr)")
                                             : self.setUpdateLengths(*lengths);
                                })),
        since_11(OPWRIGHT_SAME(IKVCacheUpdateLayer, getUpdateLengths)),
    }};

const Table mo_e_layer_table = {"VMoELayer",
                                {
                                    OPWRIGHT_SAME(IMoELayer, setGatedWeights),
                                    OPWRIGHT_SAME(IMoELayer, setGatedBiases),
                                    OPWRIGHT_PROPERTY(IMoELayer, ActivationType),
                                    OPWRIGHT_SAME(IMoELayer, setQuantizationStatic),
                                    OPWRIGHT_SAME(IMoELayer, setQuantizationDynamicDblQ),
                                    OPWRIGHT_PROPERTY(IMoELayer, QuantizationToType),
                                    OPWRIGHT_PROPERTY(IMoELayer, QuantizationBlockShape),
                                    OPWRIGHT_PROPERTY(IMoELayer, DynQOutputScaleType),
                                    OPWRIGHT_SAME(IMoELayer, setSwigluParams),
                                    OPWRIGHT_PROPERTY(IMoELayer, SwigluParamLimit),
                                    OPWRIGHT_PROPERTY(IMoELayer, SwigluParamAlpha),
                                    OPWRIGHT_PROPERTY(IMoELayer, SwigluParamBeta),
                                    OPWRIGHT_SAME(IMoELayer, setInput),
                                }};

const Table dist_collective_layer_table = {"VDistCollectiveLayer", {}};

}  // namespace opwright::tensorrt
