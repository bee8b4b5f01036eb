#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/log.h"
#include "network/operator.h"

namespace opwright {

class IPluginRegistry;
class Device;
class FunctionPlugin;

/// Code from an engine file. It may only be used if `permitted`.
struct LoadedCode {
  CodeObject object;
  bool permitted = false;
};

/// The context of an operator in a loaded engine, beside the operator's attributes.
struct OperatorLoadContext {
  std::string_view layer;
  std::span<const LoadedCode> code;  ///< the operator's code, as PlannedOperator::code() gave it
  IPluginRegistry* plugins = nullptr;
  /// Function plugins in the engine.
  std::span<const std::shared_ptr<const FunctionPlugin>> definitions;
  const Device* device = nullptr;  ///< the engine's; null: the operator is not run
  Log log;
};

using OperatorLoader =
    std::function<PlannedOperatorPtr(const Attributes&, const OperatorLoadContext&)>;

/// Makes operators of this kind loadable. Registering a kind again replaces it. Thread safe.
void register_operator_kind(std::string kind, OperatorLoader loader);
/// The operator that was stored as (kind, attributes). Throws Error naming layer and kind if the
/// kind is unknown.
PlannedOperatorPtr load_operator(std::string_view kind, const Attributes& attributes,
                                 const OperatorLoadContext& context);

}  // namespace opwright
