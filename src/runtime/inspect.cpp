#include "runtime/inspect.h"

#include <algorithm>
#include <set>
#include <utility>

#include "backend/backend.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/printable.h"
#include "base/text_table.h"
#include "base/units.h"
#include "base/utf8.h"
#include "plan/tuning_table.h"
#include "plugin/plugin_operators.h"
#include "runtime/debug_tensors.h"
#include "runtime/json.h"

namespace opwright {

uint64_t weights_size(const Plan& plan) {
  std::set<const std::byte*> seen;
  uint64_t size = 0;
  const auto add = [&](const Blob& data) {
    if (!data.empty() && seen.insert(data.data()).second) size += data.size();
  };
  for (const Schedule& schedule : plan.schedules) {
    for (const PlanTensor& tensor : schedule.tensors) add(tensor.data);
    for (const PlanStep& step : schedule.steps) {
      for (const PackedInput& packed : step.packed) add(packed.data);
    }
  }
  return size;
}

namespace {

std::string_view kind_text(const PlanStep& step) { return shown_kind(step.kind, step.attributes); }

std::string type_text(PortType type) { return str(name(type.dtype), " ", name(type.format)); }

/// The devices that the engine's code runs on; empty where it has no code, or its backend is
/// unknown.
std::string served_devices(const Plan& plan) {
  const Backend* const backend = find_backend(plan.backend);
  return backend == nullptr ? "" : backend->code_format().served(plan.code);
}

/// "CPU x86-64", or the GPU's architecture with its backend in parentheses.
std::string device_text(const Plan& plan) {
  const std::string text = str(name(plan.device_type), ' ', printable(plan.architecture));
  return plan.device_type == DeviceType::kCPU ? text
                                              : str(text, " (", printable(plan.backend), ')');
}

/// A program's expressions as text, with the names of symbols. Expressions that would be long,
/// perhaps exponentially so, appear as "e12".
class Dimensions {
 public:
  explicit Dimensions(const Plan& plan)
      : Dimensions(symbol_names(plan.symbols), plan.expressions) {}
  Dimensions(std::vector<std::string> names, std::span<const ExprInstruction> program)
      : names_(std::move(names)) {
    const auto num_symbols = static_cast<int64_t>(names_.size());
    std::vector<int> sizes;
    for (const ExprInstruction& e : program) {
      const int operands = e.op == ExprOp::kConstant || e.op == ExprOp::kSymbol ? 0
                           : e.op == ExprOp::kSelect                            ? 3
                                                                                : 2;
      const int32_t operand[] = {e.a, e.b, e.c};
      int size = 1;
      for (int i = 0; i < operands; ++i) size += sizes[operand[i]];
      if (size > kMaxSize) {
        expressions_.push_back(named(str("e", expressions_.size())));
        size = 1;
      } else if (e.op == ExprOp::kSymbol && e.value >= num_symbols) {
        expressions_.push_back(named(str("s", e.value)));
      } else {
        expressions_.push_back(make(e));
      }
      sizes.push_back(size);
    }
  }
  std::string text(int32_t dim) const { return expressions_[dim].str(names_); }
  /// The number of elements, or 0 if it is not constant or exceeds what shape arithmetic takes.
  int64_t small_count(std::span<const int32_t> dims) const {
    int64_t count = 1;
    for (const int32_t dim : dims) {
      const Expr& extent = expressions_[dim];
      if (!extent.is_constant() || extent.constant() > TensorInfo::kMaxValues) return 0;
      count *= extent.constant();
      if (count > TensorInfo::kMaxValues) return 0;
    }
    return count;
  }
  /// "1 x 3 x h x w"
  std::string text(std::span<const int32_t> dims) const {
    if (dims.empty()) return "scalar";
    std::string result;
    for (const int32_t dim : dims) result += (result.empty() ? "" : " x ") + text(dim);
    return result;
  }
  void write(JsonWriter& json, std::span<const int32_t> dims) const {
    json.begin_array();
    for (const int32_t dim : dims) write(json, dim);
    json.end_array();
  }
  void write(JsonWriter& json, int32_t dim) const {
    if (expressions_[dim].is_constant()) {
      json.value(expressions_[dim].constant());
    } else {
      json.value(text(dim));
    }
  }

