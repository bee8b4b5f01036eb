#include "operators/sampling.h"

#include <cmath>
#include <limits>

#include "operators/infer.h"
#include "operators/window.h"

namespace opwright {
namespace {

void require_bins(const Inference& inference, int64_t height, int64_t width, double scale) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  inference.require(height >= 1 && width >= 1 && height <= kMost && width <= kMost,
                    "the output must have at least 1x1 bins, but is to have ", height, "x", width);
  inference.require(std::isfinite(scale), "the spatial scale must be finite, but is ", scale);
}

}  // namespace

std::vector<OutputInfo> GridSample::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "grid"}, 2);
  const GridSampleParams& sample = params();
  inference.require(sample.interpolation_mode >= InterpolationMode::kNEAREST &&
                        sample.interpolation_mode <= InterpolationMode::kCUBIC,
                    "unknown interpolation ", static_cast<int32_t>(sample.interpolation_mode));
  inference.require(sample.sample_mode == SampleMode::kFILL ||
                        sample.sample_mode == SampleMode::kCLAMP ||
                        sample.sample_mode == SampleMode::kREFLECT,
                    "the sample mode must be FILL, CLAMP or REFLECT, but is ",
                    static_cast<int32_t>(sample.sample_mode));
  inference.require_floating(0), inference.require_floating(1);
  inference.require_rank(0, 4, 5);
  const int rank = inference.rank(0);
  inference.require_rank(1, rank, rank);
  const SymShape &x = inference.input(0).dims, &grid = inference.input(1).dims;
  inference.require_extent(1, 0, x[0], "the batch");
  inference.require_extent(1, rank - 1, Expr(rank - 2), "a position's coordinates");
  SymShape shape = {merge(x[0], grid[0]), x[1]};
  shape.insert(shape.end(), grid.begin() + 1, grid.end() - 1);
  return {make_output(inference.input(0).dtype, std::move(shape))};
}

std::vector<OutputInfo> RoiAlign::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "regions", "images"}, 3);
  require_bins(inference, params().height, params().width, params().spatial_scale);
  constexpr int64_t kMostSamples = 1 << 12;
  inference.require(params().sampling_ratio >= 0 && params().sampling_ratio <= kMostSamples,
                    "the sampling ratio must be in [0, ", kMostSamples, "], but is ",
                    params().sampling_ratio);
  inference.require_floating(0);
  inference.require_same_type(1, 0);
  const DataType type = inference.input(2).dtype;
  inference.require_type(2, type == DataType::kINT32 || type == DataType::kINT64, "INT32 or INT64");
  inference.require_rank(0, 4, 4), inference.require_rank(1, 2, 2), inference.require_rank(2, 1, 1);
  const SymShape &x = inference.input(0).dims, &regions = inference.input(1).dims;
  inference.require_extent(1, 1, Expr(4), "the corners of a region");
  inference.require_extent(2, 0, regions[0], "the regions");
  const Expr count = merge(regions[0], inference.input(2).dims[0]);
  return {make_output(inference.input(0).dtype, {count, x[1], params().height, params().width})};
}

std::vector<OutputInfo> DeformableColumns::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "offsets", "factors"}, 2, 3);
  const DeformableColumnsParams& p = params();
  const std::vector<WindowAxis> axes =
      window_axes(inference.who(), 2, p.stride, p.dilation, p.pre_padding, p.post_padding,
                  PaddingMode::kEXPLICIT_ROUND_DOWN);
  const Ints window = per_axis(inference.who(), "window", p.window, 2, 1, 1);
  inference.require_floating(0);
  inference.require_same_type(1, 0);
  inference.require_rank(0, 4, 4), inference.require_rank(1, 4, 4);
  const SymShape &x = inference.input(0).dims, &offsets = inference.input(1).dims;
  inference.require(p.offset_groups >= 1 && p.offset_groups <= INT32_MAX,
                    "the offsets must have at least one group, not ", p.offset_groups);
  inference.require(!x[1].is_constant() || x[1].constant() % p.offset_groups == 0,
                    inference.port(0), " of shape ", str(x), " has channels that ", p.offset_groups,
                    " groups do not share evenly");
  const Expr places = Expr(window[0]) * window[1];
  inference.require_extent(1, 0, x[0], "the batch");
  inference.require_extent(1, 1, places * p.offset_groups * 2, "offsets of each element");
  for (size_t i = 0; i < 2; ++i)
    inference.require_extent(
        1, static_cast<int>(i) + 2,
        window_count(axes[i], PaddingMode::kEXPLICIT_ROUND_DOWN, x[i + 2], Expr(window[i])),
        "windows along the axis");
  if (inference.optional(2)) {
    inference.require_same_type(2, 0);
    inference.require_rank(2, 4, 4);
    inference.require_extent(2, 0, x[0], "the batch");
    inference.require_extent(2, 1, places * p.offset_groups, "a factor for each element");
    inference.require_extent(2, 2, offsets[2], "that of the offsets");
    inference.require_extent(2, 3, offsets[3], "that of the offsets");
  }
  return {make_output(inference.input(0).dtype, {x[0], x[1] * places, offsets[2], offsets[3]})};
}

std::vector<OutputInfo> RoiPool::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "regions"}, 2);
  require_bins(inference, params().height, params().width, params().spatial_scale);
  inference.require_floating(0);
  inference.require_same_type(1, 0);
  inference.require_rank(0, 4, 4), inference.require_rank(1, 2, 2);
  const SymShape &x = inference.input(0).dims, &regions = inference.input(1).dims;
  inference.require_extent(1, 1, Expr(5), "image and corners of a region");
  return {
      make_output(inference.input(0).dtype, {regions[0], x[1], params().height, params().width})};
}

}  // namespace opwright
