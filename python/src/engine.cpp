// ICudaEngine, IRuntimeConfig, EngineInspector.

#include "engine.h"

#include "backend/backend.h"
#include "held.h"
#include "host_memory.h"
#include "reporting.h"
#include "representations.h"
#include "runtime/context.h"
#include "runtime/inspect.h"
#include "runtime/serialization.h"

namespace opwright::python {

namespace {

using Strategy = ExecutionContextAllocationStrategy;

/// A list of `get` for the smallest, the typical and the largest shape of a profile.
template <class Get>
nb::list of_profile(const Get& get) {
  nb::list all;
  for (const auto select :
       {OptProfileSelector::kMIN, OptProfileSelector::kOPT, OptProfileSelector::kMAX})
    all.append(get(select));
  return all;
}

class Inspector {
 public:
  explicit Inspector(std::shared_ptr<Engine> e)
      : engine(std::move(e)),
        errors_(std::make_unique<ErrorReport>(engine->log(), engine->errors().recorder())) {}

  const std::shared_ptr<Engine> engine;
  ErrorReport& errors() const { return *errors_; }
  nb::object context = nb::none();  ///< context whose profile is inspected
  int profile() const { return context.is_none() ? 0 : context_of(context)->profile(); }

 private:
  std::unique_ptr<ErrorReport> errors_;
};

void tell_inspector(const Inspector& inspector, HeldObjects& held) {
  held.tell(inspector.engine);
  held.tell(inspector.context);
  held.tell(inspector.errors().recorder());
}
void tell_engine(const Engine& engine, HeldObjects& held) {
  held.tell(engine.errors().recorder());
  held.tell(engine.allocator());
}

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
      .def_prop_rw(
          "flags", [](const Self& self) { return self.bits; }, &Self::set_bits,
          "Bits 1 << int(SerializationFlag).\n\n:raises Error: for others.")
      .def(
          "set_flag",
          [](Self& self, SerializationFlag flag) {
            self.set(flag);
            return true;
          },
          nb::arg("flag"))
      .def("clear_flag", done<Self>(&Self::clear), nb::arg("flag"))
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

using InformationFormat = LayerInformationFormat;

void bind_inspector(nb::module_& m) {
  nb::enum_<InformationFormat>(m, "LayerInformationFormat", nb::is_arithmetic(),
                               "How an inspector tells of layers.")
      .value("ONELINE", InformationFormat::kONELINE, "A line of text for each.")
      .value("JSON", InformationFormat::kJSON, "A JSON object.");
  ReportingClass<Inspector>(m, "EngineInspector", "Tells what is in an engine.",
                            nb::type_slots(holder_slots<Inspector, tell_inspector>()))
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
            return inspect(self.engine->plan(), format);
          },
          nb::arg("format"))
      .def(
          "get_layer_information",
          [](const Inspector& self, int layer, InformationFormat format) {
            check_position(layer, static_cast<size_t>(self.engine->num_layers()));
            return inspect_layer(self.engine->plan(), layer, self.profile(), format);
          },
          nb::arg("layer_index"), nb::arg("format"));
}

void bind_weight_streaming(ReportingClass<Engine>& c) {
  c.def_prop_ro("streamable_weights_size", &Engine::streamable_weights_size,
                "Bytes of the weights that may stay in the host's memory; 0 of an engine that was "
                "built without BuilderFlag.WEIGHT_STREAMING.")
      .def_prop_rw(
          "weight_streaming_budget_v2", &Engine::weight_streaming_budget,
          &Engine::set_weight_streaming_budget,
          "How many of these bytes a GPU's memory may hold; at first all. The other weights are "
          "copied to it in each run, while the layer before runs. Larger numbers are "
          "streamable_weights_size. On the CPU it has no effect.\n\n:raises Error: for a negative "
          "number, while there are execution contexts, or where the engine was built without the "
          "flag.")
      .def_prop_rw("weight_streaming_budget", &Engine::weight_streaming_budget,
                   &Engine::set_weight_streaming_budget,
                   "weight_streaming_budget_v2 under its name of before.")
      .def_prop_ro(
          "minimum_weight_streaming_budget", [](const Engine&) { return 0; },
          "0: all of these weights may stay in the host's memory.")
      .def("get_weight_streaming_automatic_budget", &Engine::automatic_weight_streaming_budget,
           "A budget that the GPU has memory for now, with some left for contexts and others.")
      .def_prop_ro(
          "weight_streaming_scratch_memory_size", &Engine::weight_streaming_scratch_size,
          "Bytes of the GPU's memory that each context takes, beside device_memory_size_v2, "
          "for the weights that are copied. 0 where none are.");
}

}  // namespace

