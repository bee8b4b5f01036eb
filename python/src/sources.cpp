// Plugins that engines carry as Python source.

#include <map>
#include <mutex>

#include "plugin/lookup.h"
#include "plugin/registry/registry.h"
#include "plugin/registry/source_language.h"
#include "plugin_bindings.h"

namespace opwright::python {
namespace {

nb::tuple requirement_tuple(const PluginRequirement& item) {
  return nb::make_tuple(item.kind, item.name, item.version, item.plugin_namespace);
}

nb::list to_list(std::span<const PluginRequirement> plugins) {
  nb::list list;
  for (const PluginRequirement& item : plugins) list.append(requirement_tuple(item));
  return list;
}

/// Adds the captured registrations to `to`, also when a source failed. Sources that ran before the
/// failed one are not run again.
class Gathering {
 public:
  explicit Gathering(SourceLanguage::Plugins& to) : to_(to) {}
  ~Gathering() {
    for (PluginRegistration& item : capture_.creators) to_.creators.push_back(std::move(item));
    for (auto& item : capture_.definitions) to_.definitions.push_back(std::move(item));
  }

 private:
  SourceLanguage::Plugins& to_;
  RegistrationCapture capture_;
};

bool defines(const SourceLanguage::Plugins& plugins, const PluginRequirement& requirement) {
  PluginRegistry registry;
  for (const PluginRegistration& item : plugins.creators)
    registry.add(*item.creator, item.plugin_namespace.c_str());
  return is_available(requirement, &registry, plugins.definitions);
}

/// Runs sources as an engine does, and returns the required plugins that they do not define.
nb::list missing_plugins(SourceLanguage& language, nb::handle files, nb::handle requirements) {
  std::vector<CodeObject> sources;
  for (nb::handle file : files) {
    const auto bytes = nb::cast<nb::bytes>(file[1]);
    sources.push_back(
        {nb::cast<std::string>(file[0]), "python", Blob::copy(bytes.c_str(), bytes.size()), true});
  }
  std::vector<PluginRequirement> plugins;
  for (nb::handle item : requirements)
    plugins.push_back({nb::cast<std::string>(item[0]), nb::cast<std::string>(item[1]),
                       nb::cast<std::string>(item[2]), nb::cast<std::string>(item[3])});
  const SourceLanguage::Plugins found = language.load(sources, plugins);
  std::erase_if(plugins, [&](const PluginRequirement& each) { return defines(found, each); });
  return to_list(plugins);
}

class PythonLanguage final : public SourceLanguage {
 public:
  std::vector<CodeObject> collect(std::span<const PluginRequirement> plugins) override {
    nb::gil_scoped_acquire gil;
    nb::object files =
        nb::module_::import_("opwright._plugins.sources").attr("collect")(to_list(plugins));
    std::vector<CodeObject> sources;
    for (nb::handle file : files) {
      const auto bytes = nb::cast<nb::bytes>(file[1]);
      sources.push_back({nb::cast<std::string>(file[0]), "python",
                         Blob::copy(bytes.c_str(), bytes.size()), true});
    }
    return sources;
  }

  Plugins load(std::span<const CodeObject> sources,
               std::span<const PluginRequirement> plugins) override {
    nb::gil_scoped_acquire gil;
    // Registrations of sources that another thread runs have not been gathered yet, so wait for it.
    std::unique_lock lock(mutex_, std::defer_lock);
    {
      nb::gil_scoped_release release;
      lock.lock();
    }
    nb::list files;
    for (const CodeObject& source : sources)
      files.append(
          nb::make_tuple(source.name, nb::bytes(source.bytes.data(), source.bytes.size())));
    nb::object opened = nb::module_::import_("opwright._plugins.embedded")
                            .attr("open_sources")(files, to_list(plugins));
    nb::object bundle = opened[1], definitions = opened[2];
    Plugins& all = loaded_[nb::cast<std::string>(opened[0])];
    {
      const Gathering gathering(all);
      bundle.attr("run")(definitions);
    }
    for (nb::handle definition : definitions) {
      nb::object id = definition["plugin"];
      const PluginRequirement requirement{
          nb::cast<std::string>(id[0]), nb::cast<std::string>(id[1]), nb::cast<std::string>(id[2]),
          nb::cast<std::string>(id[3])};
      if (defines(all, requirement) || nb::object(definition["creator"]).is_none()) continue;
      const Gathering gathering(all);
      bundle.attr("register_creator")(definition);
    }
    return all;
  }

 private:
  std::recursive_mutex mutex_;             // a source may load an engine too
  std::map<std::string, Plugins> loaded_;  ///< plugins by the digest of their sources
};

}  // namespace

void bind_sources(nb::module_& m) {
  static auto* language = new PythonLanguage;  // never destroyed: it holds Python objects
  set_source_language("python", language);
  m.def(
      "_run_sources",
      [](nb::handle files, nb::handle plugins) {
        return missing_plugins(*language, files, plugins);
      },
      "Runs an engine's sources as loading it does; those of the plugins that they lack.");
  nb::module_::import_("atexit").attr("register")(
      nb::cpp_function([] { set_source_language("python", nullptr); }));
}

}  // namespace opwright::python
