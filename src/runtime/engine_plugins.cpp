#include "runtime/engine_plugins.h"

#include <string>

#include "base/error.h"
#include "plugin/lookup.h"
#include "plugin/registry/library_exports.h"
#include "plugin/registry/source_language.h"
#include "plugin/registry/tensorrt_libraries.h"
#include "runtime/engine.h"

namespace opwright {

EnginePlugins::EnginePlugins(const Plan& plan, IPluginRegistry* parent, const Log& log)
    : parent_(parent) {
  // A plugin source may load an engine while it is executed.
  const RegistrationPassage passage;
  if (!plan.plugin_libraries.empty() || !plan.plugin_sources.empty())
    own_ = std::make_unique<PluginRegistry>(parent ? parent : getPluginRegistry(), log);
  load_libraries(plan);
  if (!plan.plugin_sources.empty())
    if (const auto missing = missing_of(plan); !missing.empty()) load_sources(plan, missing);
  check(plan);
}

void EnginePlugins::load_libraries(const Plan& plan) {
  for (const int32_t index : plan.plugin_libraries) {
    const CodeObject& object = plan.code[index];
    try {
      const int tensorrt = provide_tensorrt_libraries(object.bytes);
      libraries_.push_back(HostCode::load(object, "plugin library"));
      const HostCode& library = *libraries_.back();
      for (const PluginRegistration& item : library.registrations())
        own_->add(*item.creator, item.plugin_namespace.c_str());
      const auto symbol = [&](const char* name) { return library.find_symbol(name); };
      for (IPluginCreatorInterface* creator : exported_creators(symbol, object.name, tensorrt))
        own_->add(*creator, "");
    } catch (const Error& error) {
      const std::string reason = error.what();
      const bool lacks_library = reason.find("cannot open shared object file") != std::string::npos;
      fail(engine_name(plan), ": ", reason,
           lacks_library
               ? "; it needs that library: install it, or build the engine with it before "
                 "this one in the list of plugins to serialize"
               : "");
    }
  }
}

void EnginePlugins::load_sources(const Plan& plan, const std::vector<PluginRequirement>& missing) {
  std::vector<CodeObject> sources;
  for (const int32_t index : plan.plugin_sources) sources.push_back(plan.code[index]);
  const std::string& name = sources.front().target;
  for (const CodeObject& source : sources)
    require(source.target == name, engine_name(plan), " has plugins in ", name, " and in ",
            source.target, "; sources must be in one language");
  SourceLanguage* language = find_source_language(name);
  if (language == nullptr) {
    std::string list;
    for (const PluginRequirement& each : missing) list += "\n  " + describe_missing(each);
    fail(engine_name(plan), " brings plugins along as source in ", name,
         ", which this process cannot run: load it in Python (import opwright) or with the program "
         "opwright. Or provide the plugins:",
         list);
  }
  SourceLanguage::Plugins plugins = language->load(sources, missing);
  for (const PluginRegistration& item : plugins.creators)
    own_->add(CreatorPtr(item.owner, item.creator), item.plugin_namespace.c_str());
  definitions_ = std::move(plugins.definitions);
}

std::vector<PluginRequirement> EnginePlugins::missing_of(const Plan& plan) const {
  std::vector<PluginRequirement> missing;
  for (const PluginRequirement& each : plan.requirements)
    if (!is_available(each, registry(), definitions_)) missing.push_back(each);
  return missing;
}

void EnginePlugins::check(const Plan& plan) const {
  std::string list;
  for (const PluginRequirement& each : missing_of(plan)) list += "\n  " + describe_missing(each);
  require(list.empty(), engine_name(plan), " needs plugins that are not registered:", list);
}

}  // namespace opwright
