#include "operators/sampling.h"

#include <cmath>
#include <limits>

#include "operators/infer.h"

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
  inference.require(params().sampling_ratio >= 0 && params().sampling_ratio <= INT32_MAX,
                    "the sampling ratio must not be negative, but is ", params().sampling_ratio);
  inference.require_floating(0);
  inference.require_same_type(1, 0);
  const DataType type = inference.input(2).dtype;
  inference.require_type(2, type == DataType::kINT32 || type == DataType::kINT64, "INT32 or INT64");
  inference.require_rank(0, 4, 4), inference.require_rank(1, 2, 2), inference.require_rank(2, 1, 1);
  const SymShape &x = inference.input(0).dims, &regions = inference.input(1).dims;
  inference.require_extent(1, 1, Expr(4), "the corners of a region");
  inference.require_extent(2, 0, regions[0], "the regions");
  return {
      make_output(inference.input(0).dtype, {regions[0], x[1], params().height, params().width})};
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
