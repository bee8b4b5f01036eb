// Convolution and pooling.

#include "operators/convolution.h"

#include "onnx/importer.h"
#include "operators/movement.h"
#include "operators/pooling.h"

namespace opwright::onnx {
namespace {

/// The attributes that convolution and pooling share. ONNX lists all paddings before, then all
/// after.
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

std::vector<Tensor*> weights(NodeImporter& node) {
  std::vector<Tensor*> inputs = {node.input(0), node.input(1)};
  if (Tensor* bias = node.optional_input(2)) inputs.push_back(bias);
  return inputs;
}

void conv(NodeImporter& node) {
  const ConvolutionParams params = convolution_params(node, node.input(0));
  node.set_output(0, node.add<Convolution>(params, weights(node)));
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
    // The padding follows from the wanted extents; what is odd goes to the end, or to the start for
    // SAME_LOWER. Where it would be negative, the output is padded instead.
    if (static_cast<int>(shape.size()) != spatial)
      node.error("output_shape has ", shape.size(), " values; expected ", spatial);
    node.require_rank(node.input(1), spatial + 2, spatial + 2);
    const Shape kernel = constant_shape(node.input(1)->dims());
    const bool lower = params.padding_mode == PaddingMode::kSAME_LOWER;
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
      params.pre_padding.push_back(lower ? total - total / 2 : total / 2);
      params.post_padding.push_back(total - params.pre_padding.back());
    }
  }
  node.set_output(0, node.add<Deconvolution>(params, weights(node)));
}

void pool(NodeImporter& node, PoolingType type) {
  Tensor* x = node.input(0);
  if (node.has_output(1)) node.error("the output of indices is not supported");
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
  node.set_output(0, node.add<Pooling>(params, {x}));
}

void global_pool(NodeImporter& node, ReduceOperation op) {
  Tensor* x = node.input(0);
  Ints axes;
  for (int i = 2; i < spatial_rank(node, x) + 2; ++i) axes.push_back(i);
  node.set_output(0, node.reduce(op, x, axes, true));
}

}  // namespace

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
  table["GlobalAveragePool"] = [](NodeImporter& node) { global_pool(node, ReduceOperation::kAVG); };
  table["GlobalMaxPool"] = [](NodeImporter& node) { global_pool(node, ReduceOperation::kMAX); };
}

}  // namespace opwright::onnx