 private:
  static constexpr int kMaxSize = 48;

  static std::vector<std::string> symbol_names(const std::vector<Symbol>& symbols) {
    std::vector<std::string> names;
    for (const Symbol& symbol : symbols) names.push_back(symbol.name);
    return names;
  }

  Expr named(std::string name) {
    names_.push_back(std::move(name));
    return Expr::symbol(static_cast<int>(names_.size()) - 1);
  }

  Expr make(const ExprInstruction& e) {
    try {
      return made(e);
    } catch (const Error&) {  // constants overflow
      return named(str("e", expressions_.size()));
    }
  }

  Expr made(const ExprInstruction& e) const {
    switch (e.op) {
      case ExprOp::kConstant:
        return e.value;
      case ExprOp::kSymbol:
        return Expr::symbol(static_cast<int>(e.value));
      case ExprOp::kSelect:
        return Expr::select(expressions_[e.a], expressions_[e.b], expressions_[e.c]);
      default:
        return Expr::make(e.op, expressions_[e.a], expressions_[e.b]);
    }
  }

  std::vector<Expr> expressions_;
  std::vector<std::string> names_;
};

/// The role of each code object of the plan.
std::vector<const char*> code_roles(const Plan& plan) {
  std::vector<const char*> roles(plan.code.size(), "kernel");
  for (const int32_t index : plan.plugin_libraries) roles[index] = "plugin library";
  for (const int32_t index : plan.plugin_sources) roles[index] = "plugin source";
  return roles;
}

const PlanStep& find_layer(const Plan& plan, int step, int profile) {
  require(profile >= 0 && static_cast<size_t>(profile) < plan.schedules.size(), "profile ", profile,
          " does not exist: the engine has ", plan.schedules.size());
  const auto& steps = plan.schedules[profile].steps;
  require(step >= 0 && static_cast<size_t>(step) < steps.size(), "layer ", step,
          " does not exist: the engine has ", steps.size());
  return steps[step];
}

/// Bytes of weights in a schedule; equal weights count once.
uint64_t weight_bytes(const Schedule& schedule) {
  std::vector<const Blob*> blobs;
  for (const PlanTensor& tensor : schedule.tensors) blobs.push_back(&tensor.data);
  for (const PlanStep& step : schedule.steps) {
    for (const PackedInput& packed : step.packed) blobs.push_back(&packed.data);
  }
  const auto address = [](const Blob* blob) { return blob->data(); };
  std::sort(blobs.begin(), blobs.end(),
            [&](const Blob* a, const Blob* b) { return address(a) < address(b); });
  uint64_t bytes = 0;
  for (size_t i = 0; i < blobs.size(); ++i) {
    if (i == 0 || address(blobs[i]) != address(blobs[i - 1])) bytes += blobs[i]->size();
  }
  return bytes;
}

template <class T>
void write_list(JsonWriter& json, const std::vector<T>& values) {
  json.begin_array();
  for (const auto& value : values) json.value(value);
  json.end_array();
}

/// Writes numbers and texts as such, other values by their size.
void write_elements(JsonWriter& json, const FieldValue& field) {
  if (const auto integers = read_integers(field)) return write_list(json, *integers);
  if (const auto reals = read_reals(field)) return write_list(json, *reals);
  const std::string_view all(field.data.as<char>(), field.data.size());
  if (field.type != PluginFieldType::kCHAR || !is_utf8(all))
    return json.value(str(field.data.size(), " bytes"));
  if (!field.extents) return json.value(all);
  write_list(json, texts_of(field));
}

void write_fields(JsonWriter& json, const FieldValues& fields) {
  json.begin_object();
  for (const FieldValue& field : fields) {
    json.key(field.name);
    json.begin_object();
    json.member("Type", name(field.type));
    if (field.extents && field.type != PluginFieldType::kCHAR) {
      json.key("Extents");
      write_list(json, *field.extents);
    }
    json.key("Value");
    write_elements(json, field);
    json.end_object();
  }
  json.end_object();
}

/// The names of the symbols of a step's launch, as far as the plan has them.
std::vector<std::string> launch_symbols(const Dimensions& dimensions, const Schedule& schedule,
                                        const PlanStep& step, const KernelLaunch& launch) {
  std::vector<std::string> names;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (step.inputs[i] < 0) continue;
    const size_t rank = schedule.tensors[step.inputs[i]].dims.size();
    for (size_t axis = 0; axis < rank; ++axis)
      names.push_back(str("inputs[", i, "].shape[", axis, "]"));
  }
  for (const int32_t input : launch.shape_inputs) {
    if (std::cmp_greater_equal(input, step.inputs.size()) || step.inputs[input] < 0) break;
    const int64_t count = dimensions.small_count(schedule.tensors[step.inputs[input]].dims);
    for (int64_t i = 0; i < count; ++i) names.push_back(str("inputs[", input, "][", i, "]"));
  }
  return names;
}

void write_launch(JsonWriter& json, const Dimensions& dimensions, const Schedule& schedule,
                  const PlanStep& step, const KernelLaunch& launch) {
  const Dimensions values(launch_symbols(dimensions, schedule, step, launch), launch.program);
  json.begin_object();
  json.member("Symbol", launch.symbol);
  json.key("Grid");
  values.write(json, launch.grid);
  json.key("Block");
  values.write(json, launch.block);
  json.key("SharedMemory");
  values.write(json, launch.shared_memory);
  json.key("Arguments");
  json.begin_array();
  for (const KernelLaunch::Argument& argument : launch.arguments) {
    json.begin_object();
    json.member("Type", name(argument.type));
    json.key("Value");
    values.write(json, argument.value);
    if (argument.constant != 0) json.member("Constant", argument.constant);
    json.end_object();
  }
  json.end_array();
  json.key("Scratch");
  values.write(json, launch.scratch);
  json.key("TensorMaps");
  json.begin_array();
  for (const KernelLaunch::TensorMap& map : launch.maps) {
    json.begin_object();
    json.member("Input", int64_t{map.input});
    json.key("Extents");
    values.write(json, map.extents);
    json.key("Strides");
    values.write(json, map.strides);
    json.key("Box");
    write_list(json, Ints(map.box.begin(), map.box.end()));
    json.key("Steps");
    write_list(json, Ints(map.steps.begin(), map.steps.end()));
    json.end_object();
  }
  json.end_array();
  json.key("ShapeInputs");
  json.begin_array();
  for (const int32_t input : launch.shape_inputs) json.value(int64_t{input});
  json.end_array();
  json.key("Checks");
  json.begin_array();
  for (const KernelLaunch::Check& check : launch.checks) json.value(check.message);
  json.end_array();
  json.end_object();
}

void write_attribute(JsonWriter& json, const Dimensions& dimensions, const Schedule& schedule,
                     const PlanStep& step, const Attribute& attribute) {
  json.key(attribute.name);
  const auto write = [&](const auto& value) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, Blob>) {
      json.value(str(value.size(), " bytes"));
    } else if constexpr (std::is_same_v<T, FieldValues>) {
      write_fields(json, value);
    } else if constexpr (std::is_same_v<T, KernelLaunch>) {
      write_launch(json, dimensions, schedule, step, value);
    } else if constexpr (std::is_same_v<T, Ints> || std::is_same_v<T, Floats>) {
      write_list(json, value);
    } else {
      json.value(value);
    }
  };
  std::visit(write, attribute.value);
}

