#include "runtime/verify.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/error.h"
#include "operators/builtin.h"
#include "operators/movement.h"
#include "plan/concatenation.h"

namespace opwright {
namespace {

/// Follows the steps and keeps the parts of the arena that a later step reads. Tensors that share
/// memory are one part. Of the memory of network inputs and outputs, only what a step does to its
/// own operands is checked: RunShapes knows the sizes of views.
class ArenaCheck {
 public:
  ArenaCheck(const Plan& plan, const Schedule& schedule, const ProfileValues& profile,
             std::span<const PlannedOperatorPtr> operators)
      : schedule_(schedule),
        profile_(profile),
        operators_(operators),
        fixed_(fixed_expressions(plan, schedule)),
        is_aliased_(plan.inputs.size()) {
    for (const PlanPort& output : plan.outputs) {
      const bool is_own = output.aliased_input < 0;
      if (!is_own) is_aliased_[output.aliased_input] = true;
      output_places_.push_back(
          is_own ? static_cast<int64_t>(plan.inputs.size() + output_places_.size())
                 : output.aliased_input);
    }
  }

  void check() {
    find_last_readers();
    for (size_t step = 0; step < schedule_.steps.size(); ++step) {
      read_.clear();
      for (const int32_t input : schedule_.steps[step].inputs)
        if (is_in_arena(input)) read_.insert(schedule_.tensors[input].offset);
      for (const int32_t output : schedule_.steps[step].outputs)
        if (is_in_arena(output))
          write(static_cast<int32_t>(step), output);
        else
          write_port(static_cast<int32_t>(step), output);
      for (const uint64_t begin : ending_[step]) {
        const auto found = live_.find(begin);
        if (found != live_.end() && found->second.last <= static_cast<int32_t>(step))
          live_.erase(found);
      }
    }
  }

 private:
  struct Part {
    uint64_t end = 0;
    int32_t last = 0;    ///< the last step that reads the part
    int32_t writer = 0;  ///< the last step that wrote the part
    int32_t tensor = 0;  ///< one of the part's tensors, for messages
  };

  bool is_in_arena(int32_t tensor) const {
    return tensor >= 0 && schedule_.tensors[tensor].location == PlanTensor::Location::kArena &&
           schedule_.tensors[tensor].size > 0;
  }

  void find_last_readers() {
    const auto steps = static_cast<int32_t>(schedule_.steps.size());
    last_.assign(schedule_.tensors.size(), -1);
    for (int32_t step = 0; step < steps; ++step)
      for (const int32_t input : schedule_.steps[step].inputs)
        if (input >= 0) last_[input] = step;
    for (const OutputCopy& copy : schedule_.copies) last_[copy.tensor] = steps;
    ending_.resize(schedule_.steps.size() + 1);
  }

  void write(int32_t step, int32_t output) {
    const PlanTensor& tensor = schedule_.tensors[output];
    const uint64_t begin = tensor.offset, end = begin + tensor.size;
    const int32_t last = std::max(last_[output], step);
    auto next = live_.lower_bound(begin);
    if (next != live_.begin() && std::prev(next)->second.end > begin) --next;
    if (next == live_.end() || next->first >= end) {
      live_.emplace_hint(next, begin, Part{end, last, step, output});
    } else if (const auto behind = live_.lower_bound(end); joins(step, output, next, behind)) {
      live_.emplace_hint(live_.erase(next, behind), begin, Part{end, last, step, output});
    } else {
      Part& part = next->second;
      const bool is_alone = std::next(next) == live_.end() || std::next(next)->first >= end;
      if (!is_alone || next->first != begin || part.writer == step ||
          !may_share(step, output, part))
        fail("layer '", schedule_.steps[step].name, "' writes tensor '", tensor.name,
             "' over tensor '", schedule_.tensors[part.tensor].name, "' at offset ", next->first,
             " of the arena, which is still needed");
      part.end = std::max(part.end, end);
      part.last = std::max(part.last, last);
      part.writer = step;
    }
    ending_[std::max(live_.at(begin).last, step)].push_back(begin);
  }

  /// Checks a result in the memory of a network input or output.
  void write_port(int32_t step, int32_t output) const {
    const PlanTensor& to = schedule_.tensors[output];
    const PlannedOperator& op = *operators_[step];
    if (op.kind() == Reshape::kKind) return;
    const std::string& layer = schedule_.steps[step].name;
    require(to.location != PlanTensor::Location::kInput || is_aliased_[to.index], "layer '", layer,
            "' writes to input '", to.name, "', which is aliased to no output");
    if (place_of(to) < 0 || !is_builtin_operator(op.kind())) return;
    const std::vector<int32_t>& inputs = schedule_.steps[step].inputs;
    const bool reads = std::ranges::any_of(
        inputs, [&](int32_t input) { return input >= 0 && overlap(schedule_.tensors[input], to); });
    require(!reads || replaces_operand(step, to), "layer '", layer, "' writes tensor '", to.name,
            "' over its own operand in the memory of a network input or output");
  }

