#include "operators/rotary_embedding.h"

#include <algorithm>
#include <cstring>

#include "backend/candidates.h"
#include "backend/cpu/index_reader.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/rotary_tile.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"

namespace opwright {
namespace {

class RotaryEmbeddingKernel final : public Kernel {
 public:
  RotaryEmbeddingKernel(const RotaryEmbeddingParams& params, const KernelArgs& args)
      : layer_(args.layer),
        params_(params),
        functions_(rotary_functions()),
        size_of_element_(element_size(args.inputs[0].type.dtype)),
        has_positions_(args.inputs.size() > 3 && args.inputs[3].present),
        wide_(has_positions_ && args.inputs[3].type.dtype == DataType::kINT64) {
    const DataType type = args.inputs[0].type.dtype;
    if (type == DataType::kFLOAT) return;
    load_ = find_cast(type, DataType::kFLOAT);
    store_ = find_cast(DataType::kFLOAT, type);
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    rows_ = 0;
    require_countable(inputs), require_countable(outputs);
    const Shape &x = inputs[0], &cosines = inputs[1], &sines = inputs[2];
    const Shape& places = has_positions_ ? inputs[3] : cosines;
    size_ = x[3];
    turned_ = params_.rotary_embedding_dim > 0 ? params_.rotary_embedding_dim : size_;
    length_ = x[params_.sequence_first ? 1 : 2];
    heads_ = x[params_.sequence_first ? 2 : 1];
    turned_heads_ = params_.turned_heads > 0 ? params_.turned_heads : heads_;
    is_shared_ = places[0] == 1;
    table_rows_ = has_positions_ ? cosines[0] : cosines[0] * cosines[1];
    const int rank = cosines.rank();
    require(outputs[0] == x && turned_ % 2 == 0 && turned_ <= size_ && cosines == sines &&
                cosines[rank - 1] == turned_ / 2 && places[1] == length_ &&
                (is_shared_ || places[0] == x[0]),
            "Layer '", layer_, "': angles of shape ", cosines, " and ", sines,
            has_positions_ ? str(" at positions ", inputs[3]) : "", " do not turn ", turned_,
            " elements of each head in ", x);
    rows_ = size_ > 0 ? x.numel(0, 3) : 0;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    const IndexReader positions(has_positions_ ? inputs[3] : nullptr, wide_);
    parallel_for(
        rows_, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, size_)),
        [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            // Index of the row's angles in [batch, length].
            const int64_t batch = is_shared_ ? 0 : row / (heads_ * length_);
            const int64_t t = params_.sequence_first ? row / heads_ % length_ : row % length_;
            int64_t at = batch * length_ + t;
            const int64_t head = params_.sequence_first ? row % heads_ : row / length_ % heads_;
            if (head >= turned_heads_) {
              copy(inputs[0], row * size_, size_, outputs[0]);
              continue;
            }
            if (has_positions_) at = positions(at, table_rows_);
            turn(inputs, at, row, outputs[0]);
          }
        });
  }

 private:
  static constexpr int64_t kGrain = 1 << 14;  ///< elements that are worth a thread
  static constexpr int64_t kBlock = 256;      ///< pairs that are converted together

  /// The elements from `first` on as FP32: in place, or converted in the buffer.
  const float* load(const void* data, int64_t first, int64_t count, float* buffer) const {
    const std::byte* from = static_cast<const std::byte*>(data) + first * size_of_element_;
    if (!load_) return reinterpret_cast<const float*>(from);
    load_(buffer, from, nullptr, nullptr, count, nullptr);
    return buffer;
  }
  /// Memory for the results of elements from `first` on: the output, or the buffer where they are
  /// converted afterwards.
  float* target(void* data, int64_t first, float* buffer) const {
    return load_ ? buffer : static_cast<float*>(data) + first;
  }
  void store(void* data, int64_t first, int64_t count, const float* buffer) const {
    if (!load_) return;
    std::byte* to = static_cast<std::byte*>(data) + first * size_of_element_;
    store_(to, buffer, nullptr, nullptr, count, nullptr);
  }

  void copy(const void* x, int64_t first, int64_t count, void* y) const {
    std::memcpy(static_cast<std::byte*>(y) + first * size_of_element_,
                static_cast<const std::byte*>(x) + first * size_of_element_,
                static_cast<size_t>(count * size_of_element_));
  }
  /// Rotates row `row` of x by the angles of row `at`. Writes zeros where `at` is negative.
  void turn(void const* const* inputs, int64_t at, int64_t row, void* y) const {
    alignas(64) float xs[2 * kBlock], ys[2 * kBlock], cosine[kBlock], sine[kBlock];
    const int64_t first = row * size_, half = turned_ / 2, most = load_ ? kBlock : half;
    if (at < 0) {
      std::memset(static_cast<std::byte*>(y) + first * size_of_element_, 0,
                  static_cast<size_t>(turned_ * size_of_element_));
    } else {
      for (int64_t i = 0; i < half; i += most) {
        const int64_t count = std::min(most, half - i);
        const float* const c = load(inputs[1], at * half + i, count, cosine);
        const float* const s = load(inputs[2], at * half + i, count, sine);
        if (params_.interleaved) {
          const int64_t begin = first + 2 * i;
          functions_.neighbours(load(inputs[0], begin, 2 * count, xs), c, s, count,
                                target(y, begin, ys));
          store(y, begin, 2 * count, ys);
        } else {
          const int64_t a = first + i, b = a + half;
          functions_.halves(load(inputs[0], a, count, xs), load(inputs[0], b, count, xs + kBlock),
                            c, s, count, target(y, a, ys), target(y, b, ys + kBlock));
          store(y, a, count, ys), store(y, b, count, ys + kBlock);
        }
      }
    }
    copy(inputs[0], first + turned_, size_ - turned_, y);
  }

  const std::string layer_;
  const RotaryEmbeddingParams params_;
  const RotaryFunctions& functions_;
  const int size_of_element_;
  const bool has_positions_, wide_;
  TileFunction load_ = nullptr, store_ = nullptr;
  bool is_shared_ = false;  ///< whether the whole batch shares the angles
  int64_t rows_ = 0, size_ = 0, turned_ = 0, length_ = 1, heads_ = 1, turned_heads_ = 1,
          table_rows_ = 0;
};

std::vector<Candidate> rotary_candidates(const Operator&, const CandidateQuery& query) {
  if (!kFloats.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "rows")};
}

void check_rotary(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(3, 4);
  rules.require(rules.input(0), kFloats);
  rules.require_same(rules.input(1), rules.input(0));
  rules.require_same(rules.input(2), rules.input(0));
  rules.require_same(rules.output(0), rules.input(0));
  if (rules.has_input(3)) rules.require(rules.input(3), kIndexTypes);
}

const RegisteredKernels<RotaryEmbedding> kRotaryEmbeddingKernels(
    {rotary_candidates, make_kernel<RotaryEmbeddingKernel, RotaryEmbedding>, check_rotary});

}  // namespace
}  // namespace opwright
