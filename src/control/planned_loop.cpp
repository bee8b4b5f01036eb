#include "control/planned_loop.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "control/loop.h"
#include "network/operator_registry.h"
#include "runtime/context.h"

namespace opwright {
namespace {

constexpr int64_t kMaxPorts = 1 << 16;
// Limit for loops that only their condition ends: data, or a model, may keep it true for ever.
constexpr int64_t kMostUncounted = 1'000'000;

/// The body's inputs by their role in the loop; -1: the body does not use the input.
struct LoopPorts {
  int iteration = -1;
  std::vector<int> inputs;  ///< per state and captured tensor, the body's input
};

size_t bytes_at(const Shape& shape, DataType type) {
  return static_cast<size_t>(tensor_bytes(shape, type, TensorFormat::kLINEAR));
}

class LoopKernel final : public Kernel {
 public:
  LoopKernel(const PlannedLoopParams& params, const LoopPorts& ports,
             std::shared_ptr<const Engine> engine, const KernelArgs& args)
      : layer_(args.layer),
        is_computed_(params.is_computed),
        counts_(params.counts),
        is_partial_(params.is_partial),
        states_(static_cast<size_t>(params.states)),
        stacked_(static_cast<size_t>(params.stacked)),
        ports_(ports),
        device_(engine->device()),
        body_memory_(aligned_size(context_memory(engine->plan()))),
        context_(std::move(engine), 0, ExecutionContextAllocationStrategy::kUSER_MANAGED),
        current_(states_),
        state_bytes_(states_),
        part_bytes_(stacked_),
        lengths_(stacked_) {
    context_.run_within(args.services);
    for (const PortDesc& port : args.inputs) types_.push_back(port.type.dtype);
    if (args.inputs[0].constant) limit_ = *args.inputs[0].constant.as<int64_t>();
    for (size_t i = 0; i < states_; ++i) {
      reserved_.push_back(
          aligned_size(bytes_at(args.inputs[2 + i].max, args.inputs[2 + i].type.dtype)));
      require(!__builtin_add_overflow(workspace_, 2 * reserved_.back(), &workspace_), "layer '",
              layer_, "': its states take more bytes than can be counted");
    }
    for (size_t i = 0; i < stacked_; ++i) {
      const PortDesc& port = args.outputs[states_ + i];
      stacked_types_.push_back(port.type.dtype);
      if (!is_partial_) continue;
      // Memory for the outputs of iterations beyond those that are stacked.
      Shape part(std::span<const int64_t>(port.max.begin() + 1, port.max.end()));
      spare_ = std::max(spare_, aligned_size(bytes_at(part, port.type.dtype)));
    }
    body_at_ = workspace_ + spare_;
    require(!__builtin_add_overflow(workspace_, spare_, &workspace_) &&
                !__builtin_add_overflow(workspace_, body_memory_, &workspace_),
            "layer '", layer_,
            "': what it stacks, and the memory of its body, take more bytes than ",
            "can be counted");
  }

