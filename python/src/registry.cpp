// Plugin registries and creators.

#include "opwright/registry.h"

#include <map>

#include "base/error.h"
#include "creators.h"
#include "plugin/registry.h"

namespace opwright::python {
namespace {

/// Python creators that are registered; the interpreter's lock guards them. Never destroyed: the
/// registry points to them until the very end.
std::map<PyObject*, std::shared_ptr<IPluginCreatorInterface>>& python_creators() {
  static auto* creators = new std::map<PyObject*, std::shared_ptr<IPluginCreatorInterface>>;
  return *creators;
}

IPluginCreatorInterface& to_creator(nb::handle object, const char* method) {
  const auto found = python_creators().find(object.ptr());
  if (found != python_creators().end()) return *found->second;
  if (IPluginCreatorInterface* creator = library_creator(object)) return *creator;
  fail(method, ": ", nb::cast<std::string>(nb::repr(object)), " is not a registered creator");
}

bool register_creator(IPluginRegistry& self, nb::handle creator, const std::string& ns) {
  if (python_creators().contains(creator.ptr())) return false;
  auto made = make_creator_face(creator);
  const bool done = self.registerCreator(*made, ns.c_str());
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
