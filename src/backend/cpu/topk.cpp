#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "backend/candidates.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/ordered_bits.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "backend/cpu/topk_tile.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/types.h"
#include "operators/reduce.h"

namespace opwright {
namespace {

// An element and its index in one integer. Of equal elements, the earlier one has the greater key,
// so no two keys are equal and no comparison is undefined.
using Narrow = uint64_t;
using Wide = unsigned __int128;

struct FloatReader {
  using Key = Narrow;
  static uint32_t read(const void* from, int64_t i) {
    return ordered(static_cast<const uint32_t*>(from)[i], 0x7F800000);
  }
};
struct HalfReader {
  using Key = Narrow;
  static uint32_t read(const void* from, int64_t i) {
    return ordered(uint32_t{static_cast<const uint16_t*>(from)[i]} << 16, 0x7C000000);
  }
};
struct Bfloat16Reader {
  using Key = Narrow;
  static uint32_t read(const void* from, int64_t i) {
    return ordered(uint32_t{static_cast<const uint16_t*>(from)[i]} << 16, 0x7F800000);
  }
};
template <class T>
struct IntegerReader {
  using Key = Narrow;
  static uint32_t read(const void* from, int64_t i) {
    return static_cast<uint32_t>(static_cast<int64_t>(static_cast<const T*>(from)[i]) - INT32_MIN);
  }
};
struct Int64Reader {
  using Key = Wide;
  static uint64_t read(const void* from, int64_t i) {
    return static_cast<uint64_t>(static_cast<const int64_t*>(from)[i]) ^ uint64_t { 1 } << 63;
  }
};

template <class Key>
int64_t index_of(Key key) {
  if constexpr (sizeof(Key) == 8) return static_cast<uint32_t>(~static_cast<uint32_t>(key));
  return static_cast<int64_t>(~static_cast<uint64_t>(key));
}

/// Puts the k greatest keys of a row in descending order to the front of `buffer`. Elements below
/// the k-th greatest so far are skipped. The others gather until the buffer is full, which is then
/// cut to k keys.
template <class Reader>
void select(const void* row, int64_t count, int64_t stride, bool largest, int64_t k,
            typename Reader::Key* buffer, int64_t capacity) {
  using Key = typename Reader::Key;
  constexpr int kHalf = sizeof(Key) * 4;
  using Part = std::conditional_t<sizeof(Key) == 8, uint32_t, uint64_t>;
  int64_t used = 0;
  Key threshold = 0;
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<Reader, FloatReader>) {
      if (threshold != 0 && stride == 1) {
        const auto* const x = static_cast<const float*>(row);
        i = next_beyond(x, i, count, x[index_of(threshold)], largest);
        if (i == count) break;
      }
    }
    Part value = Reader::read(row, i * stride);
    if (!largest) value = static_cast<Part>(~value);
    const Key key = static_cast<Key>(value) << kHalf | static_cast<Part>(~static_cast<Part>(i));
    if (key < threshold) continue;
    buffer[used++] = key;
    if (used < capacity || i + 1 == count) continue;
    std::nth_element(buffer, buffer + k - 1, buffer + used, std::greater<Key>());
    used = k;
    threshold = buffer[k - 1];
  }
  if (used > k) std::nth_element(buffer, buffer + k - 1, buffer + used, std::greater<Key>());
  std::sort(buffer, buffer + k, std::greater<Key>());
}

/// The index of the greatest or least element of a row; the first of several.
template <class Reader>
int64_t first_of(const void* row, int64_t count, bool largest) {
  if constexpr (std::is_same_v<Reader, FloatReader>) {
    const int64_t found = first_extreme(static_cast<const float*>(row), count, largest);
    if (found >= 0) return found;
  }
  using Part = decltype(Reader::read(row, 0));
  const Part flip = largest ? Part{0} : static_cast<Part>(~Part{0});
  Part best = Reader::read(row, 0) ^ flip;
  int64_t place = 0;
  for (int64_t i = 1; i < count; ++i) {
    const Part next = Reader::read(row, i) ^ flip;
    if (next > best) best = next, place = i;
  }
  return place;
}

