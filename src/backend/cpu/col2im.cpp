#include "operators/col2im.h"

#include <algorithm>

#include "backend/candidates.h"
#include "backend/cpu/col2im_tile.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"

namespace opwright {
namespace {

class Col2ImKernel final : public Kernel {
 public:
  Col2ImKernel(const Col2ImParams& params, const KernelArgs& args)
      : layer_(args.layer), params_(params) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    planes_ = 0;
    require_countable(inputs), require_countable(outputs);
    const Shape &x = inputs[0], &y = outputs[0];
    const int spatial = y.rank() - 2;
    require(spatial >= 1 && spatial <= 3 && x.rank() == 3, "Layer '", layer_,
            "': columns of shape ", x, " for an image of shape ", y);
    const auto given = [](const Ints& values, int axis, int64_t otherwise) {
      return static_cast<size_t>(axis) < values.size() ? values[static_cast<size_t>(axis)]
                                                       : otherwise;
    };
    int64_t blocks = 1, elements = 1;
    for (int i = 0; i < 3; ++i) {
      FoldAxis& axis = axes_[i] = FoldAxis();
      const int from = i - (3 - spatial);
      if (from < 0) continue;
      axis.image = y[from + 2];
      axis.window = given(params_.block, from, 1), axis.stride = given(params_.stride, from, 1);
      axis.dilation = given(params_.dilation, from, 1);
      axis.pad = given(params_.pre_padding, from, 0);
      const int64_t room = axis.image + axis.pad + given(params_.post_padding, from, 0) -
                           (axis.window - 1) * axis.dilation - 1;
      axis.blocks = room < 0 ? 0 : room / axis.stride + 1;
      blocks *= axis.blocks, elements *= axis.window;
    }
    require(y[0] == x[0] && x[1] == y[1] * elements && x[2] == blocks, "Layer '", layer_,
            "': columns of shape ", x, " do not fit ", blocks, " blocks of ", elements,
            " elements in an image of shape ", y);
    column_ = elements * blocks, size_ = y.numel(2, y.rank());
    planes_ = size_ > 0 ? y[0] * y[1] : 0;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    const auto* const x = static_cast<const float*>(inputs[0]);
    auto* const y = static_cast<float*>(outputs[0]);
    constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread
    parallel_for(planes_, std::max<int64_t>(1, kGrain / (column_ + size_)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i)
                     fold_plane(x + i * column_, axes_, y + i * size_);
                 });
  }

 private:
  const std::string layer_;
  const Col2ImParams params_;
  FoldAxis axes_[3];
  int64_t planes_ = 0, column_ = 0, size_ = 0;
};

constexpr Types kColumnTypes = {DataType::kFLOAT};

std::vector<Candidate> col2im_candidates(const Operator&, const CandidateQuery& query) {
  if (!kColumnTypes.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "planes")};
}

void check_col2im(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(2, 2);
  rules.require(rules.input(0), kColumnTypes);
  rules.require(rules.input(1), kIndexTypes);
  rules.require_same(rules.output(0), rules.input(0));
}

const RegisteredKernels<Col2Im> kCol2ImKernels({col2im_candidates,
                                                make_kernel<Col2ImKernel, Col2Im>, check_col2im});

}  // namespace
}  // namespace opwright
