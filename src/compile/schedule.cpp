#include "compile/schedule.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "compile/memory_plan.h"
#include "compile/ports.h"
#include "compile/stream_choice.h"
#include "compile/tuning_report.h"
#include "operators/movement.h"
#include "plan/concatenation.h"

namespace opwright {
namespace {

using Location = PlanTensor::Location;

class ScheduleBuilder {
 public:
  ScheduleBuilder(const Graph& graph, const Network& network, const ProfileRanges& ranges,
                  const Device& device, const ScheduleRules& rules)
      : graph_(graph),
        network_(network),
        ranges_(ranges),
        rules_(rules),
        is_host_(device.is_host()),
        aliased_(aliased_inputs(network)) {
    for (int id = 0; id < graph.symbols().size(); ++id) {
      const Symbol& symbol = graph.symbols()[id];
      computed_sizes_.push_back(symbol.kind == Symbol::Kind::kSizeTensor);
      if (symbol.kind == Symbol::Kind::kInputValue) shape_inputs_.insert(symbol.tensor);
    }
    for (const Graph::Debug& debug : graph.debug()) debug_of_[debug.value].push_back(&debug);
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const PortType type = network_port_type(*network.inputs()[i]);
      const int tensor = add_tensor(graph.inputs[i], type);
      storage(tensor).location = Location::kInput;
      storage(tensor).index = static_cast<int>(i);
      made_[graph.inputs[i]] = tensor;
      add_debug(*graph.inputs[i]);
    }
    for (const Graph::Debug& debug : graph.debug())
      if (debug.value->is_known()) add_debug(debug.name, debug.value, debug.dtype, true);
  }

  void add(const GraphNode& node, int position, const TunedNode& tuned, const TunedOption& option) {
    if (!option.parts.empty()) {
      const size_t first = schedule_.steps.size();
      for (size_t i = 0; i < option.parts.size(); ++i)
        add(node.parts->nodes[i], position, tuned.parts[i], tuned.part(option, i));
      note_fusion(first, fusion_compared(tuned, option));
      return;
    }
    ScheduleStep step;
    step.name = node.name;
    step.metadata = node.metadata;
    step.node = &node;
    step.op = is_channel_view(node, option.candidate) ? std::make_shared<Reshape>() : node.op;
    step.planned = option.planned;
    step.candidate = option.candidate;
    step.time_ms = option.time_ms;
    step.considered = tuned.considered;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      step.inputs.push_back(node.inputs[i] ? tensor_for(node.inputs[i], option.candidate.inputs[i])
                                           : -1);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const int tensor = add_tensor(node.outputs[i], option.candidate.outputs[i]);
      if (const int aliased = node.aliased_input(static_cast<int>(i)); aliased >= 0) {
        int& source = step.inputs[aliased];
        if (!may_overwrite(node, aliased, position, source)) source = copy_of(source);
        schedule_.tensors[tensor].storage = schedule_.tensors[source].storage;
        tensors_in_[static_cast<size_t>(schedule_.tensors[source].storage)].push_back(tensor);
        overwritten_.emplace_back(tensor, static_cast<int>(schedule_.steps.size()));
      }
      step.outputs.push_back(tensor);
      made_[node.outputs[i]] = tensor;
    }
    schedule_.steps.push_back(std::move(step));
    for (const GraphValue* output : node.outputs)
      if (!add_debug(*output) && network_.unfused_debug() && bits(output->info.dtype) >= 8)
        add_debug(output->name, output, output->info.dtype, false);
  }

  /// Adds the candidates that a fused step was compared with to the steps that replaced it.
  void note_fusion(size_t first, const std::vector<TimedCandidate>& compared) {
    for (size_t i = first; i < schedule_.steps.size(); ++i) {
      ScheduleStep& step = schedule_.steps[i];
      if (step.node != nullptr)
        step.considered.insert(step.considered.end(), compared.begin(), compared.end());
    }
  }

