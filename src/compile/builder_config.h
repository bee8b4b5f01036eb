#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/flags.h"
#include "compile/config.h"

namespace opwright {

/// Hears of the phases of a build, as TensorRT's IProgressMonitor; may throw, which ends the build.
class BuildMonitor {
 public:
  virtual ~BuildMonitor() = default;
  virtual void phase_start(const std::string& phase, int steps) = 0;
  /// False cancels the build.
  virtual bool step_complete(const std::string& phase, int step) = 0;
  virtual void phase_finish(const std::string& phase) = 0;
};

/// Of the calibration that TensorRT 10 had.
enum class QuantizationFlag : int32_t { kCALIBRATE_BEFORE_FUSION = 0 };
namespace impl {
template <>
struct EnumMaxImpl<QuantizationFlag> {
  static constexpr int32_t kVALUE = 1;
};
}  // namespace impl

/// What a builder's config says that may be anything.
struct BuilderSettings {
  Flags<BuilderFlag> flags;
  Flags<PreviewFeature> preview_features{~0U};  ///< without effect
  Flags<QuantizationFlag> quantization_flags;   ///< without effect
  TacticSources tactic_sources = default_tactic_sources();
  bool timing = true;
  ProfilingVerbosity verbosity = ProfilingVerbosity::kDETAILED;
  std::shared_ptr<BuildMonitor> monitor;  ///< null: nobody
  Queue profile_stream = nullptr;         ///< without effect
  std::vector<std::string> plugins_to_serialize;
  bool embed_plugin_sources = false;
  bool debug_plugins = false;
  bool all_tactics = false;
  bool graphs = true;
  ShapeSource shape_source = ShapeSource::kProfile;
};

/// How a network is built, as IBuilderConfig has it. What sets something throws Error for what is
/// not here, and leaves the value before.
class BuilderConfig : public BuilderSettings {
 public:
  /// What the engine is to run on, and whether it was chosen.
  const DeviceId& device() const { return device_; }
  void set_device(const DeviceId& device);
  DeviceType default_device_type() const { return type_of(device_); }
  /// The first backend of that type, of whose devices the number stays.
  void set_default_device_type(DeviceType type);
  /// Of several devices; -1: get_device()'s choice.
  int device_ordinal() const { return device_.ordinal; }
  void set_device_ordinal(int ordinal) { device_.ordinal = ordinal; }
  /// Of a layer, which `layer` stands for; with the name that it has now.
  void set_device_type(const void* layer, std::string name, DeviceType device);
  DeviceType device_type(const void* layer) const;
  bool is_device_type_set(const void* layer) const { return layer_devices_.contains(layer); }
  void reset_device_type(const void* layer) { layer_devices_.erase(layer); }

  /// What is set in the profile later counts as well. Returns its index.
  int add_optimization_profile(std::shared_ptr<const OptimizationProfile> profile);
  int num_optimization_profiles() const { return static_cast<int>(profiles_.size()); }

  size_t memory_pool_limit(MemoryPoolType pool) const;
  void set_memory_pool_limit(MemoryPoolType pool, size_t bytes);
  int avg_timing_iterations() const { return avg_timing_iterations_; }
  void set_avg_timing_iterations(int count);
  int optimization_level() const { return optimization_level_; }
  void set_optimization_level(int level);
  int max_num_tactics() const { return max_num_tactics_; }
  void set_max_num_tactics(int count);
  int max_aux_streams() const { return max_aux_streams_; }
  void set_max_aux_streams(int count);
  TilingOptimizationLevel tiling_optimization_level() const { return tiling_; }
  void set_tiling_optimization_level(TilingOptimizationLevel level);
  int64_t l2_limit_for_tiling() const { return l2_limit_; }
  void set_l2_limit_for_tiling(int64_t bytes);
  HardwareCompatibilityLevel hardware_compatibility_level() const {
    return hardware_compatibility_;
  }
  void set_hardware_compatibility_level(HardwareCompatibilityLevel level);
  const Limits& limits() const { return limits_; }
  /// For those who check what they change.
  Limits& limits() { return limits_; }
  void set_limits(const Limits& limits);
  /// BuildConfig::kernel_seconds. Throws Error unless it is more than 0.
  double kernel_seconds() const { return kernel_seconds_; }
  void set_kernel_seconds(double seconds);
  VerificationLevel verification() const { return verification_; }
  void set_verification(VerificationLevel level);

  static void set_runtime_platform(RuntimePlatform platform);
  static void set_engine_capability(EngineCapability capability);
  /// Throws Error: there are no engines for safety, which it is for.
  [[noreturn]] static void set_remote_auto_tuning_config();
  /// Throws Error for any but an empty text: there are no options.
  static void set_build_route(std::string_view route);
  static const char* all_build_routes();

  /// A cache for the device; a fresh one of no bytes.
  std::shared_ptr<TimingCache> create_timing_cache(std::span<const std::byte> bytes) const;
  /// Throws Error for one of another device, unless `ignore_mismatch`.
  void set_timing_cache(std::shared_ptr<TimingCache> cache, bool ignore_mismatch);
  const std::shared_ptr<TimingCache>& timing_cache() const { return timing_cache_; }

  /// What compile() is given, without services and callbacks.
  BuildConfig build_config(bool strongly_typed) const;

 private:
  struct LayerDevice {
    DeviceType type;
    std::string layer;
  };
  DeviceId device_ = default_device();
  bool is_device_chosen_ = is_default_device_chosen();
  std::map<const void*, LayerDevice> layer_devices_;
  std::vector<std::shared_ptr<const OptimizationProfile>> profiles_;
  std::array<size_t, EnumMax<MemoryPoolType>()> memory_limits_{};
  int avg_timing_iterations_ = BuildConfig().avg_timing_iterations;
  int optimization_level_ = 3;
  int max_num_tactics_ = -1;
  int max_aux_streams_ = -1;
  TilingOptimizationLevel tiling_ = TilingOptimizationLevel::kNONE;
  int64_t l2_limit_ = -1;
  HardwareCompatibilityLevel hardware_compatibility_ = HardwareCompatibilityLevel::kNONE;
  std::shared_ptr<TimingCache> timing_cache_;
  Limits limits_;
  double kernel_seconds_ = kKernelSeconds;
  VerificationLevel verification_ = VerificationLevel::kPLUGINS;
};

}  // namespace opwright
