#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "opwright/NvInferRuntime.h"

namespace opwright {

/// How a test plugin of any kind behaves. All its clones share it.
struct Behavior {
  std::string name = "test_plugin", version = "1", plugin_namespace;
  APILanguage language = APILanguage::kCPP;
  int num_outputs = 1;
  int num_inputs = -1;  ///< that it takes beside shape inputs, where it looks
  bool has_core = true, has_build = true, has_runtime = true, can_clone = true;
  bool attach_returns_itself = false, attach_returns_null = false, fields_are_null = false;
  std::function<IPluginV3*()> attach;
  bool communicates = false;  ///< whether it says that it exchanges data with other ranks
  std::function<int32_t(DataType*, int32_t, DataType const*, int32_t)> types =
      [](DataType* out, int32_t n, DataType const* in, int32_t) {
        for (int32_t i = 0; i < n; ++i) out[i] = in[0];
        return 0;
      };
  std::function<int32_t(DimsExprs const*, int32_t, DimsExprs const*, int32_t, DimsExprs*, int32_t,
                        IExprBuilder&)>
      shapes = [](DimsExprs const* in, int32_t, DimsExprs const*, int32_t, DimsExprs* out,
                  int32_t n, IExprBuilder&) {
        for (int32_t i = 0; i < n; ++i) out[i] = in[0];
        return 0;
      };
  std::function<bool(int32_t, DynamicPluginTensorDesc const*, int32_t, int32_t)> supports =
      [](int32_t pos, DynamicPluginTensorDesc const* p, int32_t, int32_t) {
        return p[pos].desc.format == TensorFormat::kLINEAR && p[pos].desc.type == p[0].desc.type;
      };
  std::function<int32_t(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
                        int32_t)>
      configure = [](auto...) { return 0; };
  /// For the type of input 0 in the last configurePlugin().
  std::function<std::vector<int32_t>(DataType)> tactics = [](DataType) {
    return std::vector<int32_t>{};
  };
  std::function<int32_t(int32_t)> aliased = [](int32_t) { return -1; };
  std::function<int32_t(PluginTensorDesc const*, PluginTensorDesc const*, void const* const*,
                        void* const*, void*, int32_t tactic)>
      enqueue = [](auto...) { return 0; };
  std::function<int32_t(PluginTensorDesc const*, PluginTensorDesc const*)> shape_change =
      [](auto...) { return 0; };
  size_t workspace = 0;
  int32_t tactics_status = 0, set_tactic_status = 0;
  bool can_make = true;      ///< of creators
  int live = 0, clones = 0;  ///< objects alive, clone() calls

  // Only V3 plugins have these.
  char const* timing_cache_id = "";
  char const* metadata = nullptr;
  int format_limit = 100;

  // Only plugins of the Quick family have these.
  bool aot = false;
  /// Types and formats of each port. Empty: those that supports() accepts.
  std::vector<std::vector<std::pair<DataType, TensorFormat>>> combinations;
  int32_t combination_count = -1;  ///< where it is not their number
  std::function<int32_t(DimsExprs const*, IKernelLaunchParams&, ISymExprs&, IExprBuilder&,
                        int32_t tactic)>
      launch = [](auto&&...) { return 0; };
  std::function<int32_t(PluginTensorDesc const*, char const**, char**, int32_t*, int32_t tactic)>
      kernel = [](auto...) { return 0; };
  std::vector<int32_t> ranks;  ///< that getOutputDataTypes() was told
  DimsExprs kept{};            ///< what getOutputShapes() was last given of input 0
  Dims const *input_strides = nullptr, *output_strides = nullptr;  ///< of the current enqueue()

  // Only V2 plugins have these.
  PluginVersion generation = PluginVersion::kV2_DYNAMICEXT;
  int32_t initialize_status = 0;
  std::function<void(PluginTensorDesc const*, PluginTensorDesc const*)> asked_workspace =
      [](auto...) {};
  std::function<void(IGpuAllocator*)> attach_v2 = [](auto...) {};
  int made = 0;                    ///< objects
  std::vector<std::string> calls;  ///< "2 enqueue": what was called on the second object
};

/// The combinations of types and formats that supports() accepts, port by port.
inline std::vector<std::vector<std::pair<DataType, TensorFormat>>> supported_combinations(
    Behavior const& b, DynamicPluginTensorDesc const* ports, int32_t n, int32_t m) {
  std::vector<std::vector<std::pair<DataType, TensorFormat>>> all;
  std::vector<DynamicPluginTensorDesc> descs(ports, ports + n + m);
  std::function<void(int32_t)> choose = [&](int32_t pos) {
    if (pos == n + m) {
      all.emplace_back();
      for (auto const& each : descs) all.back().emplace_back(each.desc.type, each.desc.format);
      return;
    }
    for (const TensorFormat format :
         {TensorFormat::kLINEAR, TensorFormat::kHWC8, TensorFormat::kHWC, TensorFormat::kCHW32})
      for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16,
                                  DataType::kINT8, DataType::kINT32}) {
        auto& desc = descs[static_cast<size_t>(pos)].desc;
        desc.type = type;
        desc.format = format;
        if (b.supports(pos, descs.data(), n, m)) choose(pos + 1);
      }
  };
  choose(0);
  return all;
}

/// Output 0 gets the bytes of input 0, both FP32.
inline int32_t copy_input(PluginTensorDesc const* in, PluginTensorDesc const*,
                          void const* const* inputs, void* const* outputs, void*, int32_t) {
  size_t bytes = sizeof(float);
  for (int32_t i = 0; i < in[0].dims.nbDims; ++i) bytes *= static_cast<size_t>(in[0].dims.d[i]);
  std::memcpy(outputs[0], inputs[0], bytes);
  return 0;
}

}  // namespace opwright
