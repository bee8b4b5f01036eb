#include "plan/validate_parts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>

#include "plan/format.h"
#include "plan/shapes.h"
#include "plan/validate_refit.h"

namespace opwright {
namespace {

/// The checks of one profile's schedule.
class ScheduleCheck {
 public:
  ScheduleCheck(const Plan& plan, const Schedule& schedule, const std::vector<bool>& changes)
      : plan_(plan), schedule_(schedule), changes_(changes) {}

  void check() {
    require(schedule_.arena_size <= kMaxMemory && schedule_.workspace_size <= kMaxMemory,
            "the arena has ", schedule_.arena_size, " bytes and the workspace ",
            schedule_.workspace_size, "; at most ", kMaxMemory, " are possible");
    check_profile();
    check_size_symbols();
    known_ = resolving_steps(plan_, schedule_);
    const ProfileValues values(plan_, schedule_.inputs);
    for (const PlanTensor& tensor : schedule_.tensors) check_tensor(tensor, values);
    check_steps();
    check_outputs();
    check_debug();
  }

 private:
  using Location = PlanTensor::Location;
  /// More bytes than any address has, and far below where sums of sizes overflow.
  static constexpr uint64_t kMaxMemory = uint64_t{1} << 48;

  void check_profile() const {
    require(schedule_.inputs.size() == plan_.inputs.size(), "a profile has ranges for ",
            schedule_.inputs.size(), " of ", plan_.inputs.size(), " inputs");
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      const PlanPort& port = plan_.inputs[i];
      const ProfileInput& range = schedule_.inputs[i];
      require(range.values == port.is_shape_input, "the profile of input '", port.name, "' holds ",
              range.values ? "values" : "a shape");
      int64_t count = static_cast<int64_t>(port.dims.size());
      if (range.values) count = port.dims.empty() ? 1 : plan_.expressions[port.dims[0]].value;
      require(range.min.rank() == count && range.opt.rank() == count && range.max.rank() == count,
              "the profile of input '", port.name, "' does not have ", count, " numbers");
      for (int d = 0; d < range.min.rank(); ++d) {
        require((range.values || range.min[d] >= 0) && range.min[d] <= range.opt[d] &&
                    range.opt[d] <= range.max[d],
                "the profile of input '", port.name, "' is not ordered: ", range.min,
                " <= ", range.opt, " <= ", range.max);
        if (range.values) continue;
        const ExprInstruction& extent = plan_.expressions[port.dims[d]];
        require(extent.op != ExprOp::kConstant ||
                    (extent.value == range.min[d] && extent.value == range.max[d]),
                "the profile of input '", port.name, "' changes dimension ", d,
                ", which is the constant ", extent.value);
      }
    }
  }

  /// Called before resolving_steps(), which relies on it.
  void check_size_symbols() const {
    std::vector<bool> written(plan_.symbols.size(), false);
    for (const PlanStep& step : schedule_.steps) {
      require(step.size_symbols.empty() || step.size_symbols.size() == step.outputs.size(),
              "layer '", step.name, "' has ", step.size_symbols.size(), " size symbols for ",
              step.outputs.size(), " outputs");
      for (const int32_t symbol : step.size_symbols) {
        if (symbol == -1) continue;
        require(symbol >= 0 && static_cast<size_t>(symbol) < plan_.symbols.size() &&
                    plan_.symbols[symbol].kind == Symbol::Kind::kSizeTensor && !written[symbol],
                "layer '", step.name, "' writes symbol ", symbol,
                ", which is no size tensor or written twice");
        written[symbol] = true;
      }
    }
  }

