// Builder, IBuilderConfig, IOptimizationProfile, IHostMemory.

#include "opwright/builder.h"

#include <chrono>
#include <utility>

#include "backend/backend.h"
#include "base/log.h"
#include "bindings.h"
#include "builder_enums.h"
#include "compile/compile.h"
#include "config.h"
#include "gpu_allocator.h"
#include "handle.h"
#include "host_memory.h"
#include "plugin/registry.h"
#include "reporting.h"
#include "runtime/api_border.h"
#include "runtime/engine.h"
#include "streams.h"
#include "threads.h"
#include "timing_cache.h"

namespace opwright::python {
namespace {

bool has(uint32_t flags, BuilderFlag flag) { return (flags >> static_cast<int>(flag) & 1) != 0; }

/// Tells an IProgressMonitor of the phases that a ProgressCallback hears of.
class Monitor {
 public:
  explicit Monitor(nb::object monitor) : monitor_(std::move(monitor)) {}
  ~Monitor() {
    try {
      close();
    } catch (nb::python_error& error) {  // the build has failed already
      error.discard_as_unraisable("IProgressMonitor.phase_finish");
    }
  }
  bool operator()(const std::string& phase, int done, int total) {
    if (phase != phase_) {
      close();
      phase_ = phase;
      monitor_.attr("phase_start")(phase, nb::none(), total);
    }
    nb::object go_on = monitor_.attr("step_complete")(phase, done);
    return go_on.is_none() || nb::cast<bool>(nb::bool_(go_on));
  }
  void close() {
    const std::string phase = std::exchange(phase_, {});
    if (!phase.empty()) monitor_.attr("phase_finish")(phase);
  }

 private:
  nb::object monitor_;
  std::string phase_;
};

/// Runs the handlers of signals that have come, such as that of Ctrl-C, which only Python's main
/// thread does. The interpreter's lock may be another thread's for some time, so it is asked for at
/// intervals only.
class InterruptCheck {
 public:
  void operator()() {
    if (Clock::now() < next_) return;
    nb::gil_scoped_acquire gil;
    raise_pending();
    next_ = Clock::now() + std::chrono::milliseconds(50);
  }
  static void raise_pending() {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point next_;
};

/// Where plugins of this builder's networks are looked up goes on living with the networks.
class Builder {
 public:
  explicit Builder(nb::object logger)
      : logger(logger),
        log(nb::cast<ILogger*>(logger)),
        registry(std::make_shared<PluginRegistry>(&PluginRegistry::global(), log)),
        errors_(log) {}

  ErrorReport& errors() const { return errors_; }

  const nb::object logger;  ///< keeps it alive
  const Log log;
  const std::shared_ptr<PluginRegistry> registry;
  std::shared_ptr<IGpuAllocator> allocator;  ///< null: the device's memory

  int max_threads = 0;  ///< 0: those of the thread that builds

  Plan build(const Network& network, const Config& config) const {
    check_builder_flags(config.flags);
    const ThreadLimit limit(max_threads);
    BuildConfig build;
    build.device = config.device;
    for (const auto& [layer, chosen] : config.layer_devices)
      check_layer_device(chosen.layer, chosen.type, type_of(config.device));
    build.may_fall_back = !config.device_is_chosen && config.layer_devices.empty();
    if (type_of(config.device) == DeviceType::kGPU)
      nb::module_::import_("opwright._devices").attr("publish_library_folders")();
    build.set_precisions(config.flags, network.flags().strongly_typed);
    for (const auto& profile : config.profiles) build.profiles.push_back(*profile);
    build.avg_timing_iterations = config.avg_timing_iterations;
    const TuningEffort effort = tuning_effort(config.optimization_level, config.max_tactics);
    build.timing = config.timing && effort.timing;
    build.max_candidates = effort.max_candidates;
    if (!has(config.flags, BuilderFlag::kDISABLE_TIMING_CACHE))
      build.timing_cache = config.timing_cache;
    build.error_on_timing_cache_miss = has(config.flags, BuilderFlag::kERROR_ON_TIMING_CACHE_MISS);
    build.detailed_inspection = config.verbosity == ProfilingVerbosity::kDETAILED;
    build.plugins_to_serialize = config.plugins_to_serialize;
    build.embed_plugin_sources = config.embed_python_plugins;
    build.refit = refit_mode(config.flags);
    build.strip = strips_plan(config.flags);
    build.debug_plugins = config.debug_plugins;
    build.graphs = config.cuda_graphs;
    build.limits = config.limits;
    build.hardware_compatibility = config.hardware_compatibility;
    build.log = log;
    build.services = {errors_.recorder(), allocator, nullptr};
    std::optional<Monitor> monitor;
    if (!config.progress_monitor.is_none()) {
      monitor.emplace(config.progress_monitor);
      build.progress = [&monitor](const std::string& phase, int done, int total) {
        nb::gil_scoped_acquire gil;
        const bool go_on = (*monitor)(phase, done, total);
        InterruptCheck::raise_pending();
        return go_on;
      };
    }
    build.interrupt_check = InterruptCheck();
    Plan plan = [&] {
      nb::gil_scoped_release release;
      return compile(network, build);
    }();
    if (monitor) monitor->close();
    return plan;
  }

