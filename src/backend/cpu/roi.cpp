#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "backend/candidates.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/index_reader.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/checked.h"
#include "base/parallel.h"
#include "operators/sampling.h"

namespace opwright {
namespace {

constexpr int64_t kRoiGrain = 1 << 12;

/// Extents that both kernels need, read from the shapes.
struct RoiShapes {
  int64_t images = 0, channels = 0, height = 0, width = 0, regions = 0;

  RoiShapes() = default;
  RoiShapes(std::string_view layer, const Shape& x, const Shape& rois, const Shape& y,
            int64_t columns, int64_t bins_y, int64_t bins_x) {
    require(x.rank() == 4 && rois.rank() == 2 && rois[1] == columns && y.rank() == 4 &&
                y[0] == rois[0] && y[1] == x[1] && y[2] == bins_y && y[3] == bins_x,
            "Layer '", layer, "': regions of shape ", rois, " of ", x, " do not give ", y);
    images = x[0], channels = x[1], height = x[2], width = x[3], regions = rois[0];
  }
  int64_t planes() const { return regions * channels; }
};

/// Makes any number, even NaN, one that an int64_t holds.
double bounded(double x) { return std::isnan(x) ? 0 : std::clamp(x, -0x1p31, 0x1p31); }

/// Sums of the samples' weights along one axis: for each bin, the elements and their weights.
class BinWeights {
 public:
  struct Entry {
    int64_t place;
    double weight;
  };
  /// Bytes of memory for `bins` bins over an axis of `extent` elements.
  static int64_t bytes(int64_t bins, int64_t extent) {
    require(bins <= INT32_MAX && extent <= INT32_MAX, "cannot weigh the samples of ", bins,
            " bins over ", extent, " elements");
    return checked_product(kScratch, {bins + 1, extent + 2, sizeof(Entry)});
  }
  static constexpr std::string_view kScratch = "the memory to weigh samples in";

  BinWeights(std::byte* memory, int64_t bins, int64_t extent)
      : entries_(reinterpret_cast<Entry*>(memory)), bins_(bins), extent_(extent) {}

  /// Samples bins of size `size` from `start` on, `samples` times each. Samples beyond the axis
  /// count as zero.
  void set(double start, double size, int64_t samples) {
    double* const sums = reinterpret_cast<double*>(entries_ + bins_ * (extent_ + 1));
    std::fill_n(sums, extent_, 0.0);
    lowest_ = extent_, highest_ = -1;
    for (int64_t bin = 0; bin < bins_; ++bin) {
      int64_t low = extent_, high = -1;
      for (int64_t k = 0; k < samples; ++k) {
        double at = start + (static_cast<double>(bin) +
                             (static_cast<double>(k) + 0.5) / static_cast<double>(samples)) *
                                size;
        if (!(at >= -1 && at <= static_cast<double>(extent_)) || extent_ == 0) continue;
        at = std::clamp(at, 0.0, static_cast<double>(extent_ - 1));
        const auto first = static_cast<int64_t>(at), second = std::min(first + 1, extent_ - 1);
        const double t = at - static_cast<double>(first);
        sums[first] += 1 - t, sums[second] += t;
        low = std::min(low, first), high = std::max(high, second);
      }
      Entry* const entries = entries_ + bin * (extent_ + 1);
      int64_t count = 0;
      for (int64_t i = low; i <= high; ++i) {
        if (sums[i] != 0) entries[++count] = {i, sums[i]};
        sums[i] = 0;
      }
      entries[0].place = count;
      lowest_ = std::min(lowest_, low), highest_ = std::max(highest_, high);
    }
  }

  std::span<const Entry> operator[](int64_t bin) const {
    const Entry* const entries = entries_ + bin * (extent_ + 1);
    return {entries + 1, static_cast<size_t>(entries[0].place)};
  }
  int64_t lowest() const { return lowest_; }
  int64_t highest() const { return highest_; }  ///< below lowest() where there is no sample

