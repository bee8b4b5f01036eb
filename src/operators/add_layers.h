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

// Layers as the methods of TensorRT's INetworkDefinition add them, where that is more than handing
// over parameters: weights become constants, and what is not said gets TensorRT's defaults. All
// throw Error as Network::add() does, and where a default hangs on the shape of an input that
// cannot be inferred.

/// The axis of channels in TensorRT's defaults: the third from the end, or the first.
/// Throws Error: an engine runs on one device.
[[noreturn]] Layer* add_dist_collective(Network& network, Tensor& input, CollectiveOperation op,
                                        ReduceOperation reduce, int64_t root, int64_t group_size);

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
/// What an input that is a constant holds; without data for one that is absent or computed.
WeightsArray layer_weights(const Layer& layer, int input);
/// Gives a convolution or deconvolution another kernel, in the order of the present one, whose
/// window and output maps it keeps. Throws Error where there is none, so that nothing says its
/// window, unless the elements have the shape of a kernel.
void set_kernel(Layer& convolution, const WeightsArray& kernel);
/// Of a convolution or deconvolution; without elements there is no bias any more.
void set_bias(Layer& convolution, const WeightsArray& bias);
/// The shift (input 1), scale (2) or power (3) of a Scale; without elements there is none any more.
void set_scale_factor(Layer& scale, int input, const WeightsArray& factor);
/// Replaces a constant's elements; throws Error unless there are as many.
void set_constant(Layer& constant, const WeightsArray& elements);
/// Gives a constant another shape; throws Error unless it has as many elements.
void reshape_constant(Layer& constant, const Shape& shape);
/// The window that the kernel of a convolution or deconvolution has. Throws Error without a kernel.
Shape kernel_window(const Layer& convolution);
/// Throws Error unless there are as many elements as the shape says.
Layer* add_constant(Network& network, const Shape& shape, const WeightsArray& elements);
/// The stride is the window.
TypedLayer<Pooling>* add_pooling(Network& network, Tensor& input, PoolingType type,
                                 const Ints& window);
/// Over the default channel axis.
TypedLayer<Softmax>* add_softmax(Network& network, Tensor& input);
/// Along the default channel axis of the first input.
TypedLayer<Concatenation>* add_concatenation(Network& network, const std::vector<Tensor*>& inputs);
/// \param channel_axis without a value: the default one.
TypedLayer<Scale>* add_scale(Network& network, Tensor& input, ScaleMode mode,
                             const WeightsArray& shift, const WeightsArray& scale,
                             const WeightsArray& power, std::optional<int64_t> channel_axis);
/// A layer that is shown as one of kPADDING.
struct AddedPadding {
  TypedLayer<Slice>* layer = nullptr;
};
/// A layer that the languages show as the attention that it is.
struct AddedAttention {
  TypedLayer<Attention>* layer = nullptr;
};
/// A slice that adds (or, where negative, takes off) so many elements before and after the last
/// axes.
AddedPadding add_padding(Network& network, Tensor& input, const Ints& before, const Ints& after);
/// What such a slice adds before and after each axis. Throws Error where that is known at run time
/// only.
struct PaddingExtents {
  Shape before, after;
};
PaddingExtents padding_of(const Layer& padding);
/// To the same extents, until others are set.
TypedLayer<Resize>* add_resize(Network& network, Tensor& input);

}  // namespace opwright
