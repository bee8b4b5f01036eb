#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/candidates.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/index_reader.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/ordered_bits.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/checked.h"
#include "base/parallel.h"
#include "operators/selection.h"

namespace opwright {
namespace {

/// A box by its corners; the lower corner comes first.
struct Box {
  float low_x, low_y, high_x, high_y;
  float area() const { return (high_x - low_x) * (high_y - low_y); }
};

/// Whether the intersection of two boxes is more than `most` of their union. `most` must be 0 or
/// above.
inline bool overlaps(const Box& a, float low_x, float low_y, float high_x, float high_y, float area,
                     float most) {
  const float width = std::min(a.high_x, high_x) - std::max(a.low_x, low_x);
  const float height = std::min(a.high_y, high_y) - std::max(a.low_y, low_y);
  const float shared = width * height;
  return static_cast<int>(width > 0) & static_cast<int>(height > 0) &
         static_cast<int>(shared / (a.area() + area - shared) > most);
}

/// Taken boxes, stored coordinate by coordinate.
class TakenBoxes {
 public:
  static constexpr int64_t kMost = 256;

  int64_t count() const { return count_; }
  void add(const Box& box) {
    low_x_[count_] = box.low_x, low_y_[count_] = box.low_y;
    high_x_[count_] = box.high_x, high_y_[count_] = box.high_y;
    area_[count_++] = box.area();
  }
  bool overlap(const Box& box, float most) const {
    int64_t i = 0;
    // The fixed trip count lets the compiler vectorize at -O2.
    for (; i + 16 <= count_; i += 16) {
      int found = 0;
      for (int64_t j = i; j < i + 16; ++j)
        found |= overlaps(box, low_x_[j], low_y_[j], high_x_[j], high_y_[j], area_[j], most);
      if (found != 0) return true;
    }
    for (; i < count_; ++i)
      if (overlaps(box, low_x_[i], low_y_[i], high_x_[i], high_y_[i], area_[i], most)) return true;
    return false;
  }

 private:
  int64_t count_ = 0;
  float low_x_[kMost], low_y_[kMost], high_x_[kMost], high_y_[kMost], area_[kMost];
};

/// A greedy choice per class of each image. It takes the best box that overlaps none taken before,
/// until enough are taken. Classes are independent; their results are then written one after
/// another.
template <class Element>
class NmsKernel final : public Kernel {
 public:
  NmsKernel(const NmsParams& params, const KernelArgs& args)
      : layer_(args.layer),
        params_(params),
        wide_limit_(args.inputs[2].type.dtype == DataType::kINT64),
        wide_(args.outputs[0].type.dtype == DataType::kINT64),
        room_(checked_product("the scores to sort", {args.inputs[1].max.numel()})) {
    for (size_t i = 3; i < args.inputs.size() && i < 5; ++i)
      if (args.inputs[i].present) threshold_types_[i - 3] = args.inputs[i].type.dtype;
  }

  // The candidates of each class, which end up as its taken boxes, and the number of these.
  size_t workspace_size() const override {
    return checked_product("the scores to sort", {2, room_ + 1, sizeof(int64_t)});
  }

  void on_values_change(int, std::span<const int64_t> elements) override {
    if (!elements.empty()) limit_ = elements[0];
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    const Shape &boxes = inputs[0], &scores = inputs[1];
    groups_ = 0;
    require(scores.rank() == 3 && (boxes.rank() == 3 || boxes.rank() == 4) &&
                boxes[0] == scores[0] && boxes[1] == scores[1] && boxes[boxes.rank() - 1] == 4 &&
                (boxes.rank() == 3 || boxes[2] == 1 || boxes[2] == scores[2]),
            "Layer '", layer_, "': boxes of shape ", boxes, " do not fit scores of shape ", scores);
    for (size_t i = 2; i < inputs.size() && i < 5; ++i)
      require(inputs[i].numel() == 1 || (i > 2 && !has(i)), "Layer '", layer_, "': input ", i,
              " must be one number, not of shape ", inputs[i]);
    require(scores.numel() <= room_, "Layer '", layer_, "': ", scores.numel(),
            " scores are more than at the profile's maximum, ", room_);
    require(scores[1] <= INT32_MAX, "Layer '", layer_, "': cannot count ", scores[1], " boxes");
    batch_ = scores[0], boxes_ = scores[1], classes_ = scores[2];
    box_classes_ = boxes.rank() == 4 ? boxes[2] : 1;
    groups_ = boxes_ == 0 ? 0 : batch_ * classes_;
    capacity_ = outputs[0][0];
    require(outputs[0].rank() == 2 && outputs[0][1] == 3, "Layer '", layer_, "': the output of ",
            outputs[0], " does not hold three indices for each box");
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    const int64_t given = params_.is_bounded ? limit_ : IndexReader(inputs[2], wide_limit_).raw(0);
    const int64_t limit = std::clamp<int64_t>(given, 0, boxes_);
    const float most_overlap = threshold(inputs, 3, 0);
    const float least_score = threshold(inputs, 4, -std::numeric_limits<float>::infinity());
    const bool takes_any = !has(3 + 1);
    auto* const chosen = static_cast<int64_t*>(workspace);
    int64_t* const counts = chosen + room_ + 1;
    parallel_for(groups_, std::max<int64_t>(1, 256 / std::max<int64_t>(1, boxes_)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t group = begin; group < end; ++group)
                     counts[group] = choose(inputs[0], inputs[1], group, limit, most_overlap,
                                            least_score, takes_any, chosen + group * boxes_);
                 });
    const IndexWriter write(outputs[0], wide_);
    int64_t total = 0;
    for (int64_t group = 0; group < groups_; ++group)
      for (int64_t k = 0; k < counts[group] && total < capacity_; ++k, ++total) {
        write(total * 3, group / classes_);
        write(total * 3 + 1, group % classes_);
        write(total * 3 + 2, chosen[group * boxes_ + k]);
      }
    *static_cast<int32_t*>(outputs[1]) = static_cast<int32_t>(std::min<int64_t>(total, INT32_MAX));
  }

