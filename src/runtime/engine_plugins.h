#pragma once

#include <memory>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "plugin/kernel/host_code.h"
#include "plugin/model/function_plugin.h"
#include "plugin/registry/registry.h"

namespace opwright {

/// The plugins that an engine works with: those that its plan brings along, which nothing but the
/// engine sees, and those of the registry that it was loaded with.
class EnginePlugins {
 public:
  /// Loads what the plan brings along, which must be permitted: its libraries, whose plugins come
  /// before registered ones, and its sources where they define plugins that are still missing.
  /// `parent` is the registry (null: the process's). Throws Error that says why code cannot be
  /// loaded, or listing every plugin that is missing and how to provide it.
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
  // The registry goes before the code of its creators.
  std::vector<std::shared_ptr<const HostCode>> libraries_;
  std::unique_ptr<PluginRegistry> own_;  ///< null when the plan brings no creators along
  std::vector<std::shared_ptr<const FunctionPlugin>> definitions_;
};

}  // namespace opwright
