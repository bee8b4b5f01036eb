#include <algorithm>
#include <cstring>

#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/index_reader.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"
#include "operators/indexing.h"

namespace opwright {
namespace {

/// Fills the output with the off value and then writes the on values.
class OneHotKernel final : public Kernel {
 public:
  OneHotKernel(const OneHotParams& params, const KernelArgs& args)
      : layer_(args.layer),
        axis_(params.axis),
        size_(element_size(args.inputs[1].type.dtype)),
        wide_(args.inputs[0].type.dtype == DataType::kINT64) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    const Shape &indices = inputs[0], &y = outputs[0];
    const int rank = indices.rank() + 1;
    const int axis = static_cast<int>(axis_ < 0 ? axis_ + rank : axis_);
    outer_ = 0;
    require(y.rank() == rank && axis >= 0 && axis < rank && y[axis] * indices.numel() == y.numel(),
            "Layer '", layer_, "': indices of shape ", indices, " do not give ", y);
    require(inputs[1].numel() == 2, "Layer '", layer_, "': off and on are expected, not values of ",
            inputs[1]);
    depth_ = y[axis];
    inner_ = indices.numel(axis, indices.rank());
    outer_ = indices.numel(0, axis);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    if (outer_ * inner_ * depth_ == 0) return;
    const IndexReader index(inputs[0], wide_);
    const auto* const off = static_cast<const std::byte*>(inputs[1]);
    auto* const to = static_cast<std::byte*>(outputs[0]);
    parallel_for(outer_, std::max<int64_t>(1, kCopyGrainBytes / (depth_ * inner_ * size_)),
                 [&](int64_t begin, int64_t end) {
                   fill_elements(to + begin * depth_ * inner_ * size_, off, size_,
                                 (end - begin) * depth_ * inner_);
                   for (int64_t outer = begin; outer < end; ++outer)
                     for (int64_t i = 0; i < inner_; ++i) {
                       const int64_t found = index(outer * inner_ + i, depth_);
                       if (found < 0) continue;
                       std::memcpy(to + ((outer * depth_ + found) * inner_ + i) * size_,
                                   off + size_, static_cast<size_t>(size_));
                     }
                 });
  }

 private:
  const std::string layer_;
  const int64_t axis_;
  const int size_;
  const bool wide_;
  int64_t outer_ = 0, depth_ = 0, inner_ = 0;
};

std::vector<Candidate> one_hot_candidates(const Operator&, const CandidateQuery& query) {
  if (!kWholeBytes.has(query.inputs[1].type.dtype)) return {};
  return {linear_candidate(query, "fill")};
}

void check_one_hot(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(3, 3);
  rules.require(rules.input(0), kIndexTypes);
  rules.require(rules.input(1), kWholeBytes);
  rules.require(rules.input(2), kIndexTypes);
  rules.require_same(rules.output(0), rules.input(1));
}

const RegisteredKernels<OneHot> kOneHotKernels({one_hot_candidates,
                                                make_kernel<OneHotKernel, OneHot>, check_one_hot});

}  // namespace
}  // namespace opwright