  size_t workspace_size() const override { return workspace_; }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    for (size_t i = 0; i < ports_.inputs.size(); ++i)
      if (ports_.inputs[i] >= 0) context_.set_input_shape(ports_.inputs[i], inputs[2 + i]);
    if (ports_.iteration >= 0) context_.set_input_shape(ports_.iteration, Shape());
    const size_t first = is_computed_ ? 1 : 0;
    const auto part = [&](size_t output) {
      return context_.output_shape(static_cast<int>(output));
    };
    if (is_computed_)
      require(part(0).numel() == 1, "layer '", layer_, "': its condition has the shape ", part(0),
              "; expected one element");
    for (size_t i = 0; i < states_; ++i) {
      const Shape made = part(first + i);
      require(made == inputs[2 + i] && outputs[i] == made, "layer '", layer_, "': state ", i,
              " has the shape ", inputs[2 + i], " before an iteration and ", made,
              " behind it; expected the same");
      state_bytes_[i] = bytes_at(made, types_[2 + i]);
      require(state_bytes_[i] <= reserved_[i], "layer '", layer_, "': state ", i, " takes ",
              state_bytes_[i], " bytes; there is room for ", reserved_[i]);
    }
    capacity_ = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < stacked_; ++i) {
      const Shape made = part(first + states_ + i);
      const Shape& whole = outputs[states_ + i];
      bool fits = whole.rank() == made.rank() + 1;
      for (int axis = 0; fits && axis < made.rank(); ++axis) fits = whole[axis + 1] == made[axis];
      require(fits, "layer '", layer_, "': what it stacks as output ", states_ + i,
              " has the shape ", made, " in an iteration; expected parts of ", whole);
      part_bytes_[i] = bytes_at(made, stacked_types_[i]);
      lengths_[i] = whole[0];
      if (!is_partial_) capacity_ = std::min(capacity_, whole[0]);
      require(!is_partial_ || part_bytes_[i] <= spare_, "layer '", layer_,
              "': what an iteration stacks takes ", part_bytes_[i], " bytes; there is room for ",
              spare_);
    }
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    int64_t limit = std::numeric_limits<int64_t>::max();
    if (limit_)
      limit = *limit_;
    else if (inputs[0] != nullptr)
      limit = read_number<int64_t>(device_, layer_, inputs[0], queue);
    bool goes_on =
        inputs[1] == nullptr || read_number<uint8_t>(device_, layer_, inputs[1], queue) != 0;
    auto* const numbers = static_cast<std::byte*>(workspace);
    give_memory(context_, numbers + body_at_, body_memory_);
    std::byte* const condition = numbers + kNumberBytes;
    int64_t iteration = 0;
    for (size_t i = 0; i < states_; ++i) current_[i] = inputs[2 + i];
    for (size_t i = states_; i < ports_.inputs.size(); ++i)
      if (ports_.inputs[i] >= 0) context_.set_input_address(ports_.inputs[i], inputs[2 + i]);
    if (ports_.iteration >= 0) context_.set_input_address(ports_.iteration, numbers);
    const int first = is_computed_ ? 1 : 0;
    if (is_computed_) context_.set_output_address(0, condition);
    for (; goes_on && iteration < limit; ++iteration) {
      if (iteration >= capacity_) [[unlikely]]
        fail_iterations(iteration + 1);
      if (iteration >= kMostUncounted && !limit_ && inputs[0] == nullptr) [[unlikely]]
        fail_with(ErrorCode::kINVALID_STATE, "layer '", layer_, "': its condition is still true ",
                  "after ", iteration, " iterations, which is the most that a loop without a trip ",
                  "count may have: give it one, which may be larger");
      if (ports_.iteration >= 0) write_number(device_, numbers, iteration, queue);
      std::byte* buffer = numbers + 2 * kNumberBytes;
      for (size_t i = 0; i < states_; ++i) {
        if (ports_.inputs[i] >= 0) context_.set_input_address(ports_.inputs[i], current_[i]);
        std::byte* const next = buffer + (iteration % 2 == 0 ? 0 : reserved_[i]);
        context_.set_output_address(first + static_cast<int>(i), next);
        current_[i] = next;
        buffer += 2 * reserved_[i];
      }
      for (size_t i = 0; i < stacked_; ++i)
        context_.set_output_address(first + static_cast<int>(states_ + i),
                                    iteration < lengths_[i]
                                        ? static_cast<std::byte*>(outputs[states_ + i]) +
                                              static_cast<size_t>(iteration) * part_bytes_[i]
                                        : buffer);
      context_.enqueue(queue);
      if (is_computed_) goes_on = read_number<uint8_t>(device_, layer_, condition, queue) != 0;
    }
    for (size_t i = 0; i < states_; ++i)
      if (state_bytes_[i] > 0) device_.copy(outputs[i], current_[i], state_bytes_[i], queue);
    for (size_t i = 0; is_partial_ && i < stacked_; ++i)
      if (iteration < lengths_[i])
        write_zeros(device_,
                    static_cast<std::byte*>(outputs[states_ + i]) +
                        static_cast<size_t>(iteration) * part_bytes_[i],
                    static_cast<size_t>(lengths_[i] - iteration) * part_bytes_[i], queue);
    if (counts_)
      write_number(device_, outputs[states_ + stacked_], iteration, queue);
    else if (stacked_ > 0 && !is_partial_ && iteration < capacity_) [[unlikely]]
      fail_iterations(iteration);
  }
  std::string capture_obstacle() const override { return kBodyObstacle; }

