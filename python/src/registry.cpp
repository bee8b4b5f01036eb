// Plugin registries and creators.

#include "opwright/registry.h"

#include <map>

#include "base/error.h"
#include "plugin/registry.h"
#include "plugin_bindings.h"

namespace opwright::python {
namespace {

/// A creator that a library implements; the Python class LibraryCreator wraps it.
struct CreatorHandle {
  IPluginCreatorInterface* creator = nullptr;
};

/// The C++ face of a Python IPluginCreatorV3One.
class PythonCreator final : public IPluginCreatorV3One {
 public:
  explicit PythonCreator(nb::object object) : object_(std::move(object)) {}
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kPYTHON; }

  IPluginV3* createPlugin(AsciiChar const* name, PluginFieldCollection const* fields,
                          TensorRTPhase phase) noexcept override {
    return guarded<IPluginV3*>(nullptr, [&]() -> IPluginV3* {
      FieldCollection collection{fields != nullptr ? copy_fields(*fields) : FieldValues{}};
      nb::object plugin = object_.get().attr("create_plugin")(name, std::move(collection), phase);
      return plugin.is_none() ? nullptr : to_plugin_v3(plugin).release();
    });
  }

  PluginFieldCollection const* getFieldNames() noexcept override {
    return guarded<PluginFieldCollection const*>(nullptr, [&] {
      fields_ =
          nb::hasattr(object_.get(), "field_names") && !object_.get().attr("field_names").is_none()
              ? to_fields(object_.get().attr("field_names"), "field_names")
              : FieldValues{};
      pointers_ = point_to(fields_);
      collection_ = {static_cast<int32_t>(pointers_.size()), pointers_.data()};
      return &collection_;
    });
  }

  AsciiChar const* getPluginName() const noexcept override { return get("name", name_); }
  AsciiChar const* getPluginVersion() const noexcept override {
    return get("plugin_version", version_);
  }
  AsciiChar const* getPluginNamespace() const noexcept override {
    return get("plugin_namespace", namespace_);
  }

  const nb::object& object() const { return object_.get(); }