 private:
  Entry* const entries_;  ///< per bin the number of its entries and the entries; then memory for
                          ///< the sums
  const int64_t bins_, extent_;
  int64_t lowest_ = 0, highest_ = -1;
};

/// RoIAlign of He et al. 2017: samples each bin at a few positions between elements. An average
/// sums along one axis, and then along the other.
template <class Element>
class RoiAlignKernel final : public Kernel {
 public:
  RoiAlignKernel(const RoiAlignParams& params, const KernelArgs& args)
      : layer_(args.layer),
        params_(params),
        wide_(args.inputs[2].type.dtype == DataType::kINT64),
        workers_(thread_count()),
        most_height_(args.inputs[0].max[2]),
        most_width_(args.inputs[0].max[3]) {
    if (params_.max) return;
    y_bytes_ = BinWeights::bytes(params_.height, most_height_);
    x_bytes_ = BinWeights::bytes(params_.width, most_width_);
    slot_ = checked_product(
        BinWeights::kScratch,
        {3, std::max({y_bytes_, x_bytes_,
                      checked_product(BinWeights::kScratch,
                                      {most_height_, params_.width, sizeof(double)})})});
  }

  size_t workspace_size() const override {
    return checked_product(BinWeights::kScratch, {workers_, slot_});
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    shapes_ = {};
    require(inputs[2].rank() == 1 && inputs[1].rank() > 0 && inputs[2][0] == inputs[1][0],
            "Layer '", layer_, "': images of shape ", inputs[2], " for regions of shape ",
            inputs[1]);
    require(inputs[0][2] <= most_height_ && inputs[0][3] <= most_width_, "Layer '", layer_,
            "': images of shape ", inputs[0], " are larger than at the profile's maximum");
    shapes_ = RoiShapes(layer_, inputs[0], inputs[1], outputs[0], 4, params_.height, params_.width);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    const int64_t bins = params_.height * params_.width;
    const int64_t blocks = (shapes_.channels + kChannels - 1) / kChannels;
    const int64_t tasks = shapes_.regions * blocks;
    const IndexReader image(inputs[2], wide_);
    const auto run = [&](int64_t task, std::byte* scratch) {
      const int64_t region = task / blocks, channel = task % blocks * kChannels;
      const int64_t of = image(region, shapes_.images);
      align(of < 0 ? nullptr : inputs[0], inputs[1], region, of * shapes_.channels + channel,
            std::min(kChannels, shapes_.channels - channel), outputs[0],
            (region * shapes_.channels + channel) * bins, scratch);
    };
    // A range may contain several workers' tasks. They run one after another, each in its own
    // scratch memory.
    const int64_t grain = std::max<int64_t>(
        1, kRoiGrain * workers_ / std::max<int64_t>(1, tasks * bins * 16 * kChannels));
    parallel_for(workers_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t worker = begin; worker < end; ++worker)
        for (int64_t task = tasks * worker / workers_; task < tasks * (worker + 1) / workers_;
             ++task)
          run(task, static_cast<std::byte*>(workspace) + worker * slot_);
    });
  }

 private:
  /// Channels that share the computation of positions, and positions that are read from one channel
  /// in a row. Channels lie far apart, often in the same sets of the cache.
  static constexpr int64_t kChannels = 16, kSamples = 64;

  struct Bin {
    double most[kChannels] = {};
    bool is_first = true;  ///< no sample has been counted yet
    int64_t samples = 0;
    double weights[kSamples][4];
    int64_t places[kSamples][4];
  };

  void align(const void* x, const void* rois, int64_t region, int64_t plane, int64_t channels,
             void* y, int64_t first, std::byte* scratch) const {
    const double shift = params_.half_pixel ? 0.5 : 0;
    double corners[4];
    for (int i = 0; i < 4; ++i)
      corners[i] =
          bounded(load_element<Element>(rois, region * 4 + i) * params_.spatial_scale - shift);
    double width = corners[2] - corners[0], height = corners[3] - corners[1];
    if (!params_.half_pixel) width = std::max(width, 1.0), height = std::max(height, 1.0);
    const double bin_y = height / static_cast<double>(params_.height);
    const double bin_x = width / static_cast<double>(params_.width);
    const int64_t rows = samples(bin_y), columns = samples(bin_x);
    const int64_t bins = params_.height * params_.width;
    if (!params_.max) {
      BinWeights along_y(scratch, params_.height, shapes_.height);
      BinWeights along_x(scratch + y_bytes_, params_.width, shapes_.width);
      along_y.set(corners[1], bin_y, x != nullptr ? rows : 0);
      along_x.set(corners[0], bin_x, columns);
      auto* const sums = reinterpret_cast<double*>(scratch + y_bytes_ + x_bytes_);
      const auto count = static_cast<double>(std::max<int64_t>(1, rows * columns));
      for (int64_t k = 0; k < channels; ++k)
        average(x, plane + k, along_y, along_x, count, sums, y, first + k * bins);
      return;
    }
    for (int64_t i = 0; i < params_.height; ++i)
      for (int64_t j = 0; j < params_.width; ++j) {
        Bin bin;
        for (int64_t r = 0; x != nullptr && r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c) {
            const double at_y =
                corners[1] + (static_cast<double>(i) +
                              (static_cast<double>(r) + 0.5) / static_cast<double>(rows)) *
                                 bin_y;
            const double at_x =
                corners[0] + (static_cast<double>(j) +
                              (static_cast<double>(c) + 0.5) / static_cast<double>(columns)) *
                                 bin_x;
            if (bin.samples == kSamples) add(x, plane, channels, bin);
            place(at_y, at_x, bin);
          }
        if (bin.samples > 0) add(x, plane, channels, bin);
        for (int64_t k = 0; k < channels; ++k)
          store_element<Element>(y, first + k * bins + i * params_.width + j,
                                 static_cast<float>(bin.most[k]));
      }
  }

