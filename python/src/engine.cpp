// ICudaEngine, IRuntimeConfig, EngineInspector.

#include "engine.h"

#include "backend/backend.h"
#include "host_memory.h"
#include "plan/shapes.h"
#include "reporting.h"
#include "runtime/context.h"
#include "runtime/inspect.h"
#include "runtime/serialization.h"

namespace opwright::python {

Port find_port(const Engine& engine, const std::string& name) {
  if (int i = engine.input_index(name); i >= 0) return {true, i, &engine.plan().inputs[i]};
  if (int i = engine.output_index(name); i >= 0) return {false, i, &engine.plan().outputs[i]};
  std::string known;
  for (const PlanPort& port : engine.plan().inputs)
    known += (known.empty() ? "'" : ", '") + port.name + "'";
  for (const PlanPort& port : engine.plan().outputs)
    known += (known.empty() ? "'" : ", '") + port.name + "'";
  fail("the engine has no input or output '", name, "'; it has ", known);
}

namespace {

using Strategy = ExecutionContextAllocationStrategy;

size_t num_io_tensors(const Engine& engine) {
  return engine.plan().inputs.size() + engine.plan().outputs.size();
}

std::string tensor_name(const Engine& engine, size_t index) {
  const Plan& plan = engine.plan();
  if (index >= num_io_tensors(engine)) throw nb::index_error();
  return index < plan.inputs.size() ? plan.inputs[index].name
                                    : plan.outputs[index - plan.inputs.size()].name;
}

void check_profile(const Engine& engine, int profile) {
  const auto count = static_cast<int>(engine.plan().schedules.size());
  require(profile >= 0 && profile < count, "there is no profile ", profile, ": the engine has ",
          count);
}

/// The port, for a profile that exists.
const PlanPort& port_in(const Engine& engine, const std::string& name, int profile) {
  check_profile(engine, profile);
  return *find_port(engine, name).plan;
}

bool is_vectorized(const PlanPort& port) { return layout_of(port.type.format).block > 1; }

/// `values`: what is asked for, rather than shapes.
const ProfileInput& profile_range(const Engine& engine, const std::string& name, int profile,
                                  bool values) {
  const Port port = find_port(engine, name);
  require(port.input, "'", name, "' is an output; profiles are of inputs");
  check_profile(engine, profile);
  const ProfileInput& range = engine.plan().schedules[profile].inputs[port.index];
  require(range.values == values || !values, "the profile has a shape for input '", name,
          "', not values; ask get_tensor_profile_shape");
  return range;
}

class Inspector {
 public:
  explicit Inspector(std::shared_ptr<Engine> e)
      : engine(std::move(e)),
        errors_(std::make_unique<ErrorReport>(engine->log(), engine->errors().recorder())) {}

  const std::shared_ptr<Engine> engine;
  ErrorReport& errors() const { return *errors_; }
  nb::object context = nb::none();  ///< whose profile counts
  int profile() const { return context.is_none() ? 0 : context_of(context)->profile(); }

