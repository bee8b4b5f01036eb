// The add_* methods of INetworkDefinition.

#include "bindings.h"
#include "network/constant.h"
#include "network/network.h"
#include "operators/convolution.h"
#include "operators/elementwise.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pooling.h"
#include "operators/reduce.h"
#include "operators/source.h"

namespace opwright::python {
namespace {

Ints ints(nb::handle sequence) {
  const Shape shape = to_shape(sequence);
  return Ints(shape.begin(), shape.end());
}

/// Weights as a constant of the given shape, or of the array's own. Null for None and for Weights
/// without values.
Tensor* constant(Network& network, nb::handle weights, std::optional<Shape> shape,
                 std::string_view what) {
  if (weights.is_none()) return nullptr;
  ArrayData array = to_array(weights, what);
  if (array.data.size() == 0) return nullptr;
  if (shape) {
    require(shape->numel() == array.shape.numel(), what, " has ", array.shape.numel(),
            " elements; expected ", shape->numel(), " (", shape->str(), ")");
    array.shape = *shape;
  }
  return network.add_constant(array.dtype, array.shape, array.data);
}

/// Kernel [maps, channels / groups, window...]; the number of channels follows from the size of the
/// array, as groups are set later.
template <class Op>
TypedLayer<Op>* add_convolution(Network& network, Tensor& input, int64_t maps, nb::handle window,
                                nb::handle kernel, nb::handle bias, bool transposed) {
  const Ints extents = ints(window);
  const ArrayData array = to_array(kernel, "the kernel");
  int64_t area = maps;
  for (int64_t extent : extents) area *= extent;
  require(input.rank() == static_cast<int>(extents.size()) + 2, Op::kKind, ": the input has rank ",
          input.rank(), "; expected ", extents.size() + 2, " for a kernel over ", extents.size(),
          " axes");
  require(maps > 0 && area > 0 && array.shape.numel() % area == 0, Op::kKind, ": the kernel has ",
          array.shape.numel(), " elements; expected a multiple of ", area, " for ", maps,
          " output maps");
  const int64_t channels = input.shape()[1];
  int64_t groups = 1;
  Shape shape;
  if (transposed) {
    // [channels, maps / groups, window...]
    const int64_t per_map = array.shape.numel() / (area / maps);
    require(channels > 0 && per_map % channels == 0, Op::kKind, ": the kernel does not fit ",
            channels, " input channels");
    shape = Shape{channels, per_map / channels};
    groups = maps / std::max<int64_t>(1, per_map / channels);
  } else {
    shape = Shape{maps, array.shape.numel() / area};
    groups = channels / std::max<int64_t>(1, array.shape.numel() / area);
  }
  for (int64_t extent : extents) shape.push_back(extent);
  std::vector<Tensor*> inputs = {&input, network.add_constant(array.dtype, shape, array.data)};
  if (Tensor* b = constant(network, bias, Shape{maps}, "the bias")) inputs.push_back(b);
  ConvolutionParams params;
  params.groups = std::max<int64_t>(1, groups);
  return network.add<Op>(params, inputs);
}

void add_plain(nb::class_<Network>& c) {
  constexpr auto reference = nb::rv_policy::reference_internal;
  c.def(
      "add_activation",
      [](Network& n, Tensor& input, ActivationType type) {
        return n.add<Activation>({type}, {&input});
      },
      nb::arg("input"), nb::arg("type"), reference);
  c.def(
      "add_elementwise",
      [](Network& n, Tensor& a, Tensor& b, ElementWiseOperation op) {
        return n.add<ElementWise>({op}, {&a, &b});
      },
      nb::arg("input1"), nb::arg("input2"), nb::arg("op"), reference);
  c.def(
      "add_unary",
      [](Network& n, Tensor& x, UnaryOperation op) { return n.add<Unary>({op}, {&x}); },
      nb::arg("input"), nb::arg("op"), reference);
  c.def(
      "add_select",
      [](Network& n, Tensor& condition, Tensor& a, Tensor& b) {
        return n.add<Select>({}, {&condition, &a, &b});
      },
      nb::arg("condition"), nb::arg("then_input"), nb::arg("else_input"), reference);
  c.def(
      "add_identity", [](Network& n, Tensor& x) { return n.add<Identity>({}, {&x}); },
      nb::arg("input"), reference);
  c.def(
      "add_cast", [](Network& n, Tensor& x, DataType to) { return n.add<Cast>({to}, {&x}); },
      nb::arg("input"), nb::arg("to_type"), reference);
  c.def(
      "add_parametric_relu",
      [](Network& n, Tensor& x, Tensor& slopes) {
        return n.add<ParametricRelu>({}, {&x, &slopes});
      },
      nb::arg("input"), nb::arg("slopes"), reference);
  c.def(
      "add_matrix_multiply",
      [](Network& n, Tensor& a, MatrixOperation op0, Tensor& b, MatrixOperation op1) {
        MatrixMultiplyParams params;
        params.op0 = op0, params.op1 = op1;
        return n.add<MatrixMultiply>(params, {&a, &b});
      },
      nb::arg("input0"), nb::arg("op0"), nb::arg("input1"), nb::arg("op1"), reference);
  c.def(
      "add_softmax",
      [](Network& n, Tensor& x) {
        // TensorRT's default: the channels of [N, C, H, W] and of [C, H, W], else the first axis.
        const int axis = std::max(0, x.rank() - 3);
        return n.add<Softmax>({int64_t{1} << axis}, {&x});
      },
      nb::arg("input"), reference);
  c.def(
      "add_reduce",
      [](Network& n, Tensor& x, ReduceOperation op, int64_t axes, bool keep_dims) {
        return n.add<Reduce>({op, axes, keep_dims}, {&x});
      },
      nb::arg("input"), nb::arg("op"), nb::arg("axes"), nb::arg("keep_dims"), reference);
  c.def(
      "add_topk",
      [](Network& n, Tensor& x, TopKOperation op, int64_t k, int64_t axes, DataType indices_type) {
        return n.add<TopK>({op, k, axes, indices_type}, {&x});
      },
      nb::arg("input"), nb::arg("op"), nb::arg("k"), nb::arg("axes"),
      nb::arg("indices_type") = DataType::kINT32, reference);
  c.def(
      "add_normalization",
      [](Network& n, Tensor& x, Tensor& scale, Tensor& bias, int64_t axes) {
        NormalizationParams params;
        params.axes = axes;
        return n.add<Normalization>(params, {&x, &scale, &bias});
      },
      nb::arg("input"), nb::arg("scale"), nb::arg("bias"), nb::arg("axesMask"), reference);
  c.def(
      "add_lrn",
      [](Network& n, Tensor& x, int64_t window, float alpha, float beta, float k) {
        return n.add<Lrn>({window, alpha, beta, k}, {&x});
      },
      nb::arg("input"), nb::arg("window"), nb::arg("alpha"), nb::arg("beta"), nb::arg("k"),
      reference);
  c.def(
      "add_shape", [](Network& n, Tensor& x) { return n.add<ShapeOf>({}, {&x}); }, nb::arg("input"),
      reference);
  c.def(
      "add_gather",
      [](Network& n, Tensor& x, Tensor& indices, int64_t axis) {
        GatherParams params;
        params.axis = axis;
        return n.add<Gather>(params, {&x, &indices});
      },
      nb::arg("input"), nb::arg("indices"), nb::arg("axis"), reference);
  c.def(
      "add_gather_v2",
      [](Network& n, Tensor& x, Tensor& indices, GatherMode mode) {
        GatherParams params;
        params.mode = mode;
        return n.add<Gather>(params, {&x, &indices});
      },
      nb::arg("input"), nb::arg("indices"), nb::arg("mode"), reference);
  c.def(
      "add_concatenation",
      [](Network& n, std::vector<Tensor*> inputs) {
        require(!inputs.empty(), "add_concatenation: there are no inputs");
        // TensorRT's default: the channels, counted from the end.
        return n.add<Concatenation>({std::max(0, inputs[0]->rank() - 3)}, inputs);
      },
      nb::arg("inputs"), reference);
}

void add_with_shapes(nb::class_<Network>& c) {
  constexpr auto reference = nb::rv_policy::reference_internal;
  c.def(
      "add_constant",
      [](Network& n, nb::handle shape, nb::handle weights) {
        ArrayData array = to_array(weights, "add_constant");
        return n.add_constant(array.dtype, to_shape(shape), array.data)->producer();
      },
      nb::arg("shape"), nb::arg("weights"), reference,
      "A constant; the values are kept, not copied.");
  c.def(
      "add_convolution_nd",
      [](Network& n, Tensor& x, int64_t maps, nb::handle window, nb::handle kernel,
         nb::handle bias) {
        return add_convolution<Convolution>(n, x, maps, window, kernel, bias, false);
      },
      nb::arg("input"), nb::arg("num_output_maps"), nb::arg("kernel_shape"), nb::arg("kernel"),
      nb::arg("bias").none() = nb::none(), reference);
  c.def(
      "add_deconvolution_nd",
      [](Network& n, Tensor& x, int64_t maps, nb::handle window, nb::handle kernel,
         nb::handle bias) {
        return add_convolution<Deconvolution>(n, x, maps, window, kernel, bias, true);
      },
      nb::arg("input"), nb::arg("num_output_maps"), nb::arg("kernel_shape"), nb::arg("kernel"),
      nb::arg("bias").none() = nb::none(), reference);
  c.def(
      "add_pooling_nd",
      [](Network& n, Tensor& x, PoolingType type, nb::handle window) {
        PoolingParams params;
        params.type = type;
        params.window = ints(window);
        params.stride = params.window;  // TensorRT's default
        return n.add<Pooling>(params, {&x});
      },
      nb::arg("input"), nb::arg("type"), nb::arg("window_size"), reference);
  auto add_scale = [](Network& n, Tensor& x, ScaleMode mode, nb::handle shift, nb::handle scale,
                      nb::handle power, int64_t channel_axis) {
    ScaleParams params;
    params.mode = mode;
    params.channel_axis = channel_axis;
    std::vector<Tensor*> inputs = {&x, constant(n, shift, {}, "shift"),
                                   constant(n, scale, {}, "scale"),
                                   constant(n, power, {}, "power")};
    return n.add<Scale>(params, inputs);
  };
  c.def(
      "add_scale",
      [add_scale](Network& n, Tensor& x, ScaleMode mode, nb::handle shift, nb::handle scale,
                  nb::handle power) {
        return add_scale(n, x, mode, shift, scale, power, std::max(0, x.rank() - 3));
      },
      nb::arg("input"), nb::arg("mode"), nb::arg("shift").none() = nb::none(),
      nb::arg("scale").none() = nb::none(), nb::arg("power").none() = nb::none(), reference);
  c.def("add_scale_nd", add_scale, nb::arg("input"), nb::arg("mode"),
        nb::arg("shift").none() = nb::none(), nb::arg("scale").none() = nb::none(),
        nb::arg("power").none() = nb::none(), nb::arg("channel_axis") = 1, reference);
  c.def(
      "add_shuffle", [](Network& n, Tensor& x) { return n.add<Shuffle>({}, {&x}); },
      nb::arg("input"), reference);
  c.def(
      "add_slice",
      [](Network& n, Tensor& x, nb::handle start, nb::handle shape, nb::handle stride) {
        SliceParams params;
        params.start = ints(start), params.size = ints(shape), params.stride = ints(stride);
        return n.add<Slice>(params, {&x});
      },
      nb::arg("input"), nb::arg("start"), nb::arg("shape"), nb::arg("stride"), reference);
  c.def(
      "add_padding_nd",
      [](Network& n, Tensor& x, nb::handle pre, nb::handle post) {
        const Ints before = ints(pre), after = ints(post);
        const int rank = x.rank(), first = rank - static_cast<int>(before.size());
        require(before.size() == after.size() && first >= 0, "add_padding_nd: pre_padding has ",
                before.size(), " and post_padding ", after.size(),
                " values; expected the same number, at most the rank ", rank);
        SliceParams params;
        params.mode = SampleMode::kFILL;
        params.start.assign(rank, 0), params.stride.assign(rank, 1);
        std::vector<Expr> size(x.dims().begin(), x.dims().end());
        for (int i = first; i < rank; ++i) {
          params.start[i] = -before[i - first];
          size[i] = size[i] + before[i - first] + after[i - first];
        }
        if (is_constant(size)) {
          for (const Expr& extent : size) params.size.push_back(extent.constant());
          return n.add<Slice>(params, {&x});
        }
        return n.add<Slice>(params, {&x, nullptr, n.add_values(std::move(size))});
      },
      nb::arg("input"), nb::arg("pre_padding"), nb::arg("post_padding"), reference);
  c.def(
      "add_resize",
      [](Network& n, Tensor& x) {
        ResizeParams params;
        const Shape shape = x.shape();
        params.scales.assign(shape.rank(), 1.0);
        return n.add<Resize>(params, {&x});
      },
      nb::arg("input"), reference);
  c.def(
      "add_fill",
      [](Network& n, nb::handle shape, FillOperation operation, DataType type) {
        FillParams params;
        params.operation = operation;
        params.shape = ints(shape);
        params.to_type = type;
        return n.add<Fill>(params, {});
      },
      nb::arg("shape"), nb::arg("op"), nb::arg("output_type") = DataType::kFLOAT, reference);
}

}  // namespace

void bind_add_layers(nb::module_& m) {
  auto network = nb::borrow<nb::class_<Network>>(m.attr("INetworkDefinition"));
  add_plain(network);
  add_with_shapes(network);
}

}  // namespace opwright::python
