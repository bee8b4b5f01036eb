// Builder, IBuilderConfig, IOptimizationProfile, IHostMemory.

#include "api/builder.h"

#include <chrono>

#include "bindings.h"
#include "config.h"
#include "gpu_allocator.h"
#include "handle.h"
#include "held.h"
#include "host_memory.h"
#include "reporting.h"
#include "representations.h"
#include "settings.h"
#include "streams.h"

namespace opwright::python {
namespace {

/// Runs the handlers of signals that have arrived, such as Ctrl-C. Only Python's main thread runs
/// them. Another thread may hold the interpreter's lock for some time, so this class takes the lock
/// only at intervals.
class SignalCheck {
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

/// Calls a Python IProgressMonitor.
class Monitor final : public BuildMonitor {
 public:
  explicit Monitor(nb::object object) : object(std::move(object)) {}
  void phase_start(const std::string& phase, int steps) override {
    nb::gil_scoped_acquire gil;
    object.attr("phase_start")(phase, nb::none(), steps);
  }
  bool step_complete(const std::string& phase, int step) override {
    nb::gil_scoped_acquire gil;
    const nb::object go_on = object.attr("step_complete")(phase, step);
    SignalCheck::raise_pending();
    return go_on.is_none() || nb::cast<bool>(nb::bool_(go_on));
  }
  void phase_finish(const std::string& phase) override {
    nb::gil_scoped_acquire gil;
    object.attr("phase_finish")(phase);
  }
  const nb::object object;
};

/// The core's Builder, which keeps its Python logger alive.
struct PyBuilder : Builder {
  explicit PyBuilder(nb::object logger)
      : Builder(Log(nb::cast<ILogger*>(logger))), logger(std::move(logger)) {}
  const nb::object logger;

  Plan build(const Network& network, const BuilderConfig& config) const {
    find_libraries(config);
    nb::gil_scoped_release release;
    return Builder::build(network, config, SignalCheck());
  }
  void time_candidates(const Network& network, const BuilderConfig& config,
                       const nb::callable& filter) const {
    find_libraries(config);
    nb::gil_scoped_release release;
    Builder::time_candidates(
        network, config,
        [&filter](const std::string& layer, const std::string& key) {
          nb::gil_scoped_acquire gil;
          return nb::cast<bool>(nb::bool_(filter(layer, key)));
        },
        SignalCheck());
  }
  bool supports(const Network& network, const BuilderConfig& config) const {
    find_libraries(config);
    nb::gil_scoped_release release;
    return errors().run([&] { check_supported(network, config); });
  }

 private:
  /// Publishes the folders of NVIDIA's libraries in the packages that pip installed.
  static void find_libraries(const BuilderConfig& config) {
    if (config.default_device_type() == DeviceType::kGPU)
      nb::module_::import_("opwright._devices").attr("publish_library_folders")();
  }
};

void tell_builder(const PyBuilder& builder, HeldObjects& held) {
  held.tell(builder.logger);
  held.tell(builder.errors().recorder());
  held.tell(builder.allocator());
}
void tell_config(const BuilderConfig& config, HeldObjects& held) {
  if (config.monitor.use_count() == 1)
    held.tell(static_cast<const Monitor*>(config.monitor.get())->object);
}

void bind_profile(nb::module_& m) {
  auto set = [](auto member) {
    return [member](OptimizationProfile& self, const std::string& input, nb::handle min,
                    nb::handle opt, nb::handle max) {
      (self.*member)(input, to_shape(min), to_shape(opt), to_shape(max));
    };
  };
  // As in TensorRT, getters return lists, which are empty if the shapes were not set.
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
  using Self = OptimizationProfile;
  using SetAll = void (Self::*)(const std::string&, const Shape&, const Shape&, const Shape&);
  using GetAll = const Self::Range* (Self::*)(const std::string&) const;
  nb::class_<Self> c(m, "IOptimizationProfile", "The shapes that an engine is made for.");
  c.def("set_shape", set(static_cast<SetAll>(&Self::set_shape)), nb::arg("input"), nb::arg("min"),
        nb::arg("opt"), nb::arg("max"))
      .def("get_shape", get(static_cast<GetAll>(&Self::shape), dims), nb::arg("input"),
           nb::sig("def get_shape(self, input: str) -> list[Dims]"),
           "The smallest, the typical and the largest shape; an empty list where none was set.")
      .def("set_shape_input", set(static_cast<SetAll>(&Self::set_values)), nb::arg("input"),
           nb::arg("min"), nb::arg("opt"), nb::arg("max"),
           "The range of the values of an input that determines shapes.")
      .def("get_shape_input", get(static_cast<GetAll>(&Self::values), values), nb::arg("input"),
           nb::sig("def get_shape_input(self, input: str) -> list[list[int]]"),
           "The same for values.")
      .def("__bool__", [](const Self&) { return true; });
  bind_settings<Self>(c, kItself);
}

/// Binds the settings of configs. Settings of some types have Python forms of their own.
class ConfigBinder : public SettingBinder<BuilderConfig, BuilderConfig, decltype(kItself)> {
 public:
  using Self = BuilderConfig;
  explicit ConfigBinder(nb::class_<Self>& c) : SettingBinder(c, kItself) {}
  using SettingBinder::operator();