void write_candidate(JsonWriter& json, const TimedCandidate& candidate) {
  json.member("Types", candidate.types);
  json.member("TacticValue", candidate.tactic);
  json.member("TacticName", candidate.tactic_name);
}

void write_layer(JsonWriter& json, const Dimensions& dimensions, const Schedule& schedule,
                 const PlanStep& step) {
  const auto write_ports = [&](const char* key, const std::vector<int32_t>& tensors) {
    json.key(key);
    json.begin_array();
    for (const int32_t index : tensors) {
      if (index < 0) continue;
      const PlanTensor& tensor = schedule.tensors[index];
      json.begin_object();
      json.member("Name", tensor.name);
      json.member("Tensor", int64_t{index});
      json.key("Dimensions");
      dimensions.write(json, tensor.dims);
      json.member("Format/Datatype", type_text(tensor.type));
      json.end_object();
    }
    json.end_array();
  };
  json.begin_object();
  json.member("Name", step.name);
  json.member("LayerType", kind_text(step));
  json.member("IsPlugin", is_plugin_kind(kind_text(step)));
  write_ports("Inputs", step.inputs);
  write_ports("Outputs", step.outputs);
  json.member("TacticValue", step.candidate.tactic);
  json.member("TacticName", step.candidate.tactic_name);
  json.member("TimeMs", step.time_ms);
  if (step.stream != kAlone) json.member("Stream", int64_t{step.stream});
  json.key("Attributes");
  json.begin_object();
  for (const Attribute& attribute : step.attributes)
    write_attribute(json, dimensions, schedule, step, attribute);
  json.end_object();
  json.key("PackedWeights");
  json.begin_array();
  for (const PackedInput& packed : step.packed) {
    json.begin_object();
    json.member("Input", int64_t{packed.input});
    json.member("Layout", packed.layout);
    json.member("Bytes", static_cast<int64_t>(packed.data.size()));
    json.end_object();
  }
  json.end_array();
  json.key("Candidates");
  json.begin_array();
  for (const TimedCandidate& candidate : step.considered) {
    if (!candidate.dropped.empty()) continue;
    json.begin_object();
    write_candidate(json, candidate);
    json.member("TimeMs", candidate.time_ms);
    json.member("ReformatMs", candidate.reformat_ms);
    json.member("Chosen", is_chosen(candidate, step.candidate));
    json.end_object();
  }
  json.end_array();
  json.key("Dropped");
  json.begin_array();
  for (const TimedCandidate& candidate : step.considered) {
    if (candidate.dropped.empty()) continue;
    json.begin_object();
    write_candidate(json, candidate);
    json.member("Reason", candidate.dropped);
    json.end_object();
  }
  json.end_array();
  json.member("Metadata", step.metadata);
  json.member("CaptureObstacle", step.capture_obstacle);
  json.end_object();
}

