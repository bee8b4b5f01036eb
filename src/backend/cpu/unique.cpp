#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "backend/candidates.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/ordered_bits.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/checked.h"
#include "operators/selection.h"

namespace opwright {
namespace {

/// Returns -1, 0 or 1. NaN equals itself and is above all numbers.
template <class T>
int compare(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b)) return int{std::isnan(a)} - int{std::isnan(b)};
  return (a > b) - (a < b);
}

/// A key in the order of compare(): keys are equal where compare() is 0.
template <class T>
uint64_t key_of(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return ordered(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(INFINITY));
  else if constexpr (std::is_unsigned_v<T>)
    return value;
  else
    return static_cast<uint64_t>(static_cast<int64_t>(value)) ^ (uint64_t{1} << 63);
}

struct KeyedIndex {
  uint64_t key;
  int64_t index;
};

/// Sorts by key; equal keys keep their order. A radix sort by bytes, the least significant one
/// first (H. H. Seward, 1954). `other` has the same size as `all`. Returns the sorted array, which
/// is one of the two.
KeyedIndex* sort_by_key(KeyedIndex* all, KeyedIndex* other, int64_t count) {
  constexpr int64_t kFew = 128;
  if (count < kFew) {
    std::sort(all, all + count, [](const KeyedIndex& a, const KeyedIndex& b) {
      return a.key != b.key ? a.key < b.key : a.index < b.index;
    });
    return all;
  }
  constexpr int kBytes = 8, kValues = 256;
  std::array<std::array<int64_t, kValues>, kBytes> counts{};
  for (int64_t i = 0; i < count; ++i)
    for (int byte = 0; byte < kBytes; ++byte) ++counts[byte][all[i].key >> (8 * byte) & 0xff];
  for (int byte = 0; byte < kBytes; ++byte) {
    std::array<int64_t, kValues>& places = counts[byte];
    if (places[all[0].key >> (8 * byte) & 0xff] == count) continue;
    std::exclusive_scan(places.begin(), places.end(), places.begin(), int64_t{0});
    for (int64_t i = 0; i < count; ++i) other[places[all[i].key >> (8 * byte) & 0xff]++] = all[i];
    std::swap(all, other);
  }
  return all;
}

/// Sorts the slices along the axis of [outer, axis, inner] by their indices. Equal slices are then
/// neighbours.
template <class Element>
class UniqueKernel final : public Kernel {
 public:
  UniqueKernel(const UniqueParams& params, const KernelArgs& args)
      : layer_(args.layer), params_(params), room_(slices(args.inputs[0].max)) {}