  /// Averages the bins of one channel. `sums` has room for the sums of each row.
  void average(const void* x, int64_t plane, const BinWeights& along_y, const BinWeights& along_x,
               double count, double* sums, void* y, int64_t first) const {
    for (int64_t row = along_y.lowest(); row <= along_y.highest(); ++row) {
      const int64_t from = (plane * shapes_.height + row) * shapes_.width;
      for (int64_t j = 0; j < params_.width; ++j) {
        double sum = 0;
        for (const BinWeights::Entry& entry : along_x[j])
          sum += entry.weight * load_element<Element>(x, from + entry.place);
        sums[row * params_.width + j] = sum;
      }
    }
    for (int64_t i = 0; i < params_.height; ++i)
      for (int64_t j = 0; j < params_.width; ++j) {
        double sum = 0;
        for (const BinWeights::Entry& entry : along_y[i])
          sum += entry.weight * sums[entry.place * params_.width + j];
        store_element<Element>(y, first + i * params_.width + j, static_cast<float>(sum / count));
      }
  }

  int64_t samples(double bin) const {
    if (params_.sampling_ratio > 0) return params_.sampling_ratio;
    // More samples than elements add nothing, but a hostile region could use them to cost time.
    const double most = static_cast<double>(std::max(shapes_.height, shapes_.width)) + 2;
    return static_cast<int64_t>(std::clamp(std::ceil(bin), 0.0, most));
  }

  /// Finds the four neighbours of a position.
  void place(double at_y, double at_x, Bin& bin) const {
    const auto height = static_cast<double>(shapes_.height);
    const auto width = static_cast<double>(shapes_.width);
    if (!(at_y >= -1 && at_y <= height && at_x >= -1 && at_x <= width) || shapes_.height == 0 ||
        shapes_.width == 0) {
      // The sample's value is 0.
      for (double& most : bin.most) most = bin.is_first ? 0 : std::max(most, 0.0);
      bin.is_first = false;
      return;
    }
    at_y = std::clamp(at_y, 0.0, height - 1), at_x = std::clamp(at_x, 0.0, width - 1);
    const auto y0 = static_cast<int64_t>(at_y), x0 = static_cast<int64_t>(at_x);
    const int64_t y1 = std::min(y0 + 1, shapes_.height - 1);
    const int64_t x1 = std::min(x0 + 1, shapes_.width - 1);
    const double v = at_y - static_cast<double>(y0), u = at_x - static_cast<double>(x0);
    const double weights[] = {(1 - v) * (1 - u), (1 - v) * u, v * (1 - u), v * u};
    const int64_t places[] = {y0 * shapes_.width + x0, y0 * shapes_.width + x1,
                              y1 * shapes_.width + x0, y1 * shapes_.width + x1};
    std::copy_n(weights, 4, bin.weights[bin.samples]);
    std::copy_n(places, 4, bin.places[bin.samples]);
    ++bin.samples;
  }

  /// Merges the collected samples into the maxima. ONNX takes the maximum of the weighted
  /// neighbours.
  void add(const void* x, int64_t plane, int64_t channels, Bin& bin) const {
    for (int64_t k = 0; k < channels; ++k) {
      const int64_t from = (plane + k) * shapes_.height * shapes_.width;
      bool is_first = bin.is_first;
      for (int64_t i = 0; i < bin.samples; ++i) {
        double parts[4];
        for (int n = 0; n < 4; ++n)
          parts[n] = bin.weights[i][n] * load_element<Element>(x, from + bin.places[i][n]);
        const double greatest = *std::max_element(parts, parts + 4);
        bin.most[k] = is_first ? greatest : std::max(bin.most[k], greatest);
        is_first = false;
      }
    }
    bin.is_first = false;
    bin.samples = 0;
  }

