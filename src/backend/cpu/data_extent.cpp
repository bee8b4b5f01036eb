#include "backend/candidates.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "operators/selection.h"

namespace opwright {
namespace {

class DataExtentKernel final : public Kernel {
 public:
  DataExtentKernel(const DataExtentParams& params, const KernelArgs& args)
      : layer_(args.layer),
        element_(params.element),
        wide_(args.inputs[0].type.dtype == DataType::kINT64) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape>) override {
    require_countable(inputs);
    is_there_ = false;
    require(element_ < inputs[0].numel(), "Layer '", layer_, "': element ", element_,
            " is an extent, but the input has the shape ", inputs[0]);
    is_there_ = true;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    int64_t extent = 0;
    if (is_there_)
      extent = wide_ ? static_cast<const int64_t*>(inputs[0])[element_]
                     : static_cast<const int32_t*>(inputs[0])[element_];
    *static_cast<int64_t*>(outputs[0]) = extent;
  }

 private:
  const std::string layer_;
  const int64_t element_;
  const bool wide_;
  bool is_there_ = false;
};

std::vector<Candidate> data_extent_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "copy")};
}

void check_data_extent(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(2, 2);
  rules.require(rules.input(0), kIndexTypes);
  rules.require(rules.input(1), kIndexTypes);
  rules.require(rules.output(0), {DataType::kINT64});
  rules.require_that(static_cast<const DataExtent&>(op).params().element >= 0,
                     "the place of an extent is not negative");
}

const RegisteredKernels<DataExtent> kDataExtentKernels({data_extent_candidates,
                                                        make_kernel<DataExtentKernel, DataExtent>,
                                                        check_data_extent});

}  // namespace
}  // namespace opwright
