// The layer classes: a property for each parameter. Setting one infers the network's shapes again.

#include "layers.h"

#include "bindings.h"
#include "layer_enums.h"
#include "network/constant.h"
#include "network/network.h"
#include "operators/add_layers.h"
#include "operators/convolution.h"
#include "operators/elementwise.h"
#include "operators/layer_types.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pooling.h"
#include "operators/reduce.h"
#include "operators/source.h"

namespace opwright::python {
namespace {

template <class Op>
using Class = nb::class_<TypedLayer<Op>, Layer>;

/// A program may have given the object another class (`layer.__class__ = ...`).
template <class Op>
void check_kind(const TypedLayer<Op>& layer, const char* property) {
  require(layer.op()->kind() == Op::kKind, property, ": layer '", layer.name(), "' is a ",
          layer.op()->kind(), ", not a ", Op::kKind);
}

template <class Op>
const typename Op::Params& params_of(const TypedLayer<Op>& layer, const char* property) {
  check_kind(layer, property);
  return layer.params();
}

template <class Op, class F>
void edit(TypedLayer<Op>& layer, const char* property, F&& change) {
  check_kind(layer, property);
  layer.edit(std::forward<F>(change));
}

/// A property that reads and edits a parameter. Lists of integers are Dims in Python.
template <class Op, class P, class T>
void property(Class<Op>& c, const char* name, T P::*member) {
  using L = TypedLayer<Op>;
  if constexpr (std::is_same_v<T, Ints>) {
    c.def_prop_rw(
        name,
        [=](const L& self) {
          return Shape(std::span<const int64_t>(params_of(self, name).*member));
        },
        [=](L& self, nb::handle value) {
          const Shape shape = to_shape(value);
          edit(self, name, [&](P& p) { (p.*member).assign(shape.begin(), shape.end()); });
        });
  } else {
    c.def_prop_rw(
        name, [=](const L& self) { return params_of(self, name).*member; },
        [=](L& self, T value) { edit(self, name, [&](P& p) { p.*member = value; }); });
  }
}

/// The same under a name where an absent list stands for a value on each spatial axis.
template <class Op, class P>
void spatial(Class<Op>& c, const char* name, Ints P::*member, int64_t otherwise) {
  using L = TypedLayer<Op>;
  c.def_prop_rw(
      name,
      [=](const L& self) {
        const Ints& given = params_of(self, name).*member;
        return given.empty() ? Shape(Ints(self.input(0)->rank() - 2, otherwise))
                             : Shape(std::span<const int64_t>(given));
      },
      [=](L& self, nb::handle value) {
        const Shape shape = to_shape(value);
        edit(self, name, [&](P& p) { (p.*member).assign(shape.begin(), shape.end()); });
      });
}

/// padding_nd sets both sides.
template <class Op, class P>
void padding(Class<Op>& c, Ints P::*pre, Ints P::*post) {
  using L = TypedLayer<Op>;
  spatial(c, "pre_padding", pre, 0);
  spatial(c, "post_padding", post, 0);
  c.def_prop_rw(
      "padding_nd",
      [pre](const L& self) {
        return Shape(std::span<const int64_t>(params_of(self, "padding_nd").*pre));
      },
      [pre, post](L& self, nb::handle value) {
        const Shape shape = to_shape(value);
        edit(self, "padding_nd", [&](P& p) {
          (p.*pre).assign(shape.begin(), shape.end());
          p.*post = p.*pre;
        });
      });
}

template <class Op>
Class<Op> layer(nb::module_& m, const char* name, const char* doc) {
  return Class<Op>(m, name, doc);
}

template <class Op>
void bind_convolution(nb::module_& m, const char* name, const char* doc) {
  auto c = layer<Op>(m, name, doc);
  using P = ConvolutionParams;
  spatial(c, "stride_nd", &P::stride, 1);
  spatial(c, "dilation_nd", &P::dilation, 1);
  padding(c, &P::pre_padding, &P::post_padding);
  property(c, "padding_mode", &P::padding_mode);
  property(c, "num_groups", &P::groups);
  c.def_prop_ro("kernel_size_nd", [](const TypedLayer<Op>& self) { return kernel_window(self); });
  using L = TypedLayer<Op>;
  c.def_prop_rw(
      "kernel", [](const L& self) { return weights_of(self, 1); },
      [](L& self, nb::handle kernel) {
        check_kind(self, "kernel");
        set_kernel(self, to_weights(kernel, "the kernel"));
      },
      "Its elements as a NumPy array of one axis, read-only; empty where they are computed. "
      "Another "
      "one has the same window and output maps.");
  c.def_prop_rw(
      "bias", [](const L& self) { return weights_of(self, 2); },
      [](L& self, nb::handle bias) {
        check_kind(self, "bias");
        set_bias(self, to_weights(bias, "the bias"));
      },
      nb::for_setter(nb::arg("bias").none()),
      "Its elements, likewise; empty where there is none, None takes it away.");
  c.def_prop_ro("num_output_maps",
                [](const TypedLayer<Op>& self) { return self.output(0)->shape()[1]; });
}

void scale_factor(Class<Scale>& c, const char* name, int input, const char* doc) {
  c.def_prop_rw(
      name, [input](const TypedLayer<Scale>& self) { return weights_of(self, input); },
      [=](TypedLayer<Scale>& self, nb::handle factor) {
        check_kind(self, name);
        set_scale_factor(self, input, to_weights(factor, name));
      },
      nb::for_setter(nb::arg(name).none()), doc);
}

void bind_constant(nb::module_& m) {
  using L = TypedLayer<Constant>;
  const auto check = [](const L& self, const char* property) {
    require(self.op()->kind() == "Constant", property, ": layer '", self.name(), "' is a ",
            self.op()->kind(), ", not a Constant");
  };
  nb::class_<L, Layer>(m, "IConstantLayer", "A constant tensor.")
      .def_prop_rw(
          "shape",
          [check](const L& self) {
            check(self, "shape");
            return self.params().shape;
          },
          [check](L& self, nb::handle shape) {
            check(self, "shape");
            reshape_constant(self, to_shape(shape));
          },
          "Its extents; others are of as many elements.")
      .def_prop_rw(
          "weights",
          [check](const L& self) {
            check(self, "weights");
            return weights_of(self, 0);
          },
          [check](L& self, nb::handle weights) {
            check(self, "weights");
            set_constant(self, to_weights(weights, "the weights"));
          },
          "Its elements as a NumPy array of one axis, read-only; others are as many.");
}

/// A Slice that add_padding_nd made.
struct PaddingLayer : Layer {};

void bind_padding(nb::module_& m) {
  const auto extents = [](const Layer& self) {
    require(layer_type(self) == LayerType::kPADDING, "layer '", self.name(), "' is a ",
            self.op()->kind(), ", not one of add_padding_nd");
    return padding_of(self);
  };
  nb::class_<PaddingLayer, Layer>(m, "IPaddingLayer", "Zeros before and after the last axes.")
      .def_prop_ro(
          "pre_padding_nd", [extents](const PaddingLayer& self) { return extents(self).before; },
          "Elements before each axis; negative where some are taken off.")
      .def_prop_ro(
          "post_padding_nd", [extents](const PaddingLayer& self) { return extents(self).after; },
          "Elements after each axis.");
}

/// A layer that the network gives, rather than the method that adds it: as in TensorRT its `type`
/// is a LayerType until a program gives it its class, which has a `type` of its own.
template <class Op>
struct FoundLayer : TypedLayer<Op> {};

template <class Op>
void bind_found_layer(nb::module_& m, const char* name, const Class<Op>& c) {
  nb::class_<FoundLayer<Op>, TypedLayer<Op>> found(m, name);
  found.def_prop_ro(
      "type", [](const Layer& self) { return layer_type(self); }, "What the layer is.");
  for (const char* each : {"__name__", "__qualname__"}) found.attr(each) = c.attr(each);
}

}  // namespace

WeightsArray to_weights(nb::handle weights, std::string_view what) {
  if (weights.is_none()) return {};
  ArrayData array = to_array(weights, what);
  return {array.dtype, array.shape, std::move(array.data)};
}

nb::object weights_of(const Layer& layer, int input) {
  const WeightsArray weights = layer_weights(layer, input);
  return flat_array(weights.dtype, weights.data,
                    weights.data.size() == 0 ? 0 : weights.shape.numel());
}

nb::object layer_object(Layer& layer, nb::handle network) {
  const LayerType type = layer_type(layer);
  const auto as = [&](nb::handle python_class) {
    return nb::inst_reference(python_class, &layer, network);
  };
  if (type == LayerType::kACTIVATION) return as(nb::type<FoundLayer<Activation>>());
  if (type == LayerType::kPOOLING) return as(nb::type<FoundLayer<Pooling>>());
  if (type == LayerType::kPADDING) return as(nb::type<PaddingLayer>());
  if (type == LayerType::kSHAPE) return as(nb::type<TypedLayer<ShapeOf>>());
  return nb::cast(&layer, nb::rv_policy::reference_internal, network);
}

void bind_layers(nb::module_& m) {
  bind_layer_enums(m);
  bind_convolution<Convolution>(m, "IConvolutionLayer",
                                "Cross-correlation over spatial axes of [N, C, ...].");
  bind_convolution<Deconvolution>(m, "IDeconvolutionLayer",
                                  "Transposed convolution over spatial axes of [N, C, ...].");

  auto pooling =
      layer<Pooling>(m, "IPoolingLayer", "Maximum or average over windows of [N, C, ...].");
  property(pooling, "type", &PoolingParams::type);
  property(pooling, "window_size_nd", &PoolingParams::window);
  spatial(pooling, "stride_nd", &PoolingParams::stride, 1);
  padding(pooling, &PoolingParams::pre_padding, &PoolingParams::post_padding);
  property(pooling, "padding_mode", &PoolingParams::padding_mode);
  property(pooling, "blend_factor", &PoolingParams::blend_factor);
  property(pooling, "average_count_excludes_padding",
           &PoolingParams::average_count_excludes_padding);
  bind_found_layer(m, "_FoundPoolingLayer", pooling);

  auto activation =
      layer<Activation>(m, "IActivationLayer", "An activation function, element by element.");
  property(activation, "type", &ActivationParams::type);
  property(activation, "alpha", &ActivationParams::alpha);
  property(activation, "beta", &ActivationParams::beta);
  bind_found_layer(m, "_FoundActivationLayer", activation);

  auto elementwise =
      layer<ElementWise>(m, "IElementWiseLayer", "A binary operation with broadcasting.");
  property(elementwise, "op", &ElementWiseParams::op);
  auto unary = layer<Unary>(m, "IUnaryLayer", "A unary operation, element by element.");
  property(unary, "op", &UnaryParams::op);
  layer<Select>(m, "ISelectLayer", "Chooses between two tensors, element by element.");
  layer<Identity>(m, "IIdentityLayer", "The input unchanged.");
  layer<ParametricRelu>(m, "IParametricReLULayer", "x < 0 ? x * slope : x.");
  auto cast = layer<Cast>(m, "ICastLayer", "Converts to another type.");
  property(cast, "to_type", &CastParams::to);
  auto scale = layer<Scale>(m, "IScaleLayer", "(x * scale + shift) ^ power.");
  property(scale, "mode", &ScaleParams::mode);
  property(scale, "channel_axis", &ScaleParams::channel_axis);
  scale_factor(
      scale, "shift", 1,
      "What is added, as a NumPy array of one axis, read-only; empty for nothing. None takes "
      "it away.");
  scale_factor(scale, "scale", 2, "What is multiplied by, likewise.");
  scale_factor(scale, "power", 3, "What the result is raised to, likewise.");

  auto matrix =
      layer<MatrixMultiply>(m, "IMatrixMultiplyLayer", "Product of stacks of matrices or vectors.");
  property(matrix, "op0", &MatrixMultiplyParams::op0);
  property(matrix, "op1", &MatrixMultiplyParams::op1);

  auto reduce = layer<Reduce>(m, "IReduceLayer", "Reduces over the axes whose bits are set.");
  property(reduce, "op", &ReduceParams::op);
  property(reduce, "axes", &ReduceParams::axes);
  property(reduce, "keep_dims", &ReduceParams::keep_dims);
  auto softmax = layer<Softmax>(m, "ISoftMaxLayer", "Softmax over the axis whose bit is set.");
  property(softmax, "axes", &SoftmaxParams::axes);
  auto top_k = layer<TopK>(m, "ITopKLayer",
                           "The k largest or smallest elements along an axis, and their indices.");
  property(top_k, "op", &TopKParams::op);
  property(top_k, "k", &TopKParams::k);
  property(top_k, "axes", &TopKParams::axes);
  property(top_k, "indices_type", &TopKParams::indices_type);

  auto normalization =
      layer<Normalization>(m, "INormalizationLayer", "Layer, instance or group normalization.");
  property(normalization, "epsilon", &NormalizationParams::epsilon);
  property(normalization, "axes", &NormalizationParams::axes);
  property(normalization, "num_groups", &NormalizationParams::num_groups);
  auto lrn = layer<Lrn>(m, "ILRNLayer", "Local response normalization across channels.");
  property(lrn, "window_size", &LrnParams::window);
  property(lrn, "alpha", &LrnParams::alpha);
  property(lrn, "beta", &LrnParams::beta);
  property(lrn, "k", &LrnParams::k);

  auto shuffle = layer<Shuffle>(m, "IShuffleLayer", "Transpose, reshape, transpose.");
  property(shuffle, "first_transpose", &ShuffleParams::first_transpose);
  property(shuffle, "second_transpose", &ShuffleParams::second_transpose);
  property(shuffle, "zero_is_placeholder", &ShuffleParams::zero_is_placeholder);
  shuffle.def_prop_rw(
      "reshape_dims",
      [](const TypedLayer<Shuffle>& self) {
        return Shape(std::span<const int64_t>(params_of(self, "reshape_dims").reshape_dims));
      },
      [](TypedLayer<Shuffle>& self, nb::handle dims) {
        const Shape shape = to_shape(dims);
        edit(self, "reshape_dims", [&](ShuffleParams& p) {
          p.has_reshape = true;
          p.reshape_dims.assign(shape.begin(), shape.end());
        });
      });
  auto slice =
      layer<Slice>(m, "ISliceLayer", "Strided part of a tensor; beyond the bounds by `mode`.");
  property(slice, "start", &SliceParams::start);
  property(slice, "shape", &SliceParams::size);
  property(slice, "stride", &SliceParams::stride);
  property(slice, "axes", &SliceParams::axes);
  property(slice, "mode", &SliceParams::mode);
  auto concatenation =
      layer<Concatenation>(m, "IConcatenationLayer", "Joins tensors along an axis.");
  property(concatenation, "axis", &ConcatenationParams::axis);
  auto gather = layer<Gather>(m, "IGatherLayer", "Picks elements by indices.");
  property(gather, "axis", &GatherParams::axis);
  property(gather, "mode", &GatherParams::mode);
  property(gather, "num_elementwise_dims", &GatherParams::num_elementwise_dims);
  auto resize = layer<Resize>(m, "IResizeLayer", "Interpolates to other extents.");
  // Each replaces the other.
  resize.def_prop_rw(
      "shape",
      [](const TypedLayer<Resize>& self) {
        return Shape(std::span<const int64_t>(params_of(self, "shape").shape));
      },
      [](TypedLayer<Resize>& self, nb::handle dims) {
        const Shape shape = to_shape(dims);
        edit(self, "shape", [&](ResizeParams& p) {
          p.shape.assign(shape.begin(), shape.end());
          p.scales.clear();
        });
      });
  resize.def_prop_rw(
      "scales", [](const TypedLayer<Resize>& self) { return params_of(self, "scales").scales; },
      [](TypedLayer<Resize>& self, Floats scales) {
        edit(self, "scales", [&](ResizeParams& p) {
          p.scales = std::move(scales);
          p.shape.clear();
        });
      });
  property(resize, "resize_mode", &ResizeParams::mode);
  property(resize, "coordinate_transformation", &ResizeParams::coordinate_transformation);
  property(resize, "nearest_rounding", &ResizeParams::nearest_rounding);
  property(resize, "exclude_outside", &ResizeParams::exclude_outside);
  property(resize, "cubic_coeff", &ResizeParams::cubic_coeff);
  resize.def_prop_rw(
      "selector_for_single_pixel",
      [](const TypedLayer<Resize>& self) {
        return params_of(self, "selector_for_single_pixel").selector_upper
                   ? ResizeSelector::kUPPER
                   : ResizeSelector::kFORMULA;
      },
      [](TypedLayer<Resize>& self, ResizeSelector selector) {
        edit(self, "selector_for_single_pixel",
             [&](ResizeParams& p) { p.selector_upper = selector == ResizeSelector::kUPPER; });
      });

  auto fill = layer<Fill>(m, "IFillLayer", "A tensor of evenly spaced or random values.");
  property(fill, "shape", &FillParams::shape);
  property(fill, "operation", &FillParams::operation);
  property(fill, "to_type", &FillParams::to_type);
  property(fill, "alpha", &FillParams::alpha);
  property(fill, "beta", &FillParams::beta);
  layer<ShapeOf>(m, "IShapeLayer", "The extents of a tensor as INT64.");
  bind_constant(m);
  bind_padding(m);
}

}  // namespace opwright::python
