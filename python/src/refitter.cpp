// Refitter and OnnxParserRefitter.

#include "runtime/refitter.h"

#include "api/onnx_refitter.h"
#include "bindings.h"
#include "handle.h"
#include "held.h"
#include "reporting.h"

namespace opwright::python {
namespace {

/// A dense array in a GPU's memory, for example of PyTorch or CuPy.
ArrayData on_device(nb::handle array, const char* what) {
  const nb::dict interface = nb::cast<nb::dict>(array.attr("__cuda_array_interface__"));
  require(!interface.contains("strides") || nb::object(interface["strides"]).is_none(), what,
          ": the array on the device is not dense");
  const nb::object dtype = nb::module_::import_("numpy").attr("dtype")(interface["typestr"]);
  const Shape shape = to_shape(interface["shape"]);
  const DataType type = data_type(dtype, what);
  const auto address = nb::cast<uintptr_t>(interface["data"][nb::int_(0)]);
  const auto bytes = static_cast<size_t>(bytes_of(type, shape.numel()));
  return {type, shape, Blob(keep_alive(array), reinterpret_cast<const void*>(address), bytes)};
}

/// The core's Refitter with the Python objects that it keeps alive.
struct PyRefitter : Refitter {
  PyRefitter(const std::shared_ptr<Engine>& engine, nb::object given_logger)
      : Refitter(engine),
        logger(std::move(given_logger)),
        report(std::make_unique<ErrorReport>(Log(nb::cast<ILogger*>(logger)),
                                             engine->errors().recorder())),
        given(weights().size()) {}

  const nb::object logger;
  const std::unique_ptr<ErrorReport> report;
  std::vector<nb::object> given;  ///< weights that were set; none if they came from a model
  ErrorReport& errors() const { return *report; }

