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

/// The matrices times the positions of an image's elements, from -1 to 1, and 1.
void affine_grid(NodeImporter& node) {
  Tensor* theta = node.input(0);
  node.require_rank(theta, 3, 3);
  const std::vector<Expr> size = node.values(node.input(1), "size");
  if (size.size() != 4 && size.size() != 5)
    node.error("size has ", size.size(), " values; expected 4 or 5");
  const int spatial = static_cast<int>(size.size()) - 2;
  const bool align = node.get_int("align_corners", 0) != 0;
  const SymShape extents(size.begin() + 2, size.end());
  std::vector<Tensor*> coordinates;
  for (int i = spatial - 1; i >= 0; --i) {
    const Expr& extent = extents[static_cast<size_t>(i)];
    // (2 * i + 1) / extent - 1, or 2 * i / (extent - 1) - 1 where the corners are elements.
    Tensor* steps =
        node.elementwise(ElementWiseOperation::kPROD, node.count_up(extent, DataType::kFLOAT), 2.0);
    if (!align) steps = node.elementwise(ElementWiseOperation::kSUM, steps, 1.0);
    const Expr range = align ? max(extent - 1, 1) : extent;
    Tensor* divisor = node.reshape(node.scalar_of(range, DataType::kFLOAT), SymShape{1});
    steps = node.elementwise(ElementWiseOperation::kDIV, steps, divisor);
    steps = node.elementwise(ElementWiseOperation::kSUB, steps, 1.0);
    SymShape shape(static_cast<size_t>(spatial), 1);
    shape[static_cast<size_t>(i)] = extent;
    coordinates.push_back(
        node.unsqueeze(node.expand(node.reshape(steps, shape), extents), {spatial}));
  }
  FillParams ones;
  ones.to_type = DataType::kFLOAT;
  ones.alpha = 1;
  SymShape shape = extents;
  shape.push_back(1);
  coordinates.push_back(node.fill(ones, shape));
  Tensor* positions = node.concatenate(coordinates, spatial);
  positions =
      node.cast(node.reshape(positions, SymShape{Expr(1), numel(extents), Expr(spatial + 1)}),
                theta->dtype());
  MatrixMultiplyParams product;
  product.op1 = MatrixOperation::kTRANSPOSE;
  Tensor* grid = node.add<MatrixMultiply>(product, {positions, theta});
  SymShape result = {theta->dims()[0]};
  result.insert(result.end(), extents.begin(), extents.end());
  result.push_back(spatial);
  node.set_output(0, node.reshape(grid, result));
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