void write_port(JsonWriter& json, const Dimensions& dimensions, const PlanPort& port,
                const char* mode) {
  json.begin_object();
  json.member("Name", port.name);
  json.member("Mode", mode);
  json.key("Dimensions");
  dimensions.write(json, port.dims);
  json.member("Format/Datatype", type_text(port.type));
  json.end_object();
}

std::string_view name(PlanTensor::Location location) {
  switch (location) {
    case PlanTensor::Location::kArena:
      return "arena";
    case PlanTensor::Location::kInput:
      return "input";
    case PlanTensor::Location::kOutput:
      return "output";
    case PlanTensor::Location::kWeight:
      return "weight";
    case PlanTensor::Location::kValues:
      return "values";
  }
  return "";
}

/// The place of each tensor. Layers name tensors by "Tensor".
void write_tensors(JsonWriter& json, const Schedule& schedule) {
  json.begin_array();
  for (size_t i = 0; i < schedule.tensors.size(); ++i) {
    const PlanTensor& tensor = schedule.tensors[i];
    json.begin_object();
    json.member("Index", static_cast<int64_t>(i));
    json.member("Name", tensor.name);
    json.member("Location", name(tensor.location));
    if (tensor.location == PlanTensor::Location::kArena)
      json.member("Offset", static_cast<int64_t>(tensor.offset));
    json.member("Bytes", static_cast<int64_t>(tensor.size));
    json.end_object();
  }
  json.end_array();
}

