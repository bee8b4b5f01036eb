// Convolution and pooling.

#include "operators/convolution.h"
#include "operators/col2im.h"

#include "onnx/importer.h"
#include "operators/movement.h"
#include "operators/window_reduction.h"

namespace opwright::onnx {
namespace {

/// Reads the attributes that convolution and pooling share. ONNX lists the paddings before all axes
/// first, then those behind.
template <class Params>
void read_window(NodeImporter& node, int spatial, Params& params) {
  auto checked = [&](const char* name, size_t count) {
    Ints ints = node.get_ints(name);
    if (!ints.empty() && ints.size() != count)
      node.error("attribute '", name, "' has ", ints.size(), " values; expected ", count, " for ",
                 spatial, " spatial axes");
    return ints;
  };
  params.stride = checked("strides", spatial);
  params.dilation = checked("dilations", spatial);
  const std::string mode = node.get_text("auto_pad", "NOTSET");
  if (mode == "SAME_UPPER") {
    params.padding_mode = PaddingMode::kSAME_UPPER;
  } else if (mode == "SAME_LOWER") {
    params.padding_mode = PaddingMode::kSAME_LOWER;
  } else if (mode == "NOTSET") {
    const Ints pads = checked("pads", 2 * spatial);
    if (!pads.empty()) {
      params.pre_padding.assign(pads.begin(), pads.begin() + spatial);
      params.post_padding.assign(pads.begin() + spatial, pads.end());
    }
  } else if (mode != "VALID") {
    node.error("auto_pad is '", mode, "'; expected NOTSET, VALID, SAME_UPPER or SAME_LOWER");
  }
}

int spatial_rank(NodeImporter& node, Tensor* x) {
  if (x->rank() < 3)
    node.error("the input has rank ", x->rank(), "; expected [N, C, spatial axes...]");
  return x->rank() - 2;
}

/// The image, the kernel and the bias.
std::vector<Tensor*> image_and_weights(NodeImporter& node) {
  std::vector<Tensor*> inputs = {node.input(0), node.input(1)};
  if (Tensor* bias = node.optional_input(2)) inputs.push_back(bias);
  return inputs;
}

void conv(NodeImporter& node) {
  const ConvolutionParams params = convolution_params(node, node.input(0));
  node.set_output(0, node.add<Convolution>(params, image_and_weights(node)));
}

void conv_transpose(NodeImporter& node) {
  Tensor* x = node.input(0);
  const int spatial = spatial_rank(node, x);
  ConvolutionParams params;
  read_window(node, spatial, params);
  params.groups = node.get_int("group", 1);
  params.output_padding = node.get_ints("output_padding");
  if (!params.output_padding.empty() && params.output_padding.size() != size_t(spatial))
    node.error("attribute 'output_padding' has ", params.output_padding.size(),
               " values; expected ", spatial);
  if (const Ints shape = node.get_ints("output_shape"); !shape.empty()) {
    // The padding follows from the wanted extents. An odd element goes to the start, or to the end
    // for SAME_UPPER; before opset 11 it goes to the start only for SAME_LOWER. Where the padding
    // would be negative, the output is padded instead.
    if (static_cast<int>(shape.size()) != spatial)
      node.error("output_shape has ", shape.size(), " values; expected ", spatial);
    node.require_rank(node.input(1), spatial + 2, spatial + 2);
    const Shape kernel = constant_shape(node.input(1)->dims());
    const bool starts_with_more = node.opset() < 11
                                      ? params.padding_mode == PaddingMode::kSAME_LOWER
                                      : params.padding_mode != PaddingMode::kSAME_UPPER;
    params.padding_mode = PaddingMode::kEXPLICIT_ROUND_DOWN;
    params.pre_padding.clear(), params.post_padding.clear();
    params.output_padding.resize(spatial);
    for (int i = 0; i < spatial; ++i) {
      // Expr computes without overflow.
      const Expr stride = params.stride.empty() ? 1 : params.stride[i];
      const Expr dilation = params.dilation.empty() ? 1 : params.dilation[i];
      const Expr extra = params.output_padding[i];
      const Expr& extent = x->dims()[i + 2];
      if (!extent.is_constant()) node.error("output_shape needs an input of constant extents");
      const Expr surplus =
          stride * (extent - 1) + extra + (Expr(kernel[i + 2]) - 1) * dilation + 1 - shape[i];
      const int64_t total = max(surplus, 0).constant();
      params.output_padding[i] = (extra + max(Expr(0) - surplus, 0)).constant();
      params.pre_padding.push_back(starts_with_more ? total - total / 2 : total / 2);
      params.post_padding.push_back(total - params.pre_padding.back());
    }
  }
  node.set_output(0, node.add<Deconvolution>(params, image_and_weights(node)));
}

void pool(NodeImporter& node, PoolingType type) {
  const PoolingParams params = pooling_params(node, type);
  if (!node.has_output(1)) return node.set_output(0, node.add<Pooling>(params, {node.input(0)}));
  const bool column_major = node.get_int("storage_order", 0) != 0;
  const Layer* layer = node.network().add<IndexedMaxPooling>({params, column_major},
                                                             {node.input(0)}, node.next_name());
  node.set_output(0, layer->output(0));
  node.set_output(1, layer->output(1));
}

double exponent_of(NodeImporter& node) {
  const int64_t p = node.get_int("p", 2);
  if (p < 1) node.error("p is ", p, "; expected at least 1");
  return static_cast<double>(p);
}

void lp_pool(NodeImporter& node) {
  const LpPoolingParams params = {pooling_params(node, PoolingType::kAVERAGE), exponent_of(node)};
  node.set_output(0, node.add<LpPooling>(params, {node.input(0)}));
}

void global_lp_pool(NodeImporter& node) {
  Tensor* x = node.input(0);
  const double p = exponent_of(node);
  Ints axes;
  for (int i = 2; i < spatial_rank(node, x) + 2; ++i) axes.push_back(i);
  x = node.unary(UnaryOperation::kABS, x);
  if (p != 1) x = node.elementwise(ElementWiseOperation::kPOW, x, p);
  Tensor* sum = node.reduce(ReduceOperation::kSUM, x, axes, true);
  node.set_output(0, p == 1 ? sum : node.elementwise(ElementWiseOperation::kPOW, sum, 1 / p));
}

void col_to_im(NodeImporter& node) {
  Tensor* const x = node.cast(node.input(0), DataType::kFLOAT);
  node.require_rank(x, 3, 3);
  const std::vector<Expr> image = node.values(node.input(1), "image_shape");
  Col2ImParams params;
  params.block = node.constant_ints(node.input(2), "block_shape");
  const size_t spatial = image.size();
  params.dilation = node.get_ints("dilations", Ints(spatial, 1));
  params.stride = node.get_ints("strides", Ints(spatial, 1));
  const Ints pads = node.get_ints("pads", Ints(2 * spatial, 0));
  if (spatial < 1 || spatial > 3 || params.block.size() != spatial ||
      params.dilation.size() != spatial || pads.size() != 2 * spatial ||
      params.stride.size() != spatial)
    node.error("image_shape has ", spatial,
               " values; expected 1 to 3, and as many in block_shape, ",
               "dilations and strides, and twice as many in pads");
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(spatial);
  params.pre_padding.assign(pads.begin(), middle), params.post_padding.assign(middle, pads.end());
  Tensor* const y = node.add<Col2Im>(params, {x, node.network().add_values(image)});
  node.set_output(0, node.cast(y, node.input(0)->dtype()));
}

void global_pool(NodeImporter& node, ReduceOperation op) {
  Tensor* x = node.input(0);
  Ints axes;
  for (int i = 2; i < spatial_rank(node, x) + 2; ++i) axes.push_back(i);
  node.set_output(0, node.reduce(op, x, axes, true));
}

}  // namespace

Tensor* with_channels_first(NodeImporter& node, Tensor* x) {
  Ints order = {0, spatial_rank(node, x) + 1};
  for (int i = 1; i + 1 < x->rank(); ++i) order.push_back(i);
  return node.transpose(x, order);
}

Tensor* with_channels_last(NodeImporter& node, Tensor* x) {
  Ints order = {0};
  for (int i = 2; i < spatial_rank(node, x) + 2; ++i) order.push_back(i);
  order.push_back(1);
  return node.transpose(x, order);
}

PoolingParams pooling_params(NodeImporter& node, PoolingType type) {
  Tensor* x = node.input(0);
  PoolingParams params;
  params.type = type;
  params.window = node.get_ints("kernel_shape");
  const int spatial = spatial_rank(node, x);
  if (static_cast<int>(params.window.size()) != spatial)
    node.error("kernel_shape has ", params.window.size(), " values; expected ", spatial);
  read_window(node, spatial, params);
  params.average_count_excludes_padding = node.get_int("count_include_pad", 0) == 0;
  if (node.get_int("ceil_mode", 0) != 0 && params.padding_mode == PaddingMode::kEXPLICIT_ROUND_DOWN)
    params.padding_mode = PaddingMode::kEXPLICIT_ROUND_UP;
  return params;
}

ConvolutionParams convolution_params(NodeImporter& node, Tensor* x) {
  ConvolutionParams params;
  read_window(node, spatial_rank(node, x), params);
  params.groups = node.get_int("group", 1);
  return params;
}

void add_convolution(NodeTable& table) {
  table["Conv"] = conv;
  table["ConvTranspose"] = conv_transpose;
  table["MaxPool"] = [](NodeImporter& node) { pool(node, PoolingType::kMAX); };
  table["AveragePool"] = [](NodeImporter& node) { pool(node, PoolingType::kAVERAGE); };
  table["LpPool"] = lp_pool;
  table["GlobalLpPool"] = global_lp_pool;
  table["Col2Im"] = col_to_im;
  table["GlobalAveragePool"] = [](NodeImporter& node) { global_pool(node, ReduceOperation::kAVG); };
  table["GlobalMaxPool"] = [](NodeImporter& node) { global_pool(node, ReduceOperation::kMAX); };
}

}  // namespace opwright::onnx