  /// The number of the network input or output in whose memory the tensor lies; -1: in none.
  int64_t place_of(const PlanTensor& tensor) const {
    if (tensor.location == PlanTensor::Location::kInput) return tensor.index;
    return tensor.location == PlanTensor::Location::kOutput ? output_places_[tensor.index] : -1;
  }

  using Parts = std::map<uint64_t, Part>;

  /// Whether the step is a concatenation and each of these parts is one of its inputs. Such an
  /// input lies at its place in the result, and no later step reads it.
  bool joins(int32_t step, int32_t output, Parts::const_iterator first,
             Parts::const_iterator end) const {
    const PlannedOperator& op = *operators_[step];
    if (op.kind() != Concatenation::kKind) return false;
    const std::vector<int32_t>& inputs = schedule_.steps[step].inputs;
    const PlanTensor& whole = schedule_.tensors[output];
    std::vector<Shape> shapes;
    for (const int32_t input : inputs) {
      const std::vector<int32_t>& dims = schedule_.tensors[input].dims;
      if (!std::ranges::all_of(dims, [&](int32_t index) { return fixed_[index]; })) return false;
      shapes.push_back(profile_.shape(dims, OptProfileSelector::kMAX));
    }
    const std::vector<Block> blocks = concatenated_blocks(
        static_cast<const Concatenation&>(*builtin_of(op)).params().axis, shapes, whole.type);
    for (auto part = first; part != end; ++part) {
      // Empty blocks may begin at the same offset; only the last of them has bytes.
      const auto block =
          std::ranges::upper_bound(blocks, part->first - whole.offset, {}, &Block::offset);
      if (part->first < whole.offset || block == blocks.begin()) return false;
      const auto number = static_cast<size_t>(block - blocks.begin()) - 1;
      const auto [offset, bytes] = blocks[number];
      const int32_t input = inputs[number];
      if (!is_in_arena(input) || schedule_.tensors[input].offset != part->first ||
          part->first != whole.offset + offset || part->second.end > part->first + bytes ||
          part->second.last > step)
        return false;
    }
    return true;
  }

  /// Whether the step may write the tensor where one of its inputs lies.
  bool may_share(int32_t step, int32_t output, const Part& part) const {
    const PlannedOperator& op = *operators_[step];
    const PlanTensor& to = schedule_.tensors[output];
    const bool is_reshape = op.kind() == Reshape::kKind;  // a reshape moves no elements
    if (!is_reshape && part.last > step) return false;
    // The plugin decides whether it may work in place.
    if (is_reshape || !is_builtin_operator(op.kind())) return read_.contains(to.offset);
    return replaces_operand(step, to);
  }

  /// Whether a built-in operator may write its result over the operand that lies there.
  bool replaces_operand(int32_t step, const PlanTensor& to) const {
    const PlanStep& item = schedule_.steps[step];
    const PlannedOperator& op = *operators_[step];
    const int count = static_cast<int>(item.inputs.size());
    if (item.outputs.size() != 1) return false;
    // Only one tensor may lie there, and only as inputs that the operator allows to be overwritten.
    int32_t source = -1;
    for (int i = 0; i < count; ++i) {
      const int32_t input = item.inputs[i];
      if (input < 0 || !overlap(schedule_.tensors[input], to)) continue;
      if ((source >= 0 && source != input) || !op.may_overwrite(i, count)) return false;
      source = input;
    }
    if (source < 0) return false;
    const PlanTensor& from = schedule_.tensors[source];
    return (to.location != PlanTensor::Location::kArena || from.offset == to.offset) &&
           from.dims == to.dims && from.type.format == to.type.format &&
           bits(from.type.dtype) == bits(to.type.dtype);
  }

  bool overlap(const PlanTensor& a, const PlanTensor& b) const {
    if (place_of(a) >= 0) return place_of(a) == place_of(b);
    if (a.location != PlanTensor::Location::kArena || b.location != a.location) return false;
    return a.offset < b.offset + b.size && b.offset < a.offset + a.size;
  }

  const Schedule& schedule_;
  const ProfileValues& profile_;
  const std::span<const PlannedOperatorPtr> operators_;
  const std::vector<bool> fixed_;              ///< per expression
  std::vector<bool> is_aliased_;               ///< per network input: whether an output is
  std::vector<int64_t> output_places_;         ///< per network output
  std::vector<int32_t> last_;                  ///< per tensor: the last step that reads it
  std::unordered_set<uint64_t> read_;          ///< where the step's inputs begin
  Parts live_;                                 ///< by offset, apart from each other
  std::vector<std::vector<uint64_t>> ending_;  ///< per step: the parts that end there or later
};

}  // namespace

void check_arena(const Plan& plan, const Schedule& schedule, const ProfileValues& profile,
                 std::span<const PlannedOperatorPtr> operators) {
  ArenaCheck(plan, schedule, profile, operators).check();
}

}  // namespace opwright