void write_shape(JsonWriter& json, const char* key, const Shape& shape) {
  json.key(key);
  json.begin_array();
  for (const int64_t extent : shape) json.value(extent);
  json.end_array();
}

void write_profile(JsonWriter& json, const Plan& plan, const Schedule& schedule) {
  json.begin_object();
  json.member("ArenaBytes", static_cast<int64_t>(schedule.arena_size));
  json.member("WorkspaceBytes", static_cast<int64_t>(schedule.workspace_size));
  json.member("WeightBytes", static_cast<int64_t>(weight_bytes(schedule)));
  json.key("Inputs");
  json.begin_array();
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const ProfileInput& range = schedule.inputs[i];
    json.begin_object();
    json.member("Name", plan.inputs[i].name);
    json.member("IsValues", range.values);
    write_shape(json, "Min", range.min);
    write_shape(json, "Opt", range.opt);
    write_shape(json, "Max", range.max);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

std::string ports_text(const Dimensions& dimensions, const std::vector<PlanPort>& ports) {
  std::vector<std::vector<std::string>> rows;
  for (const PlanPort& port : ports) {
    rows.push_back({port.name, type_text(port.type), dimensions.text(port.dims)});
    if (port.is_shape_input) rows.back().back() += ", determines shapes";
  }
  return rows.empty() ? "  none\n" : text_table(rows, "lll");
}

/// The number of candidates that the layer's was chosen from; empty if the plan does not say.
std::string count_text(const PlanStep& step) {
  const auto count = std::count_if(step.considered.begin(), step.considered.end(),
                                   [](const TimedCandidate& item) { return item.dropped.empty(); });
  return count > 0 ? std::to_string(count) : "";
}

/// The candidates that the tuner compared for plugins.
std::string tuning_text(const Schedule& schedule) {
  std::string text;
  for (const PlanStep& step : schedule.steps) {
    if (!is_plugin_kind(kind_text(step)) || step.considered.empty()) continue;
    text += str("\n  candidates of '", printable(step.name), "'\n",
                tuning_table(step.considered, step.candidate));
  }
  return text;
}

/// Whether graphs are on, and the steps that are not captured into them.
std::string graphs_text(const Plan& plan, const Schedule& schedule) {
  if (plan.device_type != DeviceType::kGPU) return {};
  if (!plan.graphs) return "\n  graphs are off\n";
  std::string text;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const PlanStep& step = schedule.steps[i];
    if (!step.capture_obstacle.empty())
      text += str("  not captured into graphs: ", i, " '", printable(step.name),
                  "': ", printable(step.capture_obstacle), '\n');
  }
  return "\n" + (text.empty() ? "  graphs may have all layers\n" : text);
}

/// What the model's author says of the model, a line for each part; long lines are cut.
std::string metadata_text(const ModelMetadata& metadata) {
  constexpr size_t kMost = 100;
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& what, const std::string& value) {
    if (value.empty()) return;
    std::string shown = printable(value);
    if (shown.size() > kMost) {
      size_t end = kMost;
      while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0U) == 0x80U) --end;
      shown = str(shown.substr(0, end), "... (", value.size(), " bytes)");
    }
    rows.push_back({printable(what), shown});
  };
  add("producer", metadata.producer_version.empty()
                      ? metadata.producer_name
                      : str(metadata.producer_name, ' ', metadata.producer_version));
  add("domain", metadata.domain);
  if (metadata.version != 0) add("version", std::to_string(metadata.version));
  add("description", metadata.description);
  add("graph", metadata.graph_description);
  for (const auto& [key, value] : metadata.properties) add("'" + key + "'", value);
  return rows.empty() ? "" : "the model says\n" + text_table(rows, "ll");
}

