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
class FunctionPlugin;

/// Code as an engine file gives it back. It may only be touched when `permitted`.
struct LoadedCode {
  CodeObject object;
  bool permitted = false;
};

/// What operators may need besides their attributes when an engine is loaded.
struct OperatorLoadContext {
  std::string_view layer;
  std::span<const LoadedCode> code;  ///< the operator's own, as PlannedOperator::code() gave it
  IPluginRegistry* plugins = nullptr;
  /// Function plugins that the engine brings along.
  std::span<const std::shared_ptr<const FunctionPlugin>> definitions;
  Log log;
};

using OperatorLoader =
    std::function<PlannedOperatorPtr(const Attributes&, const OperatorLoadContext&)>;

/// Makes operators of this kind loadable. Registering a kind again replaces it. Thread safe.
void register_operator_kind(std::string kind, OperatorLoader loader);
/// The operator that was stored as (kind, attributes). Throws Error naming layer and kind when the
/// kind is unknown.
PlannedOperatorPtr load_operator(std::string_view kind, const Attributes& attributes,
                                 const OperatorLoadContext& context);

}  // namespace opwright
