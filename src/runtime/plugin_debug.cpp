#include "runtime/plugin_debug.h"

#include <algorithm>
#include <cstring>

#include "backend/guarded_memory.h"
#include "backend/tensor_scan.h"
#include "base/error.h"
#include "base/half.h"
#include "base/limits.h"
#include "base/types.h"
#include "plan/shapes.h"
#include "plugin/plugin_operators.h"
#include "plugin/registry/registry.h"

namespace opwright {
namespace {

class DebuggedPlugin final : public Kernel {
 public:
  DebuggedPlugin(std::unique_ptr<Kernel> plugin, const DebuggedStep& at)
      : plugin_(std::move(plugin)),
        device_(at.engine.device()),
        plan_(at.engine.plan()),
        schedule_(plan_.schedules[at.profile]),
        step_(schedule_.steps[at.step]),
        op_(*at.engine.op(at.profile, at.step)),
        shapes_(at.shapes),
        log_(at.engine.log()),
        limit_(at.engine.limits().memory),
        guarded_bytes_(at.guarded_bytes),
        workspace_(device_, DataType::kFLOAT),
        values_(plan_.expressions.size()) {
    resize(workspace_, plugin_->workspace_size());
    for (size_t i = 0; i < step_.inputs.size(); ++i)
      inputs_.push_back(make_port("input", i, step_.inputs[i], step_.candidate.inputs[i]));
    for (size_t i = 0; i < step_.outputs.size(); ++i) {
      Port& port = outputs_.emplace_back(
          make_port("output", i, step_.outputs[i], step_.candidate.outputs[i]));
      for (const int32_t dim : schedule_.tensors[step_.outputs[i]].dims)
        port.is_data_dependent |= shapes_.known()[dim] >= at.step;
    }
    input_pointers_.resize(inputs_.size());
    output_pointers_.resize(outputs_.size());
  }

  // This kernel has the plugin's workspace itself.
  size_t workspace_size() const override { return 0; }
  ExecutionDomain* domain() const override { return plugin_->domain(); }
  std::string description() const override { return plugin_->description(); }
  std::string capture_obstacle() const override { return "its calls are checked (debug_plugins)"; }

  void on_values_change(int input, std::span<const int64_t> elements) override {
    plugin_->on_values_change(input, elements);
  }
  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    for (size_t i = 0; i < inputs_.size(); ++i) set_shape(inputs_[i], inputs[i]);
    for (size_t i = 0; i < outputs_.size(); ++i) set_shape(outputs_[i], outputs[i]);
    plugin_->on_shape_change(inputs, outputs);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue queue) override {
    ++calls_;
    if (device_.is_capturing(queue))
      fail_call("its calls are checked, which cannot be captured; turn debug_plugins off");
    place(inputs, outputs, queue);
    plugin_->enqueue(input_pointers_.data(), output_pointers_.data(), workspace_.data(), queue);
    fetch(queue);
    check_guards();
    check_inputs();
    check_sizes();
    for (const Port& port : outputs_) check_written(port);
    check_finite();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const size_t bytes = bytes_in_memory(outputs_[i].view());
      if (bytes > 0) device_.copy(outputs[i], outputs_[i].used->data(), bytes, queue);
    }
  }

 private:
  struct Port {
    std::string text;  ///< "output 0 ('y': "
    PortType type;
    std::unique_ptr<GuardedMemory> memory;  ///< null for an absent optional input
    Shape shape;                            ///< with upper bounds of sizes that it writes
    Shape written;                          ///< with the sizes that it wrote
    bool is_data_dependent = false;
    // State of a call:
    GuardedMemory* used = nullptr;      ///< of an output: `memory`, or that of an input
    bool is_aliased = false;            ///< whether an output and an input share `used`
    const std::byte* before = nullptr;  ///< of an input: its elements, for the host; null: absent
    std::vector<std::byte> copy;        ///< of them, if the host does not read the device
    TensorView view() const { return {used->host(), type, written}; }
  };

  Port make_port(const char* kind, size_t index, int32_t tensor, PortType type) const {
    Port port;
    port.type = type;
    if (tensor < 0) return port;
    port.text = str(kind, ' ', index, " ('", schedule_.tensors[tensor].name, "': ");
    port.memory = std::make_unique<GuardedMemory>(device_, type.dtype);
    return port;
  }

  static size_t bytes_in_memory(const TensorView& tensor) {
    return static_cast<size_t>(tensor_bytes(tensor.shape, tensor.type.dtype, tensor.type.format));
  }

  void set_shape(Port& port, const Shape& shape) {
    port.shape = port.written = shape;
    if (port.memory != nullptr) resize(*port.memory, bytes_in_memory({nullptr, port.type, shape}));
  }