void write_metadata(JsonWriter& json, const ModelMetadata& metadata) {
  json.begin_object();
  json.member("ProducerName", metadata.producer_name);
  json.member("ProducerVersion", metadata.producer_version);
  json.member("Domain", metadata.domain);
  json.member("Description", metadata.description);
  json.member("Version", metadata.version);
  json.member("GraphName", metadata.graph_name);
  json.member("GraphDescription", metadata.graph_description);
  json.key("Properties");
  json.begin_object();
  for (const auto& [key, value] : metadata.properties) json.member(key, value);
  json.end_object();
  json.end_object();
}

std::string profile_text(const Plan& plan, const Schedule& schedule) {
  std::string text;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const ProfileInput& range = schedule.inputs[i];
    if (range.min == range.max) continue;
    text += str("  ", printable(plan.inputs[i].name), range.values ? " (values)" : "", ": ",
                range.min, " to ", range.max, ", tuned for ", range.opt, '\n');
  }
  text += str("  memory: ", bytes_text(schedule.arena_size), " for tensors, ",
              bytes_text(schedule.workspace_size), " scratch, ", bytes_text(weight_bytes(schedule)),
              " of weights\n\n");
  std::vector<std::vector<std::string>> rows = {
      {"#", "layer", "kind", "types", "tactic", "of", "time"}};
  float total = 0;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const PlanStep& step = schedule.steps[i];
    rows.push_back({std::to_string(i), step.name, std::string(kind_text(step)), str(step.candidate),
                    tactic_text(step.candidate.tactic, step.candidate.tactic_name),
                    count_text(step), time_text(step.time_ms)});
    total += step.time_ms;
  }
  rows.push_back({"", "", "", "", "sum", "", time_text(total)});
  return text + text_table(rows, "rllllrr") + graphs_text(plan, schedule) + tuning_text(schedule);
}

}  // namespace

std::vector<std::string> extent_texts(const Plan& plan, const PlanPort& port) {
  const Dimensions dimensions(plan);
  std::vector<std::string> texts;
  for (const int32_t dim : port.dims) texts.push_back(dimensions.text(dim));
  return texts;
}

std::string inspect_text(const Plan& plan) {
  const Dimensions dimensions(plan);
  std::string text =
      str("engine ", plan.name.empty() ? "" : "'" + printable(plan.name) + "' ", "by ",
          printable(plan.builder), " for ", device_text(plan), "\ntuned on ",
          printable(plan.device_identity), "\n\ninputs\n", ports_text(dimensions, plan.inputs),
          "outputs\n", ports_text(dimensions, plan.outputs), metadata_text(plan.metadata));
  if (!plan.requirements.empty()) {
    text += "needs the plugins\n";
    for (const PluginRequirement& item : plan.requirements) {
      text += str("  ", printable(item.name), " (version ", printable(item.version),
                  ", namespace '", printable(item.plugin_namespace), "')\n");
    }
  }
  if (plan.debug_plugins) text += "checks every call of a plugin\n";
  std::string debug;
  for (const std::string& name : debug_names(plan))
    debug += (debug.empty() ? "" : ", ") + printable(name);
  if (!debug.empty()) text += "shows the debug tensors " + debug + '\n';
  const std::vector<const char*> roles = code_roles(plan);
  if (!plan.code.empty()) {
    text += "contains code\n";
    for (size_t i = 0; i < plan.code.size(); ++i) {
      const CodeObject& item = plan.code[i];
      text += str("  ", printable(item.name), ", ", roles[i], " for ", printable(item.target), ", ",
                  bytes_text(item.bytes.size()), item.host ? ", runs on the host\n" : "\n");
    }
  }
  if (const std::string served = served_devices(plan); !served.empty())
    text += str("its code runs on ", served, '\n');
  for (size_t i = 0; i < plan.schedules.size(); ++i) {
    text += str("\nprofile ", i, "\n", profile_text(plan, plan.schedules[i]));
  }
  return text;
}

