#include <algorithm>

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

/// A task is a row of outputs for one place of the window and all channels that share the offsets.
template <class Element>
class DeformableColumnsKernel final : public Kernel {
 public:
  DeformableColumnsKernel(const DeformableColumnsParams& params, const KernelArgs& args)
      : layer_(args.layer),
        params_(params),
        has_factors_(args.inputs.size() > 2 && args.inputs[2].present) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    const Shape &x = inputs[0], &offsets = inputs[1], &y = outputs[0];
    const Shape factors = has_factors_ ? inputs[2] : Shape();
    const int64_t places = params_.window[0] * params_.window[1], groups = params_.offset_groups;
    tasks_ = 0;
    require(y[0] == x[0] && y[1] == x[1] * places && x[1] % groups == 0 && offsets[0] == x[0] &&
                offsets[1] == groups * places * 2 && offsets[2] == y[2] && offsets[3] == y[3] &&
                (!has_factors_ || factors == Shape{x[0], groups * places, y[2], y[3]}),
            "Layer '", layer_, "': ", x, " with offsets of shape ", offsets, " and factors of ",
            factors, " does not give ", y);
    channels_ = x[1], height_ = x[2], width_ = x[3], rows_ = y[2], columns_ = y[3];
    tasks_ = y.numel() == 0 ? 0 : x[0] * groups * places * y[2];
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    const void* const factors = has_factors_ ? inputs[2] : nullptr;
    const int64_t work = std::max<int64_t>(1, columns_ * channels_ / params_.offset_groups);
    parallel_for(tasks_, std::max<int64_t>(1, (1 << 12) / work), [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task)
        for (int64_t column = 0; column < columns_; column += Neighbours::kMost)
          run_columns(inputs[0], inputs[1], factors, outputs[0], task, column,
                      std::min(Neighbours::kMost, columns_ - column));
    });
  }

 private:
  /// Computes columns [first, first + count) of a row, at one place of the window, for all channels
  /// of a group.
  void run_columns(const void* x, const void* offsets, const void* factors, void* y, int64_t task,
                   int64_t first, int64_t count) const {
    const int64_t places = params_.window[0] * params_.window[1], groups = params_.offset_groups;
    const int64_t row = task % rows_, place = task / rows_ % places;
    const int64_t group = task / (rows_ * places) % groups;
    const int64_t image = task / (rows_ * places * groups);
    const int64_t moved = (image * groups + group) * places + place, size = rows_ * columns_;
    const double top = static_cast<double>(row * params_.stride[0] - params_.pre_padding[0] +
                                           place / params_.window[1] * params_.dilation[0]);
    Neighbours neighbours;
    for (int64_t i = 0; i < count; ++i) {
      const double left =
          static_cast<double>((first + i) * params_.stride[1] - params_.pre_padding[1] +
                              place % params_.window[1] * params_.dilation[1]);
      const int64_t at = row * columns_ + first + i;
      const float factor =
          factors != nullptr ? load_element<Element>(factors, moved * size + at) : 1.0f;
      find(top + load_element<Element>(offsets, moved * 2 * size + at),
           left + load_element<Element>(offsets, (moved * 2 + 1) * size + at), factor, neighbours);
    }
    const int64_t channels = channels_ / groups;
    const int64_t plane = image * channels_ + group * channels;
    const int64_t to = ((plane * places + place) * rows_ + row) * columns_ + first;
    neighbours.blend<Element>(x, {plane * height_ * width_, height_ * width_}, y,
                              {to, places * size}, channels);
  }

  /// For numbers that fit; std::floor is a call on processors without an instruction for it.
  static int64_t floor(double number) {
    const auto towards_zero = static_cast<int64_t>(number);
    return towards_zero - (static_cast<double>(towards_zero) > number ? 1 : 0);
  }

  /// Adds the neighbours of a position. Elements outside of the image count as zero.
  void find(double at_y, double at_x, float factor, Neighbours& neighbours) const {
    const bool reaches = at_y > -1 && at_y < static_cast<double>(height_) && at_x > -1 &&
                         at_x < static_cast<double>(width_);
    const int64_t y0 = reaches ? floor(at_y) : -2, x0 = reaches ? floor(at_x) : -2;
    const auto v = static_cast<float>(at_y - static_cast<double>(y0)),
               u = static_cast<float>(at_x - static_cast<double>(x0));
    const float along_y[] = {(1 - v) * factor, v * factor}, along_x[] = {1 - u, u};
    if (y0 >= 0 && y0 + 1 < height_ && x0 >= 0 && x0 + 1 < width_)
      return neighbours.add_square(y0 * width_ + x0, width_, along_y, along_x);
    neighbours.add(
        [&](int64_t n) {
          const int64_t row = y0 + n / 2, column = x0 + n % 2;
          return row >= 0 && row < height_ && column >= 0 && column < width_;
        },
        [&](int64_t n) { return (y0 + n / 2) * width_ + x0 + n % 2; },
        [&](int64_t n) { return along_y[n / 2] * along_x[n % 2]; });
  }

  const std::string layer_;
  const DeformableColumnsParams params_;
  const bool has_factors_;
  int64_t channels_ = 0, height_ = 0, width_ = 0, rows_ = 0, columns_ = 0, tasks_ = 0;
};

std::vector<Candidate> deformable_candidates(const Operator&, const CandidateQuery& query) {
  if (!kFloats.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "loops")};
}

void check_deformable(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(2, 3);
  rules.require(rules.input(0), kFloats);
  rules.require_same(rules.input(1), rules.input(0));
  if (rules.has_input(2)) rules.require_same(rules.input(2), rules.input(0));
  rules.require_same(rules.output(0), rules.input(0));
  const DeformableColumnsParams& params = static_cast<const DeformableColumns&>(op).params();
  // Inference gives empty parameters their defaults; here they must be complete.
  for (const Ints* each : {&params.window, &params.stride, &params.dilation, &params.pre_padding,
                           &params.post_padding})
    rules.require_that(each->size() == 2, "must have windows of two axes");
}

const RegisteredKernels<DeformableColumns> kDeformableColumnsKernels(
    {deformable_candidates, make_floating_kernel<DeformableColumnsKernel, DeformableColumns>,
     check_deformable});

}  // namespace
}  // namespace opwright
