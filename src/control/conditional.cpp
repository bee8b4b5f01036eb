#include "control/conditional.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/candidates.h"
#include "base/error.h"
#include "base/library.h"
#include "base/types.h"
#include "network/operator_registry.h"
#include "runtime/context.h"

namespace opwright {
namespace {

constexpr int64_t kMaxCaptures = 1 << 16;

struct ConditionalParams {
  int64_t captures = 0;
  Ints size_results, size_axes;
  Blob then_body, else_body;  ///< the branches' engine files
  template <class V>
  void visit(V& v) {
    v("captures", captures), v("size_results", size_results), v("size_axes", size_axes);
    v("then_body", then_body), v("else_body", else_body);
  }
};

struct BranchEngine {
  std::shared_ptr<const Engine> engine;
  std::vector<int> inputs;  ///< per captured tensor; -1: the branch does not read it
};

class ConditionalKernel final : public Kernel {
 public:
  ConditionalKernel(const ConditionalParams& params, const std::array<BranchEngine, 2>& branches,
                    std::string_view layer, const PluginServices* services)
      : layer_(layer),
        params_(params),
        device_(branches[0].engine->device()),
        branches_{Branch(branches[0]), Branch(branches[1])},
        results_(branches[0].engine->plan().outputs.size()) {
    for (Branch& branch : branches_) branch.context.run_within(services);
  }

  size_t workspace_size() const override {
    return std::max(branches_[0].memory, branches_[1].memory);
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    for (Branch& branch : branches_) {
      for (size_t i = 0; i < branch.inputs.size(); ++i)
        if (branch.inputs[i] >= 0) branch.context.set_input_shape(branch.inputs[i], inputs[1 + i]);
      branch.made.clear();
      branch.fits = true;
      for (size_t o = 0; o < results_; ++o) {
        branch.made.push_back(branch.context.output_shape(static_cast<int>(o)));
        branch.fits = branch.fits && fits(branch.made[o], outputs[o], static_cast<int64_t>(o));
      }
    }
    expected_.assign(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(results_));
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    const bool holds = read_number<uint8_t>(device_, layer_, inputs[0], queue) != 0;
    Branch& branch = branches_[holds ? 0 : 1];
    if (!branch.fits) [[unlikely]]
      fail_shapes(branch);
    give_memory(branch.context, static_cast<std::byte*>(workspace), branch.memory);
    for (size_t i = 0; i < branch.inputs.size(); ++i)
      if (branch.inputs[i] >= 0) branch.context.set_input_address(branch.inputs[i], inputs[1 + i]);
    for (size_t o = 0; o < results_; ++o)
      branch.context.set_output_address(static_cast<int>(o), outputs[o]);
    branch.context.enqueue(queue);
    for (size_t i = 0; i < params_.size_results.size(); ++i)
      write_number<int64_t>(device_, outputs[results_ + i],
                            branch.made[static_cast<size_t>(params_.size_results[i])]
                                       [static_cast<int>(params_.size_axes[i])],
                            queue);
  }
  std::string capture_obstacle() const override { return kBodyObstacle; }

 private:
  struct Branch {
    explicit Branch(const BranchEngine& from)
        : memory(aligned_size(context_memory(from.engine->plan()))),
          context(from.engine, 0, ExecutionContextAllocationStrategy::kUSER_MANAGED),
          inputs(from.inputs) {}
    const size_t memory;
    Context context;
    const std::vector<int> inputs;
    std::vector<Shape> made;
    bool fits = true;
  };

  bool is_size(int64_t result, int axis) const {
    for (size_t i = 0; i < params_.size_results.size(); ++i)
      if (params_.size_results[i] == result && params_.size_axes[i] == axis) return true;
    return false;
  }
  /// Extents that the layer finds may be smaller than the room for them.
  bool fits(const Shape& made, const Shape& room, int64_t result) const {
    if (made.rank() != room.rank()) return false;
    for (int axis = 0; axis < made.rank(); ++axis)
      if (made[axis] != room[axis] && !(is_size(result, axis) && made[axis] < room[axis]))
        return false;
    return true;
  }
  [[noreturn]] void fail_shapes(const Branch& branch) const {
    for (size_t o = 0; o < results_; ++o)
      if (!fits(branch.made[o], expected_[o], static_cast<int64_t>(o)))
        fail_with(ErrorCode::kINVALID_STATE, "layer '", layer_, "': output ", o,
                  " of the branch that runs has the shape ", branch.made[o], "; expected ",
                  expected_[o]);
    fail_with(ErrorCode::kINVALID_STATE, "layer '", layer_, "': its outputs do not fit");
  }

  const std::string layer_;
  const ConditionalParams params_;
  const Device& device_;
  std::array<Branch, 2> branches_;
  const size_t results_;
  std::vector<Shape> expected_;
};

class PlannedConditional final : public PlannedOperator {
 public:
  PlannedConditional(ConditionalParams params, std::array<BranchEngine, 2> branches)
      : params_(std::move(params)), branches_(std::move(branches)) {}

