#include <algorithm>
#include <cmath>

#include "backend/candidates.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/neighbours.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"
#include "operators/sampling.h"

namespace opwright {
namespace {

/// Elements along one axis and their weights.
struct Taps {
  int count = 0;
  int64_t index[4];  ///< -1: counts as zero
  float weight[4];
};

/// Mirrors a position at `low` and `high` until it is between them.
double reflect(double x, double low, double high) {
  const double range = high - low;
  if (!(range > 0)) return low;
  const double distance = std::abs(x - low), turns = std::floor(distance / range);
  const double rest = distance - turns * range;
  return std::fmod(turns, 2) == 0 ? low + rest : high - rest;
}

class GridAxis {
 public:
  GridAxis(const GridSampleParams& params, int64_t extent)
      : params_(params),
        extent_(extent),
        low_(params.align_corners ? 0 : -0.5),
        high_(params.align_corners ? static_cast<double>(extent) - 1
                                   : static_cast<double>(extent) - 0.5) {}

  Taps at(float position) const {
    const auto extent = static_cast<double>(extent_);
    const bool is_nearest = params_.interpolation_mode == InterpolationMode::kNEAREST;
    double x = is_nearest              ? nearest_position(position)
               : params_.align_corners ? (position + 1.0) / 2 * (extent - 1)
                                       : ((position + 1.0) * extent - 1) / 2;
    // A NaN, or a position so far away that no index reaches it, is beyond every border.
    if (!(std::abs(x) < 0x1p52)) x = std::isnan(x) ? -0x1p52 : std::copysign(0x1p52, x);
    if (is_nearest) x = std::nearbyint(x);
    // Cubic interpolation places each neighbour by itself, as ONNX Runtime and PyTorch do.
    if (params_.interpolation_mode != InterpolationMode::kCUBIC && (x < low_ || x > high_)) {
      if (params_.sample_mode == SampleMode::kCLAMP)
        x = std::clamp(x, 0.0, extent - 1);
      else if (params_.sample_mode == SampleMode::kREFLECT)
        x = reflect(x, low_, high_);
    }
    const double below = std::floor(x);
    const auto first = static_cast<int64_t>(below);
    const auto t = static_cast<float>(x - below);
    Taps taps;
    switch (params_.interpolation_mode) {
      case InterpolationMode::kNEAREST:
        add(taps, static_cast<int64_t>(std::nearbyint(x)), 1);
        break;
      case InterpolationMode::kLINEAR:
        add(taps, first, 1 - t), add(taps, first + 1, t);
        break;
      default:
        add(taps, first - 1, outer(1 + t)), add(taps, first, inner(t));
        add(taps, first + 1, inner(1 - t)), add(taps, first + 2, outer(2 - t));
    }
    return taps;
  }

 private:
  /// Rounds each step to FP32, as ONNX's reference, ONNX Runtime and PyTorch do. So a grid that
  /// points between two elements does so up to that rounding.
  double nearest_position(float position) const {
    const auto extent = static_cast<double>(extent_);
    const double more = static_cast<float>(position + 1.0);
    if (params_.align_corners) return static_cast<float>(more / 2 * (extent - 1));
    const double scaled = static_cast<float>(more * extent);
    return static_cast<double>(static_cast<float>(scaled - 1)) / 2;
  }

  // The cubic convolution kernel for distances within 1 and between 1 and 2; Keys 1981, with a =
  // -0.75.
  static constexpr float kA = -0.75F;
  static float inner(float t) { return ((kA + 2) * t - (kA + 3)) * t * t + 1; }
  static float outer(float t) { return ((kA * t - 5 * kA) * t + 8 * kA) * t - 4 * kA; }

  void add(Taps& taps, int64_t index, float weight) const {
    if (index < 0 || index >= extent_) switch (params_.sample_mode) {
        case SampleMode::kCLAMP:
          index = std::clamp<int64_t>(index, 0, extent_ - 1);
          break;
        case SampleMode::kREFLECT:
          index = std::clamp<int64_t>(
              static_cast<int64_t>(reflect(static_cast<double>(index), low_, high_)), 0,
              extent_ - 1);
          break;
        default:
          index = -1;
      }
    taps.index[taps.count] = index;
    taps.weight[taps.count++] = weight;
  }

