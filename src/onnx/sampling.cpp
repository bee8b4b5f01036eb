// Operators that sample images at positions.

#include "operators/sampling.h"

#include "onnx/importer.h"
#include "operators/infer.h"
#include "operators/matrix.h"

namespace opwright::onnx {
namespace {

void grid_sample(NodeImporter& node) {
  GridSampleParams params;
  const std::string mode = node.get_text("mode", "linear");
  if (mode == "linear" || mode == "bilinear")
    params.interpolation_mode = InterpolationMode::kLINEAR;
  else if (mode == "nearest")
    params.interpolation_mode = InterpolationMode::kNEAREST;
  else if (mode == "cubic" || mode == "bicubic")
    params.interpolation_mode = InterpolationMode::kCUBIC;
  else
    node.error("mode is '", mode, "'; expected linear, nearest or cubic");
  const std::string padding = node.get_text("padding_mode", "zeros");
  if (padding == "zeros")
    params.sample_mode = SampleMode::kFILL;
  else if (padding == "border")
    params.sample_mode = SampleMode::kCLAMP;
  else if (padding == "reflection")
    params.sample_mode = SampleMode::kREFLECT;
  else
    node.error("padding_mode is '", padding, "'; expected zeros, border or reflection");
  params.align_corners = node.get_int("align_corners", 0) != 0;
  node.set_output(0, node.add<GridSample>(params, {node.input(0), node.input(1)}));
}

void roi_align(NodeImporter& node) {
  RoiAlignParams params;
  const std::string mode = node.get_text("mode", "avg");
  if (mode != "avg" && mode != "max") node.error("mode is '", mode, "'; expected avg or max");
  params.max = mode == "max";
  params.height = node.get_int("output_height", 1);
  params.width = node.get_int("output_width", 1);
  params.sampling_ratio = node.get_int("sampling_ratio", 0);
  params.spatial_scale = node.get_float("spatial_scale", 1);
  const bool is_old = node.opset() < 16;
  const std::string transformation =
      is_old ? "output_half_pixel" : node.get_text("coordinate_transformation_mode", "half_pixel");
  if (transformation != "half_pixel" && transformation != "output_half_pixel")
    node.error("coordinate_transformation_mode is '", transformation,
               "'; expected half_pixel or output_half_pixel");
  params.half_pixel = transformation == "half_pixel";
  node.set_output(0, node.add<RoiAlign>(params, {node.input(0), node.input(1), node.input(2)}));
}

void max_roi_pool(NodeImporter& node) {
  const Ints shape = node.get_ints("pooled_shape");
  if (shape.size() != 2) node.error("pooled_shape has ", shape.size(), " values; expected 2");
  const RoiPoolParams params = {shape[0], shape[1], node.get_float("spatial_scale", 1)};
  node.set_output(0, node.add<RoiPool>(params, {node.input(0), node.input(1)}));
}

/// The positions of an axis's elements, from -1 to 1: (2 * i + 1) / extent - 1, or
/// 2 * i / (extent - 1) - 1 where the corners are elements.
Tensor* positions_of(NodeImporter& node, const Expr& extent, bool align) {
  Tensor* steps =
      node.elementwise(ElementWiseOperation::kPROD, node.count_up(extent, DataType::kFLOAT), 2.0);
  if (!align) steps = node.elementwise(ElementWiseOperation::kSUM, steps, 1.0);
  const Expr range = align ? max(extent - 1, 1) : extent;
  Tensor* divisor = node.reshape(node.scalar_of(range, DataType::kFLOAT), SymShape{1});
  steps = node.elementwise(ElementWiseOperation::kDIV, steps, divisor);
  return node.elementwise(ElementWiseOperation::kSUB, steps, 1.0);
}

/// The matrices times the positions (x, y, z) of an image's elements and 1. What a matrix makes of
/// x and 1 is the same for all rows of the image, so it is computed once: [n, rows, width, axes] is
/// (1, y, z) [rows, axes] times (x and 1, y's factors, z's factors) [n, axes, width * axes].
void affine_grid(NodeImporter& node) {
  Tensor* theta = node.input(0);
  node.require_rank(theta, 3, 3);
  const std::vector<Expr> size = node.values(node.input(1), "size");
  if (size.size() != 4 && size.size() != 5)
    node.error("size has ", size.size(), " values; expected 4 or 5");
  const int axes = static_cast<int>(size.size()) - 2;
  const bool align = node.get_int("align_corners", 0) != 0;
  const SymShape outer(size.begin() + 2, size.end() - 1);
  const Expr images = theta->dims()[0], rows = numel(outer), &width = size.back();
  const auto constant = [&](const Shape& shape, float value) {
    const std::vector<float> values(static_cast<size_t>(shape.numel()), value);
    return node.constant_of(shape, values, DataType::kFLOAT);
  };

  SymShape column = outer;
  column.push_back(1);
  std::vector<Tensor*> by_row = {node.expand(constant({1}, 1), column)};
  std::vector<Tensor*> of_width = {
      node.concatenate({node.reshape(positions_of(node, width, align), SymShape{width, 1}),
                        node.expand(constant({axes - 1}, 0), SymShape{width, axes - 1}),
                        node.expand(constant({1}, 1), SymShape{width, 1})},
                       1)};
  for (int i = axes - 2; i >= 0; --i) {
    SymShape shape(static_cast<size_t>(axes), 1);
    shape[static_cast<size_t>(i)] = outer[static_cast<size_t>(i)];
    Tensor* positions = positions_of(node, outer[static_cast<size_t>(i)], align);
    by_row.push_back(node.expand(node.reshape(positions, shape), column));
    std::vector<float> chosen(static_cast<size_t>(axes) + 1, 0);
    chosen[static_cast<size_t>(axes - 1 - i)] = 1;
    of_width.push_back(node.expand(node.constant_of({1, axes + 1}, chosen, DataType::kFLOAT),
                                   SymShape{width, axes + 1}));
  }
  Tensor* left = node.reshape(node.concatenate(by_row, axes - 1), SymShape{1, rows, axes});
  Tensor* right = node.reshape(node.concatenate(of_width, 0), SymShape{1, width * axes, axes + 1});
  right = node.multiply_matrices(right, node.cast(theta, DataType::kFLOAT), MatrixOperation::kNONE,
                                 MatrixOperation::kTRANSPOSE);
  right = node.reshape(right, SymShape{images, axes, width * axes});
  SymShape result = {images};
  result.insert(result.end(), size.begin() + 2, size.end());
  result.push_back(axes);
  Tensor* grid = node.reshape(node.multiply_matrices(left, right), result);
  node.set_output(0, node.cast(grid, theta->dtype()));
}

/// The kernel's matrices times the elements in its windows.
void deform_conv(NodeImporter& node) {
  Tensor *x = node.input(0), *kernel = node.input(1), *offsets = node.input(2);
  if (x->rank() != 4)
    node.error("'", x->name(), "' has rank ", x->rank(), "; expected 4, images of two axes");
  node.require_rank(kernel, 4, 4), node.require_rank(offsets, 4, 4);
  const auto two = [&](const char* name, int64_t otherwise) {
    Ints ints = node.get_ints(name, Ints(2, otherwise));
    if (ints.size() != 2) node.error(name, " has ", ints.size(), " values; expected 2");
    return ints;
  };
  DeformableColumnsParams params;
  params.stride = two("strides", 1), params.dilation = two("dilations", 1);
  const Ints pads = node.get_ints("pads", Ints(4, 0));
  if (pads.size() != 4) node.error("pads has ", pads.size(), " values; expected 4");
  params.pre_padding = {pads[0], pads[1]}, params.post_padding = {pads[2], pads[3]};
  params.offset_groups = node.get_int("offset_group", 1);
  const SymShape filters = kernel->dims();
  if (!is_constant(filters)) node.error("'", kernel->name(), "' must have constant extents");
  params.window = {filters[2].constant(), filters[3].constant()};
  const Ints given = node.get_ints("kernel_shape", params.window);
  if (given != params.window)
    node.error("kernel_shape is ", str(given), ", but '", kernel->name(), "' has windows of ",
               str(params.window));
  const int64_t groups = node.get_int("group", 1);
  if (groups < 1 || filters[0].constant() % groups != 0)
    node.error("group is ", groups, "; expected a divisor of the ", filters[0], " output channels");
  std::vector<Tensor*> inputs = {x, offsets};
  if (Tensor* factors = node.optional_input(4)) inputs.push_back(factors);
  Tensor* columns = node.add<DeformableColumns>(params, inputs);
  const SymShape dims = columns->dims();
  const Expr depth = filters[1] * filters[2] * filters[3], maps = floor_div(filters[0], groups);
  columns = node.reshape(columns, SymShape{dims[0], groups, depth, dims[2] * dims[3]});
  Tensor* matrices = node.reshape(kernel, SymShape{1, groups, maps, depth});
  Tensor* y = node.add<MatrixMultiply>({}, {matrices, columns});
  y = node.reshape(y, SymShape{dims[0], filters[0], dims[2], dims[3]});
  if (Tensor* bias = node.optional_input(3))
    y = node.elementwise(ElementWiseOperation::kSUM, y,
                         node.reshape(bias, SymShape{1, filters[0], 1, 1}));
  node.set_output(0, y);
}

}  // namespace

void add_sampling(NodeTable& table) {
  table["GridSample"] = grid_sample;
  table["RoiAlign"] = roi_align;
  table["MaxRoiPool"] = max_roi_pool;
  table["DeformConv"] = deform_conv;
  table["AffineGrid"] = affine_grid;
}

}  // namespace opwright::onnx
