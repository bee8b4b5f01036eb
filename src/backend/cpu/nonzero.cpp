#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/candidates.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"
#include "operators/selection.h"

namespace opwright {
namespace {

/// Sets bit i where element i of at most 64 is not zero. The sign of a float does not count.
using Test = uint64_t (*)(const void* x, int64_t first, int64_t count);
template <class Bits, Bits mask>
uint64_t find_nonzero(const void* x, int64_t first, int64_t count) {
  const Bits* const from = static_cast<const Bits*>(x) + first;
  uint8_t flags[64] = {};
  if (count == 64) {
    // The fixed trip count lets the compiler vectorize at -O2.
    for (int i = 0; i < 64; ++i) flags[i] = (from[i] & mask) != 0;
  } else {
    for (int64_t i = 0; i < count; ++i) flags[i] = (from[i] & mask) != 0;
  }
  uint64_t result = 0;
  for (int i = 0; i < 64; i += 8) {
    // The product moves the lowest bit of byte k to bit 56 + k.
    uint64_t bytes;
    std::memcpy(&bytes, flags + i, 8);
    result |= bytes * 0x0102040810204080 >> 56 << i;
  }
  return result;
}

Test find_test(DataType type) {
  switch (type) {
    case DataType::kFLOAT:
      return find_nonzero<uint32_t, 0x7FFFFFFF>;
    case DataType::kHALF:
    case DataType::kBF16:
      return find_nonzero<uint16_t, 0x7FFF>;
    case DataType::kFP8:
      return find_nonzero<uint8_t, 0x7F>;
    case DataType::kINT32:
      return find_nonzero<uint32_t, ~uint32_t{0}>;
    case DataType::kINT64:
      return find_nonzero<uint64_t, ~uint64_t{0}>;
    default:
      return find_nonzero<uint8_t, 0xFF>;
  }
}

/// Counts first, then writes: each part of the elements begins where the parts before it end.
class NonZeroKernel final : public Kernel {
 public:
  explicit NonZeroKernel(const KernelArgs& args)
      : layer_(args.layer),
        test_(find_test(args.inputs[0].type.dtype)),
        wide_(args.outputs[0].type.dtype == DataType::kINT64) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    numel_ = 0;
    require_countable(inputs), require_countable(outputs);
    const Shape& indices = outputs[0];
    const int64_t numel = inputs[0].numel();
    require(indices.rank() == 2 && indices[0] == inputs[0].rank() && indices[1] >= numel, "Layer '",
            layer_, "': indices of shape ", indices, " have no room for those of ", inputs[0]);
    shape_ = inputs[0];
    numel_ = numel;
    require(wide_ || std::all_of(shape_.begin(), shape_.end(),
                                 [](int64_t extent) { return extent <= INT32_MAX; }),
            "Layer '", layer_, "': indices of 32 bits do not count the elements of ", shape_);
    parts_ = std::clamp<int64_t>(numel_ / kGrain, 1, kMostParts);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    int64_t first[kMostParts + 1] = {};
    parallel_for(parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        int64_t count = 0;
        const int64_t last = begin_of(part + 1);
        for (int64_t i = begin_of(part); i < last; i += 64)
          count += std::popcount(test_(inputs[0], i, std::min<int64_t>(64, last - i)));
        first[part + 1] = count;
      }
    });
    for (int64_t part = 0; part < parts_; ++part) first[part + 1] += first[part];
    const int64_t total = first[parts_];
    const auto write = [&](auto* indices) {
      parallel_for(parts_, 1, [&](int64_t begin, int64_t end) {
        for (int64_t part = begin; part < end; ++part)
          write_part(inputs[0], indices, part, first[part], first[part + 1], total);
      });
    };
    if (wide_)
      write(static_cast<int64_t*>(outputs[0]));
    else
      write(static_cast<int32_t*>(outputs[0]));
    *static_cast<int64_t*>(outputs[1]) = total;
  }

 private:
  static constexpr int64_t kGrain = 1 << 14;  ///< elements that are worth a thread
  static constexpr int64_t kMostParts = 64;

  int64_t begin_of(int64_t part) const {
    return numel_ / parts_ * part + std::min(part, numel_ % parts_);
  }

  /// Writes the indices row by row of the last axis, since the other indices are the same along it.
  /// Writes no more than was counted, even if another thread changes the elements meanwhile.
  template <class Index>
  void write_part(const void* x, Index* indices, int64_t part, int64_t at, int64_t end,
                  int64_t total) const {
    const int last = shape_.rank() - 1;
    if (last < 0) return;
    Index* const along = indices + last * total;
    const int64_t width = shape_[last], stop = begin_of(part + 1);
    for (int64_t i = begin_of(part); i < stop && at < end;) {
      const int64_t row = i / width, row_end = std::min(stop, (row + 1) * width), first = at;
      for (; i < row_end; i += 64) {
        uint64_t bits = test_(x, i, std::min<int64_t>(64, row_end - i));
        for (; bits != 0 && at < end; bits &= bits - 1)
          along[at++] = static_cast<Index>(i - row * width + std::countr_zero(bits));
      }
      i = row_end;
      if (at == first) continue;
      int64_t rest = row;
      for (int axis = last - 1; axis >= 0; --axis) {
        std::fill(indices + axis * total + first, indices + axis * total + at,
                  static_cast<Index>(rest % shape_[axis]));
        rest /= shape_[axis];
      }
    }
  }

  const std::string layer_;
  const Test test_;
  const bool wide_;
  Shape shape_;
  int64_t numel_ = 0, parts_ = 1;
};

std::vector<Candidate> nonzero_candidates(const Operator&, const CandidateQuery& query) {
  if (!kConvertible.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "loops")};
}

void check_nonzero(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1, 2);
  rules.require(rules.input(0), kConvertible);
  rules.require(rules.output(0), {static_cast<const NonZero&>(op).params().indices_type});
  rules.require_type(rules.output(0), kIndexTypes);
  rules.require(rules.output(1), {DataType::kINT64});
}

const RegisteredKernels<NonZero> kNonZeroKernels({nonzero_candidates,
                                                  make_kernel<NonZeroKernel, NonZero>,
                                                  check_nonzero});

}  // namespace
}  // namespace opwright
