#include "tensorrt/abi/layer_tables.h"

namespace opwright::tensorrt {

namespace {

/// A reference to a value, as TensorRT returns it: good until the next call on the thread.
Permutation const& kept(const Permutation& value) {
  thread_local Permutation last;
  last = value;
  return last;
}

}  // namespace

const Table layer_table = {"VLayer",
                           {
                               OPWRIGHT_SAME(ILayer, getType),
                               OPWRIGHT_PROPERTY(ILayer, Name),
                               OPWRIGHT_SAME(ILayer, getNbInputs),
                               OPWRIGHT_SAME(ILayer, getInput),
                               OPWRIGHT_SAME(ILayer, getNbOutputs),
                               OPWRIGHT_SAME(ILayer, getOutput),
                               OPWRIGHT_SAME(ILayer, setInput),
                               until_10(OPWRIGHT_SAME(ILayer, setPrecision)),
                               until_10(OPWRIGHT_SAME(ILayer, getPrecision)),
                               until_10(OPWRIGHT_SAME(ILayer, precisionIsSet)),
                               until_10(OPWRIGHT_SAME(ILayer, resetPrecision)),
                               until_10(OPWRIGHT_SAME(ILayer, setOutputType)),
                               OPWRIGHT_SAME(ILayer, getOutputType),
                               until_10(OPWRIGHT_SAME(ILayer, outputTypeIsSet)),
                               until_10(OPWRIGHT_SAME(ILayer, resetOutputType)),
                               OPWRIGHT_PROPERTY(ILayer, Metadata),
                               OPWRIGHT_SAME(ILayer, setNbRanks),
                               OPWRIGHT_SAME(ILayer, getNbRanks),
                           }};

const Table convolution_layer_table = {
    "VConvolutionLayer",
    {
        OPWRIGHT_OTHER(
            IConvolutionLayer, setNbOutputMaps,
            [](IConvolutionLayer&, int64_t) { lacks("IConvolutionLayer::setNbOutputMaps"); }),
        OPWRIGHT_SAME(IConvolutionLayer, getNbOutputMaps),
        OPWRIGHT_PROPERTY(IConvolutionLayer, NbGroups),
        OPWRIGHT_PROPERTY(IConvolutionLayer, KernelWeights),
        OPWRIGHT_PROPERTY(IConvolutionLayer, BiasWeights),
        OPWRIGHT_PROPERTY(IConvolutionLayer, PrePadding),
        OPWRIGHT_PROPERTY(IConvolutionLayer, PostPadding),
        OPWRIGHT_PROPERTY(IConvolutionLayer, PaddingMode),
        OPWRIGHT_OTHER(
            IConvolutionLayer, setKernelSizeNd,
            [](IConvolutionLayer&, Dims const&) { lacks("IConvolutionLayer::setKernelSizeNd"); }),
        OPWRIGHT_SAME(IConvolutionLayer, getKernelSizeNd),
        OPWRIGHT_PROPERTY(IConvolutionLayer, StrideNd),
        OPWRIGHT_PROPERTY(IConvolutionLayer, PaddingNd),
        OPWRIGHT_PROPERTY(IConvolutionLayer, DilationNd),
    }};

const Table activation_layer_table = {"VActivationLayer",
                                      {
                                          OPWRIGHT_PROPERTY(IActivationLayer, ActivationType),
                                          OPWRIGHT_SAME(IActivationLayer, setAlpha),
                                          OPWRIGHT_SAME(IActivationLayer, setBeta),
                                          OPWRIGHT_SAME(IActivationLayer, getAlpha),
                                          OPWRIGHT_SAME(IActivationLayer, getBeta),
                                      }};

const Table pooling_layer_table = {
    "VPoolingLayer",
    {
        OPWRIGHT_PROPERTY(IPoolingLayer, PoolingType),
        OPWRIGHT_PROPERTY(IPoolingLayer, BlendFactor),
        OPWRIGHT_PROPERTY(IPoolingLayer, AverageCountExcludesPadding),
        OPWRIGHT_PROPERTY(IPoolingLayer, PrePadding),
        OPWRIGHT_PROPERTY(IPoolingLayer, PostPadding),
        OPWRIGHT_PROPERTY(IPoolingLayer, PaddingMode),
        OPWRIGHT_PROPERTY(IPoolingLayer, WindowSizeNd),
        OPWRIGHT_PROPERTY(IPoolingLayer, StrideNd),
        OPWRIGHT_PROPERTY(IPoolingLayer, PaddingNd),
    }};

const Table lrn_layer_table = {"VLRNLayer",
                               {
                                   OPWRIGHT_PROPERTY(ILRNLayer, WindowSize),
                                   OPWRIGHT_PROPERTY(ILRNLayer, Alpha),
                                   OPWRIGHT_PROPERTY(ILRNLayer, Beta),
                                   OPWRIGHT_PROPERTY(ILRNLayer, K),
                               }};

const Table scale_layer_table = {"VScaleLayer",
                                 {
                                     OPWRIGHT_PROPERTY(IScaleLayer, Mode),
                                     OPWRIGHT_PROPERTY(IScaleLayer, Shift),
                                     OPWRIGHT_PROPERTY(IScaleLayer, Scale),
                                     OPWRIGHT_PROPERTY(IScaleLayer, Power),
                                     OPWRIGHT_SAME(IScaleLayer, getChannelAxis),
                                     OPWRIGHT_SAME(IScaleLayer, setChannelAxis),
                                 }};

const Table soft_max_layer_table = {"VSoftMaxLayer",
                                    {
                                        OPWRIGHT_PROPERTY(ISoftMaxLayer, Axes),
                                    }};

const Table concatenation_layer_table = {"VConcatenationLayer",
                                         {
                                             OPWRIGHT_PROPERTY(IConcatenationLayer, Axis),
                                         }};

const Table deconvolution_layer_table = {
    "VDeconvolutionLayer",
    {
        OPWRIGHT_OTHER(
            IDeconvolutionLayer, setNbOutputMaps,
            [](IDeconvolutionLayer&, int64_t) { lacks("IDeconvolutionLayer::setNbOutputMaps"); }),
        OPWRIGHT_SAME(IDeconvolutionLayer, getNbOutputMaps),
        OPWRIGHT_PROPERTY(IDeconvolutionLayer, NbGroups),
        OPWRIGHT_PROPERTY(IDeconvolutionLayer, KernelWeights),
        OPWRIGHT_PROPERTY(IDeconvolutionLayer, BiasWeights),
        OPWRIGHT_PROPERTY(IDeconvolutionLayer, PrePadding),
        OPWRIGHT_PROPERTY(IDeconvolutionLayer, PostPadding),
        OPWRIGHT_PROPERTY(IDeconvolutionLayer, PaddingMode),
        OPWRIGHT_OTHER(IDeconvolutionLayer, setKernelSizeNd,
                       [](IDeconvolutionLayer&, Dims const&) {
                         lacks("IDeconvolutionLayer::setKernelSizeNd");
                       }),
        OPWRIGHT_SAME(IDeconvolutionLayer, getKernelSizeNd),
        OPWRIGHT_PROPERTY(IDeconvolutionLayer, StrideNd),
        OPWRIGHT_PROPERTY(IDeconvolutionLayer, PaddingNd),
        OPWRIGHT_PROPERTY(IDeconvolutionLayer, DilationNd),
    }};

const Table element_wise_layer_table = {"VElementWiseLayer",
                                        {
                                            OPWRIGHT_PROPERTY(IElementWiseLayer, Operation),
                                        }};

const Table gather_layer_table = {"VGatherLayer",
                                  {
                                      OPWRIGHT_PROPERTY(IGatherLayer, GatherAxis),
                                      OPWRIGHT_PROPERTY(IGatherLayer, NbElementWiseDims),
                                      OPWRIGHT_PROPERTY(IGatherLayer, Mode),
                                  }};

const Table plugin_v2_layer_table = {"VPluginV2Layer",
                                     {
                                         OPWRIGHT_SAME(IPluginV2Layer, getPlugin),
                                     }};

const Table plugin_v3_layer_table = {"VPluginV3Layer",
                                     {
                                         OPWRIGHT_SAME(IPluginV3Layer, getPlugin),
                                     }};

const Table unary_layer_table = {"VUnaryLayer",
                                 {
                                     OPWRIGHT_PROPERTY(IUnaryLayer, Operation),
                                 }};

const Table reduce_layer_table = {"VReduceLayer",
                                  {
                                      OPWRIGHT_PROPERTY(IReduceLayer, Operation),
                                      OPWRIGHT_PROPERTY(IReduceLayer, ReduceAxes),
                                      OPWRIGHT_PROPERTY(IReduceLayer, KeepDimensions),
                                  }};

const Table padding_layer_table = {"VPaddingLayer",
                                   {
                                       OPWRIGHT_OTHER(IPaddingLayer, setPrePaddingNd,
                                                      [](IPaddingLayer&, Dims const&) {
                                                        lacks("IPaddingLayer::setPrePaddingNd");
                                                      }),
                                       OPWRIGHT_SAME(IPaddingLayer, getPrePaddingNd),
                                       OPWRIGHT_OTHER(IPaddingLayer, setPostPaddingNd,
                                                      [](IPaddingLayer&, Dims const&) {
                                                        lacks("IPaddingLayer::setPostPaddingNd");
                                                      }),
                                       OPWRIGHT_SAME(IPaddingLayer, getPostPaddingNd),
                                   }};

const Table shuffle_layer_table = {
    "VShuffleLayer",
    {
        OPWRIGHT_OTHER(
            IShuffleLayer, setFirstTranspose,
            [](IShuffleLayer& self, Permutation const& order) { self.setFirstTranspose(order); }),
        OPWRIGHT_OTHER(IShuffleLayer, getFirstTranspose,
                       [](IShuffleLayer const& self) -> Permutation const& {
                         return kept(self.getFirstTranspose());
                       }),
        OPWRIGHT_PROPERTY(IShuffleLayer, ReshapeDimensions),
        OPWRIGHT_OTHER(
            IShuffleLayer, setSecondTranspose,
            [](IShuffleLayer& self, Permutation const& order) { self.setSecondTranspose(order); }),
        OPWRIGHT_OTHER(IShuffleLayer, getSecondTranspose,
                       [](IShuffleLayer const& self) -> Permutation const& {
                         return kept(self.getSecondTranspose());
                       }),
        OPWRIGHT_PROPERTY(IShuffleLayer, ZeroIsPlaceholder),
    }};

const Table slice_layer_table = {"VSliceLayer",
                                 {
                                     OPWRIGHT_PROPERTY(ISliceLayer, Start),
                                     OPWRIGHT_PROPERTY(ISliceLayer, Size),
                                     OPWRIGHT_PROPERTY(ISliceLayer, Stride),
                                     OPWRIGHT_PROPERTY(ISliceLayer, Mode),
                                     OPWRIGHT_PROPERTY(ISliceLayer, Axes),
                                 }};

const Table shape_layer_table = {"VShapeLayer", {}};

const Table top_k_layer_table = {"VTopKLayer",
                                 {
                                     OPWRIGHT_PROPERTY(ITopKLayer, Operation),
                                     OPWRIGHT_PROPERTY(ITopKLayer, K),
                                     OPWRIGHT_PROPERTY(ITopKLayer, ReduceAxes),
                                     OPWRIGHT_OTHER(ITopKLayer, setIndicesType,
                                                    [](ITopKLayer& self, DataType type) {
                                                      self.setIndicesType(type);
                                                      return self.getIndicesType() == type;
                                                    }),
                                     OPWRIGHT_SAME(ITopKLayer, getIndicesType),
                                 }};

}  // namespace opwright::tensorrt