  void operator()(const Setting<Self, std::shared_ptr<BuildMonitor>>& row) {
    class_.def_prop_rw(
        row.name,
        [](const Self& self) {
          const auto* const monitor = static_cast<Monitor*>(self.monitor.get());
          return monitor == nullptr ? nb::none() : monitor->object;
        },
        [](Self& self, nb::object monitor) {
          self.monitor =
              monitor.is_none() ? nullptr : std::make_shared<Monitor>(std::move(monitor));
        },
        nb::for_setter(nb::arg("monitor").none()));
  }
  void operator()(const Setting<Self, std::vector<std::string>>& row) {
    class_.def_prop_rw(
        row.name, [member = row.member](const Self& self) { return self.*member; },
        [row](Self& self, nb::handle paths) {
          // A str is a sequence too, of one-letter paths.
          if (nb::isinstance<nb::str>(paths))
            throw nb::type_error(str(row.name, ": expected a list of paths, a str came").c_str());
          nb::object fspath = nb::module_::import_("os").attr("fspath");
          std::vector<std::string> list;
          for (nb::handle path : paths) list.push_back(nb::cast<std::string>(fspath(path)));
          row.set(self, std::move(list));
        },
        row.doc);
  }
  void operator()(const Setting<Self, VerificationLevel>& row) {
    class_.def_prop_rw(
        row.name,
        [](const Self& self) -> nb::object {
          if (self.verification == VerificationLevel::kSTRICT) return nb::str("strict");
          return nb::bool_(self.verification == VerificationLevel::kALL);
        },
        [](Self& self, nb::handle verify) {
          if (nb::isinstance<nb::bool_>(verify)) {
            self.verification =
                nb::cast<bool>(verify) ? VerificationLevel::kALL : VerificationLevel::kPLUGINS;
          } else if (nb::isinstance<nb::str>(verify) && nb::cast<std::string>(verify) == "strict") {
            self.verification = VerificationLevel::kSTRICT;
          } else {
            fail("verify: ", nb::repr(verify).c_str(), " came; expected True, False or 'strict'");
          }
        },
        nb::sig("def verify(self, arg: bool | str, /) -> None"), row.doc);
  }
  void operator()(const ComputedSetting<Self, std::nullptr_t>& row) {
    class_.def_prop_rw(
        row.name, [](const Self&) { return nb::none(); },
        [set = row.set](Self& self, nb::handle) { set(self, nullptr); },
        nb::for_setter(nb::arg("config").none()), row.doc);
  }
};

void bind_config(nb::module_& m) {
  using Self = BuilderConfig;
  auto c = nb::class_<Self>(m, "IBuilderConfig",
                            "How a network is built. Made by Builder.create_builder_config.",
                            nb::type_slots(holder_slots<Self, tell_config>()));
  add_context_manager(c);
  bind_config_devices(m, c);
  bind_config_calibration(m, c);
  bind_flags(c, "flag", &Self::flags);
  Self::visit(ConfigBinder(c));
  c.def("__repr__", [](const Self& self) { return describe(self); });
  c.def_prop_rw(
      "_in_short_api", [](const Self& self) { return self.shape_source == ShapeSource::kPython; },
      [](Self& self, bool is) {
        self.shape_source = is ? ShapeSource::kPython : ShapeSource::kProfile;
      },
      "Whether messages speak of opwright.build's arguments.");
  c.def(
       "set_preview_feature",
       [](Self& self, PreviewFeature feature, bool enable) {
         self.preview_features.set(feature, enable);
       },
       nb::arg("feature"), nb::arg("enable"),
       "Kept and given back, without effect: here these features are always there.")
      .def(
          "get_preview_feature",
          [](const Self& self, PreviewFeature feature) {
            return self.preview_features.has(feature);
          },
          nb::arg("feature"))
      .def("add_optimization_profile", &Self::add_optimization_profile, nb::arg("profile"))
      .def("set_memory_pool_limit", &Self::set_memory_pool_limit, nb::arg("pool"),
           nb::arg("pool_size"),
           "In bytes; kept and given back, without effect: no kernel has a choice to use more.")
      .def("get_memory_pool_limit", &Self::memory_pool_limit, nb::arg("pool"))
      .def(
          "set_tactic_sources",
          [](Self& self, TacticSources sources) {
            self.tactic_sources = sources;
            return true;
          },
          nb::arg("tactic_sources"),
          "Bits 1 << int(TacticSource): the libraries whose kernels may be among the candidates. "
          "CUBLAS_LT counts on a GPU, for matrix products, and CUDNN for convolutions; the engine "
          "then needs that library, in that version, where it runs. Others are kept and given "
          "back, without effect.")
      .def("get_tactic_sources", [](const Self& self) { return self.tactic_sources; })
      .def(
          "reset", [](Self& self) { self = Self(); }, "Sets everything to its default.")
      .def(
          "create_timing_cache",
          [](const Self& self, nb::handle serialized) {
            return self.create_timing_cache(borrow_bytes(serialized).bytes());
          },
          nb::arg("serialized_timing_cache"))
      .def("set_timing_cache", done<Self>(&Self::set_timing_cache), nb::arg("cache"),
           nb::arg("ignore_mismatch"))
      .def("get_timing_cache", [](const Self& self) { return self.timing_cache; });
}

}  // namespace

void bind_builder(nb::module_& m) {
  bind_builder_enums(m);
  bind_host_memory(m);
  bind_profile(m);
  bind_timing_cache(m);
  bind_config(m);
  using Self = PyBuilder;
  ReportingClass<Self> c(m, "Builder", "Makes networks and builds engines from them.",
                         nb::type_slots(holder_slots<Self, tell_builder>()));
  add_context_manager(c);
  nb::borrow<ReportingClass<Network>>(nb::type<Network>())
      .def_prop_ro(
          "builder",
          [](const Network& self) { return nb::find(static_cast<Self*>(self.builder())); },
          nb::sig("def builder(self) -> Builder"), "The Builder that made the network.");
  c.def(
       "__init__", [](Self* self, nb::object logger) { new (self) Self(std::move(logger)); },
       nb::arg("logger"))
      .def(
          "create_network",
          [](Self& self, uint32_t flags) {
            auto network =
                std::make_unique<Network>(network_flags(flags), self.registry(), self.log());
            network->set_builder(&self);
            network->errors().set_recorder(self.errors().recorder());
            return network.release();
          },
          nb::arg("flags") = 0, nb::rv_policy::take_ownership, nb::call_policy<HoldsMaker>())
      .def(
          "create_builder_config", [](const Self&) { return new BuilderConfig(); },
          nb::rv_policy::take_ownership)
      .def("create_optimization_profile",
           [](const Self&) { return std::make_shared<OptimizationProfile>(); })
      .def(
          "build_serialized_network",
          [](const Self& self, const Network& network, const BuilderConfig& config) {
            return HostMemory{serialize(self.build(network, config))};
          },
          nb::arg("network"), nb::arg("config"), "The engine file's bytes.")
      .def(
          "build_serialized_network_to_stream",
          [](const Self& self, const Network& network, const BuilderConfig& config,
             nb::handle stream) {
            write_stream(serialize(self.build(network, config)), writer(stream));
            return true;
          },
          nb::arg("network"), nb::arg("config"), nb::arg("writer"),
          "Gives the engine file's bytes to an IStreamWriter, a part after the other.")
      .def(
          "build_engine_with_config",
          [](Self& self, const Network& network, const BuilderConfig& config) {
            std::shared_ptr<Engine> engine =
                self.load(self.build(network, config), network, config);
            self.set_allocator(own_face(self.allocator()));
            return engine;
          },
          nb::arg("network"), nb::arg("config"), nb::call_policy<HoldsMaker>())
      .def("_time_candidates", &Self::time_candidates, nb::arg("network"), nb::arg("config"),
           nb::arg("filter"),
           "Times what a build would and the config's timing cache lacks, where `filter(layer, "
           "key)` is true, and puts it there; nothing is built.")
      .def("is_network_supported", &Self::supports, nb::arg("network"), nb::arg("config"),
           "Whether a build with this config would have kernels for all layers; if not, the logger "
           "hears why. Nothing is timed.")
      .def(
          "get_plugin_registry", [](const Self& self) { return self.registry(); },
          nb::call_policy<HoldsMaker>(),
          "The registry that models of this builder's networks look plugins up in; its parent is "
          "get_plugin_registry().")
      .def_prop_rw(
          "gpu_allocator", [](const Self& self) { return to_python(self.allocator()); },
          [](Self& self, nb::handle allocator) { self.set_allocator(to_allocator(allocator)); },
          nb::for_setter(nb::arg("allocator").none()),
          "An IGpuAllocator for memory that plugins ask for; None: the device's.")
      .def_prop_rw(
          "max_threads", &Self::max_threads, &Self::set_max_threads,
          "The most threads that a build and the engines of build_engine_with_config use on the "
          "CPU, the caller's included; at first those of the thread that calls.\n\n:raises Error: "
          "for less than 1 or more than 4096.")
      .def("reset", &Self::reset, "Sets everything to its default.")
      .def_prop_ro(
          "num_DLA_cores", [](const Self&) { return 0; }, "0: no DLA is driven.")
      .def_prop_ro(
          "max_DLA_batch_size", [](const Self&) { return 0; }, "0: no DLA is driven.")
      .def_error_recorder()
      .def_ro("logger", &Self::logger)
      .def_prop_ro("platform_has_fast_fp16", [](const Self&) { return true; })
      .def_prop_ro("platform_has_fast_int8", [](const Self&) { return true; });
}

}  // namespace opwright::python