 private:
  bool has(size_t input) const { return threshold_types_[input - 3] != kAbsent; }
  float threshold(void const* const* inputs, size_t input, float otherwise) const {
    if (!has(input)) return otherwise;
    return with_floating_element(threshold_types_[input - 3],
                                 [&]<class E>() { return load_element<E>(inputs[input], 0); });
  }

  Box box(const void* boxes, int64_t group, int64_t i) const {
    const int64_t image = group / classes_, of = box_classes_ == 1 ? 0 : group % classes_;
    const int64_t first = ((image * boxes_ + i) * box_classes_ + of) * 4;
    const float a = load_element<Element>(boxes, first),
                b = load_element<Element>(boxes, first + 1),
                c = load_element<Element>(boxes, first + 2),
                d = load_element<Element>(boxes, first + 3);
    if (params_.bounding_box_format == BoundingBoxFormat::kCENTER_SIZES)
      return {a - c / 2, b - d / 2, a + c / 2, b + d / 2};
    return {std::min(a, c), std::min(b, d), std::max(a, c), std::max(b, d)};
  }

  /// A key that is greater for a better score. With equal scores, the earlier box has the greater
  /// key.
  static int64_t key_of(float score, int64_t i) {
    const uint32_t order = ordered(std::bit_cast<uint32_t>(score), 0x7F800000) ^ 0x80000000;
    return static_cast<int64_t>(uint64_t{order} << 32 | ~static_cast<uint32_t>(i));
  }
  static int64_t index_of(int64_t key) { return ~static_cast<uint32_t>(key); }

  /// Writes the taken boxes to `list` and returns their number.
  int64_t choose(const void* boxes, const void* scores, int64_t group, int64_t limit,
                 float most_overlap, float least_score, bool takes_any, int64_t* list) const {
    const int64_t image = group / classes_, of = group % classes_;
    const auto score = [&](int64_t i) {
      return load_element<Element>(scores, (image * boxes_ + i) * classes_ + of);
    };
    int64_t count = 0;
    for (int64_t i = 0; i < boxes_; ++i)
      if (const float value = score(i); takes_any ? !std::isnan(value) : value > least_score)
        list[count++] = key_of(value, i);
    // A heap is cheaper than sorting where only a few of many boxes are taken.
    std::make_heap(list, list + count);
    int64_t looked_at =
        params_.topk_box_limit > 0 ? std::min(params_.topk_box_limit, count) : count;
    // Popped entries lie behind the heap, so taken boxes are first kept at the end of the list.
    int64_t taken = 0, heap = count;
    TakenBoxes first;
    for (; looked_at > 0 && taken < limit; --looked_at) {
      std::pop_heap(list, list + heap);
      const int64_t best = index_of(list[--heap]);
      const Box candidate = box(boxes, group, best);
      // Disjoint boxes have an overlap of 0, so with a negative threshold only the first box is
      // taken.
      bool is_free = taken == 0 || (!(most_overlap < 0) && !first.overlap(candidate, most_overlap));
      for (int64_t k = first.count(); is_free && k < taken; ++k) {
        const Box other = box(boxes, group, list[count - 1 - k]);
        is_free = !overlaps(candidate, other.low_x, other.low_y, other.high_x, other.high_y,
                            other.area(), most_overlap);
      }
      if (!is_free) continue;
      list[count - 1 - taken++] = best;
      if (first.count() < TakenBoxes::kMost) first.add(candidate);
    }
    std::reverse(list + count - taken, list + count);
    std::copy(list + count - taken, list + count, list);
    return taken;
  }

  static constexpr auto kAbsent = static_cast<DataType>(-1);
  const std::string layer_;
  const NmsParams params_;
  const bool wide_limit_, wide_;
  const int64_t room_;
  DataType threshold_types_[2] = {kAbsent, kAbsent};
  int64_t batch_ = 0, boxes_ = 0, classes_ = 0, box_classes_ = 1, groups_ = 0, capacity_ = 0;
  int64_t limit_ = 0;  // the limit, where it is known when shapes are
};

std::vector<Candidate> nms_candidates(const Operator&, const CandidateQuery& query) {
  if (!kFloats.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "greedy")};
}

void check_nms(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(3, 5, 2);
  rules.require(rules.input(0), kFloats);
  rules.require_same(rules.input(1), rules.input(0));
  rules.require(rules.input(2), kIndexTypes);
  for (size_t i = 3; i < rules.inputs(); ++i)
    if (rules.has_input(i)) rules.require(rules.input(i), kFloats);
  for (size_t i = 2; i < rules.inputs(); ++i)
    rules.require_that(!rules.has_input(i) || args.inputs[i].min.numel() == 1,
                       rules.name_of(rules.input(i)), " must be one number");
  rules.require(rules.output(0), {static_cast<const Nms&>(op).params().indices_type});
  rules.require_type(rules.output(0), kIndexTypes);
  rules.require(rules.output(1), {DataType::kINT32});
}

const RegisteredKernels<Nms> kNmsKernels({nms_candidates, make_floating_kernel<NmsKernel, Nms>,
                                          check_nms});

}  // namespace
}  // namespace opwright
