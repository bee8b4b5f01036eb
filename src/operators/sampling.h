#pragma once

#include "operators/builtin.h"

namespace opwright {

struct GridSampleParams {
  InterpolationMode interpolation_mode = InterpolationMode::kLINEAR;
  bool align_corners = false;
  SampleMode sample_mode = SampleMode::kFILL;  ///< kFILL (zeros), kCLAMP or kREFLECT
  template <class V>
  void visit(V& v) {
    v("interpolation_mode", interpolation_mode), v("align_corners", align_corners),
        v("sample_mode", sample_mode);
  }
};
/// Inputs: x [N, C, spatial...] with 2 or 3 spatial axes, and the grid [N, extents..., 2 or 3] of
/// positions in x. Each coordinate is from -1 to 1, and that of the last axis comes first.
class GridSample final : public BuiltinOperator<GridSample, GridSampleParams> {
 public:
  static constexpr std::string_view kKind = "GridSample";
  static constexpr LayerClass<class IGridSampleLayer> kLayer{
      LayerType::kGRID_SAMPLE, "IGridSampleLayer", "Interpolates at the positions of a grid."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

struct RoiAlignParams {
  bool max = false;  ///< the maximum of a bin's samples instead of their mean
  int64_t height = 1, width = 1;
  int64_t sampling_ratio = 0;  ///< samples along each axis of a bin; 0: depends on its size
  double spatial_scale = 1;
  bool half_pixel = true;  ///< positions are shifted by half an element
  template <class V>
  void visit(V& v) {
    v("max", max), v("height", height), v("width", width), v("sampling_ratio", sampling_ratio),
        v("spatial_scale", spatial_scale), v("half_pixel", half_pixel);
  }
};
/// Inputs: x [N, C, H, W], regions [R, 4] (x1, y1, x2, y2) and the image of each, [R]. Output [R,
/// C, height, width].
class RoiAlign final : public BuiltinOperator<RoiAlign, RoiAlignParams> {
 public:
  static constexpr std::string_view kKind = "RoiAlign";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

struct DeformableColumnsParams {
  Ints window = {1, 1}, stride = {1, 1}, dilation = {1, 1};
  Ints pre_padding = {0, 0}, post_padding = {0, 0};
  int64_t offset_groups = 1;
  template <class V>
  void visit(V& v) {
    v("window", window), v("stride", stride), v("dilation", dilation),
        v("pre_padding", pre_padding), v("post_padding", post_padding),
        v("offset_groups", offset_groups);
  }
};
/// The elements that a deformable convolution multiplies with its kernel: those of each window,
/// each moved by an offset and interpolated. Inputs: x [N, C, H, W], offsets [N, groups * window *
/// 2, rows, columns] and optionally factors [N, groups * window, rows, columns]. Output [N, C *
/// window, rows, columns].
class DeformableColumns final : public BuiltinOperator<DeformableColumns, DeformableColumnsParams> {
 public:
  static constexpr std::string_view kKind = "DeformableColumns";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

struct RoiPoolParams {
  int64_t height = 1, width = 1;
  double spatial_scale = 1;
  template <class V>
  void visit(V& v) {
    v("height", height), v("width", width), v("spatial_scale", spatial_scale);
  }
};
/// The maximum of each bin of the regions [R, 5] (image, x1, y1, x2, y2) of x [N, C, H, W].
class RoiPool final : public BuiltinOperator<RoiPool, RoiPoolParams> {
 public:
  static constexpr std::string_view kKind = "RoiPool";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