  void note_positions(const std::vector<GraphNode*>& nodes) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      position_[nodes[i]] = static_cast<int>(i);
      for (const GraphNode* member : nodes[i]->members) position_[member] = static_cast<int>(i);
    }
  }

  StepSchedule finish() {
    place_outputs();
    share_memory();
    if (is_host_) place_operands();
    if (rules_.aux_streams > 0) choose_streams();
    place_in_arena();
    return std::move(schedule_);
  }

 private:
  ScheduleStorage& storage(int tensor) {
    return schedule_.storages[schedule_.tensors[tensor].storage];
  }

  int add_tensor(const GraphValue* value, PortType type) {
    ScheduleStorage memory;
    memory.size =
        static_cast<uint64_t>(tensor_bytes(ranges_.max(value->info.dims), type.dtype, type.format));
    schedule_.storages.push_back(memory);
    schedule_.tensors.push_back({value, type, static_cast<int>(schedule_.storages.size()) - 1});
    tensors_in_.push_back({static_cast<int>(schedule_.tensors.size()) - 1});
    return static_cast<int>(schedule_.tensors.size()) - 1;
  }

  /// The tensor that holds the value in the type. Adds a conversion or a weight where there is none
  /// yet.
  int tensor_for(const GraphValue* value, PortType type) {
    const auto key = std::tuple(value, static_cast<int>(type.dtype), static_cast<int>(type.format));
    if (value->is_known()) {
      auto [known, added] = converted_.try_emplace(key);
      if (added) {
        known->second = add_tensor(value, type);
        storage(known->second).location =
            value->is_constant() ? Location::kWeight : Location::kValues;
      }
      return known->second;
    }
    const int made = made_.at(value);
    if (schedule_.tensors[made].type == type) return made;
    auto [converted, added] = converted_.try_emplace(key);
    if (added) converted->second = add_conversion(made, type);
    return converted->second;
  }

  int add_conversion(int from, PortType to) {
    const ScheduleTensor source = schedule_.tensors[from];
    const int result = add_tensor(source.value, to);
    const SymShape& dims = source.value->info.dims;
    ScheduleStep step;
    step.name = str("Reformat of ", source.value->name);
    if (same_bytes(ranges_.min(dims), ranges_.max(dims), source.type, to) && source.type != to)
      step.op = std::make_shared<Reshape>();
    else
      step.op = std::make_shared<Reformat>();
    step.candidate = {{source.type}, {to}, 0, ""};
    if (rules_.conversion_time)
      step.time_ms = rules_.conversion_time(*source.value, source.type, to);
    step.inputs = {from};
    step.outputs = {result};
    schedule_.steps.push_back(std::move(step));
    ++schedule_.reformats;
    return result;
  }

  /// Adds the debug tensors of this value, which has been made. Returns whether there are any.
  bool add_debug(const GraphValue& value) {
    const auto found = debug_of_.find(&value);
    if (found == debug_of_.end()) return false;
    for (const Graph::Debug* debug : found->second)
      add_debug(debug->name, &value, debug->dtype, true);
    return true;
  }

  void add_debug(const std::string& name, const GraphValue* value, DataType dtype, bool is_marked) {
    schedule_.debug.push_back({name, tensor_for(value, {dtype, TensorFormat::kLINEAR}), is_marked});
  }

  int copy_of(int tensor) { return add_conversion(tensor, schedule_.tensors[tensor].type); }

  /// Whether a plugin may change the tensor at its input in place: nothing else reads that memory
  /// later, and the memory is the engine's or that of a network output.
  bool may_overwrite(const GraphNode& node, int input, int position, int tensor) {
    const int memory = schedule_.tensors[tensor].storage;
    const Location location = schedule_.storages[memory].location;
    if (location == Location::kWeight || location == Location::kValues) return false;
    if (location == Location::kInput && !ends_as_output(node, input, memory)) return false;
    for (const int number : tensors_in_[static_cast<size_t>(memory)]) {
      const ScheduleTensor& other = schedule_.tensors[number];
      if (graph_.is_output(*other.value)) return false;
      for (const GraphValue::Use& use : other.value->uses)
        if (position_.at(use.node) > position || (use.node == &node && use.input != input))
          return false;
    }
    return true;
  }

  /// Whether only in-place operators lead from the input to the network output that has the network
  /// input's memory.
  bool ends_as_output(const GraphNode& node, int input, int memory) const {
    const auto owner =
        std::find(aliased_.begin(), aliased_.end(), schedule_.storages[memory].index);
    if (owner == aliased_.end()) return false;
    const GraphValue* result = graph_.outputs()[static_cast<size_t>(owner - aliased_.begin())];
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.aliased_input(static_cast<int>(i)) != input) continue;
      if (node.outputs[i] == result) return true;
      for (const GraphValue::Use& use : node.outputs[i]->uses)
        if (ends_as_output(*use.node, use.input, memory)) return true;
    }
    return false;
  }

  /// Places outputs that a step writes in the user's memory. The other outputs are copied.
  void place_outputs() {
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const PortType type = network_port_type(*network_.outputs()[i]);
      const int tensor = tensor_for(graph_.outputs()[i], type);
      ScheduleStorage& memory = storage(tensor);
      if (memory.location == Location::kArena && aliased_[i] < 0) {
        memory.location = Location::kOutput;
        memory.index = static_cast<int>(i);
      } else {
        schedule_.copies.push_back({tensor, static_cast<int>(i)});
      }
    }
    // A copy may overwrite a network input, so copies from network inputs come first.
    std::stable_partition(
        schedule_.copies.begin(), schedule_.copies.end(),
        [&](const OutputCopy& copy) { return storage(copy.tensor).location == Location::kInput; });
  }

  int root(int memory) const {
    while (same_as_[memory] != memory) memory = same_as_[memory];
    return memory;
  }

  /// Lets reshapes share memory with their operands, also that of network inputs and outputs, and
  /// lets results replace operands that die. In the end the storage of every tensor is its root.
  void share_memory() {
    const int count = static_cast<int>(schedule_.storages.size());
    same_as_.resize(count);
    last_read_.assign(count, -1);
    for (int i = 0; i < count; ++i) same_as_[i] = i;
    writes_.resize(count);
    is_computed_.resize(count);
    for (const ScheduleTensor& tensor : schedule_.tensors)
      if (has_computed_extents(*tensor.value)) is_computed_[tensor.storage] = true;
    for (const auto& [tensor, step] : overwritten_)
      writes_[schedule_.tensors[tensor].storage].push_back(step);
    for (size_t s = 0; s < schedule_.steps.size(); ++s)
      for (int input : schedule_.steps[s].inputs)
        if (input >= 0) last_read_[schedule_.tensors[input].storage] = static_cast<int>(s);
    for (const OutputCopy& copy : schedule_.copies)
      last_read_[schedule_.tensors[copy.tensor].storage] = static_cast<int>(schedule_.steps.size());
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      const ScheduleStep& step = schedule_.steps[s];
      if (step.op->kind() != Reshape::kKind) continue;
      if (stays_same(step, static_cast<int>(s))) share(step.inputs[0], step.outputs[0]);
      share_with_port(step.inputs[0], step.outputs[0]);
    }
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      const ScheduleStep& step = schedule_.steps[s];
      // Kernels for GPUs assume that no output lies where an input lies. NCCL does not.
      if (step.node == nullptr || (!is_host_ && !step.op->communicates())) continue;
      const int count = static_cast<int>(step.inputs.size());
      for (int input = 0; input < count; ++input)
        if (step.op->may_overwrite(input, count) &&
            take_place(step, static_cast<int>(s), step.inputs[input], step.outputs[0]))
          break;
    }
    for (ScheduleTensor& tensor : schedule_.tensors) tensor.storage = root(tensor.storage);
  }

  bool is_arena(int tensor) const {
    return schedule_.storages[root(schedule_.tensors[tensor].storage)].location == Location::kArena;
  }

  /// Whether nothing reads the operand or the result of a reshape after an in-place operator has
  /// changed the other one.
  bool stays_same(const ScheduleStep& reshape, int number) const {
    const int a = root(schedule_.tensors[reshape.inputs[0]].storage),
              b = root(schedule_.tensors[reshape.outputs[0]].storage);
    auto outlives = [&](int read, int written) {
      return std::any_of(writes_[written].begin(), writes_[written].end(),
                         [&](int step) { return step > number && last_read_[read] >= step; });
    };
    return !outlives(a, b) && !outlives(b, a);
  }

  bool share(int from, int to) {
    const int a = root(schedule_.tensors[from].storage), b = root(schedule_.tensors[to].storage);
    if (a == b || !is_arena(from) || !is_arena(to)) return false;
    same_as_[b] = a;
    last_read_[a] = std::max(last_read_[a], last_read_[b]);
    is_computed_[a] = is_computed_[a] || is_computed_[b];
    writes_[a].insert(writes_[a].end(), writes_[b].begin(), writes_[b].end());
    schedule_.storages[a].size = std::max(schedule_.storages[a].size, schedule_.storages[b].size);
    return true;
  }

  /// Places one of two tensors of the same bytes in the memory of the network input or output that
  /// the other one lies in.
  void share_with_port(int from, int to) {
    int port = root(schedule_.tensors[from].storage), own = root(schedule_.tensors[to].storage);
    if (is_arena(from)) std::swap(port, own);
    if (!is_open_port(port) || schedule_.storages[own].location != Location::kArena) return;
    // A run knows the memory of ports before it knows the sizes that its steps compute.
    if (is_computed_[port] || is_computed_[own] || !writes_[port].empty() ||
        !writes_[own].empty() ||
        schedule_.tensors[from].type.dtype != schedule_.tensors[to].type.dtype ||
        schedule_.storages[own].size > schedule_.storages[port].size)
      return;
    same_as_[own] = port;
    last_read_[port] = std::max(last_read_[port], last_read_[own]);
  }

  /// Whether other tensors may lie in this memory of a network input or output. Not in an input
  /// that an in-place operator changes, nor in one that the host reads.
  bool is_open_port(int memory) const {
    const ScheduleStorage& port = schedule_.storages[memory];
    if (port.location == Location::kOutput) return true;
    return port.location == Location::kInput &&
           std::ranges::find(aliased_, port.index) == aliased_.end() &&
           !shape_inputs_.contains(network_.inputs()[static_cast<size_t>(port.index)]->name());
  }

  bool has_computed_extents(const GraphValue& value) const {
    return std::ranges::any_of(
        value.info.dims, [&](const Expr& extent) { return extent.depends_on(computed_sizes_); });
  }

  bool take_place(const ScheduleStep& step, int number, int input, int output) {
    if (input < 0 || !is_arena(input) || !is_arena(output)) return false;
    const ScheduleTensor& from = schedule_.tensors[input];
    const ScheduleTensor& to = schedule_.tensors[output];
    if (from.type.format != to.type.format || bits(from.type.dtype) != bits(to.type.dtype) ||
        from.value->info.dims != to.value->info.dims)
      return false;
    const int memory = root(from.storage);
    if (last_read_[memory] != number) return false;
    // Another operand or result in this memory would be overwritten too early. So would this
    // operand, if the operator reads it at another input, too.
    const int count = static_cast<int>(step.inputs.size());
    for (int i = 0; i < count; ++i) {
      const int other = step.inputs[i];
      if (other >= 0 && root(schedule_.tensors[other].storage) == memory &&
          (other != input || !step.op->may_overwrite(i, count)))
        return false;
    }
    for (int other : step.outputs)
      if (other != output && root(schedule_.tensors[other].storage) == memory) return false;
    return share(input, output);
  }

  /// Lets operands of concatenations be written to their part of the result, so that nothing has to
  /// be copied. The whole result then needs memory earlier. If the arena would grow, the operands
  /// stay where they are.
  void place_operands() {
    std::optional<StepBytes> bytes;
    std::vector<Lifetime> lifetimes(schedule_.storages.size());
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      const ScheduleStep& step = schedule_.steps[s];
      if (step.op->kind() != Concatenation::kKind || !is_arena(step.outputs[0])) continue;
      if (!bytes) {
        const Pieces all = pieces();
        bytes.emplace(static_cast<int>(schedule_.steps.size()) + 1);
        for (size_t i = 0; i < all.owners.size(); ++i) {
          lifetimes[all.owners[i]] = all.lifetimes[i];
          bytes->add(all.lifetimes[i]);
        }
      }
      const std::vector<int> placed = place_operands(step, static_cast<int>(s));
      if (placed.empty()) continue;
      const uint64_t most = bytes->peak();
      const int whole = schedule_.tensors[step.outputs[0]].storage;
      Lifetime joined = lifetimes[whole];
      bytes->remove(lifetimes[whole]);
      for (const int memory : placed) {
        joined.first = std::min(joined.first, lifetimes[memory].first);
        joined.last = std::max(joined.last, lifetimes[memory].last);
        bytes->remove(lifetimes[memory]);
      }
      bytes->add(joined);
      if (bytes->peak() <= most) {
        lifetimes[whole] = joined;
        continue;
      }
      bytes->remove(joined);
      bytes->add(lifetimes[whole]);
      for (const int memory : placed) {
        bytes->add(lifetimes[memory]);
        schedule_.storages[memory].within = -1;
      }
    }
  }

  /// Returns the storages that became parts of the concatenation's.
  std::vector<int> place_operands(const ScheduleStep& step, int number) {
    std::vector<Shape> shapes;
    for (const int input : step.inputs) {
      const SymShape& dims = schedule_.tensors[input].value->info.dims;
      if (!ranges_.is_fixed(dims)) return {};
      shapes.push_back(ranges_.max(dims));
    }
    const std::vector<Block> blocks =
        concatenated_blocks(static_cast<const Concatenation&>(*step.op).params().axis, shapes,
                            step.candidate.outputs[0]);
    const int whole = schedule_.tensors[step.outputs[0]].storage;
    std::vector<int> placed;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const int memory = schedule_.tensors[step.inputs[i]].storage;
      ScheduleStorage& part = schedule_.storages[memory];
      if (!is_arena(step.inputs[i]) || memory == whole || part.within >= 0 ||
          last_read_[memory] != number || part.size != blocks[i].bytes ||
          blocks[i].offset % kArenaAlignment != 0)
        continue;
      part.within = whole;
      part.offset = blocks[i].offset;
      placed.push_back(memory);
    }
    return placed;
  }

  /// Whether the step's result is a view of its operand.
  bool is_view(const ScheduleStep& step) const {
    return step.op->kind() == Reshape::kKind &&
           schedule_.tensors[step.inputs[0]].storage == schedule_.tensors[step.outputs[0]].storage;
  }

  /// Lets steps that need nothing of each other run beside each other.
  void choose_streams() {
    struct Use {
      int writer = -1;
      std::vector<int> readers;  // readers since that step
    };
    std::vector<Use> uses(schedule_.storages.size());
    std::vector<StreamCandidate> candidates;
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      const ScheduleStep& step = schedule_.steps[s];
      const int number = static_cast<int>(s);
      StreamCandidate& candidate = candidates.emplace_back();
      const auto use = [&](int tensor) -> Use& { return uses[schedule_.tensors[tensor].storage]; };
      for (const int input : step.inputs) {
        if (input < 0) continue;
        if (use(input).writer >= 0) candidate.needs.push_back(use(input).writer);
        use(input).readers.push_back(number);
      }
      if (is_view(step)) {
        use(step.outputs[0]).writer = number;
        continue;
      }
      for (const int output : step.outputs) {
        Use& memory = use(output);
        for (const int reader : memory.readers)
          if (reader != number) candidate.needs.push_back(reader);
        memory = {number, {}};
      }
      candidate.time = 1000.0 * step.time_ms;
      candidate.may_move =
          step.node == nullptr || (!step.node->defines_sizes() && step.op->bodies().empty() &&
                                   step.op->plugin() == nullptr && !step.op->communicates());
    }
    const std::vector<int32_t> streams = opwright::choose_streams(candidates, rules_.aux_streams);
    for (size_t s = 0; s < streams.size(); ++s) schedule_.steps[s].stream = streams[s];
  }

  /// Per step, the first and the last step that run beside it.
  std::vector<std::pair<int, int>> groups() const {
    const int steps = static_cast<int>(schedule_.steps.size());
    std::vector<std::pair<int, int>> groups;
    for (int first = 0, last = 0; first < steps; first = last + 1) {
      last = first;
      while (schedule_.steps[last].stream != kAlone && last + 1 < steps &&
             schedule_.steps[last + 1].stream != kAlone)
        ++last;
      groups.resize(last + 1, {first, last});
    }
    return groups;
  }

  /// The outermost storage that contains this one, or itself.
  int outermost(int memory) const {
    while (schedule_.storages[memory].within >= 0) memory = schedule_.storages[memory].within;
    return memory;
  }

  /// The pieces that the arena has to hold.
  struct Pieces {
    std::vector<Lifetime> lifetimes;
    std::vector<int> owners;  // storages
  };

  Pieces pieces() const {
    const int steps = static_cast<int>(schedule_.steps.size());
    std::vector<Lifetime> lifetimes(schedule_.storages.size());
    std::vector<bool> used(schedule_.storages.size());
    std::vector<std::pair<int, int>> at_once = groups();
    at_once.emplace_back(steps, steps);  // the copies into outputs
    auto touch = [&](int tensor, int step) {
      if (tensor < 0 || !is_arena(tensor)) return;
      const int memory = outermost(schedule_.tensors[tensor].storage);
      Lifetime& lifetime = lifetimes[memory];
      const auto [first, last] = at_once[step];
      if (!used[memory]) lifetime = {schedule_.storages[memory].size, first, last};
      lifetime.first = std::min(lifetime.first, first);
      lifetime.last = std::max(lifetime.last, last);
      used[memory] = true;
    };
    for (int s = 0; s < steps; ++s) {
      for (int tensor : schedule_.steps[s].inputs) touch(tensor, s);
      for (int tensor : schedule_.steps[s].outputs) touch(tensor, s);
    }
    for (const OutputCopy& copy : schedule_.copies) touch(copy.tensor, steps);
    Pieces pieces;
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      if (!used[i]) continue;
      pieces.lifetimes.push_back(lifetimes[i]);
      pieces.owners.push_back(static_cast<int>(i));
    }
    return pieces;
  }

  void place_in_arena() {
    const Pieces all = pieces();
    const MemoryPlan plan = plan_memory(all.lifetimes);
    for (size_t i = 0; i < all.owners.size(); ++i)
      schedule_.storages[all.owners[i]].offset = plan.offsets[i];
    schedule_.arena_size = plan.size;
    for (size_t i = 0; i < schedule_.storages.size(); ++i) settle(static_cast<int>(i));
  }

  /// Turns the offset within another storage into one within the arena.
  void settle(int memory) {
    ScheduleStorage& part = schedule_.storages[memory];
    if (part.within < 0) return;
    settle(part.within);
    part.offset += schedule_.storages[part.within].offset;
    part.within = -1;
  }

  const Graph& graph_;
  const Network& network_;
  const ProfileRanges& ranges_;
  const ScheduleRules& rules_;
  const bool is_host_;
  const std::vector<int> aliased_;    // per network output, as aliased_inputs() gives it
  std::vector<bool> computed_sizes_;  // per symbol: whether a step computes it
  std::unordered_set<std::string> shape_inputs_;  // network inputs whose values decide shapes
  StepSchedule schedule_;
  std::unordered_map<const GraphValue*, std::vector<const Graph::Debug*>> debug_of_;
  std::vector<std::vector<int>> tensors_in_;  // per storage, before memory is shared
  std::unordered_map<const GraphNode*, int> position_;
  std::unordered_map<const GraphValue*, int> made_;  // in the type that the producer writes
  std::map<std::tuple<const GraphValue*, int, int>, int> converted_;
  std::vector<int> same_as_;                      // per storage: the storage into which it was
                                                  // merged
  std::vector<int> last_read_;                    // per root
  std::vector<bool> is_computed_;                 // per root: whether steps compute extents
  std::vector<std::pair<int, int>> overwritten_;  // tensors of in-place operators, with these
                                                  // operators' steps
  std::vector<std::vector<int>> writes_;          // per root: the steps that overwrite it in place
};

}  // namespace