  std::string_view kind() const override { return Conditional::kKind; }
  /// Shapes are those of the bodies' plans; the kernel compares them when it is told of shapes.
  bool can_infer() const override { return false; }
  std::vector<OutputInfo> infer(InferContext&) const override { return {}; }

  void check(const KernelArgs& args) const override {
    const size_t num_inputs = 1 + static_cast<size_t>(params_.captures);
    const size_t results = branches_[0].engine->plan().outputs.size();
    const size_t num_outputs = results + params_.size_results.size();
    require(args.inputs.size() == num_inputs && args.outputs.size() == num_outputs, "it has ",
            args.inputs.size(), " inputs and ", args.outputs.size(), " outputs; expected ",
            num_inputs, " and ", num_outputs);
    require(args.packed.empty(), "it has packed inputs; expected none");
    for (const auto& ports : {args.inputs, args.outputs})
      for (const PortDesc& port : ports)
        require(port.present && port.type.format == TensorFormat::kLINEAR,
                "a port is missing, or of another format than LINEAR");
    require(args.inputs[0].type.dtype == DataType::kBOOL && args.inputs[0].max.rank() == 0,
            "the condition must be a scalar BOOL");
    for (const BranchEngine& branch : branches_) {
      check_body_device(*branch.engine, args);
      const Plan& body = branch.engine->plan();
      for (size_t i = 0; i < branch.inputs.size(); ++i) {
        if (branch.inputs[i] < 0) continue;
        const PortType& type = body.inputs[static_cast<size_t>(branch.inputs[i])].type;
        require(type == args.inputs[1 + i].type, "input ", 1 + i, " is ",
                str(args.inputs[1 + i].type), "; a branch takes ", str(type));
      }
      for (size_t o = 0; o < results; ++o)
        require(body.outputs[o].type == args.outputs[o].type, "output ", o, " is ",
                str(args.outputs[o].type), "; a branch gives ", str(body.outputs[o].type));
    }
    for (size_t o = results; o < num_outputs; ++o)
      require(args.outputs[o].type.dtype == DataType::kINT64 && args.outputs[o].max.rank() == 0,
              "output ", o, " is an extent, so it must be a scalar INT64");
  }

  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    return std::make_unique<ConditionalKernel>(params_, branches_, args.layer, args.services);
  }
  Attributes attributes() const override {
    AttributeWriter writer;
    const_cast<ConditionalParams&>(params_).visit(writer);
    return std::move(writer.attributes);
  }
  std::vector<CodeObject> code() const override {
    std::vector<CodeObject> code = code_of(*branches_[0].engine);
    for (CodeObject& object : code_of(*branches_[1].engine)) code.push_back(std::move(object));
    return code;
  }

 private:
  const ConditionalParams params_;
  const std::array<BranchEngine, 2> branches_;
};

PlannedOperatorPtr make_planned(ConditionalParams params, std::string_view layer,
                                const Device& device,
                                std::optional<std::span<const LoadedCode>> code) {
  try {
    require(params.captures >= 0 && params.captures <= kMaxCaptures, "it has ", params.captures,
            " captured tensors; expected 0 to ", kMaxCaptures);
    std::vector<std::string> names;
    names.reserve(static_cast<size_t>(params.captures));
    for (int i = 0; i < params.captures; ++i) names.push_back(capture_input(i));
    std::array<BranchEngine, 2> branches;
    for (size_t i = 0; i < 2; ++i) {
      branches[i].engine = load_body(i == 0 ? params.then_body : params.else_body, device, code);
      branches[i].inputs = find_inputs(*branches[i].engine, names);
    }
    const std::vector<PlanPort>& results = branches[0].engine->plan().outputs;
    require(results.size() == branches[1].engine->plan().outputs.size(),
            "its branches differ in the number of outputs");
    require(params.size_results.size() == params.size_axes.size(),
            "it has as many axes as extents that it finds");
    for (size_t i = 0; i < params.size_results.size(); ++i) {
      const int64_t result = params.size_results[i], axis = params.size_axes[i];
      require(result >= 0 && std::cmp_less(result, results.size()), "there is no output ", result);
      for (const BranchEngine& branch : branches) {
        const PlanPort& port = branch.engine->plan().outputs[static_cast<size_t>(result)];
        require(axis >= 0 && std::cmp_less(axis, port.dims.size()), "output ", result,
                " has no axis ", axis);
      }
    }
    return std::make_shared<PlannedConditional>(std::move(params), std::move(branches));
  } catch (const Error& error) {
    fail_with(error.code(), "layer '", layer, "' (Conditional): ", error.what());
  }
}

PlannedOperatorPtr load_conditional(const Attributes& attributes,
                                    const OperatorLoadContext& context) {
  ConditionalParams params;
  AttributeReader reader(Conditional::kKind, attributes);
  params.visit(reader);
  params.then_body = aligned_copy(params.then_body);
  params.else_body = aligned_copy(params.else_body);
  return make_planned(std::move(params), context.layer, body_device(context), context.code);
}

[[maybe_unused]] const bool is_conditional_registered = [] {
  register_operator_kind(std::string(Conditional::kKind), load_conditional);
  return true;
}();

}  // namespace

