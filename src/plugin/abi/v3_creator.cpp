#include "plugin/abi/v3_creator.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "plugin/registry/callback.h"

namespace opwright {

namespace {

constexpr std::string_view kOne = "PLUGIN CREATOR_V3ONE";
constexpr std::string_view kQuick = "PLUGIN CREATOR_V3QUICK";

/// Calls `one` or `quick` with the creator as its class.
template <class One, class Quick>
auto visit(IPluginCreatorInterface& creator, One&& one, Quick&& quick) {
  if (is_kind(creator, kOne)) return one(static_cast<IPluginCreatorV3One&>(creator));
  require(is_kind(creator, kQuick), "plugin creator ", str(identity(creator)),
          " is neither an IPluginCreatorV3One nor an IPluginCreatorV3Quick");
  return quick(static_cast<IPluginCreatorV3Quick&>(creator));
}

}  // namespace

bool is_v3_creator(const IPluginCreatorInterface& creator) {
  return is_kind(creator, kOne) || is_quick_creator(creator);
}

bool is_quick_creator(const IPluginCreatorInterface& creator) { return is_kind(creator, kQuick); }

QuickPluginCreationRequest preferred_request(bool prefer_aot, bool prefer_jit,
                                             std::string_view owner) {
  require(!(prefer_aot && prefer_jit), owner,
          ": the network has both flags PREFER_AOT_PYTHON_PLUGINS and PREFER_JIT_PYTHON_PLUGINS, "
          "so it does not say which implementation to use");
  if (prefer_aot) return QuickPluginCreationRequest::kPREFER_AOT;
  return prefer_jit ? QuickPluginCreationRequest::kPREFER_JIT
                    : QuickPluginCreationRequest::kUNKNOWN;
}

const PluginFieldCollection* v3_field_names(IPluginCreatorInterface& creator) {
  const auto ask = [](auto& v3) { return v3.getFieldNames(); };
  return call_plugin("", [&] { return visit(creator, ask, ask); });
}

std::unique_ptr<IPluginV3> create_v3(IPluginCreatorInterface& creator, const CreatorIdentity& id,
                                     std::string_view layer, const FieldValues& fields,
                                     TensorRTPhase phase, QuickPluginCreationRequest request) {
  const std::vector<PluginField> pointers = point_to(fields);
  const PluginFieldCollection collection{static_cast<int32_t>(pointers.size()), pointers.data()};
  const auto make = [&] {
    return std::unique_ptr<IPluginV3>(visit(
        creator,
        [&](IPluginCreatorV3One& one) {
          return one.createPlugin(std::string(layer).c_str(), &collection, phase);
        },
        [&](IPluginCreatorV3Quick& quick) {
          return quick.createPlugin(id.name.c_str(), id.plugin_namespace.c_str(), &collection,
                                    phase, request);
        }));
  };
  return call_plugin([&] { return str("layer '", layer, "': plugin ", str(id), ": "); }, make);
}

}  // namespace opwright
