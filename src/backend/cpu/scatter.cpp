#include "operators/scatter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/index_reader.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"

namespace opwright {
namespace {

/// Combines `count` updates with contiguous elements.
using Combine = void (*)(std::byte* to, const std::byte* updates, int64_t count);

template <class T>
T reduced(ScatterReduction reduction, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  // Integers wrap around.
  using U = std::conditional_t<std::is_floating_point_v<T>, T,
                               std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;
  switch (reduction) {
    case ScatterReduction::kADD:
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    case ScatterReduction::kMUL:
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    case ScatterReduction::kMIN:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

template <class Element, ScatterReduction reduction>
void combine(std::byte* to, const std::byte* updates, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto result =
        reduced(reduction, load_element<Element>(to, i), load_element<Element>(updates, i));
    if constexpr (std::is_same_v<Element, BoolElement>)
      store_element<Element>(to, i, result != 0);
    else
      store_element<Element>(to, i, result);
  }
}

template <int size>
void replace(std::byte* to, const std::byte* updates, int64_t count) {
  std::memcpy(to, updates, count * size);
}

Combine find_combine(DataType type, ScatterReduction reduction) {
  switch (reduction) {
    case ScatterReduction::kADD:
      return with_element(type,
                          []<class E>() -> Combine { return combine<E, ScatterReduction::kADD>; });
    case ScatterReduction::kMUL:
      return with_element(type,
                          []<class E>() -> Combine { return combine<E, ScatterReduction::kMUL>; });
    case ScatterReduction::kMIN:
      return with_element(type,
                          []<class E>() -> Combine { return combine<E, ScatterReduction::kMIN>; });
    case ScatterReduction::kMAX:
      return with_element(type,
                          []<class E>() -> Combine { return combine<E, ScatterReduction::kMAX>; });
    default:
      return with_element(
          type, []<class E>() -> Combine { return replace<sizeof(typename E::Storage)>; });
  }
}

/// Some indices of a line, counted from its front; a block fits the nearest cache. They are copies,
/// so that the checked indices are the used ones, even if another thread writes the memory
/// meanwhile.
template <class Index>
class IndexBlock {
 public:
  static constexpr int64_t kSize = 128;

  /// \param count at most kSize
  IndexBlock(const Index* from, int64_t count, int64_t extent) : count_(count) {
    Index stored[kSize];
    std::memcpy(stored, from, static_cast<size_t>(count) * sizeof(Index));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = stored[i] < 0 ? stored[i] + extent : stored[i];
      places_[i] = index;
      low_ = std::min(low_, index), high_ = std::max(high_, index);
    }
  }
  int64_t low() const { return low_; }
  int64_t high() const { return high_; }

  /// Calls put(place, number of the index) for indices within [begin, end).
  template <class Put>
  void each(int64_t begin, int64_t end, const Put& put) const {
    if (high_ < begin || low_ >= end) return;
    if (low_ >= begin && high_ < end) {
      for (int64_t i = 0; i < count_; ++i) put(places_[i], i);
      return;
    }
    const auto wanted = static_cast<uint64_t>(end - begin);
    for (int64_t i = 0; i < count_; ++i)
      if (static_cast<uint64_t>(places_[i] - begin) < wanted) put(places_[i], i);
  }

 private:
  int64_t count_, low_ = INT64_MAX, high_ = INT64_MIN;
  int64_t places_[kSize];
};

/// Copies the data and then goes through the updates. Threads divide the elements by their place in
/// the output. So the last of several updates of one element stays the last, and sums do not depend
/// on the number of threads.
class ScatterKernel final : public Kernel {
 public:
  ScatterKernel(const ScatterParams& params, const KernelArgs& args)
      : layer_(args.layer),
        params_(params),
        type_(args.inputs[0].type.dtype),
        size_(element_size(type_)),
        wide_(args.inputs[1].type.dtype == DataType::kINT64),
        combine_(find_combine(args.inputs[0].type.dtype, params.reduction)) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    const Shape &data = inputs[0], &indices = inputs[1], &updates = inputs[2];
    count_ = 0;
    require_countable(inputs), require_countable(outputs);
    require(outputs[0] == data, "Layer '", layer_, "': the output of shape ", outputs[0],
            " must have that of the data, ", data);
    bytes_ = data.numel() * size_;
    if (params_.mode == ScatterMode::kELEMENT)
      prepare_elements(data, indices, updates);
    else
      prepare_tuples(data, indices, updates);
    if (updates.numel() == 0) count_ = 0;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    auto* const to = static_cast<std::byte*>(outputs[0]);
    parallel_copy(to, inputs[0], bytes_);
    if (count_ == 0) return;
    const IndexReader index(inputs[1], wide_);
    const auto* const updates = static_cast<const std::byte*>(inputs[2]);
    if (replaces_in_one_line_)
      replace_in_one_line(inputs[1], updates, to);
    else if (params_.mode == ScatterMode::kELEMENT && shares_line_)
      parallel_for(slots_, 1, [&](int64_t begin, int64_t end) {
        put_line(inputs[1], updates, to, 0, slots_begin(begin), slots_begin(end));
      });
    else if (params_.mode == ScatterMode::kELEMENT)
      parallel_for(count_, grain_, [&](int64_t begin, int64_t end) {
        for (int64_t line = begin; line < end; ++line)
          put_line(inputs[1], updates, to, line, 0, extent_);
      });
    else
      parallel_for(slots_, 1, [&](int64_t begin, int64_t end) {
        put_tuples(index, updates, to, slots_begin(begin), slots_begin(end));
      });
  }