 private:
  static constexpr size_t kNumberBytes = 64;  ///< bytes of each number before the states

  [[noreturn]] void fail_iterations(int64_t iterations) const {
    fail_with(ErrorCode::kINVALID_STATE, "layer '", layer_, "': it has ", iterations,
              " iterations; what it stacks has room for ", capacity_);
  }

  const std::string layer_;
  const bool is_computed_, counts_, is_partial_;
  const size_t states_, stacked_;
  const LoopPorts ports_;
  const Device& device_;
  const size_t body_memory_;
  Context context_;
  std::optional<int64_t> limit_;  ///< where the limit is constant
  std::vector<DataType> types_, stacked_types_;
  std::vector<const void*> current_;
  std::vector<size_t> reserved_, state_bytes_, part_bytes_;
  std::vector<int64_t> lengths_;
  size_t workspace_ = 2 * kNumberBytes, spare_ = 0;
  size_t body_at_ = 0;  ///< where the body's memory begins
  int64_t capacity_ = 0;
};

class PlannedLoop final : public PlannedOperator {
 public:
  PlannedLoop(PlannedLoopParams params, std::shared_ptr<const Engine> engine, LoopPorts ports)
      : params_(std::move(params)), engine_(std::move(engine)), ports_(std::move(ports)) {}

  std::string_view kind() const override { return Loop::kKind; }
  /// Shapes are those of the body's plan; the kernel compares them when it is told of shapes.
  bool can_infer() const override { return false; }
  std::vector<OutputInfo> infer(InferContext&) const override { return {}; }

  void check(const KernelArgs& args) const override {
    check_body_device(*engine_, args);
    const Plan& body = engine_->plan();
    const size_t states = static_cast<size_t>(params_.states);
    const size_t num_inputs = 2 + states + static_cast<size_t>(params_.captures);
    const size_t num_outputs =
        states + static_cast<size_t>(params_.stacked) + (params_.counts ? 1 : 0);
    require(args.inputs.size() == num_inputs && args.outputs.size() == num_outputs, "it has ",
            args.inputs.size(), " inputs and ", args.outputs.size(), " outputs; expected ",
            num_inputs, " and ", num_outputs);
    require(args.packed.empty(), "it has packed inputs; expected none");
    for (const auto& ports : {args.inputs, args.outputs})
      for (const PortDesc& port : ports)
        require(!port.present || port.type.format == TensorFormat::kLINEAR,
                "a port has another format than LINEAR");
    require_scalar(args.inputs[0], DataType::kINT64, "the number of iterations");
    require_scalar(args.inputs[1], DataType::kBOOL, "the condition");
    for (size_t i = 2; i < num_inputs; ++i) {
      require(args.inputs[i].present, "input ", i, " is missing");
      const int inner = ports_.inputs[i - 2];
      if (inner < 0) continue;
      const PlanPort& port = body.inputs[static_cast<size_t>(inner)];
      require(port.type == args.inputs[i].type, "input ", i, " is ", str(args.inputs[i].type),
              "; its body takes ", str(port.type));
    }
    const size_t first = params_.is_computed ? 1 : 0;
    for (size_t i = 0; i < states + static_cast<size_t>(params_.stacked); ++i) {
      require(i < states || args.outputs[i].max.rank() > 0, "output ", i,
              " has no axis along which iterations are stacked");
      const PortType& made = body.outputs[first + i].type;
      require(made == args.outputs[i].type, "output ", i, " is ", str(args.outputs[i].type),
              "; its body gives ", str(made));
      if (i >= states) continue;
      const PortType& given = args.inputs[2 + i].type;
      require(made == given, "state ", i, " is ", str(given), " before an iteration and ",
              str(made), " behind it");
    }
    if (params_.counts) {
      require_scalar(args.outputs.back(), DataType::kINT64, "the count of iterations");
      require(args.outputs.back().present, "the count of iterations is missing");
    }
  }

  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    return std::make_unique<LoopKernel>(params_, ports_, engine_, args);
  }
  Attributes attributes() const override {
    AttributeWriter writer;
    const_cast<PlannedLoopParams&>(params_).visit(writer);
    return std::move(writer.attributes);
  }
  std::vector<CodeObject> code() const override { return code_of(*engine_); }

 private:
  static void require_scalar(const PortDesc& port, DataType type, const char* what) {
    require(!port.present || (port.type.dtype == type && port.max.rank() == 0), what,
            " must be a scalar ", name(type));
  }

  const PlannedLoopParams params_;
  const std::shared_ptr<const Engine> engine_;
  const LoopPorts ports_;
};