  const std::string layer_;
  const RoiAlignParams params_;
  const bool wide_;
  const int workers_;
  const int64_t most_height_, most_width_;
  int64_t y_bytes_ = 0, x_bytes_ = 0, slot_ = 0;
  RoiShapes shapes_;
};

/// RoI pooling of Girshick 2015: rounds regions and bins to whole elements.
template <class Element>
class RoiPoolKernel final : public Kernel {
 public:
  RoiPoolKernel(const RoiPoolParams& params, const KernelArgs& args)
      : layer_(args.layer), params_(params) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    shapes_ = {};
    shapes_ = RoiShapes(layer_, inputs[0], inputs[1], outputs[0], 5, params_.height, params_.width);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    const int64_t bins = params_.height * params_.width;
    parallel_for(shapes_.planes(), std::max<int64_t>(1, kRoiGrain / (bins * 16)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t plane = begin; plane < end; ++plane)
                     pool(inputs[0], inputs[1], plane / shapes_.channels, plane % shapes_.channels,
                          outputs[0], plane * bins);
                 });
  }

 private:
  void pool(const void* x, const void* rois, int64_t region, int64_t channel, void* y,
            int64_t first) const {
    const double image = load_element<Element>(rois, region * 5);
    const bool exists = image >= 0 && image < static_cast<double>(shapes_.images);
    int64_t corners[4];
    for (int i = 0; i < 4; ++i)
      corners[i] = static_cast<int64_t>(std::round(
          bounded(load_element<Element>(rois, region * 5 + 1 + i) * params_.spatial_scale)));
    const double bin_y = static_cast<double>(std::max<int64_t>(corners[3] - corners[1] + 1, 1)) /
                         static_cast<double>(params_.height);
    const double bin_x = static_cast<double>(std::max<int64_t>(corners[2] - corners[0] + 1, 1)) /
                         static_cast<double>(params_.width);
    const int64_t plane = exists ? static_cast<int64_t>(image) * shapes_.channels + channel : 0;
    for (int64_t i = 0; i < params_.height; ++i)
      for (int64_t j = 0; j < params_.width; ++j) {
        const auto [top, bottom] = bin(i, bin_y, corners[1], shapes_.height);
        const auto [left, right] = bin(j, bin_x, corners[0], shapes_.width);
        float most = 0;
        bool is_first = true;
        for (int64_t r = top; exists && r < bottom; ++r)
          for (int64_t c = left; c < right; ++c) {
            const float value =
                load_element<Element>(x, (plane * shapes_.height + r) * shapes_.width + c);
            if (is_first || value > most) most = value;
            is_first = false;
          }
        store_element<Element>(y, first + i * params_.width + j, most);
      }
  }

  static std::pair<int64_t, int64_t> bin(int64_t i, double size, int64_t start, int64_t extent) {
    const auto low = static_cast<int64_t>(std::floor(static_cast<double>(i) * size));
    const auto high = static_cast<int64_t>(std::ceil(static_cast<double>(i + 1) * size));
    return {std::clamp<int64_t>(low + start, 0, extent),
            std::clamp<int64_t>(high + start, 0, extent)};
  }

  const std::string layer_;
  const RoiPoolParams params_;
  RoiShapes shapes_;
};

std::vector<Candidate> roi_candidates(const Operator&, const CandidateQuery& query) {
  if (!kFloats.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "loops")};
}

void check_roi_align(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(3, 3);
  rules.require(rules.input(0), kFloats);
  rules.require_same(rules.input(1), rules.input(0));
  rules.require(rules.input(2), kIndexTypes);
  rules.require_same(rules.output(0), rules.input(0));
}

void check_roi_pool(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(2, 2);
  rules.require(rules.input(0), kFloats);
  rules.require_same(rules.input(1), rules.input(0));
  rules.require_same(rules.output(0), rules.input(0));
}

const RegisteredKernels<RoiAlign> kRoiAlignKernels({roi_candidates,
                                                    make_floating_kernel<RoiAlignKernel, RoiAlign>,
                                                    check_roi_align});
const RegisteredKernels<RoiPool> kRoiPoolKernels({roi_candidates,
                                                  make_floating_kernel<RoiPoolKernel, RoiPool>,
                                                  check_roi_pool});

}  // namespace
}  // namespace opwright
