#include <algorithm>
#include <cmath>

#include "backend/candidates.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise_tile.h"
#include "base/half.h"
#include "base/parallel.h"
#include "operators/source.h"

namespace opwright {
namespace {

/// Philox4x32-10 of J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random
/// numbers: as easy as 1, 2, 3" (SC 2011): four random words for every counter, so that any element
/// is drawn without those before it.
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

/// In [0, 1), a multiple of 2^-24.
float unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

double read_scalar(const void* from, DataType type, int64_t i) {
  switch (type) {
    case DataType::kHALF:
      return half_to_float(static_cast<const uint16_t*>(from)[i]);
    case DataType::kBF16:
      return bfloat16_to_float(static_cast<const uint16_t*>(from)[i]);
    case DataType::kINT32:
      return static_cast<const int32_t*>(from)[i];
    case DataType::kINT64:
      return static_cast<double>(static_cast<const int64_t*>(from)[i]);
    default:
      return static_cast<const float*>(from)[i];
  }
}

class FillKernel final : public Kernel {
 public:
  FillKernel(const Fill& op, const KernelArgs& args)
      : params_(op.params()), type_(args.outputs[0].type.dtype), size_(element_size(type_)) {
    integral_ = params_.operation == FillOperation::kLINSPACE &&
                (type_ == DataType::kINT64 || type_ == DataType::kINT32);
    store_ = find_cast(integral_ ? DataType::kINT64 : DataType::kFLOAT, type_);
    for (int i = 1; i <= 2; ++i) {
      given_[i] = static_cast<size_t>(i) < args.inputs.size() && args.inputs[i].present;
      if (given_[i]) types_[i] = args.inputs[i].type.dtype;
    }
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    shape_ = outputs[0];
    numel_ = shape_.numel();
    steps_ = given_[2] ? inputs[2].numel() : 1;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    auto* to = static_cast<std::byte*>(outputs[0]);
    alpha_ = given_[1] ? read_scalar(inputs[1], types_[1], 0) : params_.alpha;
    beta_ = given_[2] ? read_scalar(inputs[2], types_[2], 0) : params_.beta;
    // A scalar is the step of the last axis, a vector has one for each.
    std::fill_n(step_, Dims::MAX_DIMS, 0.0);
    if (shape_.rank() > 0) step_[shape_.rank() - 1] = beta_;
    if (given_[2] && steps_ == shape_.rank())
      for (int axis = 0; axis < shape_.rank(); ++axis)
        step_[axis] = read_scalar(inputs[2], types_[2], axis);
    parallel_for((numel_ + kBlock - 1) / kBlock, 16, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kBlock, count = std::min(kBlock, numel_ - first);
        alignas(64) int64_t integers[kBlock];
        alignas(64) float floats[kBlock];
        if (integral_)
          linspace(first, count, integers);
        else if (params_.operation == FillOperation::kLINSPACE)
          linspace(first, count, floats);
        else
          random(first, count, floats);
        store_(to + first * size_, integral_ ? static_cast<void*>(integers) : floats, nullptr,
               nullptr, count, nullptr);
      }
    });
  }

 private:
  static constexpr int64_t kBlock = 256;  // whole counters of the generator

  template <class T>
  void linspace(int64_t first, int64_t count, T* out) const {
    // Integers are counted as such: a double does not hold all of them.
    using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
    for (int64_t i = 0; i < count; ++i) {
      Sum value = static_cast<Sum>(alpha_);
      int64_t rest = first + i;
      for (int axis = shape_.rank() - 1; axis >= 0; --axis) {
        value += static_cast<Sum>(rest % shape_[axis]) * static_cast<Sum>(step_[axis]);
        rest /= shape_[axis];
      }
      out[i] = static_cast<T>(value);
    }
  }

  void random(int64_t first, int64_t count, float* out) const {
    const auto alpha = static_cast<float>(alpha_), beta = static_cast<float>(beta_);
    for (int64_t i = 0; i < count; i += 4) {
      const Philox draw(static_cast<uint64_t>(first + i) / 4, static_cast<uint64_t>(params_.seed));
      float values[4];
      if (params_.operation == FillOperation::kRANDOM_UNIFORM) {
        // The sum may round up to the bound, which does not belong to the range.
        for (int k = 0; k < 4; ++k) {
          values[k] = alpha + (beta - alpha) * unit(draw.words[k]);
          if (values[k] >= beta && alpha < beta) values[k] = std::nextafter(beta, alpha);
        }
      } else {
        // G. E. P. Box and M. E. Muller, "A note on the generation of random normal deviates"
        // (1958). The radius takes 1 - u, which is not 0.
        for (int k = 0; k < 4; k += 2) {
          const float radius = std::sqrt(-2 * std::log(1 - unit(draw.words[k])));
          const float angle = 6.283185307179586f * unit(draw.words[k + 1]);
          values[k] = alpha + beta * radius * std::cos(angle);
          values[k + 1] = alpha + beta * radius * std::sin(angle);
        }
      }
      std::copy_n(values, std::min<int64_t>(4, count - i), out + i);
    }
  }

  FillParams params_;
  DataType type_;
  int size_;
  bool integral_ = false, given_[3] = {};
  DataType types_[3] = {};
  TileFunction store_ = nullptr;
  Shape shape_;
  int64_t numel_ = 0, steps_ = 1;
  double alpha_ = 0, beta_ = 0, step_[Dims::MAX_DIMS] = {};
};

std::vector<Candidate> candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "counter")};
}

}  // namespace

KernelEntry fill_kernels() {
  return {candidates, [](const Operator& op, const KernelArgs& args) -> std::unique_ptr<Kernel> {
            return std::make_unique<FillKernel>(static_cast<const Fill&>(op), args);
          }};
}

}  // namespace opwright