std::string inspect_json(const Plan& plan) {
  const Dimensions dimensions(plan);
  JsonWriter json;
  json.begin_object();
  json.member("Name", plan.name);
  json.member("Builder", plan.builder);
  json.member("Device", name(plan.device_type));
  json.member("Backend", plan.backend);
  json.member("Architecture", plan.architecture);
  json.member("DeviceIdentity", plan.device_identity);
  json.key("Model");
  write_metadata(json, plan.metadata);
  json.member("DebugPlugins", plan.debug_plugins);
  json.member("CudaGraphs", plan.graphs);
  json.key("DebugTensors");
  json.begin_array();
  for (const std::string& name : debug_names(plan)) json.value(name);
  json.end_array();
  json.key("Bindings");
  json.begin_array();
  for (const PlanPort& port : plan.inputs) write_port(json, dimensions, port, "Input");
  for (const PlanPort& port : plan.outputs) write_port(json, dimensions, port, "Output");
  json.end_array();
  json.key("Plugins");
  json.begin_array();
  for (const PluginRequirement& item : plan.requirements) {
    json.begin_object();
    json.member("Kind", item.kind);
    json.member("Name", item.name);
    json.member("Version", item.version);
    json.member("Namespace", item.plugin_namespace);
    json.end_object();
  }
  json.end_array();
  json.key("Code");
  json.begin_array();
  const std::vector<const char*> roles = code_roles(plan);
  for (size_t i = 0; i < plan.code.size(); ++i) {
    const CodeObject& item = plan.code[i];
    json.begin_object();
    json.member("Name", item.name);
    json.member("Target", item.target);
    json.member("Bytes", static_cast<int64_t>(item.bytes.size()));
    json.member("Host", item.host);
    json.member("Role", roles[i]);
    json.end_object();
  }
  json.end_array();
  if (const std::string served = served_devices(plan); !served.empty())
    json.member("RunsOn", served);
  json.key("Profiles");
  json.begin_array();
  for (const Schedule& schedule : plan.schedules) write_profile(json, plan, schedule);
  json.end_array();
  // The layers of the first profile; those of other profiles differ only in their choices.
  json.key("Layers");
  json.begin_array();
  for (const PlanStep& step : plan.schedules[0].steps) {
    write_layer(json, dimensions, plan.schedules[0], step);
  }
  json.end_array();
  json.key("Tensors");
  write_tensors(json, plan.schedules[0]);
  json.end_object();
  return json.take() + '\n';
}

std::string inspect_layer_text(const Plan& plan, int step, int profile) {
  const PlanStep& layer = find_layer(plan, step, profile);
  const std::string count = count_text(layer);
  return printable(str(layer.name, " (", kind_text(layer), "): ", str(layer.candidate), ", tactic ",
                       tactic_text(layer.candidate.tactic, layer.candidate.tactic_name),
                       count.empty() ? "" : " of " + count + " candidates", ", ",
                       time_text(layer.time_ms)));
}

std::string inspect_layer_json(const Plan& plan, int step, int profile) {
  const PlanStep& layer = find_layer(plan, step, profile);
  JsonWriter json;
  write_layer(json, Dimensions(plan), plan.schedules[profile], layer);
  return json.take();
}

std::string inspect(const Plan& plan, LayerInformationFormat format) {
  return format == LayerInformationFormat::kJSON ? inspect_json(plan) : inspect_text(plan);
}

std::string inspect_layer(const Plan& plan, int step, int profile, LayerInformationFormat format) {
  return format == LayerInformationFormat::kJSON ? inspect_layer_json(plan, step, profile)
                                                 : inspect_layer_text(plan, step, profile);
}

}  // namespace opwright