  void check_tensor(const PlanTensor& tensor, const ProfileValues& values) const {
    check_text(tensor.name, "a tensor");
    check_dims(plan_, tensor.dims, "tensor", tensor.name);
    check_type(tensor.type, static_cast<int>(tensor.dims.size()), "tensor", tensor.name);
    require(std::isfinite(tensor.scale) && tensor.scale >= 0, "tensor '", tensor.name,
            "' has the scale ", tensor.scale);
    require(tensor.values.empty() || tensor.location == Location::kValues, "tensor '", tensor.name,
            "' has values and is none of that location");
    require(tensor.source == -1 || tensor.location == Location::kWeight, "tensor '", tensor.name,
            "' is no weight, but made of a refittable one");
    const uint64_t bytes = values.largest_bytes(tensor.type, tensor.dims);
    switch (tensor.location) {
      case Location::kArena:
        require(tensor.offset % PlanHeader::kWeightAlignment == 0 &&
                    tensor.offset <= schedule_.arena_size &&
                    tensor.size <= schedule_.arena_size - tensor.offset,
                "tensor '", tensor.name, "' at offset ", tensor.offset, " with ", tensor.size,
                " bytes is not within the arena of ", schedule_.arena_size,
                " bytes or not aligned to ", PlanHeader::kWeightAlignment);
        require(bytes <= tensor.size, "tensor '", tensor.name, "' takes ", bytes,
                " bytes at the profile's largest shape, the plan has ", tensor.size);
        break;
      case Location::kInput:
        check_port(tensor, plan_.inputs, "input", values);
        break;
      case Location::kOutput:
        check_port(tensor, plan_.outputs, "output", values);
        break;
      case Location::kWeight:
        for (const int32_t dim : tensor.dims) {
          require(plan_.expressions[dim].op == ExprOp::kConstant, "weight '", tensor.name,
                  "' has a dynamic extent");
        }
        require(tensor.data.size() == 0 || tensor.data.size() == bytes, "weight '", tensor.name,
                "' has ", tensor.data.size(), " bytes, its shape and type take ", bytes);
        validate_source(plan_.refit, tensor, weight_shape(tensor));
        break;
      case Location::kValues:
        for (const int32_t value : tensor.values) {
          check_expression(plan_, value, "tensor", tensor.name);
        }
        // Elements are written one after the other, in the size of their type.
        require(tensor.type.format == TensorFormat::kLINEAR, "tensor '", tensor.name,
                "' has values, so its format must be LINEAR");
        require(std::all_of(
                    tensor.dims.begin(), tensor.dims.end(),
                    [&](int32_t dim) { return plan_.expressions[dim].op == ExprOp::kConstant; }) &&
                    bytes == static_cast<uint64_t>(bytes_of(
                                 tensor.type.dtype, static_cast<int64_t>(tensor.values.size()))),
                "tensor '", tensor.name, "' has ", tensor.values.size(),
                " values, which its shape does not hold");
        require(is_size_type(tensor.type.dtype) || tensor.type.dtype == DataType::kBOOL ||
                    tensor.type.dtype == DataType::kFLOAT,
                "tensor '", tensor.name, "' computes values of type ",
                opwright::name(tensor.type.dtype), "; INT32, INT64, BOOL and FP32 are possible");
        break;
      default:
        fail("tensor '", tensor.name, "' has the unknown location ",
             static_cast<int>(tensor.location));
    }
  }

  Shape weight_shape(const PlanTensor& tensor) const {
    Shape shape;
    for (const int32_t dim : tensor.dims) shape.push_back(plan_.expressions[dim].value);
    return shape;
  }