LoopPorts find_ports(const PlannedLoopParams& params, const Engine& body) {
  std::vector<std::string> names = {kIterationInput};
  names.reserve(1 + static_cast<size_t>(params.states) + static_cast<size_t>(params.captures));
  for (int i = 0; i < params.states; ++i) names.push_back(state_input(i));
  for (int i = 0; i < params.captures; ++i) names.push_back(capture_input(i));
  const std::vector<int> found = find_inputs(body, names);
  LoopPorts ports{found[0], {found.begin() + 1, found.end()}};
  if (ports.iteration >= 0) {
    const PlanPort& port = body.plan().inputs[static_cast<size_t>(ports.iteration)];
    require(port.type.dtype == DataType::kINT64 && port.dims.empty(),
            "the number of the iteration must be a scalar INT64");
  }
  const size_t outputs = (params.is_computed ? 1U : 0U) + static_cast<size_t>(params.states) +
                         static_cast<size_t>(params.stacked);
  require(body.plan().outputs.size() == outputs, "its body has ", body.plan().outputs.size(),
          " outputs; expected ", outputs);
  if (params.is_computed) {
    const DataType condition = body.plan().outputs[0].type.dtype;
    require(condition == DataType::kBOOL, "its body's condition is ", name(condition),
            "; expected BOOL");
  }
  return ports;
}

PlannedOperatorPtr load_loop(const Attributes& attributes, const OperatorLoadContext& context) {
  PlannedLoopParams params;
  AttributeReader reader(Loop::kKind, attributes);
  params.visit(reader);
  params.body = aligned_copy(params.body);
  return make_planned_loop(std::move(params), context.layer, body_device(context), context.code);
}

[[maybe_unused]] const bool is_registered = [] {
  register_operator_kind(std::string(Loop::kKind), load_loop);
  return true;
}();

}  // namespace

PlannedOperatorPtr make_planned_loop(PlannedLoopParams params, std::string_view layer,
                                     const Device& device,
                                     std::optional<std::span<const LoadedCode>> code) {
  try {
    for (const int64_t count : {params.states, params.captures, params.stacked})
      require(count >= 0 && count <= kMaxPorts, "it has ", count,
              " states, captured tensors or stacked outputs; expected 0 to ", kMaxPorts);
    require(!params.is_partial || !params.counts,
            "it counts iterations, and has room for another number of them");
    std::shared_ptr<const Engine> engine = load_body(params.body, device, code);
    LoopPorts ports = find_ports(params, *engine);
    return std::make_shared<PlannedLoop>(std::move(params), std::move(engine), std::move(ports));
  } catch (const Error& error) {
    fail_with(error.code(), "layer '", layer, "' (Loop): ", error.what());
  }
}

}  // namespace opwright
