// The add_* methods of INetworkDefinition.

#include "operators/add_layers.h"

#include "layers.h"
#include "network/network.h"
#include "operators/matrix.h"
#include "operators/normalization.h"
#include "operators/source.h"
#include "reporting.h"

namespace opwright::python {
namespace {

Ints ints(nb::handle sequence) {
  const Shape shape = to_shape(sequence);
  return Ints(shape.begin(), shape.end());
}

void add_plain(ReportingClass<Network>& c) {
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
      "add_softmax", [](Network& n, Tensor& x) { return add_softmax(n, x); }, nb::arg("input"),
      reference);
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
      [](Network& n, std::vector<Tensor*> inputs) { return add_concatenation(n, inputs); },
      nb::arg("inputs"), reference);
}

void add_with_shapes(ReportingClass<Network>& c) {
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
        return add_convolution(n, x, maps, ints(window), to_weights(kernel, "the kernel"),
                               to_weights(bias, "the bias"));
      },
      nb::arg("input"), nb::arg("num_output_maps"), nb::arg("kernel_shape"), nb::arg("kernel"),
      nb::arg("bias").none() = nb::none(), reference);
  c.def(
      "add_deconvolution_nd",
      [](Network& n, Tensor& x, int64_t maps, nb::handle window, nb::handle kernel,
         nb::handle bias) {
        return add_deconvolution(n, x, maps, ints(window), to_weights(kernel, "the kernel"),
                                 to_weights(bias, "the bias"));
      },
      nb::arg("input"), nb::arg("num_output_maps"), nb::arg("kernel_shape"), nb::arg("kernel"),
      nb::arg("bias").none() = nb::none(), reference);
  c.def(
      "add_pooling_nd",
      [](Network& n, Tensor& x, PoolingType type, nb::handle window) {
        return add_pooling(n, x, type, ints(window));
      },
      nb::arg("input"), nb::arg("type"), nb::arg("window_size"), reference);
  auto scale = [](Network& n, Tensor& x, ScaleMode mode, nb::handle shift, nb::handle scale,
                  nb::handle power, std::optional<int64_t> channel_axis) {
    return add_scale(n, x, mode, to_weights(shift, "shift"), to_weights(scale, "scale"),
                     to_weights(power, "power"), channel_axis);
  };
  c.def(
      "add_scale",
      [scale](Network& n, Tensor& x, ScaleMode mode, nb::handle shift, nb::handle factor,
              nb::handle power) { return scale(n, x, mode, shift, factor, power, std::nullopt); },
      nb::arg("input"), nb::arg("mode"), nb::arg("shift").none() = nb::none(),
      nb::arg("scale").none() = nb::none(), nb::arg("power").none() = nb::none(), reference);
  c.def(
      "add_scale_nd",
      [scale](Network& n, Tensor& x, ScaleMode mode, nb::handle shift, nb::handle factor,
              nb::handle power,
              int64_t axis) { return scale(n, x, mode, shift, factor, power, axis); },
      nb::arg("input"), nb::arg("mode"), nb::arg("shift").none() = nb::none(),
      nb::arg("scale").none() = nb::none(), nb::arg("power").none() = nb::none(),
      nb::arg("channel_axis") = 1, reference);
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
        return layer_object(*add_padding(n, x, ints(pre), ints(post)), nb::find(n));
      },
      nb::arg("input"), nb::arg("pre_padding"), nb::arg("post_padding"),
      nb::sig("def add_padding_nd(self, input: ITensor, pre_padding: object, post_padding: object) "
              "-> IPaddingLayer"));
  c.def(
      "add_resize", [](Network& n, Tensor& x) { return add_resize(n, x); }, nb::arg("input"),
      reference);
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
  auto network = nb::borrow<ReportingClass<Network>>(m.attr("INetworkDefinition"));
  add_plain(network);
  add_with_shapes(network);
}

}  // namespace opwright::python
