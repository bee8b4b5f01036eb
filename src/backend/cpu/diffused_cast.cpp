#include "operators/diffused_cast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "backend/candidates.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/half.h"
#include "base/parallel.h"

namespace opwright {
namespace {

constexpr Types kNarrowTypes = {DataType::kHALF, DataType::kBF16};

struct Half {
  static uint16_t narrow(float value) { return float_to_half(value); }
  static float widen(uint16_t bits) { return half_to_float(bits); }
};
struct Bfloat16 {
  static uint16_t narrow(float value) { return float_to_bfloat16(value); }
  static float widen(uint16_t bits) { return bfloat16_to_float(bits); }
};

/// Rounds the value to one of its two neighbours, so that `error` becomes small. `error` is the sum
/// of the values minus the sum of the rounded values.
template <class Type>
uint16_t diffuse(float value, double& error) {
  constexpr uint16_t kSign = 0x8000;
  const uint16_t nearest = Type::narrow(value);
  const double of_nearest = static_cast<double>(value) - Type::widen(nearest);
  // Other values cannot make up for the error of an infinity, and a NaN has none.
  if (of_nearest == 0 || !std::isfinite(of_nearest)) return nearest;
  // Neighbours on one side of zero have neighbouring bits. The neighbour of zero has the value's
  // sign.
  const bool grows = (of_nearest > 0) == ((nearest & kSign) == 0);
  const uint16_t magnitude = nearest & ~kSign;
  const uint16_t other = magnitude == 0 ? static_cast<uint16_t>((value < 0 ? kSign : 0) | 1)
                                        : static_cast<uint16_t>(grows ? nearest + 1 : nearest - 1);
  const double of_other = static_cast<double>(value) - Type::widen(other);
  const bool takes_other = std::abs(error + of_other) < std::abs(error + of_nearest);
  error += takes_other ? of_other : of_nearest;
  return takes_other ? other : nearest;
}

class DiffusedCastKernel final : public Kernel {
 public:
  explicit DiffusedCastKernel(const KernelArgs& args)
      : layer_(args.layer), to_(args.outputs[0].type.dtype) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    shape_ = {};
    require_countable(inputs), require_countable(outputs);
    require(inputs[0].rank() == 4 && inputs[0] == outputs[0], "Layer '", layer_,
            "': input and output must have one shape of 4 axes, but have ", inputs[0], " and ",
            outputs[0]);
    shape_ = inputs[0];
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    const auto* const x = static_cast<const float*>(inputs[0]);
    auto* const y = static_cast<uint16_t*>(outputs[0]);
    if (to_ == DataType::kHALF)
      cast<Half>(x, y);
    else
      cast<Bfloat16>(x, y);
  }

 private:
  template <class Type>
  void cast(const float* x, uint16_t* y) const {
    if (shape_.numel() == 0) return;
    const int64_t rows = shape_[1], columns = shape_[2], taps = shape_[3];
    const int64_t blocks = (columns + kBlock - 1) / kBlock;
    parallel_for(shape_[0] * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % blocks * kBlock, count = std::min(kBlock, columns - first);
        std::array<double, kBlock> errors = {};
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t place = ((task / blocks * rows + row) * columns + first) * taps;
          for (int64_t i = 0; i < count * taps; ++i)
            y[place + i] = diffuse<Type>(x[place + i], errors[i / taps]);
        }
      }
    });
  }

  static constexpr int64_t kBlock = 64;  ///< columns of one task
  const std::string layer_;
  const DataType to_;
  Shape shape_;
};

std::vector<Candidate> diffused_cast_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "columns")};
}

void check_diffused_cast(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  rules.require(rules.input(0), {DataType::kFLOAT});
  rules.require(rules.output(0), {static_cast<const DiffusedCast&>(op).params().to});
  rules.require_type(rules.output(0), kNarrowTypes);
}

const RegisteredKernels<DiffusedCast> kDiffusedCastKernels(
    {diffused_cast_candidates, make_kernel<DiffusedCastKernel, DiffusedCast>, check_diffused_cast});

}  // namespace
}  // namespace opwright