 private:
  std::unique_ptr<ErrorReport> errors_;
};

/// ISerializationConfig
struct SerializationConfig {
  uint32_t flags = 0;
  static uint32_t bit(SerializationFlag flag) { return 1u << static_cast<int>(flag); }
  bool has(SerializationFlag flag) const { return (flags & bit(flag)) != 0; }
};

void bind_serialization(nb::module_& m) {
  nb::enum_<SerializationFlag>(m, "SerializationFlag", nb::is_arithmetic(),
                               "Bits of ISerializationConfig.flags.")
      .value("EXCLUDE_WEIGHTS", SerializationFlag::kEXCLUDE_WEIGHTS,
             "Leave out the weights that refitting gives.")
      .value("EXCLUDE_LEAN_RUNTIME", SerializationFlag::kEXCLUDE_LEAN_RUNTIME,
             "Without effect: engines contain no runtime.")
      .value("INCLUDE_REFIT", SerializationFlag::kINCLUDE_REFIT,
             "An engine that was built with BuilderFlag.STRIP_PLAN, and is stored with its "
             "weights, can be refitted again.");
  using Self = SerializationConfig;
  nb::class_<Self>(m, "ISerializationConfig",
                   "How an engine is stored. From ICudaEngine.create_serialization_config.")
      .def_rw("flags", &Self::flags, "Bits 1 << int(SerializationFlag).")
      .def(
          "set_flag",
          [](Self& self, SerializationFlag flag) {
            self.flags |= Self::bit(flag);
            return true;
          },
          nb::arg("flag"))
      .def(
          "clear_flag",
          [](Self& self, SerializationFlag flag) {
            self.flags &= ~Self::bit(flag);
            return true;
          },
          nb::arg("flag"))
      .def("get_flag", &Self::has, nb::arg("flag"));
}

void bind_engine_enums(nb::module_& m) {
  nb::enum_<Strategy>(m, "ExecutionContextAllocationStrategy", nb::is_arithmetic(),
                      "Where a context's working memory comes from.")
      .value("STATIC", Strategy::kSTATIC, "Taken once, for the largest of all profiles.")
      .value("ON_PROFILE_CHANGE", Strategy::kON_PROFILE_CHANGE,
             "Taken for the profile that is chosen.")
      .value("USER_MANAGED", Strategy::kUSER_MANAGED, "Given with set_device_memory.");
  nb::enum_<SeekPosition>(m, "SeekPosition", nb::is_arithmetic(),
                          "What an offset in a stream counts from.")
      .value("SET", SeekPosition::kSET, "The start.")
      .value("CUR", SeekPosition::kCUR, "Where the stream is.")
      .value("END", SeekPosition::kEND, "The end.");
  nb::enum_<EngineStat>(m, "EngineStat", nb::is_arithmetic(), "A number that an engine can tell.")
      .value("TOTAL_WEIGHTS_SIZE", EngineStat::kTOTAL_WEIGHTS_SIZE,
             "Bytes of all weights in the engine.")
      .value("STRIPPED_WEIGHTS_SIZE", EngineStat::kSTRIPPED_WEIGHTS_SIZE,
             "Bytes of the weights that were left out of the stored engine.");
  nb::class_<RuntimeConfig>(
      m, "IRuntimeConfig",
      "How execution contexts are made. From ICudaEngine.create_runtime_config.")
      .def(
          "set_execution_context_allocation_strategy",
          [](RuntimeConfig& self, Strategy strategy) { self.strategy = strategy; },
          nb::arg("strategy"))
      .def("get_execution_context_allocation_strategy",
           [](const RuntimeConfig& self) { return self.strategy; });
}

enum class InformationFormat : int { kONELINE, kJSON };

void bind_inspector(nb::module_& m) {
  nb::enum_<InformationFormat>(m, "LayerInformationFormat", nb::is_arithmetic(),
                               "How an inspector tells of layers.")
      .value("ONELINE", InformationFormat::kONELINE, "A line of text for each.")
      .value("JSON", InformationFormat::kJSON, "A JSON object.");
  ReportingClass<Inspector>(m, "EngineInspector", "Tells what is in an engine.")
      .def(
          "__init__",
          [](Inspector* self, std::shared_ptr<Engine> engine) {
            new (self) Inspector(std::move(engine));
          },
          nb::arg("engine"))
      .def_error_recorder()
      .def_prop_rw(
          "execution_context", [](const Inspector& self) { return self.context; },
          [](Inspector& self, nb::object context) {
            if (!context.is_none() && context_of(context) == nullptr)
              throw nb::type_error("execution_context: expected an IExecutionContext or None");
            self.context = std::move(context);
          },
          nb::for_setter(nb::arg("context").none()),
          "The context whose profile get_layer_information tells of; None: the first profile.")
      .def(
          "get_engine_information",
          [](const Inspector& self, InformationFormat format) {
            return format == InformationFormat::kJSON ? inspect_json(self.engine->plan())
                                                      : inspect_text(self.engine->plan());
          },
          nb::arg("format"))
      .def(
          "get_layer_information",
          [](const Inspector& self, int layer, InformationFormat format) {
            const int profile = self.profile();
            const auto& steps = self.engine->plan().schedules.at(profile).steps;
            if (layer < 0 || layer >= static_cast<int>(steps.size())) throw nb::index_error();
            return format == InformationFormat::kJSON
                       ? inspect_layer_json(self.engine->plan(), layer, profile)
                       : inspect_layer_text(self.engine->plan(), layer, profile);
          },
          nb::arg("layer_index"), nb::arg("format"));
}

/// Weights stay in the device's memory, so that there is nothing to stream and no budget for it.
void bind_weight_streaming(ReportingClass<Engine>& c) {
  const auto nothing = [](const Engine&) { return 0; };
  const auto check = [](Engine&, int64_t bytes) {
    require(bytes == 0, "the weight streaming budget is ", bytes,
            ", but all weights stay in the device's memory; leave it at 0");
  };
  c.def_prop_ro("streamable_weights_size", nothing, "0: all weights stay in the device's memory.")
      .def_prop_rw("weight_streaming_budget_v2", nothing, check,
                   "0: nothing is streamed. Another one raises Error.")
      .def_prop_rw("weight_streaming_budget", nothing, check,
                   "weight_streaming_budget_v2 under its name of before.")
      .def_prop_ro("minimum_weight_streaming_budget", nothing, "0: nothing is streamed.")
      .def("get_weight_streaming_automatic_budget", nothing, "0: nothing is streamed.")
      .def_prop_ro("weight_streaming_scratch_memory_size", nothing,
                   "0: streaming, which is not here, takes no memory.");
}

}  // namespace

void bind_engine(nb::module_& m) {
  bind_engine_enums(m);
  bind_inspector(m);
  bind_serialization(m);
  auto port_of = [](const Engine& e, const std::string& name) { return find_port(e, name); };
  ReportingClass<Engine> c(
      m, "ICudaEngine",
      "A built network, ready to run. Named as in TensorRT; it may run on the CPU.");
  add_context_manager(c);
  bind_weight_streaming(c);
  c.def(
       "create_execution_context",
       [](std::shared_ptr<Engine> self, Strategy strategy) {
         return make_context(std::move(self), strategy);
       },
       nb::arg("strategy") = Strategy::kSTATIC, "A context for running the engine.")
      .def(
          "create_execution_context",
          [](std::shared_ptr<Engine> self, const RuntimeConfig& config) {
            return make_context(std::move(self), config.strategy);
          },
          nb::arg("runtime_config"))
      .def(
          "create_runtime_config", [](const Engine&) { return RuntimeConfig(); },
          "How contexts are made, to be changed and given to create_execution_context.")
      .def("__getitem__", &tensor_name, nb::arg("index"), "The name of an input or output.")
      .def("__len__", &num_io_tensors)
      .def_error_recorder()
      .def("serialize", [](const Engine& self) { return HostMemory{serialize_with(self, 0)}; })
      .def(
          "create_serialization_config", [](const Engine&) { return SerializationConfig(); },
          "How the engine is stored, to be changed and given to serialize_with_config.")
      .def(
          "serialize_with_config",
          [](const Engine& self, const SerializationConfig& config) {
            return HostMemory{serialize_with(self, config.flags)};
          },
          nb::arg("config"), "The engine file's bytes.")
      .def("create_engine_inspector",
           [](std::shared_ptr<Engine> self) { return Inspector(std::move(self)); })
      .def_prop_ro("name", [](const Engine& self) { return self.plan().name; })
      .def_prop_ro("num_layers",
                   [](const Engine& self) { return self.plan().schedules.at(0).steps.size(); })
      .def_prop_ro("num_optimization_profiles",
                   [](const Engine& self) { return self.plan().schedules.size(); })
      .def_prop_ro("num_io_tensors", &num_io_tensors)
      .def_prop_ro(
          "device_memory_size_v2", [](const Engine& self) { return context_memory(self.plan()); },
          "Bytes of working memory of a context: the largest over the profiles.")
      .def_prop_ro(
          "device_memory_size", [](const Engine& self) { return context_memory(self.plan()); },
          "device_memory_size_v2 under its name of before.")
      .def(
          "get_device_memory_size_for_profile_v2",
          [](const Engine& self, int profile) {
            check_profile(self, profile);
            return context_memory(self.plan().schedules[profile]);
          },
          nb::arg("profile_index"), "Bytes of working memory of a context in a profile.")
      .def_prop_ro(
          "refittable", [](const Engine& self) { return !self.plan().refit.weights.empty(); },
          "Whether a Refitter can exchange weights.")
      .def_prop_ro("engine_capability", [](const Engine&) { return EngineCapability::kSTANDARD; })
      .def_prop_ro(
          "hardware_compatibility_level",
          [](const Engine& self) {
            return self.device().backend().code_format().level(self.plan().code);
          },
          "The GPUs that the engine's own code serves, whatever was asked for: AMPERE_PLUS where "
          "all "
          "of "
          "it is PTX for them, SAME_COMPUTE_CAPABILITY for other code of GPUs, NONE without such "
          "code.")
      .def_prop_ro(
          "tactic_sources", [](const Engine&) { return 0; },
          "0: the engine has kernels of none of TensorRT's sources.")
      .def_prop_ro(
          "num_aux_streams", [](const Engine&) { return 0; },
          "0: a run uses no stream but the one that it is given.")
      .def_prop_ro("profiling_verbosity",
                   [](const Engine& self) {
                     for (const PlanStep& step : self.plan().schedules[0].steps)
                       if (!step.considered.empty()) return ProfilingVerbosity::kDETAILED;
                     return ProfilingVerbosity::kLAYER_NAMES_ONLY;
                   })
      .def(
          "is_debug_tensor",
          [](const Engine& self, const std::string& name) {
            return is_debug_tensor(self.plan(), name);
          },
          nb::arg("name"), "Whether INetworkDefinition.mark_debug marked a tensor of that name.")
      .def(
          "get_engine_stat",
          [](const Engine& self, EngineStat stat) {
            return stat == EngineStat::kTOTAL_WEIGHTS_SIZE ? weights_size(self.plan())
                                                           : self.plan().refit.stripped_bytes;
          },
          nb::arg("stat"), "A number in bytes.")
      .def("get_tensor_name", &tensor_name, nb::arg("index"))
      .def(
          "get_tensor_mode",
          [](const Engine& self, const std::string& name) {
            if (self.input_index(name) >= 0) return TensorIOMode::kINPUT;
            return self.output_index(name) >= 0 ? TensorIOMode::kOUTPUT : TensorIOMode::kNONE;
          },
          nb::arg("name"))
      .def(
          "get_tensor_shape",
          [port_of](const Engine& self, const std::string& name) {
            return declared_shape(self.plan(), *port_of(self, name).plan);
          },
          nb::arg("name"), "Extents, -1 where they are known at run time only.")
      .def(
          "get_tensor_dtype",
          [port_of](const Engine& self, const std::string& name) {
            return port_of(self, name).plan->type.dtype;
          },
          nb::arg("name"))
      .def(
          "get_tensor_format",
          [](const Engine& self, const std::string& name, int profile) {
            return port_in(self, name, profile).type.format;
          },
          nb::arg("name"), nb::arg("profile_index") = 0)
      .def(
          "get_tensor_format_desc",
          [](const Engine& self, const std::string& name, int profile) {
            const PortType type = port_in(self, name, profile).type;
            return str(opwright::name(type.dtype), " in the layout ", opwright::name(type.format));
          },
          nb::arg("name"), nb::arg("profile_index") = 0, "Type and layout in words.")
      .def(
          "get_tensor_bytes_per_component",
          [](const Engine& self, const std::string& name, int profile) -> int64_t {
            const PlanPort& port = port_in(self, name, profile);
            return is_vectorized(port) ? bytes_of(port.type.dtype, 1) : -1;
          },
          nb::arg("name"), nb::arg("profile_index") = 0,
          "Bytes of one component of a vectorized format; -1 for other formats.")
      .def(
          "get_tensor_components_per_element",
          [](const Engine& self, const std::string& name, int profile) {
            const PlanPort& port = port_in(self, name, profile);
            return is_vectorized(port) ? layout_of(port.type.format).block : -1;
          },
          nb::arg("name"), nb::arg("profile_index") = 0,
          "Components in a vector of a vectorized format; -1 for other formats.")
      .def(
          "get_tensor_vectorized_dim",
          [](const Engine& self, const std::string& name, int profile) {
            return is_vectorized(port_in(self, name, profile)) ? 1 : -1;
          },
          nb::arg("name"), nb::arg("profile_index") = 0,
          "The dimension that is divided into vectors, the channels'; -1 for other formats.")
      .def(
          "get_aliased_input_tensor",
          [port_of](const Engine& self, const std::string& name) -> std::optional<std::string> {
            const int32_t input = port_of(self, name).plan->aliased_input;
            if (input < 0) return std::nullopt;
            return self.plan().inputs[input].name;
          },
          nb::arg("name"),
          "The input in whose memory the output is computed, so that both need the same address, "
          "or None.")
      .def(
          "get_tensor_location",
          [port_of](const Engine& self, const std::string& name) {
            return port_of(self, name).plan->is_shape_input ? TensorLocation::kHOST
                                                            : TensorLocation::kDEVICE;
          },
          nb::arg("name"),
          "Whose address set_tensor_address takes: the host's for inputs whose values decide "
          "shapes.")
      .def(
          "is_shape_inference_io",
          [](const Engine& self, const std::string& name) {
            const Port port = find_port(self, name);
            if (port.input) return port.plan->is_shape_input;
            const Schedule& schedule = self.plan().schedules[0];
            for (const OutputCopy& copy : schedule.copies)
              if (copy.output == port.index &&
                  schedule.tensors[copy.tensor].location == PlanTensor::Location::kValues)
                return true;
            return false;
          },
          nb::arg("name"),
          "Whether shapes depend on the tensor's values, or it is computed from shapes alone.")
      .def(
          "get_tensor_profile_shape",
          [](const Engine& self, const std::string& name, int profile) {
            const ProfileInput& range = profile_range(self, name, profile, false);
            return std::vector<Shape>{range.min, range.opt, range.max};
          },
          nb::arg("name"), nb::arg("profile_index"),
          "The smallest, the typical and the largest shape of an input.")
      .def(
          "get_tensor_profile_values",
          [](const Engine& self, const std::string& name, int profile) {
            const ProfileInput& range = profile_range(self, name, profile, true);
            nb::list all;
            for (const Shape* values : {&range.min, &range.opt, &range.max})
              all.append(nb::list(to_tuple(*values)));
            return all;
          },
          nb::arg("name"), nb::arg("profile_index"),
          "The smallest, the typical and the largest values of an input that determines shapes, in "
          "C "
          "order.");
}

}  // namespace opwright::python
