#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/half.h"
#include "base/parallel.h"
#include "base/types.h"
#include "operators/pointwise.h"
#include "operators/source.h"

namespace opwright {
namespace {

/// Philox4x32-10 of J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random
/// numbers: as easy as 1, 2, 3" (SC 2011). It makes four random words of each counter, so any
/// element is drawn without the elements before it.
struct Philox {
  uint32_t words[4];

  Philox(uint64_t counter, uint64_t key)
      : words{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0} {
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = uint64_t{0xD2511F53} * words[0], b = uint64_t{0xCD9E8D57} * words[2];
      words[0] = static_cast<uint32_t>(b >> 32) ^ words[1] ^ k0;
      words[1] = static_cast<uint32_t>(b);
      words[2] = static_cast<uint32_t>(a >> 32) ^ words[3] ^ k1;
      words[3] = static_cast<uint32_t>(a);
      k0 += 0x9E3779B9, k1 += 0xBB67AE85;  // the Weyl sequence of the keys
    }
  }
};

/// A number in [0, 1), a multiple of 2^-24.
float unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

template <class Number>
Number read_scalar(const void* from, DataType type, int64_t i) {
  switch (type) {
    case DataType::kHALF:
      return static_cast<Number>(half_to_float(static_cast<const uint16_t*>(from)[i]));
    case DataType::kBF16:
      return static_cast<Number>(bfloat16_to_float(static_cast<const uint16_t*>(from)[i]));
    case DataType::kFP8:
      return static_cast<Number>(fp8_to_float(static_cast<const uint8_t*>(from)[i]));
    case DataType::kINT8:
      return static_cast<Number>(static_cast<const int8_t*>(from)[i]);
    case DataType::kUINT8:
      return static_cast<Number>(static_cast<const uint8_t*>(from)[i]);
    case DataType::kBOOL:
      return static_cast<Number>(static_cast<const uint8_t*>(from)[i] != 0);
    case DataType::kINT32:
      return static_cast<Number>(static_cast<const int32_t*>(from)[i]);
    case DataType::kINT64:
      return static_cast<Number>(static_cast<const int64_t*>(from)[i]);
    default:
      return static_cast<Number>(static_cast<const float*>(from)[i]);
  }
}

/// A parameter in the type that the filling counts in. Values beyond the range of integers
/// saturate.
template <class Number>
Number number_of(double parameter) {
  if constexpr (std::is_integral_v<Number>) {
    if (std::isnan(parameter)) return 0;
    if (parameter >= 0x1p63) return INT64_MAX;
    if (parameter <= -0x1p63) return INT64_MIN;
  }
  return static_cast<Number>(parameter);
}

/// The numbers of a filling.
template <class Number>
struct FillNumbers {
  Number alpha = 0, beta = 0;
  Number steps[Dims::MAX_DIMS] = {};  ///< one per axis
};

class FillKernel final : public Kernel {
 public:
  FillKernel(const Fill& op, const KernelArgs& args)
      : params_(op.params()), type_(args.outputs[0].type.dtype), size_(element_size(type_)) {
    integral_ = is_integer(type_);
    store_ = find_cast(integral_ ? DataType::kINT64 : DataType::kFLOAT, type_);
    for (int i = 1; i <= 2; ++i) {
      given_[i] = static_cast<size_t>(i) < args.inputs.size() && args.inputs[i].present;
      if (given_[i]) types_[i] = args.inputs[i].type.dtype;
    }
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    numel_ = 0;
    require_countable(outputs);
    shape_ = outputs[0];
    numel_ = shape_.numel();
    steps_ = given_[2] ? inputs[2].numel() : 1;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    auto* to = static_cast<std::byte*>(outputs[0]);
    FillNumbers<int64_t> integers;
    FillNumbers<double> floats;
    if (integral_)
      integers = read<int64_t>(inputs);
    else
      floats = read<double>(inputs);
    if (params_.operation == FillOperation::kLINSPACE && is_even(integers) && is_even(floats))
      return fill(integers.alpha, static_cast<float>(floats.alpha), to);
    parallel_for((numel_ + kBlock - 1) / kBlock, 16, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kBlock, count = std::min(kBlock, numel_ - first);
        union {
          alignas(64) int64_t as_integers[kBlock];
          float as_floats[kBlock];
        };
        if (integral_)
          linspace(integers, first, count, as_integers);
        else if (params_.operation == FillOperation::kLINSPACE)
          linspace(floats, first, count, as_floats);
        else
          random(floats, first, count, as_floats);
        store_(to + first * size_, as_integers, nullptr, nullptr, count, nullptr);
      }
    });
  }

 private:
  static constexpr int64_t kBlock = 256;  // elements, a multiple of the generator's four words

  /// Whether all elements are the same.
  template <class Number>
  static bool is_even(const FillNumbers<Number>& numbers) {
    return std::ranges::all_of(numbers.steps, [](Number step) { return step == 0; });
  }

  void fill(int64_t integer, float number, std::byte* to) const {
    alignas(64) std::byte value[64] = {}, stored[64];
    std::memcpy(value, integral_ ? static_cast<const void*>(&integer) : &number, integral_ ? 8 : 4);
    store_(stored, value, nullptr, nullptr, 1, nullptr);
    parallel_for(numel_, kCopyGrainBytes / size_, [&](int64_t begin, int64_t end) {
      fill_elements(to + begin * size_, stored, size_, end - begin);
    });
  }

  template <class Number>
  FillNumbers<Number> read(void const* const* inputs) const {
    const auto value = [&](int input, double parameter, int64_t i) {
      return given_[input] ? read_scalar<Number>(inputs[input], types_[input], i)
                           : number_of<Number>(parameter);
    };
    const int rank = shape_.rank();
    FillNumbers<Number> numbers{value(1, params_.alpha, 0),
                                steps_ == 0 ? Number(0) : value(2, params_.beta, 0)};
    // A scalar is the step of the last axis, a vector has a step for each axis.
    if (rank > 0) numbers.steps[rank - 1] = numbers.beta;
    if (given_[2] && steps_ == rank)
      for (int axis = 0; axis < rank; ++axis) numbers.steps[axis] = value(2, 0, axis);
    return numbers;
  }

  template <class Number, class T>
  void linspace(const FillNumbers<Number>& numbers, int64_t first, int64_t count, T* out) const {
    // Integers are counted as integers, since a double does not hold all of them. They wrap around.
    using Sum = std::conditional_t<std::is_integral_v<Number>, uint64_t, double>;
    const int rank = shape_.rank();
    int64_t index[Dims::MAX_DIMS] = {};
    int64_t rest = first;
    for (int axis = rank - 1; axis >= 0; --axis) {
      index[axis] = rest % shape_[axis];
      rest /= shape_[axis];
    }
    for (int64_t i = 0; i < count; ++i) {
      Sum value = static_cast<Sum>(numbers.alpha);
      for (int axis = rank - 1; axis >= 0; --axis)
        value += static_cast<Sum>(index[axis]) * static_cast<Sum>(numbers.steps[axis]);
      out[i] = static_cast<T>(value);
      for (int axis = rank - 1; axis >= 0 && ++index[axis] == shape_[axis]; --axis) index[axis] = 0;
    }
  }

  void random(const FillNumbers<double>& numbers, int64_t first, int64_t count, float* out) const {
    const auto alpha = static_cast<float>(numbers.alpha), beta = static_cast<float>(numbers.beta);
    const bool is_uniform = params_.operation == FillOperation::kRANDOM_UNIFORM;
    alignas(64) float units[kBlock];
    for (int64_t i = 0; i < count; i += 4) {
      const Philox draw(static_cast<uint64_t>(first + i) / 4, static_cast<uint64_t>(params_.seed));
      for (int k = 0; k < 4; ++k) units[i + k] = unit(draw.words[k]);
    }
    if (!is_uniform) return normal(units, alpha, beta, (count + 3) / 4 * 2, out);
    // The sum may round up to the bound, which is outside of the range.
    for (int64_t i = 0; i < count; ++i) {
      out[i] = alpha + (beta - alpha) * units[i];
      if (out[i] >= beta && alpha < beta) out[i] = std::nextafter(beta, alpha);
    }
  }

  /// Normal deviates of `pairs` pairs of units: G. E. P. Box and M. E. Muller, "A note on the
  /// generation of random normal deviates" (1958). The radius takes 1 - u, which is not 0.
  static void normal(const float* units, float alpha, float beta, int64_t pairs, float* out) {
    alignas(64) float radii[kBlock / 2], angles[kBlock / 2], results[kBlock / 2];
    const auto run = [&](UnaryOperation op, const float* x, float* y) {
      find_float_op(opcode(op))(y, x, nullptr, nullptr, pairs, kNoImmediates);
    };
    for (int64_t i = 0; i < pairs; ++i) {
      radii[i] = 1 - units[2 * i];
      angles[i] = 6.283185307179586f * units[2 * i + 1];
    }
    run(UnaryOperation::kLOG, radii, results);
    for (int64_t i = 0; i < pairs; ++i) results[i] = std::max(0.0f, -2 * results[i]);
    run(UnaryOperation::kSQRT, results, radii);
    run(UnaryOperation::kCOS, angles, results);
    for (int64_t i = 0; i < pairs; ++i) out[2 * i] = alpha + beta * radii[i] * results[i];
    run(UnaryOperation::kSIN, angles, results);
    for (int64_t i = 0; i < pairs; ++i) out[2 * i + 1] = alpha + beta * radii[i] * results[i];
  }
  static constexpr double kNoImmediates[2] = {};

  FillParams params_;
  DataType type_;
  int size_;
  bool integral_ = false, given_[3] = {};
  DataType types_[3] = {};
  TileFunction store_ = nullptr;
  Shape shape_;
  int64_t numel_ = 0, steps_ = 1;
};

std::vector<Candidate> fill_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "counter")};
}

void check_fill(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(0, 3);
  const PortRules::Port y = rules.output(0);
  const DataType type = static_cast<const Fill&>(op).params().to_type;
  rules.require(y, kConvertible);
  rules.require_that(y.desc.type.dtype == type, "output 0 must be ", name(type), ", but is ",
                     name(y.desc.type.dtype));
  if (rules.has_input(0)) rules.require(rules.input(0), kIndexTypes);
  for (size_t i = 1; i < rules.inputs(); ++i)
    if (rules.has_input(i) &&
        !(type == DataType::kINT64 && rules.input(i).desc.type.dtype == DataType::kINT32))
      rules.require_same(rules.input(i), y);
}

const RegisteredKernels<Fill> kFillKernels({fill_candidates, make_kernel<FillKernel, Fill>,
                                            check_fill});

}  // namespace
}  // namespace opwright
