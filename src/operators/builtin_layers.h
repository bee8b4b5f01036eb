#pragma once

#include <string_view>
#include <utility>

#include "operators/activation.h"
#include "operators/add_layers.h"
#include "operators/assertion.h"
#include "operators/attention.h"
#include "operators/bit_cast.h"
#include "operators/boundary.h"
#include "operators/byte_lookup.h"
#include "operators/col2im.h"
#include "operators/convolution.h"
#include "operators/diffused_cast.h"
#include "operators/dist_collective.h"
#include "operators/dynamic_quantization.h"
#include "operators/einsum.h"
#include "operators/elementwise.h"
#include "operators/fourier_transform.h"
#include "operators/fused_attention.h"
#include "operators/fused_normalization.h"
#include "operators/indexing.h"
#include "operators/kv_cache.h"
#include "operators/matmul_nbits.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pointwise.h"
#include "operators/pooling.h"
#include "operators/quantization.h"
#include "operators/recurrence.h"
#include "operators/reduce.h"
#include "operators/rotary_embedding.h"
#include "operators/sampling.h"
#include "operators/scatter.h"
#include "operators/selection.h"
#include "operators/source.h"
#include "operators/squeeze_excitation.h"
#include "operators/window_reduction.h"

namespace opwright {

/// Visits all built-in operators, and those that the API has layers of: plans can load the former,
/// and the languages show the latter.
template <class Visitor>
void each_builtin_operator(Visitor&& visitor) {
  const auto visit = [&]<class... Ops>() { (visitor.template operator()<Ops>(), ...); };
  visit.template operator()<
      Activation, Assertion, Attention, BitCast, ByteLookup, Cast, ChannelShuffle, Col2Im,
      Concatenation, ConditionalInputBoundary, ConditionalOutputBoundary, ConditionBoundary,
      Convolution, Cumulative, DataExtent, Deconvolution, DeformableColumns, Dequantize,
      Determinant, DiffusedCast, DistCollective, DynamicQuantize, Einsum, ElementWise, Fill,
      FourierTransform, FusedAttention, FusedNormalization, Gather, GridSample, GroupStatistics,
      Identity, IndexedMaxPooling, IteratorBoundary, KvCacheUpdate, KvCacheWrite,
      LoopOutputBoundary, LpPooling, Lrn, MatMulNBits, MatrixMultiply, MaxUnpool, Moe, Nms, NonZero,
      Normalization, OneHot, ParametricRelu, Pointwise, Pooling, Quantize, QuantizedNormalization,
      RaggedSoftmax, Recurrence, RecurrenceBoundary, Reduce, Reformat, Remainder, Reshape, Resize,
      ReverseSequence, RoiAlign, RoiPool, RotaryEmbedding, RowProduct, Scale, Scatter, Select,
      ShapeOf, Shuffle, ShuffledConcatenation, Slice, Softmax, Squeeze, SqueezeExcitation, TopK,
      Transpose, TripLimitBoundary, Unary, Unique, Unsqueeze>();
}
template <class Visitor>
void each_layer(Visitor&& visitor) {
  each_builtin_operator([&]<class Op>() {
    if constexpr (requires { Op::kLayer; }) visitor.template operator()<Op>();
  });
}

/// Arguments for weights and a tensor that may be omitted, and an argument with a default.
struct OptionalWeights {
  const char* name;
};
struct OptionalTensor {
  const char* name;
};
template <class T>
struct DefaultArgument {
  const char* name;
  T value;
};
template <class T>
DefaultArgument(const char*, T) -> DefaultArgument<T>;

inline const char* argument_name(const char* name) { return name; }
inline const char* argument_name(OptionalWeights argument) { return argument.name; }
inline const char* argument_name(OptionalTensor argument) { return argument.name; }
template <class T>
const char* argument_name(const DefaultArgument<T>& argument) {
  return argument.name;
}

/// A method of INetworkDefinition in both languages.
struct AddMethod {
  const char* name;      ///< in Python
  const char* cpp_name;  ///< in C++
  const char* doc;
};

namespace detail {
template <size_t>
using TensorArgument = Tensor&;

template <class Op, size_t... inputs, class... T>
auto add_function(std::index_sequence<inputs...>, T Op::Params::*... parameters) {
  return [=](Network& network, TensorArgument<inputs>... tensors, T... values) {
    typename Op::Params params;
    ((params.*parameters = std::move(values)), ...);
    return network.add<Op>(std::move(params), {&tensors...});
  };
}
}  // namespace detail

/// A function that adds a layer, given `inputs` inputs and then the values of these parameters.
template <class Op, size_t inputs, class... T>
auto add_function(T Op::Params::*... parameters) {
  return detail::add_function<Op>(std::make_index_sequence<inputs>(), parameters...);
}

template <class Op>
TypedLayer<Op>* add_quantization(Network& network, Tensor& input, Tensor& scale, DataType to) {
  QuantizationParams params;
  params.to = to;
  return network.add<Op>(std::move(params), {&input, &scale});
}

/// Visits the methods of each_add_method() whose layers compute.
template <class Visitor>
void each_computing_method(Visitor& add) {
  add({"add_activation", "addActivation", "A function of each element."},
      add_function<Activation, 1>(&ActivationParams::type), "input", "type");
  add({"add_elementwise", "addElementWise",
       "An operation on two tensors of one type; they broadcast."},
      add_function<ElementWise, 2>(&ElementWiseParams::op), "input1", "input2", "op");
  add({"add_unary", "addUnary", "An operation on each element."},
      add_function<Unary, 1>(&UnaryParams::op), "input", "op");
  add({"add_select", "addSelect",
       "Elements of one or the other tensor, as the BOOL elements of `condition` say."},
      add_function<Select, 3>(), "condition", "then_input", "else_input");
  add({"add_identity", "addIdentity", "The input unchanged."}, add_function<Identity, 1>(),
      "input");
  add({"add_cast", "addCast", "Converts to another type."}, add_function<Cast, 1>(&CastParams::to),
      "input", "to_type");
  add({"add_quantize", "addQuantize",
       "Divides by a scale, rounds half to even and saturates. The scale has one element, one for "
       "each index of `axis`, or one for each block."},
      add_quantization<Quantize>, "input", "scale",
      DefaultArgument{"output_type", DataType::kINT8});
  add({"add_dequantize", "addDequantize",
       "Multiplies by a scale of one element, one for each index of `axis`, or one for each "
       "block."},
      add_quantization<Dequantize>, "input", "scale",
      DefaultArgument{"output_type", DataType::kFLOAT});
  add(
      {"add_dynamic_quantize", "addDynamicQuantize",
       "Divides each block of `block_size` elements along an axis by a scale that follows from its "
       "largest element. Outputs: the elements, FP4, FP8 or INT8, and the scales, FP8, E8M0 "
       "(powers "
       "of two), FLOAT, HALF or BF16."},
      [](Network& network, Tensor& input, int64_t axis, int64_t block_size, DataType output_type,
         DataType scale_type) {
        DynamicQuantizeParams params;
        params.axis = axis, params.block_size = block_size;
        params.to = output_type, params.scale_type = scale_type;
        return network.add<DynamicQuantize>(std::move(params), {&input});
      },
      "input", "axis", "block_size", "output_type", "scale_type");
  add(
      {"add_dynamic_quantize_v2", "addDynamicQuantizeV2",
       "The same for blocks of a shape, of the input's rank; -1 stands for all of an axis."},
      [](Network& network, Tensor& input, const Ints& block_shape, DataType output_type,
         DataType scale_type) {
        DynamicQuantizeParams params;
        params.block_shape = block_shape;
        params.to = output_type, params.scale_type = scale_type;
        return network.add<DynamicQuantize>(std::move(params), {&input});
      },
      "input", "block_shape", "output_type", "scale_type");
  add({"add_parametric_relu", "addParametricReLU", "x < 0 ? x * slope : x; the slopes broadcast."},
      add_function<ParametricRelu, 2>(), "input", "slopes");
  add(
      {"add_matrix_multiply", "addMatrixMultiply",
       "The product of two stacks of matrices or vectors, whose leading axes broadcast."},
      [](Network& network, Tensor& a, MatrixOperation op0, Tensor& b, MatrixOperation op1) {
        MatrixMultiplyParams params;
        params.op0 = op0, params.op1 = op1;
        return network.add<MatrixMultiply>(params, {&a, &b});
      },
      "input0", "op0", "input1", "op1");
  add({"add_softmax", "addSoftMax",
       "Over the third axis from the end, or the first of fewer axes, until `axes` is set."},
      add_softmax, "input");
  add({"add_reduce", "addReduce", "Reduces over the axes whose bits are set."},
      add_function<Reduce, 1>(&ReduceParams::op, &ReduceParams::axes, &ReduceParams::keep_dims),
      "input", "op", "axes", "keep_dims");
  add({"add_topk", "addTopK",
       "The k largest or smallest elements along the axis whose bit is set, and their indices, "
       "INT32 or INT64."},
      add_function<TopK, 1>(&TopKParams::op, &TopKParams::k, &TopKParams::axes,
                            &TopKParams::indices_type),
      "input", "op", "k", "axes", DefaultArgument{"indices_type", DataType::kINT32});
  add(
      {"add_cumulative", "addCumulative",
       "Each element is the sum of those up to it along the axis, a constant of one integer."},
      [](Network& network, Tensor& x, Tensor& axis, CumulativeOperation op, bool exclusive,
         bool reverse) {
        return network.add<Cumulative>({op, exclusive, reverse}, {&x, &axis});
      },
      "input", "axis", "op", "exclusive", "reverse");
  add({"add_scatter", "addScatter",
       "A copy of the data with updates put where indices say; what those out of range refer to is "
       "left out."},
      add_function<Scatter, 3>(&ScatterParams::mode), "data", "indices", "updates", "mode");
  add({"add_non_zero", "addNonZero",
       "The indices of elements that are not zero, [rank, count], and the count."},
      add_function<NonZero, 1>(&NonZeroParams::indices_type), "input",
      DefaultArgument{"indices_type", DataType::kINT32});
  add(
      {"add_nms", "addNMS",
       "Boxes that overlap no better one, [count, 3] of batch, class and box, and the count; "
       "inputs "
       "3 and 4 may be set, the overlap and the score that decide."},
      [](Network& network, Tensor& boxes, Tensor& scores, Tensor& most, DataType indices_type) {
        NmsParams params;
        params.indices_type = indices_type;
        params.is_bounded = most.is_shape_tensor();
        return network.add<Nms>(params, {&boxes, &scores, &most});
      },
      "boxes", "scores", "max_output_boxes_per_class",
      DefaultArgument{"indices_type", DataType::kINT32});
  add({"add_one_hot", "addOneHot",
       "One of two values, off and on, along a new axis whose extent is the depth."},
      add_function<OneHot, 3>(&OneHotParams::axis), "indices", "values", "depth", "axis");
  add({"add_grid_sample", "addGridSample",
       "Interpolates at the positions of a grid, each from -1 to 1."},
      add_function<GridSample, 2>(), "input", "grid");
  add({"add_reverse_sequence", "addReverseSequence",
       "Each sequence of a batch in the opposite order, up to its length."},
      add_function<ReverseSequence, 2>(), "input", "sequence_lens");
  add({"add_normalization", "addNormalization",
       "(x - mean) / sqrt(variance + epsilon) * scale + bias, over the axes whose bits are set."},
      add_function<Normalization, 3>(&NormalizationParams::axes), "input", "scale", "bias",
      "axesMask");
  add({"add_lrn", "addLRN",
       "x / (k + alpha / window * sum(x^2 over the window of channels)) ^ beta."},
      add_function<Lrn, 1>(&LrnParams::window, &LrnParams::alpha, &LrnParams::beta, &LrnParams::k),
      "input", "window", "alpha", "beta", "k");
}

/// Visits the methods whose layers move or make elements, and those whose weights become constants.
template <class Visitor>
void each_moving_method(Visitor& add) {
  add({"add_shape", "addShape", "The extents of a tensor as INT64."}, add_function<ShapeOf, 1>(),
      "input");
  add({"add_gather", "addGather", "Slices along an axis, by their indices."},
      add_function<Gather, 2>(&GatherParams::axis), "input", "indices", "axis");
  add({"add_gather_v2", "addGatherV2", "The same in other modes; the axis is 0 until set."},
      add_function<Gather, 2>(&GatherParams::mode), "input", "indices", "mode");
  add({"add_concatenation", "addConcatenation",
       "Along the third axis from the end, or the first of fewer axes, until `axis` is set."},
      add_concatenation, "inputs");
  add({"add_constant", "addConstant", "A constant; the values are kept, not copied."}, add_constant,
      "shape", "weights");
  add({"add_convolution_nd", "addConvolutionNd",
       "A convolution over the last axes of [N, C, ...], with a kernel [maps, C / groups, ...]; "
       "without one it comes as input 1."},
      add_convolution, "input", "num_output_maps", "kernel_shape", "kernel",
      OptionalWeights{"bias"});
  add({"add_deconvolution_nd", "addDeconvolutionNd",
       "A transposed convolution, with a kernel [C, maps / groups, ...]; without one it comes as "
       "input 1."},
      add_deconvolution, "input", "num_output_maps", "kernel_shape", "kernel",
      OptionalWeights{"bias"});
  add({"add_pooling_nd", "addPoolingNd", "The stride is the window's size until it is set."},
      add_pooling, "input", "type", "window_size");
  add(
      {"add_scale", "addScale",
       "(x * scale + shift) ^ power, with factors for the third axis from the end."},
      [](Network& network, Tensor& x, ScaleMode mode, const WeightsArray& shift,
         const WeightsArray& scale, const WeightsArray& power) {
        return add_scale(network, x, mode, shift, scale, power, std::nullopt);
      },
      "input", "mode", OptionalWeights{"shift"}, OptionalWeights{"scale"},
      OptionalWeights{"power"});
  add(
      {"add_scale_nd", "addScaleNd", "The same with factors for the axis `channel_axis`."},
      [](Network& network, Tensor& x, ScaleMode mode, const WeightsArray& shift,
         const WeightsArray& scale, const WeightsArray& power, int64_t channel_axis) {
        return add_scale(network, x, mode, shift, scale, power, channel_axis);
      },
      "input", "mode", OptionalWeights{"shift"}, OptionalWeights{"scale"}, OptionalWeights{"power"},
      DefaultArgument{"channel_axis", int64_t{1}});
  add({"add_shuffle", "addShuffle", "A transpose, reshape and transpose, as its properties say."},
      add_function<Shuffle, 1>(), "input");
  add({"add_slice", "addSlice", "`shape` elements from `start` on, each `stride`-th."},
      add_function<Slice, 1>(&SliceParams::start, &SliceParams::size, &SliceParams::stride),
      "input", "start", "shape", "stride");
  add({"add_padding_nd", "addPaddingNd",
       "Zeros before and after the last axes; negative numbers crop."},
      add_padding, "input", "pre_padding", "post_padding");
  add({"add_resize", "addResize", "To the input's extents until a shape or scales are set."},
      add_resize, "input");
  add(
      {"add_squeeze", "addSqueeze",
       "The input without the axes of extent 1 that a constant names; negative ones count from the "
       "end. Without `axes` it loses all axes whose extent is 1 in the network."},
      [](Network& network, Tensor& input, Tensor* axes) {
        return axes == nullptr ? network.add<Squeeze>({}, {&input})
                               : network.add<Squeeze>({}, {&input, axes});
      },
      "input", OptionalTensor{"axes"});
  add({"add_unsqueeze", "addUnsqueeze",
       "The input with further axes of extent 1: those of the output that a constant names."},
      add_function<Unsqueeze, 2>(), "input", "axes");
  add(
      {"add_einsum", "addEinsum",
       "Sums of products along axes that an equation names: `bij,bjk->bik`. Inputs have one type."},
      [](Network& network, const std::vector<Tensor*>& inputs, const std::string& equation) {
        return network.add<Einsum>({equation}, inputs);
      },
      "inputs", "equation");
  add(
      {"add_assertion", "addAssertion",
       "Makes a run fail with the message where an element of the condition, BOOL of rank 0 or 1, "
       "is false; a build where that is known."},
      [](Network& network, Tensor& condition, const std::string& message) {
        return network.add<Assertion>({message}, {&condition});
      },
      "condition", "message");
  add({"add_ragged_softmax", "addRaggedSoftMax",
       "A softmax over the first elements of each row, as many as `bounds` says; the others become "
       "0."},
      add_function<RaggedSoftmax, 2>(), "input", "bounds");
  add(
      {"add_normalization_v2", "addNormalizationV2",
       "As add_normalization; with groups scale and bias are [1, channels, 1, ...], not [1, "
       "groups, "
       "1, ...]."},
      [](Network& network, Tensor& input, Tensor& scale, Tensor& bias, int64_t axes) {
        NormalizationParams params;
        params.axes = axes, params.is_v2 = true;
        return network.add<Normalization>(params, {&input, &scale, &bias});
      },
      "input", "scale", "bias", "axesMask");
  add(
      {"add_attention_v2", "addAttentionV2",
       "softmax(Q K^T + mask) V of tensors [batch, heads, tokens, size]; the scale of the scores "
       "is in the query or the key already."},
      [](Network& network, Tensor& query, Tensor& key, Tensor& value,
         AttentionNormalizationOp norm_op, CausalMaskKind causal_kind) {
        AttentionParams params;
        params.norm_op = norm_op, params.causal_kind = causal_kind;
        return AddedAttention{network.add<Attention>(params, {&query, &key, &value})};
      },
      "query", "key", "value", "norm_op", "causal_kind");
  add(
      {"add_attention", "addAttention", "As add_attention_v2; causal is UPPER_LEFT."},
      [](Network& network, Tensor& query, Tensor& key, Tensor& value,
         AttentionNormalizationOp norm_op, bool causal) {
        AttentionParams params;
        params.norm_op = norm_op;
        params.causal_kind = causal ? CausalMaskKind::kUPPER_LEFT : CausalMaskKind::kNONE;
        return AddedAttention{network.add<Attention>(params, {&query, &key, &value})};
      },
      "query", "key", "value", "norm_op", "causal");
  add({"add_rotary_embedding", "addRotaryEmbedding",
       "Turns pairs of elements of each head, [batch, heads, tokens, size], by angles whose "
       "cosines "
       "and sines are [batch, tokens, rotated / 2]; with input 3, positions [batch, tokens], they "
       "are [positions, rotated / 2]."},
      add_function<RotaryEmbedding, 3>(&RotaryEmbeddingParams::interleaved,
                                       &RotaryEmbeddingParams::rotary_embedding_dim),
      "input", "cos_cache", "sin_cache", "interleaved", "rotary_embedding_dim");
  add({"add_kv_cache_update", "addKVCacheUpdate",
       "Writes new tokens [batch, heads, tokens, size] into a cache [batch, heads, room, size], "
       "whose memory the output is, from an index of each batch on."},
      add_function<KvCacheUpdate, 3>(&KvCacheUpdateParams::mode), "cache", "update",
      "write_indices", "cache_mode");
  add({"add_moe", "addMoE",
       "A mixture of experts over hidden states [batch, tokens, hidden]: the sum of those that "
       "were "
       "selected, [batch, tokens, k], by their scores. Weights are set afterwards."},
      add_function<Moe, 3>(), "hidden_states", "selected_experts_for_tokens",
      "scores_for_selected_experts");
  add({"add_fill", "addFill", "Evenly spaced or random values."},
      add_function<Fill, 0>(&FillParams::shape, &FillParams::operation, &FillParams::to_type),
      "shape", "op", DefaultArgument{"output_type", DataType::kFLOAT});
}

/// Calls `visitor(method, function, arguments...)` for each method that adds a built-in layer. The
/// function takes the network and then tensors (`Tensor&`, or a vector of `Tensor*`), `const Ints&`
/// or `const Shape&` for dimensions, `const WeightsArray&`, numbers and enumerators. An argument is
/// a name, OptionalWeights or DefaultArgument.
template <class Visitor>
void each_add_method(Visitor&& add) {
  each_computing_method(add);
  each_moving_method(add);
}

}  // namespace opwright