PortType network_port_type(const Tensor& tensor) {
  const uint32_t formats = tensor.allowed_formats();
  const bool linear = formats == 0 || (formats & 1u << static_cast<int>(TensorFormat::kLINEAR));
  return {tensor.engine_type(),
          linear ? TensorFormat::kLINEAR : static_cast<TensorFormat>(std::countr_zero(formats))};
}

std::vector<int> aliased_inputs(const Network& network) {
  auto origin = [](const Tensor* tensor) -> const Tensor* {
    while (const Layer* layer = tensor->producer()) {
      if (tensor->aliased_input() < 0) return nullptr;
      tensor = layer->input(tensor->aliased_input());
    }
    return tensor;
  };
  std::vector<const Tensor*> origins;
  std::unordered_map<const Tensor*, int> outputs_of, numbers;  // numbers of inputs
  for (const Tensor* output : network.outputs()) {
    origins.push_back(origin(output));
    ++outputs_of[origins.back()];
  }
  for (const Tensor* input : network.inputs())
    numbers.try_emplace(input, static_cast<int>(numbers.size()));
  std::vector<int> result;
  for (size_t i = 0; i < origins.size(); ++i) {
    const Tensor* input = origins[i];
    const bool is_own = input != nullptr && input != network.outputs()[i] &&
                        outputs_of.at(input) == 1 &&
                        network_port_type(*input) == network_port_type(*network.outputs()[i]);
    result.push_back(is_own ? numbers.at(input) : -1);
  }
  return result;
}

StepSchedule make_schedule(const Graph& graph, const Network& network, const ProfileRanges& ranges,
                           const Device& device, const std::vector<GraphNode*>& nodes,
                           const std::vector<TunedNode>& tuned, const std::vector<int>& chosen,
                           const ScheduleRules& rules) {
  ScheduleBuilder builder(graph, network, ranges, device, rules);
  builder.note_positions(nodes);
  for (size_t i = 0; i < nodes.size(); ++i)
    builder.add(*nodes[i], static_cast<int>(i), tuned[i], tuned[i].options[chosen[i]]);
  return builder.finish();
}

}  // namespace opwright
