#include "control/chosen_branch.h"

#include "backend/candidates.h"
#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "control/body.h"
#include "network/attributes.h"
#include "network/operator_registry.h"

namespace opwright {
namespace {

struct ChosenBranchParams {
  bool expected = true;
  std::string problem;
  template <class V>
  void visit(V& v) {
    v("expected", expected), v("problem", problem);
  }
};

class ChosenBranchKernel final : public Kernel {
 public:
  ChosenBranchKernel(const ChosenBranchParams& params, const KernelArgs& args)
      : layer_(args.layer), params_(params), device_(*args.device), bytes_(args.outputs.size()) {
    for (const PortDesc& port : args.outputs) types_.push_back(port.type.dtype);
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      require(inputs[i + 1] == outputs[i], "layer '", layer_, "': result ", i, " has the shape ",
              inputs[i + 1], " and its output ", outputs[i], "; expected the same");
      bytes_[i] = static_cast<size_t>(bytes_of(types_[i], outputs[i].numel()));
    }
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue queue) override {
    const bool holds = read_number<uint8_t>(device_, layer_, inputs[0], queue) != 0;
    if (holds != params_.expected) [[unlikely]]
      fail_with(ErrorCode::kINVALID_STATE, "layer '", layer_, "': the condition is ",
                params_.expected ? "false" : "true",
                ", but the branch that it chooses could not be built: ", params_.problem);
    for (size_t i = 0; i < bytes_.size(); ++i)
      if (bytes_[i] > 0) device_.copy(outputs[i], inputs[i + 1], bytes_[i], queue);
  }
  std::string capture_obstacle() const override { return "the host looks at its condition"; }

 private:
  const std::string layer_;
  const ChosenBranchParams params_;
  const Device& device_;
  std::vector<DataType> types_;
  std::vector<size_t> bytes_;
};

class PlannedChosenBranch final : public PlannedOperator {
 public:
  explicit PlannedChosenBranch(ChosenBranchParams params) : params_(std::move(params)) {}

  std::string_view kind() const override { return ChosenBranch::kKind; }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    return ChosenBranch(params_.expected, params_.problem).infer(context);
  }
  void check(const KernelArgs& args) const override {
    require(args.inputs.size() >= 2 && args.outputs.size() + 1 == args.inputs.size(), "it has ",
            args.inputs.size(), " inputs and ", args.outputs.size(),
            " outputs; expected a condition, and as many inputs behind it as outputs");
    require(args.packed.empty(), "it has packed inputs; expected none");
    for (const auto& ports : {args.inputs, args.outputs})
      for (const PortDesc& port : ports)
        require(port.present && port.type.format == TensorFormat::kLINEAR,
                "a port is missing, or of another format than LINEAR");
    require(args.inputs[0].type.dtype == DataType::kBOOL && args.inputs[0].max.rank() == 0,
            "the condition must be a scalar BOOL");
    for (size_t i = 0; i < args.outputs.size(); ++i)
      require(args.inputs[i + 1].type == args.outputs[i].type, "input ", i + 1, " is ",
              str(args.inputs[i + 1].type), ", but its output is ", str(args.outputs[i].type));
  }
  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    return std::make_unique<ChosenBranchKernel>(params_, args);
  }
  Attributes attributes() const override {
    AttributeWriter writer;
    const_cast<ChosenBranchParams&>(params_).visit(writer);
    return std::move(writer.attributes);
  }

 private:
  const ChosenBranchParams params_;
};

[[maybe_unused]] const bool is_chosen_branch_registered = [] {
  register_operator_kind(std::string(ChosenBranch::kKind), [](const Attributes& attributes,
                                                              const OperatorLoadContext&) {
    ChosenBranchParams params;
    AttributeReader reader(ChosenBranch::kKind, attributes);
    params.visit(reader);
    return PlannedOperatorPtr(std::make_shared<PlannedChosenBranch>(std::move(params)));
  });
  return true;
}();

}  // namespace

std::vector<OutputInfo> ChosenBranch::infer(InferContext& context) const {
  const auto check = [&](bool condition, const auto&... parts) {
    require(condition, "ChosenBranch '", context.layer, "': ", parts...);
  };
  check(context.inputs.size() >= 2, "has ", context.inputs.size(),
        " inputs; expected a condition and one or more tensors");
  for (const TensorInfo* input : context.inputs) check(input != nullptr, "an input is missing");
  check(context.inputs[0]->dtype == DataType::kBOOL && context.inputs[0]->dims.empty(),
        "the condition must be a scalar BOOL");
  std::vector<OutputInfo> outputs(context.inputs.size() - 1);
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].dtype = context.inputs[i + 1]->dtype;
    outputs[i].dims = context.inputs[i + 1]->dims;
  }
  return outputs;
}

std::vector<Candidate> ChosenBranch::candidates(const CandidateQuery& query) const {
  return {linear_candidate(query, "copy")};
}

PlannedOperatorPtr ChosenBranch::plan(const KernelArgs&) const {
  return std::make_shared<PlannedChosenBranch>(ChosenBranchParams{expected_, problem_});
}

Attributes ChosenBranch::attributes() const {
  return {{"expected", static_cast<int64_t>(expected_)}, {"problem", problem_}};
}

}  // namespace opwright