std::string tensor_name(const Engine& self, int index) {
  check_position(index, static_cast<size_t>(self.num_io_tensors()));
  return self.tensor_name(index);
}

/// Binds the properties of an engine as a whole.
void bind_engine_properties(ReportingClass<Engine>& c) {
  const auto memory_size = nb::overload_cast<>(&Engine::memory_size, nb::const_);
  c.def("__repr__", [](const Engine& self) { return describe("ICudaEngine", self); })
      .def(
          "_dimension_names",
          [](const Engine& self, std::string_view name) {
            return self.port(name).plan->dimension_names;
          },
          nb::arg("name"))
      .def("_describe_ports", &describe_ports, nb::arg("is_inputs"))
      .def_prop_ro("name", [](const Engine& self) { return self.plan().name; })
      .def_prop_ro("num_layers", &Engine::num_layers)
      .def_prop_ro("num_optimization_profiles", &Engine::num_profiles)
      .def_prop_ro("num_io_tensors", &Engine::num_io_tensors)
      .def_prop_ro("device_memory_size_v2", memory_size,
                   "Bytes of working memory of a context: the largest over the profiles.")
      .def_prop_ro("device_memory_size", memory_size,
                   "device_memory_size_v2 under its name of before.")
      .def("get_device_memory_size_for_profile_v2",
           nb::overload_cast<int>(&Engine::memory_size, nb::const_), nb::arg("profile_index"),
           "Bytes of working memory of a context in a profile.")
      .def_prop_ro("refittable", &Engine::is_refittable, "Whether a Refitter can exchange weights.")
      .def_prop_ro("engine_capability", [](const Engine&) { return EngineCapability::kSTANDARD; })
      .def_prop_ro(
          "hardware_compatibility_level", &Engine::hardware_compatibility_level,
          "The GPUs that the engine's own code serves, whatever was asked for: AMPERE_PLUS where "
          "all "
          "of "
          "it is PTX for them, SAME_COMPUTE_CAPABILITY for other code of GPUs, NONE without such "
          "code.")
      .def_prop_ro(
          "tactic_sources", &Engine::tactic_sources,
          "Bits 1 << int(TacticSource): the libraries whose kernels the engine has, which it needs "
          "to be loaded.")
      .def_prop_ro("num_aux_streams", &Engine::num_aux_streams,
                   "On so many streams beside that of the run layers run beside each other that "
                   "need nothing "
                   "of each other; 0 on the CPU.")
      .def_prop_ro("profiling_verbosity", &Engine::profiling_verbosity)
      .def("is_debug_tensor", &Engine::is_debug_tensor, nb::arg("name"),
           "Whether INetworkDefinition.mark_debug marked a tensor of that name.")
      .def("get_engine_stat", &Engine::stat, nb::arg("stat"), "A number in bytes.");
}