  bool set_array(int weight, nb::handle weights, TensorLocation location, const char* what) {
    const ArrayData array =
        location == TensorLocation::kDEVICE && nb::hasattr(weights, "__cuda_array_interface__")
            ? on_device(weights, what)
            : to_array(weights, what);
    set(weight, array.dtype, array.shape.numel(), array.data, location);
    given[weight] = nb::borrow(weights);
    return true;
  }
  /// The weights that were set, as Weights.
  nb::object set_weights(std::string_view name) const {
    const int weight = require_name(name);
    require(location(weight) == TensorLocation::kHOST, "the weights '", name,
            "' lie on the device");
    const nb::object weights_class = nb::module_::import_("opwright._core").attr("Weights");
    nb::object result = given[weight];
    if (result.is_none()) {
      const Blob& from_model = elements(weight);
      result = nb::module_::import_("numpy").attr("frombuffer")(
          nb::bytes(from_model.data(), from_model.size()), numpy_dtype(weights()[weight].dtype));
    }
    return nb::isinstance(result, weights_class) ? result : weights_class(result);
  }
  bool refit_on(Handle stream) {
    const nb::gil_scoped_release released;
    refit(stream.as<Queue>());
    return true;
  }
  std::vector<std::string> names(const std::vector<int32_t>& list) const {
    std::vector<std::string> result;
    for (const int32_t weight : list) result.push_back(weights()[weight].name);
    return result;
  }
  nb::tuple roles(const std::vector<int32_t>& list) const {
    nb::list layers, roles;
    for (const int32_t weight : list) {
      layers.append(use(weight).layer);
      roles.append(static_cast<WeightsRole>(use(weight).role));
    }
    return nb::make_tuple(layers, roles);
  }
};

void tell_refitter(const PyRefitter& refitter, HeldObjects& held) {
  held.tell(refitter.engine());
  held.tell(refitter.logger);
  held.tell(refitter.errors().recorder());
  for (const nb::object& weights : refitter.given) held.tell(weights);
}

struct ModelRefitter {
  nb::object refitter, logger;  ///< kept alive
  OnnxRefitter core;
  ErrorReport& errors() const { return nb::cast<PyRefitter&>(refitter).errors(); }
};

void tell_model_refitter(const ModelRefitter& refitter, HeldObjects& held) {
  held.tell(refitter.refitter);
  held.tell(refitter.logger);
}

void bind_role(nb::module_& m) {
  nb::enum_<WeightsRole>(m, "WeightsRole", nb::is_arithmetic(),
                         "What weights are to the layer that uses them.")
      .value("KERNEL", WeightsRole::kKERNEL, "Of a convolution or deconvolution.")
      .value("BIAS", WeightsRole::kBIAS, "Of a convolution or deconvolution.")
      .value("SHIFT", WeightsRole::kSHIFT, "Of a scale layer.")
      .value("SCALE", WeightsRole::kSCALE, "Of a scale layer.")
      .value("CONSTANT", WeightsRole::kCONSTANT, "Of a constant layer.")
      .value("ANY", WeightsRole::kANY, "Any other.");
}

void bind_engine_refitter(nb::module_& m) {
  using Self = PyRefitter;
  ReportingClass<Self>(
      m, "Refitter",
      "Exchanges the weights of an engine that was built with BuilderFlag.REFIT, REFIT_IDENTICAL "
      "or REFIT_INDIVIDUAL, or gives those to it that BuilderFlag.STRIP_PLAN left out. Methods "
      "raise Error where TensorRT's return False.",
      nb::type_slots(holder_slots<Self, tell_refitter>()))
      .def(
          "__init__",
          [](Self* self, std::shared_ptr<Engine> engine, nb::object logger) {
            new (self) Self(std::move(engine), std::move(logger));
          },
          nb::arg("engine"), nb::arg("logger"))
      .def_error_recorder()
      .def(
          "set_weights",
          [](Self& self, const std::string& layer, WeightsRole role, nb::handle weights) {
            return self.set_array(self.require_role(layer, role), weights, TensorLocation::kHOST,
                                  "set_weights");
          },
          nb::arg("layer_name"), nb::arg("role"), nb::arg("weights"),
          "New weights of a layer: an array of the type and with the number of elements that the "
          "network had, which refit_cuda_engine() reads.")
      .def(
          "set_named_weights",
          [](Self& self, const std::string& name, nb::handle weights, TensorLocation location) {
            return self.set_array(self.require_name(name), weights, location, "set_named_weights");
          },
          nb::arg("name"), nb::arg("weights"), nb::arg("location") = TensorLocation::kHOST,
          "The same by the weights' name. With TensorLocation.DEVICE they lie on the engine's "
          "device: an array with __cuda_array_interface__, or Weights of an address.")
      .def("get_named_weights", &Self::set_weights, nb::arg("weights_name"),
           nb::sig("def get_named_weights(self, weights_name: str) -> Weights"), "What was set.")
      .def(
          "get_weights_location",
          [](const Self& self, const std::string& name) {
            return self.location(self.require_name(name));
          },
          nb::arg("weights_name"), "Where the weights lie that were set.")
      .def(
          "unset_named_weights",
          [](Self& self, const std::string& name) {
            const int weight = self.require_name(name);
            self.given[weight] = nb::none();
            return self.unset(weight);
          },
          nb::arg("weights_name"), "Forgets what was set. False where nothing was.")
      .def(
          "release_refit_resources", [](const Self&) { return true; },
          "True: a refitter keeps nothing between refits that could be released.")
      .def(
          "get_weights_prototype",
          [](const Self& self, const std::string& name) {
            const RefitWeight& weight = self.weights()[self.require_name(name)];
            const nb::object zeros = nb::module_::import_("numpy").attr("zeros")(
                to_tuple(weight.shape), numpy_dtype(weight.dtype));
            return nb::object(nb::module_::import_("opwright._core").attr("Weights")(zeros));
          },
          nb::arg("weights_name"),
          nb::sig("def get_weights_prototype(self, weights_name: str) -> Weights"),
          "Weights of the type and the number of elements that new ones must have, all 0.")
      .def(
          "get_all", [](const Self& self) { return self.roles(self.all()); },
          nb::sig("def get_all(self) -> tuple[list[str], list[WeightsRole]]"),
          "Layers, and roles, of all weights that can be exchanged.")
      .def(
          "get_all_weights", [](const Self& self) { return self.names(self.all()); },
          "Their names.")
      .def(
          "get_missing", [](const Self& self) { return self.roles(self.missing()); },
          nb::sig("def get_missing(self) -> tuple[list[str], list[WeightsRole]]"),
          "Layers, and roles, of the weights that must be set, too, before refit_cuda_engine(): "
          "those that the engine has only combined with weights that were set, and all that it "
          "lacks.")
      .def(
          "get_missing_weights", [](const Self& self) { return self.names(self.missing()); },
          "Their names.")
      .def(
          "refit_cuda_engine", [](Self& self) { return self.refit_on({}); },
          "Puts the new weights into the engine. Contexts use them from their next run on; no run "
          "may be under way. Raises Error, with the engine as it was, when weights are missing.")
      .def("refit_cuda_engine_async", &Self::refit_on, nb::arg("stream_handle"),
           "The same after what the stream was given before; returns when it is done.")
      .def_prop_rw(
          "weights_validation", &Self::validates, &Self::set_validates,
          "Whether weights with elements that are not finite, or not in the type in which the "
          "engine has them, give a warning.")
      .def_prop_rw(
          "max_threads", &Self::max_threads, &Self::set_max_threads,
          "The most threads that refitting uses; at first those of the machine.\n\n:raises Error: "
          "for less than 1 or more than 4096.")
      .def_prop_ro("logger", [](const Self& self) { return self.logger; });
}

void bind_model_refitter(nb::module_& m) {
  using Self = ModelRefitter;
  ReportingClass<Self>(
      m, "OnnxParserRefitter",
      "Sets the weights of a Refitter from the ONNX model that the engine was built from, or one "
      "of the same structure, by the names of its initializers and Constant nodes.",
      nb::type_slots(holder_slots<Self, tell_model_refitter>()))
      .def(
          "__init__",
          [](Self* self, nb::object refitter, nb::object logger) {
            Refitter& core = nb::cast<PyRefitter&>(refitter);
            const Log log(nb::cast<ILogger*>(logger));
            new (self) Self{std::move(refitter), std::move(logger), OnnxRefitter(core, log)};
            self->core.set_links_allowed(is_permitted_by_environment(kAllowLinks));
          },
          nb::arg("refitter"), nb::arg("logger"))
      .def_prop_rw(
          "links_allowed", [](const Self& self) { return self.core.links_allowed(); },
          [](Self& self, bool allowed) { self.core.set_links_allowed(allowed); },
          "As OnnxParser.links_allowed.")
      .def(
          "refit_from_bytes",
          [](Self& self, nb::handle model, nb::handle path) {
            return self.core.refit(borrow_bytes(model), to_path(path));
          },
          nb::arg("model"), nb::arg("path") = nb::none(),
          "Sets all weights of the engine, which Refitter.refit_cuda_engine() then takes; `path` "
          "is the model's file, for external data beside it. False when there are errors, among "
          "them weights of the engine that the model lacks.")
      .def(
          "refit_from_file",
          [](Self& self, nb::handle model) { return self.core.refit_file(to_path(model)); },
          nb::arg("model"), "The same from a file.")
      .def(
          "load_model_proto",
          [](Self& self, nb::handle model, nb::handle path) {
            return self.core.load_model(borrow_bytes(model), to_path(path));
          },
          nb::arg("model"), nb::arg("path") = nb::none(),
          "In steps: takes the model. False when there are errors.")
      .def(
          "load_initializer",
          [](Self& self, const std::string& name, nb::handle data, std::optional<size_t> size) {
            if (nb::isinstance<nb::int_>(data)) {
              require(size.has_value(), "load_initializer: an address needs a size");
              return self.core.load_initializer(
                  name, Blob({}, nb::cast<Handle>(data).as<const void*>(), *size));
            }
            return self.core.load_initializer(name, to_array(data, "load_initializer").data);
          },
          nb::arg("name"), nb::arg("data"), nb::arg("size") = nb::none(),
          "Takes other data for an initializer: an array, or an address and a number of bytes, "
          "which must be there until the engine is refitted.")
      .def(
          "refit_model_proto", [](Self& self) { return self.core.refit_model(); },
          "Sets all weights of the engine from the loaded model.")
      .def_prop_ro("num_errors", [](const Self& self) { return self.core.errors().size(); })
      .def(
          "get_error",
          [](const Self& self, int64_t index) {
            check_position(index, self.core.errors().size());
            return self.core.errors()[index];
          },
          nb::arg("index"))
      .def("clear_errors", [](Self& self) { self.core.clear_errors(); });
}

}  // namespace

void bind_refitter(nb::module_& m) {
  bind_role(m);
  bind_engine_refitter(m);
  bind_model_refitter(m);
}

}  // namespace opwright::python
