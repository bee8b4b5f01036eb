#pragma once

#include <optional>
#include <span>

#include "network/constant.h"
#include "network/network.h"
#include "operators/attention.h"
#include "operators/convolution.h"
#include "operators/elementwise.h"
#include "operators/movement.h"
#include "operators/pooling.h"
#include "operators/properties.h"
#include "operators/reduce.h"

namespace opwright {

// Functions that add layers as the methods of TensorRT's INetworkDefinition do, where that takes
// more than setting parameters: weights become constants, and omitted arguments get TensorRT's
// defaults. All throw Error as Network::add() does, and also if a default depends on the shape of
// an input that cannot be inferred.

/// The axis of channels in TensorRT's defaults: the third from the end, or the first.
int64_t default_channel_axis(const Tensor& tensor);

/// \param kernel `maps` * channels / groups * window elements in this order, of any shape; the
///     number of groups follows from their number. Without elements the kernel comes as input 1.
/// \param bias `maps` elements, or none.
TypedLayer<Convolution>* add_convolution(Network& network, Tensor& input, int64_t maps,
                                         const Ints& window, const WeightsArray& kernel,
                                         const WeightsArray& bias);
/// As add_convolution(), for a kernel of channels * `maps` / groups * window elements.
TypedLayer<Deconvolution>* add_deconvolution(Network& network, Tensor& input, int64_t maps,
                                             const Ints& window, const WeightsArray& kernel,
                                             const WeightsArray& bias);
/// The elements of an input that is a constant; without data for an absent or computed input.
WeightsArray layer_weights(const Layer& layer, int input);
/// Gives a convolution or deconvolution another kernel, in the order of the present one. The window
/// and the output maps stay. Without a present kernel nothing tells the window, so the elements
/// must have the shape of a kernel; else throws Error.
void set_kernel(Layer& convolution, const WeightsArray& kernel);
/// Sets the bias of a convolution or deconvolution. Without elements, removes the bias.
void set_bias(Layer& convolution, const WeightsArray& bias);
/// Sets the shift (input 1), scale (2) or power (3) of a Scale. Without elements, removes it.
void set_scale_factor(Layer& scale, int input, const WeightsArray& factor);
/// Replaces a constant's elements. Throws Error unless there are as many.
void set_constant(Layer& constant, const WeightsArray& elements);
/// Gives a constant another shape. Throws Error unless that shape has as many elements.
void reshape_constant(Layer& constant, const Shape& shape);
/// The window of a convolution's or deconvolution's kernel. Throws Error without a kernel.
Shape kernel_window(const Layer& convolution);
/// Throws Error unless the number of elements fits the shape.
Layer* add_constant(Network& network, const Shape& shape, const WeightsArray& elements);
/// The stride is the window.
TypedLayer<Pooling>* add_pooling(Network& network, Tensor& input, PoolingType type,
                                 const Ints& window);
/// Softmax over the default channel axis.
TypedLayer<Softmax>* add_softmax(Network& network, Tensor& input);
/// Concatenates along the default channel axis of the first input.
TypedLayer<Concatenation>* add_concatenation(Network& network, const std::vector<Tensor*>& inputs);
/// \param channel_axis without a value: the default one.
TypedLayer<Scale>* add_scale(Network& network, Tensor& input, ScaleMode mode,
                             const WeightsArray& shift, const WeightsArray& scale,
                             const WeightsArray& power, std::optional<int64_t> channel_axis);
/// A layer that is shown as one of kPADDING.
struct AddedPadding {
  TypedLayer<Slice>* layer = nullptr;
};
/// A layer that the languages show as an attention.
struct AddedAttention {
  TypedLayer<Attention>* layer = nullptr;
};
/// A slice that adds this many elements before and after the last axes, or takes off as many where
/// negative.
AddedPadding add_padding(Network& network, Tensor& input, const Ints& before, const Ints& after);
/// Elements that such a slice adds before and after each axis. padding_of() throws Error where they
/// are known only at run time.
struct PaddingExtents {
  Shape before, after;
};
PaddingExtents padding_of(const Layer& padding);
/// Resizes to the input's extents, until others are set.
TypedLayer<Resize>* add_resize(Network& network, Tensor& input);

}  // namespace opwright