/// Binds the methods for an engine's inputs and outputs.
void bind_engine_tensors(ReportingClass<Engine>& c) {
  c.def("get_tensor_name", &tensor_name, nb::arg("index"))
      .def("get_tensor_mode", &Engine::tensor_mode, nb::arg("name"))
      .def("get_tensor_shape", &Engine::tensor_shape, nb::arg("name"),
           "Extents, -1 where they are known at run time only.")
      .def("get_tensor_dtype", &Engine::tensor_dtype, nb::arg("name"))
      .def("get_tensor_format", &Engine::tensor_format, nb::arg("name"),
           nb::arg("profile_index") = 0)
      .def("get_tensor_format_desc", &Engine::tensor_format_desc, nb::arg("name"),
           nb::arg("profile_index") = 0, "Type and layout in words.")
      .def("get_tensor_bytes_per_component", &Engine::tensor_bytes_per_component, nb::arg("name"),
           nb::arg("profile_index") = 0,
           "Bytes of one component of a vectorized format; -1 for other formats.")
      .def("get_tensor_components_per_element", &Engine::tensor_components_per_element,
           nb::arg("name"), nb::arg("profile_index") = 0,
           "Components in a vector of a vectorized format; -1 for other formats.")
      .def("get_tensor_vectorized_dim", &Engine::tensor_vectorized_dim, nb::arg("name"),
           nb::arg("profile_index") = 0,
           "The dimension that is divided into vectors, the channels'; -1 for other formats.")
      .def(
          "get_aliased_input_tensor",
          [](const Engine& self, std::string_view name) -> std::optional<std::string> {
            const std::string* const input = self.aliased_input_tensor(name);
            return input == nullptr ? std::nullopt : std::optional(*input);
          },
          nb::arg("name"),
          "The input in whose memory the output is computed, so that both need the same address, "
          "or None.")
      .def("get_tensor_location", &Engine::tensor_location, nb::arg("name"),
           "Whose address set_tensor_address takes: the host's for inputs whose values decide "
           "shapes.")
      .def("is_shape_inference_io", &Engine::is_shape_inference_io, nb::arg("name"),
           "Whether shapes depend on the tensor's values, or the tensor depends on shapes only.")
      .def(
          "get_tensor_profile_shape",
          [](const Engine& self, std::string_view name, int profile) {
            return of_profile([&](OptProfileSelector select) {
              return nb::cast(self.profile_shape(name, profile, select));
            });
          },
          nb::arg("name"), nb::arg("profile_index"),
          nb::sig("def get_tensor_profile_shape(self, name: str, profile_index: int) -> "
                  "list[Dims]"),
          "The smallest, the typical and the largest shape of an input.")
      .def(
          "get_tensor_profile_values",
          [](const Engine& self, std::string_view name, int profile) {
            return of_profile([&](OptProfileSelector select) {
              return nb::list(to_tuple(self.profile_values(name, profile, select)));
            });
          },
          nb::arg("name"), nb::arg("profile_index"),
          "The smallest, the typical and the largest values of an input that determines shapes, in "
          "C order.");
}

void bind_engine(nb::module_& m) {
  bind_engine_enums(m);
  bind_inspector(m);
  bind_serialization(m);
  ReportingClass<Engine> c(
      m, "ICudaEngine",
      "A built network, ready to run. Named as in TensorRT; it may run on the CPU.",
      nb::type_slots(holder_slots<Engine, tell_engine>()));
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
      .def("__len__", &Engine::num_io_tensors)
      .def_error_recorder()
      .def("serialize", [](const Engine& self) { return HostMemory{serialize_with(self, {})}; })
      .def(
          "create_serialization_config", [](const Engine&) { return SerializationConfig(); },
          "How the engine is stored, to be changed and given to serialize_with_config.")
      .def(
          "serialize_with_config",
          [](const Engine& self, const SerializationConfig& config) {
            return HostMemory{serialize_with(self, config)};
          },
          nb::arg("config"), "The engine file's bytes.")
      .def("create_engine_inspector",
           [](std::shared_ptr<Engine> self) { return Inspector(std::move(self)); });
  bind_engine_properties(c);
  bind_engine_tensors(c);
}

}  // namespace opwright::python
