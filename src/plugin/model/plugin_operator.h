#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "network/operator.h"
#include "plugin/kernel/compiled_kernels.h"
#include "plugin/registry/registry.h"

namespace opwright {

class StoredPorts;

/// What operators of plugins of all kinds have in common.
class PluginOperator : public Operator {
 public:
  virtual const std::string& plugin_name() const = 0;
  bool is_pure() const final { return false; }
  /// Whether an engine calls code of the plugin's own.
  bool is_called() const { return !is_compiled(); }
  PlannedOperatorPtr plan(const KernelArgs& args) const final;

 protected:
  /// Whether a plan has a kernel that the plugin compiles, rather than the plugin.
  virtual bool is_compiled() const { return false; }
  /// The kernel for the candidate and the ports in `args`; asked where is_compiled().
  virtual KernelCode compile(const KernelArgs& args) const;
  /// The plugin for the candidate and the ports in `args`, as a plan has it.
  virtual PlannedOperatorPtr configure(const KernelArgs& args) const = 0;

 private:
  mutable CompiledKernels compiled_;
};

/// A plugin of any kind in a plan, which names it and stores what makes it again.
class PlannedPlugin : public PlannedOperator {
 public:
  PlannedPlugin(std::string_view kind, CreatorIdentity identity)
      : kind_(kind), identity_(std::move(identity)) {}
  std::string_view kind() const final { return kind_; }
  void check(const KernelArgs& args) const final;
  std::vector<PluginRequirement> requirements() const final;

 protected:
  /// Layer and plugin, as messages begin.
  std::string prefix(std::string_view layer) const;
  const CreatorIdentity& identity() const { return identity_; }
  /// check(), with what compares the ports with what the plugin says.
  virtual void check_ports(const StoredPorts& ports, const KernelArgs& args) const = 0;

 private:
  const std::string_view kind_;  // a literal
  const CreatorIdentity identity_;
};

}  // namespace opwright