Conditional::Conditional(std::array<std::shared_ptr<const Network>, 2> bodies, int captures,
                         std::vector<std::pair<int, int>> sizes)
    : bodies_(std::move(bodies)),
      captures_(captures),
      sizes_(std::move(sizes)),
      identity_(Library::next_number()) {}

std::optional<int> Conditional::num_outputs() const {
  return static_cast<int>(bodies_[0]->outputs().size() + sizes_.size());
}

std::vector<std::pair<std::string, int>> Conditional::passed_inputs() const {
  std::vector<std::pair<std::string, int>> passed;
  passed.reserve(static_cast<size_t>(captures_));
  for (int i = 0; i < captures_; ++i) passed.emplace_back(capture_input(i), 1 + i);
  return passed;
}

std::vector<OutputInfo> Conditional::infer(InferContext& context) const {
  const auto check = [&](bool condition, const auto&... parts) {
    require(condition, "Conditional '", context.layer, "': ", parts...);
  };
  check(
      static_cast<int>(context.inputs.size()) == 1 + captures_ &&
          std::find(context.inputs.begin(), context.inputs.end(), nullptr) == context.inputs.end(),
      "has ", context.inputs.size(), " inputs; expected ", 1 + captures_);
  const TensorInfo& condition = *context.inputs[0];
  check(condition.dtype == DataType::kBOOL && condition.dims.empty(),
        "the condition must be a scalar BOOL");
  BodyExtents extents[2] = {BodyExtents(*bodies_[0]), BodyExtents(*bodies_[1])};
  for (BodyExtents& outside : extents) {
    for (const auto& [name, index] : passed_inputs())
      outside.add(name, *context.inputs[static_cast<size_t>(index)]);
    outside.check();
  }
  std::vector<OutputInfo> outputs;
  for (size_t o = 0; o < bodies_[0]->outputs().size(); ++o) {
    const Tensor &a = *bodies_[0]->outputs()[o], &b = *bodies_[1]->outputs()[o];
    check(a.dtype() == b.dtype() && a.rank() == b.rank(), "output ", o, " is ",
          opwright::name(a.dtype()), " of rank ", a.rank(), " in one branch and ",
          opwright::name(b.dtype()), " of rank ", b.rank(), " in the other; expected the same");
    const SymShape then_dims = extents[0](a.dims()), else_dims = extents[1](b.dims());
    OutputInfo& result = outputs.emplace_back();
    result.dtype = a.dtype();
    for (size_t axis = 0; axis < then_dims.size(); ++axis) {
      const auto place = std::find(sizes_.begin(), sizes_.end(),
                                   std::pair(static_cast<int>(o), static_cast<int>(axis)));
      const Expr most = max(then_dims[axis], else_dims[axis]);
      if (place != sizes_.end())
        result.dims.push_back(context.declare_size_tensor(
            static_cast<int>(bodies_[0]->outputs().size() +
                             static_cast<size_t>(place - sizes_.begin())),
            most, most));
      else if (then_dims[axis] == else_dims[axis])
        result.dims.push_back(then_dims[axis]);
      else
        check(false, "output ", o, " has the shapes ", then_dims, " and ", else_dims,
              ", which it was not made for");
    }
  }
  for (size_t i = 0; i < sizes_.size(); ++i) outputs.emplace_back().dtype = DataType::kINT64;
  return outputs;
}

std::vector<Candidate> Conditional::candidates(const CandidateQuery& query) const {
  return {linear_candidate(query, "branch")};
}

PlannedOperatorPtr Conditional::plan(const KernelArgs& args) const {
  ConditionalParams params;
  params.captures = captures_;
  for (const auto& [result, axis] : sizes_) {
    params.size_results.push_back(result);
    params.size_axes.push_back(axis);
  }
  const auto inputs = passed_inputs();
  params.then_body = compile_body(*bodies_[0], inputs, args);
  params.else_body = compile_body(*bodies_[1], inputs, args);
  return make_planned(std::move(params), args.layer, *args.device, std::nullopt);
}

OperatorPtr Conditional::with_weights_as_inputs(const IsRefittable& is_refittable,
                                                std::vector<BodyWeight>& weights) const {
  std::array<std::shared_ptr<const Network>, 2> bodies;
  for (size_t i = 0; i < bodies.size(); ++i)
    bodies[i] = weights_as_inputs(
        bodies_[i], is_refittable,
        [&](size_t number) { return capture_input(captures_ + static_cast<int>(number)); },
        weights);
  if (weights.empty()) return nullptr;
  return std::make_shared<Conditional>(std::move(bodies),
                                       captures_ + static_cast<int>(weights.size()), sizes_);
}

Attributes Conditional::attributes() const { return {{"identity", identity_}}; }

}  // namespace opwright
