#pragma once

#include <array>
#include <unordered_map>

#include "backend/backend.h"
#include "bindings.h"
#include "compile/config.h"
#include "handle.h"
#include "network/network.h"
#include "opwright/builder.h"

namespace opwright::python {

/// IBuilderConfig
struct Config {
  DeviceId device = default_device();
  bool device_is_chosen = is_default_device_chosen();
  uint32_t flags = 0;
  int avg_timing_iterations = 4;
  bool timing = true;
  ProfilingVerbosity verbosity = ProfilingVerbosity::kDETAILED;
  std::vector<std::shared_ptr<OptimizationProfile>> profiles;
  std::shared_ptr<TimingCache> timing_cache;
  nb::object progress_monitor = nb::none();
  int optimization_level = 3;
  int max_tactics = -1;
  std::array<size_t, EnumMax<MemoryPoolType>()> memory_limits{};
  uint32_t tactic_sources = default_tactic_sources();
  uint32_t preview_features = ~0u;
  int max_aux_streams = -1;
  TilingOptimizationLevel tiling = TilingOptimizationLevel::kNONE;
  int64_t l2_limit = -1;
  HardwareCompatibilityLevel hardware_compatibility = HardwareCompatibilityLevel::kNONE;
  Handle profile_stream;
  std::vector<std::string> plugins_to_serialize;
  bool embed_python_plugins = false;
  bool debug_plugins = false;
  bool cuda_graphs = true;
  Limits limits;
  struct LayerDevice {
    DeviceType type;
    std::string layer;  ///< its name
  };
  std::unordered_map<const Layer*, LayerDevice> layer_devices;
  uint32_t quantization_flags = 0;
};

/// What it says of DLAs, of the devices of single layers, and of calibration.
void bind_config_devices(nb::module_& m, nb::class_<Config>& c);
void bind_config_calibration(nb::module_& m, nb::class_<Config>& c);

}  // namespace opwright::python