 private:
  static constexpr int64_t kGrain = 1 << 12;  ///< updates that are worth a thread
  static constexpr int64_t kMostSlots = 64;   ///< threads that share one line

  void prepare_elements(const Shape& data, const Shape& indices, const Shape& updates) {
    const int rank = data.rank(), axis = static_cast<int>(params_.axis);
    require(indices == updates && indices.rank() == rank, "Layer '", layer_, "': indices of shape ",
            indices, " must be as many as updates of shape ", updates);
    for (int i = 0; i < rank; ++i)
      require(i == axis || indices[i] <= data[i], "Layer '", layer_, "': indices of shape ",
              indices, " reach beyond data of shape ", data, " in extent ", i);
    indices_ = indices;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      strides_[i] = stride;
      stride *= data[i];
    }
    extent_ = data[axis];
    // Lines along the axis lie side by side up to the last axis, and are handled together.
    steps_ = indices[axis];
    columns_ = axis == rank - 1 ? 1 : indices[rank - 1];
    step_ = indices.numel(axis + 1, rank);
    const int64_t line = steps_ * columns_;
    count_ = line == 0 ? 0 : indices.numel() / line;
    grain_ = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, line));
    // Threads share one long line: each has the updates of a part of the data.
    shared_ = extent_;
    slots_ = std::clamp<int64_t>(line / kGrain, 1,
                                 std::min<int64_t>({thread_count(), shared_ + 1, kMostSlots}));
    shares_line_ = count_ == 1;
    replaces_in_one_line_ = shares_line_ && columns_ == 1 && step_ == 1 && strides_[axis] == 1 &&
                            params_.reduction == ScatterReduction::kNONE &&
                            (size_ == 4 || size_ == 8);
  }

  void replace_in_one_line(const void* indices, const std::byte* updates, std::byte* to) const {
    const auto with_index = [&]<class Element>(Element) {
      const auto* const from = reinterpret_cast<const Element*>(updates);
      auto* const out = reinterpret_cast<Element*>(to);
      if (wide_)
        replace_in_one_line(static_cast<const int64_t*>(indices), from, out);
      else
        replace_in_one_line(static_cast<const int32_t*>(indices), from, out);
    };
    size_ == 4 ? with_index(uint32_t{}) : with_index(uint64_t{});
  }

  /// Threads divide the updates where no two threads write the same elements, else the elements.
  template <class Index, class Element>
  void replace_in_one_line(const Index* indices, const Element* updates, Element* to) const {
    constexpr int64_t kBlock = IndexBlock<Index>::kSize;
    const int64_t blocks = (steps_ + kBlock - 1) / kBlock;
    const auto run = [&](int64_t first, int64_t last, const auto& body) {
      for (int64_t block = first; block < last; ++block) {
        const int64_t at = block * kBlock;
        body(IndexBlock<Index>(indices + at, std::min(kBlock, steps_ - at), extent_), updates + at);
      }
    };
    const auto replace = [&](int64_t first, int64_t last, int64_t begin, int64_t end) {
      run(first, last, [&](const IndexBlock<Index>& block, const Element* from) {
        block.each(begin, end, [&](int64_t place, int64_t i) { to[place] = from[i]; });
      });
    };
    if (slots_ == 1) return replace(0, blocks, 0, extent_);
    std::array<std::pair<int64_t, int64_t>, kMostSlots> ranges;
    parallel_for(slots_, 1, [&](int64_t first, int64_t last) {
      for (int64_t slot = first; slot < last; ++slot) {
        int64_t low = INT64_MAX, high = INT64_MIN;
        run(blocks * slot / slots_, blocks * (slot + 1) / slots_,
            [&](const IndexBlock<Index>& block, const Element*) {
              low = std::min(low, block.low()), high = std::max(high, block.high());
            });
        ranges[static_cast<size_t>(slot)] = {low, high};
      }
    });
    const auto end = ranges.begin() + slots_;
    std::sort(ranges.begin(), end);
    // A thread without updates has a range that ends before it begins, sorted behind all others.
    const bool are_apart =
        std::adjacent_find(ranges.begin(), end,
                           [](const auto& a, const auto& b) { return a.second >= b.first; }) == end;
    parallel_for(slots_, 1, [&](int64_t first, int64_t last) {
      if (are_apart)
        replace(blocks * first / slots_, blocks * last / slots_, 0, extent_);
      else
        replace(0, blocks, slots_begin(first), slots_begin(last));
    });
  }

  /// Applies the updates of positions [begin, end) of the axis.
  void put_line(const void* indices, const std::byte* updates, std::byte* to, int64_t line,
                int64_t begin, int64_t end) const {
    const int rank = indices_.rank(), axis = static_cast<int>(params_.axis);
    int64_t rest = line, from = 0, offset = 0, stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (i != axis && (i != rank - 1)) {
        const int64_t at = rest % indices_[i];
        rest /= indices_[i];
        from += at * stride, offset += at * strides_[i];
      }
      stride *= indices_[i];
    }
    const auto each = [&](const auto& put) {
      with_index_reader(indices, wide_, [&](const auto& index) {
        // Local copies, since stores of bytes might otherwise change the members.
        const int64_t along = strides_[axis], extent = extent_, place = offset;
        const int64_t steps = steps_, columns = columns_, step = step_, first = from;
        // One unsigned comparison checks both ends, and also skips -1, which stands for an index
        // out of range.
        const auto wanted = static_cast<uint64_t>(end - begin);
        for (int64_t k = 0; k < steps; ++k)
          for (int64_t j = 0; j < columns; ++j) {
            const int64_t position = first + k * step + j;
            const int64_t found = index(position, extent);
            if (static_cast<uint64_t>(found - begin) < wanted)
              put(place + found * along + j, position);
          }
      });
    };
    // With sizes that the compiler knows, a replacement is one instruction.
    const auto replace = [&]<class Element>(Element) {
      each([&](int64_t at, int64_t position) {
        std::memcpy(to + at * sizeof(Element), updates + position * sizeof(Element),
                    sizeof(Element));
      });
    };
    if (params_.reduction == ScatterReduction::kNONE && size_ == 4) return replace(uint32_t{});
    if (params_.reduction == ScatterReduction::kNONE && size_ == 8) return replace(uint64_t{});
    if (params_.reduction == ScatterReduction::kADD && type_ == DataType::kFLOAT)
      return each([&](int64_t at, int64_t position) {
        float sum, update;
        std::memcpy(&sum, to + at * sizeof sum, sizeof sum);
        std::memcpy(&update, updates + position * sizeof update, sizeof update);
        sum += update;
        std::memcpy(to + at * sizeof sum, &sum, sizeof sum);
      });
    each([&](int64_t at, int64_t position) {
      combine_(to + at * size_, updates + position * size_, 1);
    });
  }

  void prepare_tuples(const Shape& data, const Shape& indices, const Shape& updates) {
    require(indices.rank() > 0, "Layer '", layer_, "': indices must not be a scalar");
    depth_ = indices[indices.rank() - 1];
    require(depth_ >= 1 && depth_ <= data.rank(), "Layer '", layer_, "': indices of shape ",
            indices, " must have as many as ", data.rank(), " in their last extent");
    const int depth = static_cast<int>(depth_);
    count_ = indices.numel(0, indices.rank() - 1);
    slice_ = data.numel(depth, data.rank());
    require(updates.rank() == indices.rank() - 1 + data.rank() - depth &&
                updates.numel(0, indices.rank() - 1) == count_ &&
                updates.numel(indices.rank() - 1, updates.rank()) == slice_,
            "Layer '", layer_, "': updates of shape ", updates, " do not fit indices of shape ",
            indices, " and data of shape ", data);
    int64_t stride = 1;
    for (int i = depth - 1; i >= 0; --i) {
      extents_[i] = data[i];
      strides_[i] = stride;
      stride *= data[i];
    }
    // Threads share long slices; of short slices, each thread has some.
    shares_slices_ = slice_ >= kGrain;
    shared_ = shares_slices_ ? slice_ : stride;
    const int64_t work = count_ * std::max<int64_t>(slice_, 16);
    slots_ = std::clamp<int64_t>(work / kGrain, 1, std::min<int64_t>(thread_count(), shared_ + 1));
  }

  int64_t slots_begin(int64_t slot) const {
    return shared_ / slots_ * slot + std::min(slot, shared_ % slots_);
  }

  void put_tuples(const IndexReader& index, const std::byte* updates, std::byte* to, int64_t begin,
                  int64_t end) const {
    for (int64_t i = 0; i < count_; ++i) {
      int64_t place = 0;
      for (int k = 0; k < depth_; ++k) {
        const int64_t found = index(i * depth_ + k, extents_[k]);
        if (found < 0) {
          place = -1;
          break;
        }
        place += found * strides_[k];
      }
      if (place < 0) continue;
      if (shares_slices_)
        combine_(to + (place * slice_ + begin) * size_, updates + (i * slice_ + begin) * size_,
                 end - begin);
      else if (place >= begin && place < end)
        combine_(to + place * slice_ * size_, updates + i * slice_ * size_, slice_);
    }
  }

  const std::string layer_;
  const ScatterParams params_;
  const DataType type_;
  const int size_;
  const bool wide_;
  const Combine combine_;
  int64_t bytes_ = 0, count_ = 0, extent_ = 0;
  int64_t steps_ = 0, columns_ = 0, step_ = 0, grain_ = 1;  // for updates of elements
  int64_t depth_ = 0, slice_ = 0, shared_ = 0, slots_ = 1;  // for updates of slices by tuples
  bool shares_slices_ = false, shares_line_ = false, replaces_in_one_line_ = false;
  Shape indices_;
  int64_t strides_[Dims::MAX_DIMS] = {}, extents_[Dims::MAX_DIMS] = {};
};

std::vector<Candidate> scatter_candidates(const Operator&, const CandidateQuery& query) {
  if (!kConvertible.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "loops")};
}

void check_scatter(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(3, 3);
  rules.require(rules.input(0), kConvertible);
  rules.require(rules.input(1), kIndexTypes);
  rules.require_same(rules.input(2), rules.input(0));
  rules.require_same(rules.output(0), rules.input(0));
}

const RegisteredKernels<Scatter> kScatterKernels({scatter_candidates,
                                                  make_kernel<ScatterKernel, Scatter>,
                                                  check_scatter});

}  // namespace
}  // namespace opwright