  const GridSampleParams& params_;
  int64_t extent_;
  double low_, high_;
};

template <class Element>
class GridSampleKernel final : public Kernel {
 public:
  GridSampleKernel(const GridSampleParams& params, const KernelArgs& args)
      : layer_(args.layer), params_(params), grid_type_(args.inputs[1].type.dtype) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    const Shape &x = inputs[0], &grid = inputs[1], &y = outputs[0];
    points_ = 0;
    const int rank = x.rank();
    bool fits = (rank == 4 || rank == 5) && grid.rank() == rank && y.rank() == rank &&
                grid[0] == x[0] && y[0] == x[0] && y[1] == x[1] && grid[rank - 1] == rank - 2;
    for (int i = 2; fits && i < rank; ++i) fits = y[i] == grid[i - 1];
    require(fits, "Layer '", layer_, "': ", x, " cannot be sampled by a grid of shape ", grid,
            " into ", y);
    spatial_ = rank - 2;
    channels_ = x[1];
    size_ = x.numel(2, rank);
    if (y.numel() == 0) return;
    require(size_ > 0, "Layer '", layer_, "': there is nothing to sample in ", x);
    for (int i = 0; i < 3; ++i) extents_[i] = i < 3 - spatial_ ? 1 : x[i - (3 - spatial_) + 2];
    points_ = y.numel(2, rank);
    batch_ = x[0];
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    if (points_ == 0) return;
    if (spatial_ == 2 && params_.interpolation_mode == InterpolationMode::kLINEAR) {
      const int64_t blocks = (points_ + Neighbours::kMost - 1) / Neighbours::kMost;
      return parallel_for(batch_ * blocks,
                          std::max<int64_t>(1, kGrain / (channels_ * 8 * Neighbours::kMost)),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t i = begin; i < end; ++i)
                              sample_block(inputs[0], inputs[1], outputs[0], i / blocks,
                                           i % blocks * Neighbours::kMost);
                          });
    }
    parallel_for(batch_ * points_, std::max<int64_t>(1, kGrain / (channels_ * 8)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i)
                     sample(inputs[0], inputs[1], outputs[0], i / points_, i % points_);
                 });
  }

 private:
  static constexpr int64_t kGrain = 1 << 14;

  /// Finds the taps along three axes. Missing axes come first and have one element.
  void find(const void* grid, int64_t image, int64_t point, Taps* taps) const {
    taps[0].count = 1, taps[0].index[0] = 0, taps[0].weight[0] = 1;
    const int64_t first = (image * points_ + point) * spatial_;
    for (int i = 0; i < spatial_; ++i) {
      const float position = with_floating_element(
          grid_type_, [&]<class E>() { return load_element<E>(grid, first + i); });
      taps[2 - i] = GridAxis(params_, extents_[2 - i]).at(position);
    }
  }

  /// Interpolates linearly along two axes, at neighbouring points.
  void sample_block(const void* x, const void* grid, void* y, int64_t image, int64_t first) const {
    const int64_t count = std::min(Neighbours::kMost, points_ - first);
    Neighbours neighbours;
    for (int64_t i = 0; i < count; ++i) {
      Taps taps[3];
      find(grid, image, first + i, taps);
      const Taps &along_y = taps[1], &along_x = taps[2];
      neighbours.add(
          [&](int64_t n) { return along_y.index[n / 2] >= 0 && along_x.index[n % 2] >= 0; },
          [&](int64_t n) { return along_y.index[n / 2] * extents_[2] + along_x.index[n % 2]; },
          [&](int64_t n) { return along_y.weight[n / 2] * along_x.weight[n % 2]; });
    }
    const int64_t plane = image * channels_;
    neighbours.blend<Element>(x, {plane * size_, size_}, y, {plane * points_ + first, points_},
                              channels_);
  }

  void sample(const void* x, const void* grid, void* y, int64_t image, int64_t point) const {
    Taps taps[3];
    find(grid, image, point, taps);
    int64_t places[64];
    float weights[64];
    int count = 0;
    for (int a = 0; a < taps[0].count; ++a)
      for (int b = 0; b < taps[1].count; ++b)
        for (int c = 0; c < taps[2].count; ++c) {
          if (taps[0].index[a] < 0 || taps[1].index[b] < 0 || taps[2].index[c] < 0) continue;
          places[count] =
              (taps[0].index[a] * extents_[1] + taps[1].index[b]) * extents_[2] + taps[2].index[c];
          weights[count++] = taps[0].weight[a] * taps[1].weight[b] * taps[2].weight[c];
        }
    for (int64_t channel = 0; channel < channels_; ++channel) {
      const int64_t plane = image * channels_ + channel;
      float sum = 0;
      for (int k = 0; k < count; ++k)
        sum += weights[k] * load_element<Element>(x, plane * size_ + places[k]);
      store_element<Element>(y, plane * points_ + point, sum);
    }
  }

  const std::string layer_;
  const GridSampleParams params_;
  const DataType grid_type_;
  int spatial_ = 2;
  int64_t batch_ = 0, channels_ = 0, size_ = 0, points_ = 0;
  int64_t extents_[3] = {1, 1, 1};
};

std::vector<Candidate> grid_sample_candidates(const Operator&, const CandidateQuery& query) {
  if (!kFloats.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "loops")};
}

void check_grid_sample(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(2, 2);
  rules.require(rules.input(0), kFloats);
  rules.require(rules.input(1), kFloats);
  rules.require_same(rules.output(0), rules.input(0));
}

const RegisteredKernels<GridSample> kGridSampleKernels(
    {grid_sample_candidates, make_floating_kernel<GridSampleKernel, GridSample>,
     check_grid_sample});

}  // namespace
}  // namespace opwright