  size_t workspace_size() const override {
    return checked_product("the indices to sort", {kArrays, room_ + 1, sizeof(int64_t)});
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    const Shape& x = inputs[0];
    const int axis = static_cast<int>(params_.axis);
    count_ = 0;
    const int64_t count = slices(x);
    require(count <= room_, "Layer '", layer_, "': ", count,
            " slices are more than at the profile's maximum, ", room_);
    outer_ = params_.flatten ? 1 : x.numel(0, axis);
    inner_ = params_.flatten ? 1 : x.numel(axis + 1, x.rank());
    require(outputs[0].numel() >= x.numel() && outputs[1].numel() >= count &&
                outputs[2].numel() >= count && outputs[3].numel() >= count,
            "Layer '", layer_, "': outputs of shapes ", outputs[0], ", ", outputs[1], ", ",
            outputs[2], " and ", outputs[3], " have no room for what ", x, " holds");
    count_ = count;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    auto* const order = static_cast<int64_t*>(workspace);
    int64_t* const group_of = order + room_ + 1;   // group of each slice, in ascending order
    int64_t* const groups = group_of + room_ + 1;  // groups in the order of the output
    auto* const first = static_cast<int64_t*>(outputs[1]);
    auto* const inverse = static_cast<int64_t*>(outputs[2]);
    auto* const counts = static_cast<int64_t*>(outputs[3]);
    int64_t total = 0;
    // While groups are counted, inverse holds the place in `order` where each group begins.
    const auto place = [&](int64_t i, int64_t slice, bool is_new) {
      order[i] = slice;
      if (is_new) inverse[total++] = i;
      group_of[slice] = total - 1;
    };
    if (outer_ * inner_ == 1) {
      auto* const keyed = reinterpret_cast<KeyedIndex*>(groups + room_ + 1);
      for (int64_t i = 0; i < count_; ++i)
        keyed[i] = {key_of(load_element<Element>(inputs[0], i)), i};
      const KeyedIndex* const sorted = sort_by_key(keyed, keyed + room_ + 1, count_);
      for (int64_t i = 0; i < count_; ++i)
        place(i, sorted[i].index, i == 0 || sorted[i].key != sorted[i - 1].key);
    } else {
      for (int64_t i = 0; i < count_; ++i) order[i] = i;
      // A heap stays within its bounds even where another thread changes the elements meanwhile.
      const auto is_before = [&](int64_t a, int64_t b) {
        const int sign = compare_slices(inputs[0], a, b);
        return sign != 0 ? sign < 0 : a < b;
      };
      std::make_heap(order, order + count_, is_before);
      std::sort_heap(order, order + count_, is_before);
      for (int64_t i = 0; i < count_; ++i)
        place(i, order[i], i == 0 || compare_slices(inputs[0], order[i - 1], order[i]) != 0);
    }
    for (int64_t g = 0; g < total; ++g) groups[g] = g;
    if (!params_.sorted)
      std::sort(groups, groups + total,
                [&](int64_t a, int64_t b) { return order[inverse[a]] < order[inverse[b]]; });
    for (int64_t k = 0; k < total; ++k) {
      const int64_t begin = inverse[groups[k]];
      const int64_t end = groups[k] + 1 < total ? inverse[groups[k] + 1] : count_;
      first[k] = order[begin];
      counts[k] = end - begin;
    }
    // `order` is free for reuse: it now holds the place of each group in the output.
    for (int64_t k = 0; k < total; ++k) order[groups[k]] = k;
    for (int64_t i = 0; i < count_; ++i) inverse[i] = order[group_of[i]];
    for (int64_t outer = 0; outer < outer_; ++outer)
      for (int64_t k = 0; k < total; ++k)
        std::memcpy(static_cast<Storage*>(outputs[0]) + (outer * total + k) * inner_,
                    static_cast<const Storage*>(inputs[0]) + (outer * count_ + first[k]) * inner_,
                    static_cast<size_t>(inner_) * sizeof(Storage));
    *static_cast<int64_t*>(outputs[4]) = total;
  }

 private:
  using Storage = typename Element::Storage;
  /// Arrays in the workspace, in units of one number per slice: three of numbers, and two of the
  /// keys that are sorted.
  static constexpr int64_t kArrays = 3 + 2 * sizeof(KeyedIndex) / sizeof(int64_t);

  int64_t slices(const Shape& x) const {
    return params_.flatten ? x.numel() : x[static_cast<int>(params_.axis)];
  }

  int compare_slices(const void* x, int64_t a, int64_t b) const {
    for (int64_t outer = 0; outer < outer_; ++outer)
      for (int64_t i = 0; i < inner_; ++i) {
        const int sign = compare(load_element<Element>(x, (outer * count_ + a) * inner_ + i),
                                 load_element<Element>(x, (outer * count_ + b) * inner_ + i));
        if (sign != 0) return sign;
      }
    return 0;
  }

  const std::string layer_;
  const UniqueParams params_;
  const int64_t room_;
  int64_t outer_ = 1, inner_ = 1, count_ = 0;
};

std::vector<Candidate> unique_candidates(const Operator&, const CandidateQuery& query) {
  if (!kConvertible.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "sort")};
}

void check_unique(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1, 5);
  rules.require(rules.input(0), kConvertible);
  rules.require_same(rules.output(0), rules.input(0));
  for (size_t i = 1; i < 5; ++i) rules.require(rules.output(i), {DataType::kINT64});
}

const RegisteredKernels<Unique> kUniqueKernels({unique_candidates,
                                                make_element_kernel<UniqueKernel, Unique>,
                                                check_unique});

}  // namespace
}  // namespace opwright