 private:
  const char* get(const char* attribute, std::string& to) const noexcept {
    return guarded<const char*>(to.c_str(), [&] {
      if (nb::hasattr(object_.get(), attribute) && !object_.get().attr(attribute).is_none())
        to = nb::cast<std::string>(object_.get().attr(attribute));
      return to.c_str();
    });
  }
  Reference object_;
  mutable std::string name_, version_ = "1", namespace_;
  FieldValues fields_;
  std::vector<PluginField> pointers_;
  PluginFieldCollection collection_;
};

/// Python creators that are registered; the interpreter's lock guards them. Never destroyed: the
/// registry points to them until the very end.
std::map<PyObject*, std::unique_ptr<PythonCreator>>& python_creators() {
  static auto* creators = new std::map<PyObject*, std::unique_ptr<PythonCreator>>;
  return *creators;
}

nb::object to_python(IPluginCreatorInterface* creator) {
  if (creator == nullptr) return nb::none();
  if (auto* python = dynamic_cast<PythonCreator*>(creator)) return python->object();
  return nb::module_::import_("opwright._plugin_classes")
      .attr("LibraryCreator")(CreatorHandle{creator});
}

IPluginCreatorInterface& to_creator(nb::handle object, const char* method) {
  const auto found = python_creators().find(object.ptr());
  if (found != python_creators().end()) return *found->second;
  if (nb::hasattr(object, "_handle") && nb::isinstance<CreatorHandle>(object.attr("_handle")))
    return *nb::cast<CreatorHandle&>(object.attr("_handle")).creator;
  fail(method, ": ", nb::cast<std::string>(nb::repr(object)), " is not a registered creator");
}

bool register_creator(IPluginRegistry& self, nb::handle creator, const std::string& ns) {
  if (!nb::hasattr(creator, "create_plugin") || !nb::hasattr(creator, "name"))
    throw nb::type_error(("register_creator: expected an IPluginCreatorV3One with a name and "
                          "create_plugin; " +
                          nb::cast<std::string>(nb::repr(creator)) + " came")
                             .c_str());
  if (python_creators().contains(creator.ptr())) return false;
  auto made = std::make_unique<PythonCreator>(nb::borrow(creator));
  const bool done = self.registerCreator(static_cast<IPluginCreatorInterface&>(*made), ns.c_str());
  rethrow_pending_exception();
  if (done) python_creators().emplace(creator.ptr(), std::move(made));
  return done;
}

bool deregister_creator(IPluginRegistry& self, nb::handle creator) {
  const bool done = self.deregisterCreator(
      static_cast<const IPluginCreatorInterface&>(to_creator(creator, "deregister_creator")));
  if (done) python_creators().erase(creator.ptr());
  return done;
}

nb::list to_list(IPluginCreatorInterface* const* creators, int32_t count) {
  nb::list list;
  for (int32_t i = 0; i < count; ++i) list.append(to_python(creators[i]));
  return list;
}

IPluginCreatorV3One& v3_creator(const CreatorHandle& self) {
  require(is_kind(*self.creator, "PLUGIN CREATOR_V3ONE"), "plugin creator ",
          str(identity(*self.creator)), " is not an IPluginCreatorV3One");
  return static_cast<IPluginCreatorV3One&>(*self.creator);
}

void bind_creators(nb::module_& m) {
  nb::class_<CreatorHandle>(m, "_CreatorHandle", "A creator that a C++ library implements.")
      .def_prop_ro("name", [](const CreatorHandle& self) { return identity(*self.creator).name; })
      .def_prop_ro("version",
                   [](const CreatorHandle& self) { return identity(*self.creator).version; })
      .def_prop_ro(
          "namespace",
          [](const CreatorHandle& self) { return identity(*self.creator).plugin_namespace; })
      .def_prop_ro(
          "field_names",
          [](const CreatorHandle& self) {
            FieldCollection fields;
            const PluginFieldCollection* declared = v3_creator(self).getFieldNames();
            // Declarations have no data, whatever they point to.
            for (int32_t i = 0; declared != nullptr && i < declared->nbFields; ++i)
              fields.values.push_back({declared->fields[i].name, declared->fields[i].type, 0, {}});
            return fields;
          })
      .def(
          "create_plugin",
          [](const CreatorHandle& self, const std::string& name, nb::handle collection,
             TensorRTPhase phase) {
            const FieldValues values = to_fields(collection, "create_plugin");
            const std::vector<PluginField> fields = point_to(values);
            const PluginFieldCollection raw{static_cast<int32_t>(fields.size()), fields.data()};
            std::unique_ptr<IPluginV3> plugin(
                v3_creator(self).createPlugin(name.c_str(), &raw, phase));
            rethrow_pending_exception();
            require(plugin != nullptr, "plugin creator ", str(identity(*self.creator)),
                    " refused the fields that it was given");
            return from_plugin_v3(std::move(plugin));
          },
          nb::arg("name"), nb::arg("field_collection"), nb::arg("phase"))
      .def("__eq__",
           [](const CreatorHandle& a, const CreatorHandle& b) { return a.creator == b.creator; });
}

void bind_plugin_registry(nb::module_& m) {
  nb::class_<PluginRegistry>(m, "IPluginRegistry", "Plugin creators by name, version, namespace.")
      .def_prop_ro("all_creators",
                   [](const PluginRegistry& self) {
                     int32_t count = 0;
                     auto* creators = self.getAllCreators(&count);
                     return to_list(creators, count);
                   })
      .def_prop_ro("all_creators_recursive",
                   [](PluginRegistry& self) {
                     int32_t count = 0;
                     auto* creators = self.getAllCreatorsRecursive(&count);
                     return to_list(creators, count);
                   })
      .def(
          "register_creator",
          [](PluginRegistry& self, nb::handle creator, const std::string& ns) {
            return register_creator(self, creator, ns);
          },
          nb::arg("creator"), nb::arg("plugin_namespace") = "",
          "Registers an IPluginCreatorV3One; False if name, version and namespace are taken.")
      .def(
          "deregister_creator",
          [](PluginRegistry& self, nb::handle creator) {
            return deregister_creator(self, creator);
          },
          nb::arg("creator"))
      .def(
          "get_creator",
          [](PluginRegistry& self, const std::string& type, const std::string& version,
             const std::string& ns) {
            return to_python(self.getCreator(type.c_str(), version.c_str(), ns.c_str()));
          },
          nb::arg("type"), nb::arg("version"), nb::arg("plugin_namespace") = "",
          "The creator, or None.")
      .def(
          "load_library",
          [](PluginRegistry& self, nb::handle path) {
            const auto text =
                nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
            return nb::capsule(self.load_library(text));
          },
          nb::arg("plugin_path"),
          "Opens a plugin library and registers its creators; what comes back is for "
          "deregister_library.")
      .def(
          "deregister_library",
          [](PluginRegistry& self, nb::capsule handle) { self.deregisterLibrary(handle.data()); },
          nb::arg("handle"))
      .def_prop_rw(
          "parent_search_enabled",
          [](const PluginRegistry& self) { return self.isParentSearchEnabled(); },
          [](PluginRegistry& self, bool enabled) { self.setParentSearchEnabled(enabled); });
}

}  // namespace

void bind_registry(nb::module_& m) {
  bind_creators(m);
  bind_plugin_registry(m);
  m.def(
      "get_plugin_registry", [] { return &PluginRegistry::global(); }, nb::rv_policy::reference,
      "The process's plugin registry.");
  m.def(
      "get_builder_plugin_registry", [](nb::handle) { return &PluginRegistry::global(); },
      nb::arg("capability").none() = nb::none(), nb::rv_policy::reference);
  m.def(
      "init_libnvinfer_plugins",
      [](nb::handle logger, const std::string& ns) {
        ILogger* target = logger.is_none() ? nullptr : nb::cast<ILogger*>(logger);
        return ::initLibNvInferPlugins(target, ns.c_str());
      },
      nb::arg("logger").none(), nb::arg("namespace"),
      "Registers the plugins that come with the library.");
  // Engines and networks may outlive the interpreter's modules; what Python registered may not.
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    for (auto& [object, creator] : python_creators())
      PluginRegistry::global().deregisterCreator(
          static_cast<const IPluginCreatorInterface&>(*creator));
    python_creators().clear();
  }));
}

}  // namespace opwright::python