  /// A tensor in the memory of a network input or output is that one, or a view of it: the same
  /// bytes in another shape or format. A run compares the sizes of views anew (RunShapes).
  void check_port(const PlanTensor& tensor, const std::vector<PlanPort>& ports,
                  std::string_view what, const ProfileValues& values) const {
    require(tensor.index >= 0 && static_cast<size_t>(tensor.index) < ports.size(), "tensor '",
            tensor.name, "' is network ", what, " ", tensor.index, " of ", ports.size());
    const PlanPort& port = ports[tensor.index];
    if (!is_view(tensor, port)) return;
    const bool is_input = &ports == &plan_.inputs;
    const auto is_of_port = [&](const PlanPort& output) {
      return output.aliased_input == tensor.index;
    };
    const bool is_shared =
        is_input ? std::ranges::any_of(plan_.outputs, is_of_port) : port.aliased_input >= 0;
    require(tensor.type.dtype == port.type.dtype && !port.is_shape_input && !is_shared, "tensor '",
            tensor.name, "' differs from network ", what, " '", port.name,
            "', in whose memory it lies, in ",
            tensor.type.dtype != port.type.dtype
                ? "type"
                : "shape or format, which is not possible "
                  "where the host reads the memory, or two ports share it");
    for (const auto* dims : {&tensor.dims, &port.dims})
      for (const int32_t dim : *dims)
        require(known_[dim] == -1, "tensor '", tensor.name, "' lies in the memory of network ",
                what, " '", port.name, "', but one of their shapes depends on a size tensor");
    const uint64_t bytes = values.most_bytes(tensor.type, tensor.dims),
                   room = values.most_bytes(port.type, port.dims);
    require(bytes <= room, "tensor '", tensor.name, "' takes ", bytes,
            " bytes at the profile's maximum, network ", what, " '", port.name,
            "', in whose memory it lies, has ", room);
  }

  const PlanTensor& tensor(int32_t index, const std::string& layer) const {
    require(index >= 0 && static_cast<size_t>(index) < schedule_.tensors.size(), "layer '", layer,
            "' uses tensor ", index, " of ", schedule_.tensors.size());
    return schedule_.tensors[index];
  }

  /// Throws Error unless the tensor's shape and values are known after `step`.
  void check_known(const PlanTensor& tensor, int32_t step, const std::string& layer) const {
    for (const auto* list : {&tensor.dims, &tensor.values}) {
      for (const int32_t expression : *list) {
        require(known_[expression] <= step, "layer '", layer, "' uses tensor '", tensor.name,
                "' before the size tensor that its shape or values depend on is known");
      }
    }
  }

  void check_steps() {
    is_written_.assign(schedule_.tensors.size(), false);
    is_output_written_.assign(plan_.outputs.size(), false);
    is_aliased_.assign(plan_.inputs.size(), false);
    for (const PlanPort& output : plan_.outputs)
      if (output.aliased_input >= 0) is_aliased_[output.aliased_input] = true;
    for (size_t i = 0; i < schedule_.tensors.size(); ++i) {
      const Location location = schedule_.tensors[i].location;
      is_written_[i] = location == Location::kInput || location == Location::kWeight ||
                       location == Location::kValues;
    }
    for (size_t i = 0; i < schedule_.steps.size(); ++i) {
      check_step(schedule_.steps[i], static_cast<int32_t>(i));
    }
  }