/// Finds the greatest key of each of `columns` rows that lie side by side.
template <class Reader>
void select_first(const void* rows, int64_t count, int64_t stride, bool largest, int64_t columns,
                  typename Reader::Key* best) {
  using Part = decltype(Reader::read(rows, 0));
  constexpr int kHalf = sizeof(Part) * 8;
  const Part flip = largest ? Part{0} : static_cast<Part>(~Part{0});
  std::fill(best, best + columns, 0);
  for (int64_t i = 0; i < count; ++i) {
    const Part place = static_cast<Part>(~static_cast<Part>(i));
    for (int64_t j = 0; j < columns; ++j) {
      const auto next = static_cast<typename Reader::Key>(Reader::read(rows, i * stride + j) ^ flip)
                            << kHalf |
                        place;
      best[j] = std::max(best[j], next);
    }
  }
}

class TopKKernel final : public Kernel {
 public:
  TopKKernel(const TopK& op, const KernelArgs& args)
      : largest_(op.params().op == TopKOperation::kMAX),
        axis_(std::countr_zero(static_cast<uint64_t>(op.params().axes))),
        type_(args.inputs[0].type.dtype),
        element_size_(element_size(type_)),
        wide_indices_(args.outputs[1].type.dtype == DataType::kINT64),
        workers_(thread_count()) {
    const Shape &input = args.inputs[0].max, &output = args.outputs[0].max;
    const int64_t rows = output[axis_] == 0 ? 0 : output.numel() / output[axis_];
    workers_ = static_cast<int>(std::clamp<int64_t>(rows, 1, workers_));
    slot_bytes_ = checked_product("the memory to select in",
                                  {capacity_of(input[axis_], output[axis_]), key_bytes()});
  }

  size_t workspace_size() const override {
    return checked_product("the memory to select in", {workers_, slot_bytes_});
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    const Shape& shape = inputs[0];
    rows_ = 0;
    require_countable(inputs), require_countable(outputs);
    count_ = shape[axis_];
    k_ = outputs[0][axis_];
    require(k_ <= count_ && outputs[1] == outputs[0] &&
                outputs[0].numel(axis_ + 1, shape.rank()) == shape.numel(axis_ + 1, shape.rank()) &&
                outputs[0].numel(0, axis_) == shape.numel(0, axis_),
            "cannot select ", outputs[0], " with indices ", outputs[1], " from ", shape,
            " along axis ", axis_, ": k must not exceed the extent");
    require(count_ <= INT32_MAX || (wide_indices_ && key_bytes() == sizeof(Wide)),
            "cannot select among ", count_, " elements: indices of 31 bits do not count them");
    require(k_ == 0 || capacity_of(count_, k_) * key_bytes() <= slot_bytes_, "selecting ", k_,
            " of ", count_, " elements takes more memory than at the profile's maximum");
    inner_ = shape.numel(axis_ + 1, shape.rank());
    rows_ = k_ == 0 ? 0 : outputs[0].numel() / k_;
    grain_ =
        std::max<int64_t>(1, (int64_t{1} << 15) * workers_ / std::max<int64_t>(1, rows_ * count_));
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    if (rows_ == 0) return;
    // A range may contain several workers' rows. They run one after another, each in its own
    // scratch memory.
    parallel_for(workers_, grain_, [&](int64_t begin, int64_t end) {
      for (int64_t worker = begin; worker < end; ++worker) {
        std::byte* scratch = static_cast<std::byte*>(workspace) + worker * slot_bytes_;
        const int64_t last = rows_ * (worker + 1) / workers_;
        for (int64_t row = rows_ * worker / workers_; row < last;) {
          if (k_ == 1) {
            row += run_columns(inputs[0], row, last, outputs[0], outputs[1]);
          } else {
            run_row(inputs[0], row++, scratch, outputs[0], outputs[1]);
          }
        }
      }
    });
  }

 private:
  int64_t key_bytes() const { return type_ == DataType::kINT64 ? sizeof(Wide) : sizeof(Narrow); }
  static int64_t capacity_of(int64_t count, int64_t k) {
    return std::max<int64_t>(1, std::min(count, 2 * k + 32));
  }

