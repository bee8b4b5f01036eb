#include "operators/layer_types.h"

#include <string_view>
#include <unordered_map>

#include "operators/builtin_layers.h"

namespace opwright {

LayerType layer_type(const Layer& layer) {
  if (layer.added_as()) return *layer.added_as();
  static const auto types = [] {
    std::unordered_map<std::string_view, LayerType> all = {{"Constant", LayerType::kCONSTANT},
                                                           {"PluginV2", LayerType::kPLUGIN_V2},
                                                           {"PluginV3", LayerType::kPLUGIN_V3},
                                                           {"Values", LayerType::kSHAPE}};
    each_layer([&]<class Op>() { all.emplace(Op::kKind, Op::kLayer.type); });
    return all;
  }();
  const auto found = types.find(layer.op()->kind());
  return found == types.end() ? LayerType::kPLUGIN : found->second;
}

}  // namespace opwright