 private:
  mutable ErrorReport errors_;
};

void bind_profile(nb::module_& m) {
  auto set = [](auto member) {
    return [member](OptimizationProfile& self, const std::string& input, nb::handle min,
                    nb::handle opt, nb::handle max) {
      (self.*member)(input, to_shape(min), to_shape(opt), to_shape(max));
    };
  };
  // As in TensorRT: lists, empty for what was not set.
  auto get = [](auto member, auto convert) {
    return [=](const OptimizationProfile& self, const std::string& input) {
      nb::list shapes;
      if (const auto* range = (self.*member)(input))
        for (const Shape* shape : {&range->min, &range->opt, &range->max})
          shapes.append(convert(*shape));
      return shapes;
    };
  };
  auto dims = [](const Shape& shape) { return nb::cast(shape); };
  auto values = [](const Shape& shape) { return nb::list(to_tuple(shape)); };
  nb::class_<OptimizationProfile>(m, "IOptimizationProfile",
                                  "The shapes that an engine is made for.")
      .def("set_shape", set(&OptimizationProfile::set_shape), nb::arg("input"), nb::arg("min"),
           nb::arg("opt"), nb::arg("max"))
      .def("get_shape", get(&OptimizationProfile::shape, dims), nb::arg("input"),
           nb::sig("def get_shape(self, input: str) -> list[Dims]"),
           "The smallest, the typical and the largest shape; an empty list where none was set.")
      .def("set_shape_input", set(&OptimizationProfile::set_values), nb::arg("input"),
           nb::arg("min"), nb::arg("opt"), nb::arg("max"),
           "The range of the values of an input that determines shapes.")
      .def("get_shape_input", get(&OptimizationProfile::values, values), nb::arg("input"),
           nb::sig("def get_shape_input(self, input: str) -> list[list[int]]"),
           "The same for values.")
      .def("__bool__", [](const OptimizationProfile&) { return true; });
}

void bind_config(nb::module_& m) {
  auto c = nb::class_<Config>(m, "IBuilderConfig",
                              "How a network is built. Made by Builder.create_builder_config.");
  add_context_manager(c);
  bind_config_devices(m, c);
  bind_config_calibration(m, c);
  c.def_rw("avg_timing_iterations", &Config::avg_timing_iterations,
           "Runs over which a kernel's time is taken.")
      .def_rw("timing", &Config::timing,
              "False: time nothing and run no plugin during the build. Each layer takes the "
              "fastest of its candidates that the timing cache has, or else its first one.")
      .def_rw("flags", &Config::flags, "Bits 1 << int(BuilderFlag).")
      .def_prop_rw(
          "default_device_type", [](const Config& self) { return type_of(self.device); },
          [](Config& self, DeviceType device) {
            self.device.backend = device_of(device).backend;
            self.device_is_chosen = true;
          },
          "What the engine is to run on: the GPU where one can be used, unless the environment "
          "variable OPWRIGHT_DEVICE says cpu, else the CPU. A GPU that was not asked for is left "
          "for "
          "the CPU where it has no kernel for some layer.")
      .def_prop_rw(
          "profile_stream", [](const Config& self) { return self.profile_stream.as<uintptr_t>(); },
          [](Config& self, Handle stream) { self.profile_stream = stream; },
          "A stream for timing; without effect, kernels are timed on one of the build's own.")
      .def_prop_rw(
          "device_ordinal", [](const Config& self) { return self.device.ordinal; },
          [](Config& self, int ordinal) { self.device.ordinal = ordinal; },
          "Which of several GPUs; -1: the one that the thread has chosen with CUDA, else the "
          "first.")
      .def_rw("progress_monitor", &Config::progress_monitor,
              nb::for_setter(nb::arg("monitor").none()))
      .def(
          "set_flag",
          [](Config& self, BuilderFlag flag) { self.flags |= 1u << static_cast<int>(flag); },
          nb::arg("flag"))
      .def(
          "clear_flag",
          [](Config& self, BuilderFlag flag) { self.flags &= ~(1u << static_cast<int>(flag)); },
          nb::arg("flag"))
      .def(
          "get_flag", [](const Config& self, BuilderFlag flag) { return has(self.flags, flag); },
          nb::arg("flag"))
      .def(
          "set_preview_feature",
          [](Config& self, PreviewFeature feature, bool enable) {
            const uint32_t bit = 1u << static_cast<int>(feature);
            self.preview_features =
                enable ? self.preview_features | bit : self.preview_features & ~bit;
          },
          nb::arg("feature"), nb::arg("enable"),
          "Kept and given back, without effect: here these features are always there.")
      .def(
          "get_preview_feature",
          [](const Config& self, PreviewFeature feature) {
            return (self.preview_features >> static_cast<int>(feature) & 1) != 0;
          },
          nb::arg("feature"))
      .def(
          "add_optimization_profile",
          [](Config& self, std::shared_ptr<OptimizationProfile> profile) {
            self.profiles.push_back(std::move(profile));
            return static_cast<int>(self.profiles.size()) - 1;
          },
          nb::arg("profile"))
      .def_prop_ro("num_optimization_profiles",
                   [](const Config& self) { return self.profiles.size(); })
      .def(
          "set_memory_pool_limit",
          [](Config& self, MemoryPoolType pool, size_t size) {
            self.memory_limits.at(static_cast<size_t>(pool)) = size;
          },
          nb::arg("pool"), nb::arg("pool_size"),
          "In bytes; kept and given back, without effect: no kernel has a choice to use more.")
      .def(
          "get_memory_pool_limit",
          [](const Config& self, MemoryPoolType pool) {
            return self.memory_limits.at(static_cast<size_t>(pool));
          },
          nb::arg("pool"))
      .def_prop_rw(
          "builder_optimization_level", [](const Config& self) { return self.optimization_level; },
          [](Config& self, int level) {
            tuning_effort(level, self.max_tactics);
            self.optimization_level = level;
          },
          "0: nothing is timed, as with timing = False. 1 and 2: of each layer the first 2 or 4 "
          "candidates that work are timed. 3, as at first, to 5: all are.")
      .def_prop_rw(
          "max_num_tactics", [](const Config& self) { return self.max_tactics; },
          [](Config& self, int count) {
            tuning_effort(self.optimization_level, count);
            self.max_tactics = count;
          },
          "The candidates of each layer that are timed at most: the first ones that work. -1, as "
          "at "
          "first: as many as the optimization level says.")
      .def_prop_rw(
          "engine_capability", [](const Config&) { return EngineCapability::kSTANDARD; },
          [](Config&, EngineCapability capability) {
            require(capability == EngineCapability::kSTANDARD,
                    "engine_capability: EngineCapability.STANDARD is the only one that is here");
          },
          "STANDARD; any other raises Error.")
      .def_prop_rw(
          "hardware_compatibility_level",
          [](const Config& self) { return self.hardware_compatibility; },
          [](Config& self, HardwareCompatibilityLevel level) {
            self.hardware_compatibility = level;
          },
          "The GPUs that an engine for the GPU is to run on beside this one; at first NONE. For "
          "AMPERE_PLUS its kernels are stored as PTX, and a build raises Error that has a compiled "
          "kernel of a plugin for less. SAME_COMPUTE_CAPABILITY is always met. What plugins do by "
          "themselves is theirs to keep.")
      .def_prop_rw(
          "runtime_platform", [](const Config&) { return RuntimePlatform::kSAME_AS_BUILD; },
          [](Config&, RuntimePlatform platform) {
            require(platform == RuntimePlatform::kSAME_AS_BUILD,
                    "runtime_platform: RuntimePlatform.SAME_AS_BUILD is the only one that is here; "
                    "build the engine there");
          },
          "SAME_AS_BUILD; any other raises Error.")
      .def(
          "set_tactic_sources",
          [](Config& self, uint32_t sources) {
            self.tactic_sources = sources;
            return true;
          },
          nb::arg("tactic_sources"),
          "Bits 1 << int(TacticSource); kept and given back, without effect: no kernel is from "
          "these "
          "sources.")
      .def("get_tactic_sources", [](const Config& self) { return self.tactic_sources; })
      .def_prop_rw(
          "max_aux_streams", [](const Config& self) { return self.max_aux_streams; },
          [](Config& self, int count) {
            require(count >= 0, "max_aux_streams is ", count, "; expected 0 or more");
            self.max_aux_streams = count;
          },
          "Permission for so many streams beside that of the run; without effect, engines use "
          "none.")
      .def_rw("tiling_optimization_level", &Config::tiling, "A hint, without effect.")
      .def_prop_rw(
          "l2_limit_for_tiling", [](const Config& self) { return self.l2_limit; },
          [](Config& self, int64_t size) {
            require(size >= -1, "l2_limit_for_tiling is ", size, "; expected bytes, or -1");
            self.l2_limit = size;
          },
          "A hint in bytes, without effect.")
      .def(
          "reset", [](Config& self) { self = Config(); }, "Everything as at first.")
      .def(
          "create_timing_cache",
          [](const Config& self, nb::handle serialized) -> std::shared_ptr<TimingCache> {
            const Blob bytes = borrow_bytes(serialized);
            if (bytes.size() == 0)
              return std::make_shared<TimingCache>(get_device(self.device).identity());
            return TimingCache::deserialize(bytes.bytes());
          },
          nb::arg("serialized_timing_cache"))
      .def(
          "set_timing_cache",
          [](Config& self, std::shared_ptr<TimingCache> cache, bool ignore_mismatch) {
            self.timing_cache = adapt_timing_cache(
                std::move(cache), get_device(self.device).identity(), ignore_mismatch);
            return true;
          },
          nb::arg("cache"), nb::arg("ignore_mismatch"))
      .def("get_timing_cache", [](const Config& self) { return self.timing_cache; })
      .def_prop_rw(
          "plugins_to_serialize", [](const Config& self) { return self.plugins_to_serialize; },
          [](Config& self, nb::handle paths) {
            // A str is a sequence too, of paths of one letter.
            if (nb::isinstance<nb::str>(paths))
              throw nb::type_error("plugins_to_serialize: expected a list of paths, a str came");
            nb::object fspath = nb::module_::import_("os").attr("fspath");
            std::vector<std::string> list;
            for (nb::handle path : paths) list.push_back(nb::cast<std::string>(fspath(path)));
            self.plugins_to_serialize = std::move(list);
          },
          "Paths of plugin libraries that the engine carries, so that it runs without their "
          "files; loading it then needs permission for host code. The build takes plugins from the "
          "registry, so load them there as well.")
      .def_rw("embed_python_plugins", &Config::embed_python_plugins,
              "Whether the engine carries the sources of plugins that Python implements, so that "
              "it runs where nothing was imported; loading it then needs permission for host code.")
      .def_rw("cuda_graphs", &Config::cuda_graphs,
              "Whether execution contexts on a GPU capture what they run into CUDA graphs, once "
              "shapes have stayed for a few runs, and replay them. True at first.")
      .def_rw("debug_plugins", &Config::debug_plugins,
              "Whether the engine checks every call of a plugin: writes beside its outputs and "
              "workspace, to its inputs, outputs left unwritten, and sizes out of range raise "
              "Error, NaN and infinity that come of finite inputs are a warning.")
      .def_rw("limits", &Config::limits,
              "Limits on what the model may make the build spend (build_memory, build_seconds, "
              "steps), and on what the engine of build_engine_with_config may ask for.")
      .def_rw("profiling_verbosity", &Config::verbosity,
              "How much the engine keeps to say about its layers; DETAILED at first.");
}

}  // namespace

void bind_builder(nb::module_& m) {
  bind_builder_enums(m);
  bind_host_memory(m);
  bind_profile(m);
  bind_timing_cache(m);
  bind_config(m);
  ReportingClass<Builder> c(m, "Builder", "Makes networks and builds engines from them.");
  add_context_manager(c);
  nb::borrow<ReportingClass<Network>>(nb::type<Network>())
      .def_prop_ro(
          "builder",
          [](const Network& self) { return nb::find(static_cast<Builder*>(self.builder())); },
          nb::sig("def builder(self) -> Builder"), "The Builder that made the network.");
  c.def(
       "__init__", [](Builder* self, nb::object logger) { new (self) Builder(logger); },
       nb::arg("logger"))
      .def(
          "create_network",
          [](Builder& self, uint32_t flags) {
            auto network = std::make_unique<Network>(network_flags(flags), self.registry, self.log);
            network->set_builder(&self);
            network->errors().set_recorder(self.errors().recorder());
            return network.release();
          },
          nb::arg("flags") = 0, nb::rv_policy::take_ownership, nb::keep_alive<0, 1>())
      .def(
          "create_builder_config", [](const Builder&) { return new Config(); },
          nb::rv_policy::take_ownership)
      .def("create_optimization_profile",
           [](const Builder&) { return std::make_shared<OptimizationProfile>(); })
      .def(
          "build_serialized_network",
          [](const Builder& self, const Network& network, const Config& config) {
            return HostMemory{serialize(self.build(network, config))};
          },
          nb::arg("network"), nb::arg("config"), "The engine file's bytes.")
      .def(
          "build_serialized_network_to_stream",
          [](const Builder& self, const Network& network, const Config& config, nb::handle stream) {
            write_stream(serialize(self.build(network, config)), writer(stream));
            return true;
          },
          nb::arg("network"), nb::arg("config"), nb::arg("writer"),
          "Gives the engine file's bytes to an IStreamWriter, a part after the other.")
      .def(
          "build_engine_with_config",
          [](const Builder& self, const Network& network, const Config& config) {
            Plan plan = self.build(network, config);
            LoadOptions options;
            options.log = self.log;
            options.plugins = network.plugins();
            options.recorder = self.errors().recorder();
            options.allocator = self.allocator;
            options.max_threads = self.max_threads;
            if (plan.backend == config.device.backend)
              options.device_ordinal = config.device.ordinal;
            options.limits = config.limits;
            return Engine::load(std::move(plan), options);
          },
          nb::arg("network"), nb::arg("config"), nb::keep_alive<0, 1>())
      .def(
          "is_network_supported",
          [](const Builder&, const Network&, const Config&) { return true; }, nb::arg("network"),
          nb::arg("config"))
      .def(
          "get_plugin_registry", [](const Builder& self) { return self.registry; },
          nb::keep_alive<0, 1>(),
          "The registry that models of this builder's networks look plugins up in; its parent is "
          "get_plugin_registry().")
      .def_prop_rw(
          "gpu_allocator", [](const Builder& self) { return to_python(self.allocator); },
          [](Builder& self, nb::handle allocator) { self.allocator = to_allocator(allocator); },
          nb::for_setter(nb::arg("allocator").none()),
          "An IGpuAllocator for memory that plugins ask for; None: the device's.")
      .def_prop_rw(
          "max_threads", [](const Builder& self) { return shown_threads(self.max_threads); },
          [](Builder& self, int threads) {
            self.max_threads = checked_threads(threads, "a builder");
          },
          "The most threads that a build and the engines of build_engine_with_config use on the "
          "CPU, the caller's included; at first those of the thread that calls.\n\n:raises Error: "
          "for less than 1 or more than 4096.")
      .def(
          "reset",
          [](Builder& self) {
            self.errors().set_recorder(nullptr);
            self.allocator = nullptr;
            self.max_threads = 0;
          },
          "Everything that was set as at first.")
      .def_prop_ro(
          "num_DLA_cores", [](const Builder&) { return 0; }, "0: no DLA is driven.")
      .def_prop_ro(
          "max_DLA_batch_size", [](const Builder&) { return 0; }, "0: no DLA is driven.")
      .def_error_recorder()
      .def_ro("logger", &Builder::logger)
      .def_prop_ro("platform_has_fast_fp16", [](const Builder&) { return true; })
      .def_prop_ro("platform_has_fast_int8", [](const Builder&) { return true; });
}

}  // namespace opwright::python