  void run_row(const void* input, int64_t row, void* scratch, void* values, void* indices) const {
    const int64_t from = row / inner_ * inner_ * count_ + row % inner_;
    const int64_t to = row / inner_ * inner_ * k_ + row % inner_;
    const auto* elements = static_cast<const std::byte*>(input) + from * element_size_;
    with_reader([&]<class Reader>(Reader) {
      auto* keys = static_cast<typename Reader::Key*>(scratch);
      select<Reader>(elements, count_, inner_, largest_, k_, keys, capacity_of(count_, k_));
      for (int64_t i = 0; i < k_; ++i)
        put(elements, index_of(keys[i]), to + i * inner_, values, indices);
    });
  }

  /// Writes the first result of some rows that lie side by side; returns the number of rows.
  int64_t run_columns(const void* input, int64_t row, int64_t last, void* values,
                      void* indices) const {
    constexpr int64_t kColumns = 64;
    const int64_t from = row / inner_ * inner_ * count_ + row % inner_;
    const int64_t columns = std::min({kColumns, inner_ - row % inner_, last - row});
    const auto* elements = static_cast<const std::byte*>(input) + from * element_size_;
    with_reader([&]<class Reader>(Reader) {
      if (inner_ == 1)
        return put(elements, first_of<Reader>(elements, count_, largest_), row, values, indices);
      if constexpr (std::is_same_v<Reader, FloatReader>) {
        int32_t places[kColumns];
        first_extremes(reinterpret_cast<const float*>(elements), count_, inner_, columns, largest_,
                       places);
        for (int64_t j = 0; j < columns; ++j)
          put(elements + j * element_size_, places[j], row + j, values, indices);
        return;
      }
      typename Reader::Key keys[kColumns];
      select_first<Reader>(elements, count_, inner_, largest_, columns, keys);
      for (int64_t j = 0; j < columns; ++j)
        put(elements + j * element_size_, index_of(keys[j]), row + j, values, indices);
    });
    return columns;
  }

  void put(const std::byte* elements, int64_t index, int64_t place, void* values,
           void* indices) const {
    std::memcpy(static_cast<std::byte*>(values) + place * element_size_,
                elements + index * inner_ * element_size_, element_size_);
    if (wide_indices_)
      static_cast<int64_t*>(indices)[place] = index;
    else
      static_cast<int32_t*>(indices)[place] = static_cast<int32_t>(index);
  }

  template <class Run>
  void with_reader(const Run& run) const {
    switch (type_) {
      case DataType::kFLOAT:
        return run(FloatReader());
      case DataType::kHALF:
        return run(HalfReader());
      case DataType::kBF16:
        return run(Bfloat16Reader());
      case DataType::kINT8:
        return run(IntegerReader<int8_t>());
      case DataType::kINT32:
        return run(IntegerReader<int32_t>());
      case DataType::kINT64:
        return run(Int64Reader());
      default:
        return run(IntegerReader<uint8_t>());
    }
  }

  bool largest_;
  int axis_;
  DataType type_;
  int element_size_;
  bool wide_indices_;
  int workers_;
  int64_t slot_bytes_ = 0;
  int64_t count_ = 0, k_ = 0, inner_ = 1, rows_ = 0, grain_ = 1;
};

constexpr Types kTypes = kDnnlFloats | kIntegers | Types{DataType::kBOOL};

std::vector<Candidate> topk_candidates(const Operator&, const CandidateQuery& query) {
  if (!kTypes.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "select")};
}

void check_topk(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 2, 2);
  rules.require(rules.input(0), kTypes);
  if (rules.has_input(1)) rules.require(rules.input(1), kIndexTypes);
  rules.require_same(rules.output(0), rules.input(0));
  rules.require(rules.output(1), {static_cast<const TopK&>(op).params().indices_type});
}

const RegisteredKernels<TopK> kTopKKernels({topk_candidates, make_kernel<TopKKernel, TopK>,
                                            check_topk});

}  // namespace
}  // namespace opwright
