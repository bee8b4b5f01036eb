#pragma once

#include <memory>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "plugin/kernel/host_code.h"
#include "plugin/model/function_plugin.h"
#include "plugin/registry/registry.h"

namespace opwright {

/// The plugins of an engine: those in its plan, which only this engine sees, and those of the
/// registry that it was loaded with.
class EnginePlugins {
 public:
  /// Loads the plan's plugin code, which must be permitted. Plugins of the plan's libraries come
  /// before registered ones. The plan's sources are loaded if they define plugins that are still
  /// missing. `parent` is the registry (null: the process's). Throws Error that says why code
  /// cannot be loaded, or lists every missing plugin and how to provide it.
  EnginePlugins(const Plan& plan, IPluginRegistry* parent, const Log& log);

  IPluginRegistry* registry() const { return own_ ? own_.get() : parent_; }
  std::span<const std::shared_ptr<const FunctionPlugin>> definitions() const {
    return definitions_;
  }

 private:
  void load_libraries(const Plan& plan);
  void load_sources(const Plan& plan, const std::vector<PluginRequirement>& missing);
  std::vector<PluginRequirement> missing_of(const Plan& plan) const;
  void check(const Plan& plan) const;

  IPluginRegistry* parent_;
  // The registry is destroyed before the code of its creators.
  std::vector<std::shared_ptr<const HostCode>> libraries_;
  std::unique_ptr<PluginRegistry> own_;  ///< null when the plan has no creators
  std::vector<std::shared_ptr<const FunctionPlugin>> definitions_;
};

}  // namespace opwright
