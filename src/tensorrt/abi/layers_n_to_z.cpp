#include "tensorrt/abi/layer_tables.h"

namespace opwright::tensorrt {

const Table matrix_multiply_layer_table = {"VMatrixMultiplyLayer",
                                           {
                                               OPWRIGHT_PROPERTY(IMatrixMultiplyLayer, Operation),
                                           }};

const Table non_zero_layer_table = {"VNonZeroLayer",
                                    {
                                        OPWRIGHT_PROPERTY(INonZeroLayer, IndicesType),
                                    }};

const Table ragged_soft_max_layer_table = {"VRaggedSoftMaxLayer", {}};

const Table identity_layer_table = {"VIdentityLayer", {}};

const Table cast_layer_table = {"VCastLayer",
                                {
                                    OPWRIGHT_PROPERTY(ICastLayer, ToType),
                                }};

const Table constant_layer_table = {"VConstantLayer",
                                    {
                                        OPWRIGHT_PROPERTY(IConstantLayer, Weights),
                                        OPWRIGHT_PROPERTY(IConstantLayer, Dimensions),
                                    }};

const Table parametric_re_lu_layer_table = {"VParametricReLULayer", {}};

const Table resize_layer_table = {"VResizeLayer",
                                  {
                                      OPWRIGHT_PROPERTY(IResizeLayer, OutputDimensions),
                                      OPWRIGHT_PROPERTY(IResizeLayer, Scales),
                                      OPWRIGHT_PROPERTY(IResizeLayer, ResizeMode),
                                      OPWRIGHT_PROPERTY(IResizeLayer, CoordinateTransformation),
                                      OPWRIGHT_PROPERTY(IResizeLayer, SelectorForSinglePixel),
                                      OPWRIGHT_PROPERTY(IResizeLayer, NearestRounding),
                                      OPWRIGHT_PROPERTY(IResizeLayer, CubicCoeff),
                                      OPWRIGHT_PROPERTY(IResizeLayer, ExcludeOutside),
                                  }};

const Table select_layer_table = {"VSelectLayer", {}};

const Table assertion_layer_table = {"VAssertionLayer",
                                     {
                                         OPWRIGHT_PROPERTY(IAssertionLayer, Message),
                                     }};

const Table fill_layer_table = {"VFillLayer",
                                {
                                    OPWRIGHT_PROPERTY(IFillLayer, Dimensions),
                                    OPWRIGHT_PROPERTY(IFillLayer, Operation),
                                    OPWRIGHT_PROPERTY(IFillLayer, Alpha),
                                    OPWRIGHT_PROPERTY(IFillLayer, Beta),
                                    OPWRIGHT_PROPERTY(IFillLayer, AlphaInt64),
                                    OPWRIGHT_PROPERTY(IFillLayer, BetaInt64),
                                    OPWRIGHT_SAME(IFillLayer, isAlphaBetaInt64),
                                    OPWRIGHT_SAME(IFillLayer, getToType),
                                    OPWRIGHT_SAME(IFillLayer, setToType),
                                }};

const Table scatter_layer_table = {"VScatterLayer",
                                   {
                                       OPWRIGHT_PROPERTY(IScatterLayer, Mode),
                                       OPWRIGHT_PROPERTY(IScatterLayer, Axis),
                                   }};

const Table einsum_layer_table = {"VEinsumLayer",
                                  {
                                      OPWRIGHT_PROPERTY(IEinsumLayer, Equation),
                                  }};

const Table one_hot_layer_table = {"VOneHotLayer",
                                   {
                                       OPWRIGHT_SAME(IOneHotLayer, getAxis),
                                       OPWRIGHT_SAME(IOneHotLayer, setAxis),
                                   }};

const Table grid_sample_layer_table = {"VGridSampleLayer",
                                       {
                                           OPWRIGHT_PROPERTY(IGridSampleLayer, InterpolationMode),
                                           OPWRIGHT_PROPERTY(IGridSampleLayer, AlignCorners),
                                           OPWRIGHT_PROPERTY(IGridSampleLayer, SampleMode),
                                       }};

const Table nms_layer_table = {"VNMSLayer",
                               {
                                   OPWRIGHT_PROPERTY(INMSLayer, BoundingBoxFormat),
                                   OPWRIGHT_PROPERTY(INMSLayer, TopKBoxLimit),
                                   OPWRIGHT_PROPERTY(INMSLayer, IndicesType),
                               }};

const Table reverse_sequence_layer_table = {
    "VReverseSequenceLayer",
    {
        OPWRIGHT_PROPERTY(IReverseSequenceLayer, BatchAxis),
        OPWRIGHT_PROPERTY(IReverseSequenceLayer, SequenceAxis),
    }};

const Table squeeze_layer_table = {"VSqueezeLayer", {}};

const Table unsqueeze_layer_table = {"VUnsqueezeLayer", {}};

const Table cumulative_layer_table = {"VCumulativeLayer",
                                      {
                                          OPWRIGHT_PROPERTY(ICumulativeLayer, Operation),
                                          OPWRIGHT_PROPERTY(ICumulativeLayer, Exclusive),
                                          OPWRIGHT_PROPERTY(ICumulativeLayer, Reverse),
                                      }};

}  // namespace opwright::tensorrt