  void check_step(const PlanStep& step, int32_t number) {
    check_text(step.name, "a layer");
    check_text(step.kind, "a layer");
    check_text(step.metadata, "a layer");
    check_text(step.capture_obstacle, "a layer");
    check_text(step.candidate.tactic_name, "a layer");
    require(step.stream >= kAlone && step.stream <= kMaxAuxStreams, "layer '", step.name,
            "' is on stream ", step.stream, "; at most ", kMaxAuxStreams, " are possible");
    try {
      validate(step.attributes);
    } catch (const Error& error) {
      fail("layer '", step.name, "': ", error.what());
    }
    for (const Attribute& attribute : step.attributes) {
      check_text(attribute.name, "an attribute");
    }
    for (const TimedCandidate& item : step.considered) {
      check_text(item.types, "a candidate");
      check_text(item.tactic_name, "a candidate");
      check_text(item.dropped, "a candidate");
    }
    for (const int32_t code : step.code) {
      require(code >= 0 && static_cast<size_t>(code) < plan_.code.size(), "layer '", step.name,
              "' uses code object ", code, " of ", plan_.code.size());
    }
    require(step.candidate.inputs.size() == step.inputs.size() &&
                step.candidate.outputs.size() == step.outputs.size(),
            "layer '", step.name, "' has ", step.inputs.size(), " inputs and ", step.outputs.size(),
            " outputs, but types for ", step.candidate.inputs.size(), " and ",
            step.candidate.outputs.size());
    std::vector<bool> is_packed(step.inputs.size(), false);
    for (const PackedInput& packed : step.packed) {
      check_text(packed.layout, "a packed weight");
      require(packed.input >= 0 && static_cast<size_t>(packed.input) < step.inputs.size() &&
                  !is_packed[packed.input],
              "layer '", step.name, "' packs input ", packed.input, " of ", step.inputs.size(),
              ", or packs it twice");
      const int32_t index = step.inputs[packed.input];
      require(packed.data.size() > 0 || (index >= 0 && is_refittable(tensor(index, step.name))),
              "layer '", step.name, "' packs input ", packed.input,
              ", of which the plan holds no data");
      is_packed[packed.input] = true;
    }
    bool is_made_again = false;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      if (step.inputs[i] == -1) continue;
      const PlanTensor& input = tensor(step.inputs[i], step.name);
      require(is_written_[step.inputs[i]], "layer '", step.name, "' reads tensor '", input.name,
              "', which no earlier layer writes");
      require(input.type == step.candidate.inputs[i], "input ", i, " of layer '", step.name,
              "' has another type or format than tensor '", input.name, "'");
      require(is_packed[i] || has_data(input), "layer '", step.name, "' reads weight '", input.name,
              "', of which the plan holds no data");
      require(!is_packed[i] || input.location == Location::kWeight, "layer '", step.name,
              "' packs tensor '", input.name, "', which is no weight");
      check_known(input, number - 1, step.name);
      is_made_again = is_made_again || is_refittable(input);
    }
    // A kernel packs one constant anew together with its others.
    for (const int32_t input : step.inputs)
      require(!is_made_again || step.packed.empty() || input == -1 ||
                  schedule_.tensors[input].location != Location::kWeight ||
                  schedule_.tensors[input].source >= 0,
              "layer '", step.name, "' packs refittable weights with others that are not recorded");
    // The network's outputs that the layer reads: it may work in place on them.
    std::unordered_set<int32_t> read;
    for (const int32_t input : step.inputs)
      if (input >= 0 && schedule_.tensors[input].location == Location::kOutput)
        read.insert(schedule_.tensors[input].index);
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      check_output(step, number, static_cast<int>(i), read);
    }
  }

  /// Whether the step could be the one that makes a view of a network input, which writes nothing.
  /// The verifier knows operators and allows no other (ArenaCheck).
  bool makes_view(const PlanStep& step) const {
    if (step.inputs.size() != 1 || step.outputs.size() != 1 || step.inputs[0] < 0) return false;
    const PlanTensor &from = schedule_.tensors[step.inputs[0]],
                     &to = schedule_.tensors[step.outputs[0]];
    return from.location == to.location && from.index == to.index;
  }

  void check_output(const PlanStep& step, int32_t number, int i,
                    const std::unordered_set<int32_t>& read) {
    const int32_t index = step.outputs[i];
    const PlanTensor& output = tensor(index, step.name);
    require(output.type == step.candidate.outputs[i], "output ", i, " of layer '", step.name,
            "' has another type or format than tensor '", output.name, "'");
    check_known(output, number, step.name);
    switch (output.location) {
      case Location::kOutput:
        require(!is_written_[index] &&
                    (!is_output_written_[output.index] || read.contains(output.index)),
                "layer '", step.name, "' writes output '", output.name,
                "', which has been written before");
        is_output_written_[output.index] = true;
        break;
      case Location::kArena:
        require(!is_written_[index], "layer '", step.name, "' writes tensor '", output.name,
                "', which has been written before");
        break;
      case Location::kInput:
        require(is_aliased_[output.index] || makes_view(step), "layer '", step.name,
                "' writes to input '", output.name, "', which is aliased to no output");
        break;
      default:
        fail("layer '", step.name, "' writes tensor '", output.name, "', which is constant");
    }
    is_written_[index] = true;
    if (!step.size_symbols.empty() && step.size_symbols[i] >= 0) {
      bool scalar = is_size_type(output.type.dtype);
      for (const int32_t dim : output.dims) {
        scalar &=
            plan_.expressions[dim].op == ExprOp::kConstant && plan_.expressions[dim].value == 1;
      }
      require(scalar && output.type.format == TensorFormat::kLINEAR, "size tensor '", output.name,
              "' of layer '", step.name, "' is not an INT32 or INT64 scalar");
    }
  }

  bool is_refittable(const PlanTensor& tensor) const {
    return tensor.source >= 0 && changes_[tensor.source];
  }

  /// Whether the weight has its bytes, or refitting may give them.
  bool has_data(const PlanTensor& tensor) const {
    if (tensor.location != Location::kWeight || tensor.data.size() != 0) return true;
    if (is_refittable(tensor)) return true;
    return std::any_of(tensor.dims.begin(), tensor.dims.end(),
                       [&](int32_t dim) { return plan_.expressions[dim].value == 0; });
  }

  void check_outputs() {
    const auto last = static_cast<int32_t>(schedule_.steps.size());
    for (const OutputCopy& copy : schedule_.copies) {
      const PlanTensor& from = tensor(copy.tensor, "output copy");
      require(copy.output >= 0 && static_cast<size_t>(copy.output) < plan_.outputs.size() &&
                  !is_output_written_[copy.output],
              "tensor '", from.name, "' is copied to output ", copy.output, " of ",
              plan_.outputs.size(), ", which is not there or written before");
      const PlanPort& to = plan_.outputs[copy.output];
      require(is_written_[copy.tensor] && has_data(from), "output '", to.name,
              "' is a copy of tensor '", from.name, "', which is never written");
      require(from.type == to.type && from.dims == to.dims, "output '", to.name,
              "' differs from tensor '", from.name,
              "', of which it is a copy, in type, format or shape");
      check_known(from, last, "output copy");
      is_output_written_[copy.output] = true;
    }
    for (size_t i = 0; i < is_output_written_.size(); ++i) {
      require(is_output_written_[i], "no layer writes output '", plan_.outputs[i].name, "'");
      for (const int32_t dim : plan_.outputs[i].dims) {
        require(known_[dim] <= last, "the shape of output '", plan_.outputs[i].name,
                "' depends on a size tensor that no layer writes");
      }
    }
  }

  void check_debug() const {
    for (const DebugTensor& debug : schedule_.debug) {
      check_text(debug.name, "a debug tensor");
      const PlanTensor& shown = tensor(debug.tensor, "debug tensor");
      require(is_written_[debug.tensor] && has_data(shown), "debug tensor '", debug.name,
              "' is tensor '", shown.name, "', which is never written");
      require(shown.type.format == TensorFormat::kLINEAR, "debug tensor '", debug.name,
              "' is in the format ", opwright::name(shown.type.format), ", not LINEAR");
      check_known(shown, static_cast<int32_t>(schedule_.steps.size()), "debug tensor");
    }
  }

  const Plan& plan_;
  const Schedule& schedule_;
  std::vector<int32_t> known_;
  const std::vector<bool>& changes_;
  std::vector<bool> is_written_, is_output_written_;
  std::vector<bool> is_aliased_;  ///< per input, whether an output is aliased to it
};

}  // namespace

void validate_schedule(const Plan& plan, const Schedule& schedule,
                       const std::vector<bool>& changes) {
  ScheduleCheck(plan, schedule, changes).check();
}

}  // namespace opwright
