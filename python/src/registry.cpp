// Plugin registries.

#include "opwright/registry.h"

#include <map>

#include "base/error.h"
#include "creators.h"
#include "held.h"
#include "plugin/registry/registry.h"
#include "plugin_resource.h"
#include "reporting.h"

namespace opwright::python {
namespace {

/// The faces of Python creators that are registered somewhere; the registries keep them alive. The
/// interpreter's lock guards the map. Never destroyed: the process's registry outlives everything.
std::map<PyObject*, std::weak_ptr<IPluginCreatorInterface>>& creator_faces() {
  static auto* faces = new std::map<PyObject*, std::weak_ptr<IPluginCreatorInterface>>;
  return *faces;
}

/// The face of a Python creator that is registered somewhere, or null.
CreatorPtr find_face(nb::handle object) {
  const auto found = creator_faces().find(object.ptr());
  return found != creator_faces().end() ? found->second.lock() : nullptr;
}

/// The creator to register for `object`: the one face of a Python creator, or the C++ creator
/// itself.
CreatorPtr to_creator(nb::handle object) {
  if (IPluginCreatorInterface* creator = library_creator(object)) return {CreatorPtr(), creator};
  if (CreatorPtr face = find_face(object)) return face;
  CreatorPtr face = make_creator_face(object);
  std::erase_if(creator_faces(), [](const auto& entry) { return entry.second.expired(); });
  creator_faces()[object.ptr()] = face;
  return face;
}

bool register_creator(PluginRegistry& self, nb::handle object, const std::string& ns) {
  const CreatorPtr creator = to_creator(object);
  identity(*creator);  // throws the exceptions of its attributes
  return self.register_creator(creator, ns.c_str());
}

bool deregister_creator(PluginRegistry& self, nb::handle object) {
  if (IPluginCreatorInterface* creator = library_creator(object))
    return self.deregisterCreator(*creator);
  const CreatorPtr face = find_face(object);
  return face != nullptr && self.deregisterCreator(*face);
}

nb::list to_list(const std::vector<CreatorPtr>& creators) {
  nb::list list;
  for (const CreatorPtr& creator : creators) list.append(to_python(creator.get()));
  return list;
}

nb::object get_creator(const PluginRegistry& self, const std::string& type,
                       const std::string& version, const std::string& ns) {
  if (const CreatorPtr creator = self.find({type, version, ns})) return to_python(creator.get());
  // Creators of function plugins belong to the process's registry.
  const bool sees_process = &self == &PluginRegistry::global() || self.isParentSearchEnabled();
  return sees_process ? find_function_creator(type, version, ns) : nb::none();
}

/// Tells only the recorder. Registered creators are kept until they are deregistered.
void tell_registry(const PluginRegistry& registry, HeldObjects& held) {
  held.tell(registry.errors().recorder());
}

void bind_plugin_registry(nb::module_& m) {
  ReportingClass<PluginRegistry>(
      m, "IPluginRegistry",
      "Plugin creators by name, version and namespace, and resources that plugins share. A builder "
      "and a runtime have one each, whose parent is that of the process.",
      nb::type_slots(holder_slots<PluginRegistry, tell_registry>()))
      .def_prop_ro(
          "all_creators", [](const PluginRegistry& self) { return to_list(self.creators()); },
          "The creators of this registry.")
      .def_prop_ro(
          "all_creators_recursive",
          [](const PluginRegistry& self) { return to_list(self.creators_recursive()); },
          "The creators of this registry and, if parent search is enabled, of its parents.")
      .def_prop_ro(
          "plugin_creator_list",
          [](const PluginRegistry& self) {
            std::vector<CreatorPtr> creators = self.creators();
            std::erase_if(creators, [](const CreatorPtr& creator) {
              return !is_kind(*creator, "PLUGIN CREATOR_V1");
            });
            return to_list(creators);
          },
          "The creators of this registry that are of the class IPluginCreator.")
      .def("register_creator", &register_creator, nb::arg("creator"),
           nb::arg("plugin_namespace") = "",
           "Registers a creator, which is kept until it is deregistered. False, and an error in "
           "the log, if name, version and namespace are taken.")
      .def("deregister_creator", &deregister_creator, nb::arg("creator"),
           "False if the creator is not registered here.")
      .def("get_creator", &get_creator, nb::arg("type"), nb::arg("version"),
           nb::arg("plugin_namespace") = "", "The creator, also of a function plugin, or None.")
      .def(
          "get_plugin_creator",
          [](const PluginRegistry& self, const std::string& type, const std::string& version,
             const std::string& ns) {
            const CreatorPtr creator = self.find({type, version, ns});
            const bool is_v1 = creator != nullptr && is_kind(*creator, "PLUGIN CREATOR_V1");
            return to_python(is_v1 ? creator.get() : nullptr);
          },
          nb::arg("type"), nb::arg("version"), nb::arg("plugin_namespace") = "",
          "The creator, or None if there is none of the class IPluginCreator.")
      .def(
          "load_library",
          [](PluginRegistry& self, nb::handle path) {
            const auto text =
                nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
            // The library's code may run for a while, or wait for threads that need the
            // interpreter's lock.
            const auto load = [&] {
              const nb::gil_scoped_release release;
              return self.load_library(text);
            };
            return nb::capsule(load());
          },
          nb::arg("plugin_path"),
          "Opens a plugin library and registers its creators. What comes back is for "
          "deregister_library. Raises Error with the reason if that is not possible.")
      .def(
          "deregister_library",
          [](PluginRegistry& self, nb::capsule handle) {
            const nb::gil_scoped_release release;
            self.deregister_library(handle.data());
          },
          nb::arg("handle"),
          "Deregisters the library's creators. It is closed when nothing uses its code any more.")
      .def(
          "acquire_plugin_resource",
          [](PluginRegistry& self, const std::string& key, nb::handle resource) {
            return acquire_resource(self.resources(), key, resource);
          },
          nb::arg("key"), nb::arg("resource").none(),
          "The resource under the key, with one more reference; where there is none, a clone of "
          "`resource`.")
      .def(
          "release_plugin_resource",
          [](PluginRegistry& self, const std::string& key) {
            return self.resources().release(key.c_str());
          },
          nb::arg("key"),
          "Gives up a reference; with the last one the resource is released. 0 on success.")
      .def_prop_rw(
          "parent_search_enabled",
          [](const PluginRegistry& self) { return self.isParentSearchEnabled(); },
          [](PluginRegistry& self, bool enabled) { self.setParentSearchEnabled(enabled); },
          "Whether creators that are not found here are looked for in the parent registry.")
      .def_error_recorder();
}

}  // namespace

void bind_registry(nb::module_& m) {
  bind_creators(m);
  bind_plugin_registry(m);
  m.def(
      "get_plugin_registry", [] { return &PluginRegistry::global(); }, nb::rv_policy::reference,
      "The process's plugin registry, parent of all others.");
  m.def(
      "get_builder_plugin_registry",
      [](EngineCapability capability) {
        // All registries belong to this library.
        return static_cast<PluginRegistry*>(::getBuilderPluginRegistry(capability));
      },
      nb::arg("capability"), nb::rv_policy::reference,
      "The registry that a build for this capability looks plugins up in; None if there is none.");
  m.def(
      "init_libnvinfer_plugins",
      [](nb::handle logger, const std::string& ns) {
        ILogger* target = logger.is_none() ? nullptr : nb::cast<ILogger*>(logger);
        return ::initLibNvInferPlugins(target, ns.c_str());
      },
      nb::arg("logger").none(), nb::arg("namespace"),
      "Registers the plugins that come with the library: none, as what TensorRT brings as plugins "
      "are layers here. True on success.");
  // Engines and networks may outlive the interpreter's modules, but Python's creators may not.
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    PluginRegistry& registry = PluginRegistry::global();
    for (const CreatorPtr& creator : registry.creators())
      if (creator->getAPILanguage() == APILanguage::kPYTHON) registry.deregisterCreator(*creator);
  }));
}

}  // namespace opwright::python
