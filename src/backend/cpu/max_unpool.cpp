#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/candidates.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/index_reader.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"
#include "operators/scatter.h"

namespace opwright {
namespace {

/// Each thread clears and fills planes of the result while they are in its cache. The maxima of a
/// plane belong in the same plane of the result, unless a model's indices do not come from pooling.
class MaxUnpoolKernel final : public Kernel {
 public:
  explicit MaxUnpoolKernel(const KernelArgs& args)
      : layer_(args.layer),
        size_(element_size(args.inputs[0].type.dtype)),
        wide_(args.inputs[1].type.dtype == DataType::kINT64) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    const Shape &x = inputs[0], &y = outputs[0];
    planes_ = 0;
    require_countable(inputs), require_countable(outputs);
    require(inputs[1] == x, "Layer '", layer_, "': indices of shape ", inputs[1],
            " must be as many as maxima of shape ", x);
    const bool has_planes =
        x.rank() == y.rank() && x.rank() > 2 && x[0] == y[0] && x[1] == y[1] && y[0] * y[1] > 0;
    planes_ = has_planes ? y[0] * y[1] : 1;
    plane_ = y.numel() / planes_, count_ = x.numel() / planes_;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    with_index_reader(inputs[1], wide_, [&](const auto& index) {
      switch (size_) {
        case 1:
          return put_back<uint8_t>(index, inputs[0], outputs[0]);
        case 2:
          return put_back<uint16_t>(index, inputs[0], outputs[0]);
        case 4:
          return put_back<uint32_t>(index, inputs[0], outputs[0]);
        default:
          return put_back<uint64_t>(index, inputs[0], outputs[0]);
      }
    });
  }

 private:
  template <class Element, class Reader>
  void put_back(const Reader& index, const void* maxima, void* result) const {
    const auto* const x = static_cast<const Element*>(maxima);
    auto* const y = static_cast<Element*>(result);
    const int64_t total = planes_ * plane_;
    constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread
    std::atomic<bool> leaves_plane = false;
    parallel_for(planes_, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, plane_)),
                 [&](int64_t begin, int64_t end) {
                   bool leaves = false;
                   for (int64_t plane = begin; plane < end; ++plane) {
                     Element* const to = y + plane * plane_;
                     std::memset(to, 0, static_cast<size_t>(plane_) * sizeof(Element));
                     leaves |=
                         !put_plane(index, x, plane * count_, count_, plane * plane_, to, plane_);
                   }
                   if (leaves) leaves_plane.store(true, std::memory_order_relaxed);
                 });
    if (!leaves_plane.load(std::memory_order_relaxed)) return;
    // Runs in order, so that the last of several elements with one index stays.
    for (int64_t i = 0; i < planes_ * count_; ++i)
      if (const int64_t place = index(i, total); place >= 0) y[place] = x[i];
  }

  /// Returns false where an index lies outside of the plane.
  template <class Element, class Reader>
  static bool put_plane(Reader index, const Element* x, int64_t first, int64_t count,
                        int64_t before, Element* to, int64_t plane) {
    bool fits = true;
    const auto size = static_cast<uint64_t>(plane);
    for (int64_t i = first; i < first + count; ++i) {
      const uint64_t place = static_cast<uint64_t>(index.raw(i)) - static_cast<uint64_t>(before);
      if (place < size) [[likely]]
        to[place] = x[i];
      else
        fits = false;
    }
    return fits;
  }

  const std::string layer_;
  const int size_;
  const bool wide_;
  int64_t planes_ = 0, plane_ = 0, count_ = 0;
};

std::vector<Candidate> max_unpool_candidates(const Operator&, const CandidateQuery& query) {
  if (!kWholeBytes.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "planes")};
}

void check_max_unpool(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(3, 3);
  rules.require(rules.input(0), kWholeBytes);
  rules.require(rules.input(1), kIndexTypes);
  rules.require(rules.input(2), kIndexTypes);
  rules.require_same(rules.output(0), rules.input(0));
}

const RegisteredKernels<MaxUnpool> kMaxUnpoolKernels({max_unpool_candidates,
                                                      make_kernel<MaxUnpoolKernel, MaxUnpool>,
                                                      check_max_unpool});

}  // namespace
}  // namespace opwright
