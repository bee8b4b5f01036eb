#include "plugin/model/plugin_operator.h"

#include <utility>

#include "backend/backend.h"
#include "backend/device.h"
#include "base/error.h"
#include "network/network.h"
#include "plugin/kernel/stored_ports.h"

namespace opwright {

namespace {

/// Everything that code compiled for `args` may depend on.
std::string compilation_key(const KernelArgs& args) {
  std::string key =
      str(args.candidate->tactic, ' ', args.device ? args.device->architecture() : "");
  for (const auto ports : {args.inputs, args.outputs})
    for (const PortDesc& port : ports)
      key += str(" | ", static_cast<int>(port.type.dtype), ' ', static_cast<int>(port.type.format),
                 ' ', port.present, ' ', port.min, ' ', port.opt, ' ', port.max);
  return key;
}

}  // namespace

std::string PluginModel::prefix(std::string_view layer) const {
  return str("layer '", layer, "': plugin ", str(identity()), ": ");
}

std::unique_ptr<Layer> PluginModel::make_layer() const { return nullptr; }

KernelCode PluginModel::compile(const KernelArgs& args) const {
  fail_with(ErrorCode::kINTERNAL_ERROR, prefix(args.layer), "it compiles nothing");
}

std::unique_ptr<Layer> PluginOperator::make_layer() const {
  std::unique_ptr<Layer> layer = model_->make_layer();
  return layer != nullptr ? std::move(layer) : Operator::make_layer();
}

PlannedOperatorPtr PluginOperator::plan(const KernelArgs& args) const {
  if (model_->is_compiled()) return compiled(args);
  return std::make_shared<PlannedPlugin>(model_->configure(args), args.layer);
}

PlannedOperatorPtr PluginOperator::compiled(const KernelArgs& args) const {
  const std::string key = compilation_key(args);
  {
    const std::lock_guard lock(mutex_);
    const auto found = compiled_.find(key);
    if (found != compiled_.end()) return found->second;
  }
  // Compiling runs the plugin's code, so no lock is held. A second thread may compile the same
  // meanwhile; either result serves.
  KernelCode code = model_->compile(args);
  if (args.device != nullptr)
    code.object.target = args.device->backend().code_format().target(code.object);
  PlannedOperatorPtr kernel = make_compiled_kernel(std::move(code));
  const std::lock_guard lock(mutex_);
  return compiled_.emplace(key, std::move(kernel)).first->second;
}

void PlannedPlugin::check(const KernelArgs& args) const {
  model_->check(StoredPorts(args, model_->prefix(args.layer)), args);
}

std::vector<PluginRequirement> PlannedPlugin::requirements() const {
  const CreatorIdentity& id = model_->identity();
  return {{std::string(kind()), id.name, id.version, id.plugin_namespace}};
}

}  // namespace opwright