  void resize(GuardedMemory& memory, size_t bytes) {
    uint64_t all = guarded_bytes_ - memory.capacity();
    if (__builtin_add_overflow(all, std::max(bytes, memory.capacity()), &all)) all = UINT64_MAX;
    require_bytes(
        all, limit_, "memory", "layer '", step_.name,
        "': checking its calls (debug_plugins), with those of the plugins before it, needs");
    const size_t before = memory.capacity();
    memory.resize(bytes);
    guarded_bytes_ += memory.capacity() - before;
  }

  /// Places the ports' memory. An output that is computed in an input's memory shares the copy of
  /// that input.
  void place(void const* const* inputs, void* const* outputs, Queue queue) {
    for (Port& port : inputs_) port.is_aliased = false;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      Port& port = outputs_[o];
      port.used = port.memory.get();
      port.is_aliased = false;
      for (size_t i = 0; i < inputs_.size() && !port.is_aliased; ++i) {
        if (inputs[i] != outputs[o] || port.memory->size() == 0 ||
            port.memory->size() > inputs_[i].memory->size())
          continue;
        port.used = inputs_[i].memory.get();
        inputs_[i].is_aliased = port.is_aliased = true;
      }
      if (!port.is_aliased) port.memory->fill(Use::kWritten, queue);
      output_pointers_[o] = port.used->data();
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      input_pointers_[i] = nullptr;
      Port& port = inputs_[i];
      port.before = static_cast<const std::byte*>(inputs[i]);
      if (inputs[i] == nullptr) continue;
      const size_t bytes = port.memory->size();
      port.used = port.memory.get();
      port.memory->fill(port.is_aliased ? Use::kInPlace : Use::kRead, queue);
      if (bytes > 0) device_.copy(port.memory->data(), inputs[i], bytes, queue);
      input_pointers_[i] = port.memory->data();
      if (device_.is_host()) continue;
      port.copy.resize(bytes);
      if (bytes > 0) device_.copy(port.copy.data(), inputs[i], bytes, queue);
      port.before = port.copy.data();
    }
    workspace_.fill(Use::kRead, queue);
  }

  /// Copies the plugin's results to the host. Throws the plugin's error if the device failed.
  void fetch(Queue queue) {
    if (device_.is_host()) return;
    try {
      device_.synchronize(queue);
    } catch (const DeviceLostError& error) {
      throw DeviceLostError(who() + error.what());
    } catch (const Error& error) {
      fail_call(error.what());
    }
    for (Port& port : outputs_) port.used->fetch(queue);
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (input_pointers_[i] != nullptr && !inputs_[i].is_aliased) inputs_[i].used->fetch(queue);
    workspace_.fetch(queue);
  }

  void check_guards() const {
    for (const Port& port : outputs_) check_guards(*port.used, &port);
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (input_pointers_[i] != nullptr) check_guards(*inputs_[i].used, &inputs_[i]);
    check_guards(workspace_, nullptr);
  }

  /// `port` is null for the workspace.
  void check_guards(const GuardedMemory& memory, const Port* port) const {
    const size_t unit = port == nullptr ? 1 : std::max(1, bits(port->type.dtype) / 8);
    for (const bool behind : {true, false}) {
      const auto damage = behind ? memory.damage_behind(unit) : memory.damage_before(unit);
      if (!damage) continue;
      const char* where = behind ? " behind the end of " : " before the start of ";
      if (port == nullptr)
        fail_call(damage->bytes, " bytes", where, "the workspace (", memory.size(),
                  " bytes) were written, from byte ", damage->first,
                  " on; let getWorkspaceSize() return as much as is used");
      const int64_t element = floor_div(8 * damage->first, bits(port->type.dtype));
      fail_call(damage->bytes, " bytes", where, describe(*port), " were written, from element ",
                element, " on, where ", value_at(memory.host(), port->type.dtype, element),
                " stands now; the bounds of the plugin's loops do not fit this shape");
    }
  }

  static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

  void check_inputs() const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Port& port = inputs_[i];
      if (input_pointers_[i] == nullptr || port.is_aliased) continue;
      const std::byte* const before = port.before;
      const Found found = find_different(port.view(), before);
      if (found.count == 0) continue;
      const DataType type = port.type.dtype;
      fail_call(describe(port), " was changed in ", count(port, found), ", the first at ",
                position(port.view(), found.first), " from ", value_at(before, type, found.first),
                " to ", value_at(port.used->host(), type, found.first),
                "; write to outputs only, or alias an output to this input");
    }
  }

  void check_sizes() {
    if (step_.size_symbols.empty()) return;
    symbols_.assign(shapes_.symbols().begin(), shapes_.symbols().end());
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const int32_t symbol = step_.size_symbols[i];
      if (symbol < 0) continue;
      const Port& port = outputs_[i];
      check_written(port);
      const int64_t upper = shapes_.values()[plan_.size_bounds[symbol].second];
      convert(port.used->host(), port.type.dtype, &symbols_[symbol], DataType::kINT64, 1);
      if (symbols_[symbol] < 0 || symbols_[symbol] > upper)
        fail_call("the size tensor, ", describe(port), ", was written as ", symbols_[symbol],
                  ", which is not between 0 and its upper bound ", upper);
    }
    evaluate(plan_.expressions, symbols_, values_);
    for (size_t i = 0; i < outputs_.size(); ++i) {
      Port& port = outputs_[i];
      if (!port.is_data_dependent) continue;
      port.written = shape_of(schedule_.tensors[step_.outputs[i]].dims, values_);
      if (std::any_of(port.written.begin(), port.written.end(), [](int64_t n) { return n < 0; }) ||
          bytes_in_memory({nullptr, port.type, port.written}) > port.memory->size())
        fail_call(describe(port), " has the shape ", port.written,
                  " by the size tensors that it wrote, more than at their upper bounds; describe "
                  "extents that are largest there");
    }
  }

  void check_written(const Port& port) const {
    if (port.is_aliased) return;
    const Found found = find_unwritten(port.view());
    if (found.count == 0) return;
    fail_call(
        describe(port), " was not written in ", count(port, found), ", the first at ",
        position(port.view(), found.first),
        port.is_data_dependent ? str(" of the shape ", port.written, " by its size tensors") : "",
        "; write every element, and read none before that");
  }

  void check_finite() {
    if (has_warned_) return;
    for (const Port& port : outputs_) {
      const Found found = find_non_finite(port.view());
      if (found.count == 0) continue;
      for (const Port& input : inputs_) {
        if (input.before != nullptr &&
            find_non_finite({input.before, input.type, input.shape}).count > 0)
          return;
      }
      has_warned_ = true;
      log_.warning(who(), describe(port), " has NaN or infinity in ", count(port, found),
                   ", although all inputs are finite: ",
                   value_at(port.used->host(), port.type.dtype, found.first), " at ",
                   position(port.view(), found.first),
                   ", the first; this layer is not reported again");
      return;
    }
  }

  static std::string describe(const Port& port) {
    return str(port.text, str(port.type), " ", port.shape, ")");
  }
  static std::string count(const Port& port, const Found& found) {
    const int64_t all = port.written.numel();
    return str(std::min(found.count, all), " of ", all, " elements");
  }

  std::string who() const {
    const std::vector<PluginRequirement> definitions = op_.requirements();
    std::string plugin;
    if (definitions.empty()) {
      plugin = str("compiled kernel '", op_.code().front().name, "'");
    } else {
      const PluginRequirement& id = definitions.front();
      plugin = str("plugin ", str(CreatorIdentity{id.name, id.version, id.plugin_namespace}));
    }
    return str("layer '", step_.name, "': ", plugin, ", call ", calls_, " in this context: ");
  }
  template <class... Parts>
  [[noreturn]] void fail_call(const Parts&... parts) const {
    fail_with(ErrorCode::kFAILED_COMPUTATION, who(), parts...);
  }

  const std::unique_ptr<Kernel> plugin_;
  const Device& device_;
  const Plan& plan_;
  const Schedule& schedule_;
  const PlanStep& step_;
  const PlannedOperator& op_;
  const ShapeState& shapes_;
  const Log& log_;
  const uint64_t limit_;
  uint64_t& guarded_bytes_;
  std::vector<Port> inputs_, outputs_;
  std::vector<const void*> input_pointers_;
  std::vector<void*> output_pointers_;
  GuardedMemory workspace_;
  std::vector<int64_t> symbols_, values_;  ///< with the sizes of the last call
  int64_t calls_ = 0;
  bool has_warned_ = false;
};

}  // namespace

bool is_plugin(const PlannedOperator& op) {
  if (!op.requirements().empty()) return true;
  // Built-in layers may be compiled, too.
  return op.kind() == "CompiledKernel" && shown_kind(op.kind(), op.attributes()) == op.kind();
}

std::unique_ptr<Kernel> debug_plugin(std::unique_ptr<Kernel> plugin, const DebuggedStep& step) {
  return std::make_unique<DebuggedPlugin>(std::move(plugin), step);
}

}  // namespace opwright
