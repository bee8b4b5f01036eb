#include "compile/builder_config.h"

#include "base/limits.h"
#include "opwright/version.h"

namespace opwright {
namespace {

/// Where the caller leaves it open.
constexpr int kDefaultAuxStreams = 3;

template <class Enum>
void check_enum(Enum value, const char* what) {
  const auto number = static_cast<int32_t>(value);
  require(number >= 0 && number < EnumMax<Enum>(), "there is no ", what, " ", number);
}

}  // namespace

void BuilderConfig::set_device(const DeviceId& device) {
  device_ = device;
  is_device_chosen_ = true;
}

void BuilderConfig::set_default_device_type(DeviceType type) {
  check_enum(type, "device type");
  device_.backend = device_of(type).backend;
  is_device_chosen_ = true;
}

void BuilderConfig::set_device_type(const void* layer, std::string name, DeviceType device) {
  check_enum(device, "device type");
  layer_devices_[layer] = {device, std::move(name)};
}

DeviceType BuilderConfig::device_type(const void* layer) const {
  const auto found = layer_devices_.find(layer);
  return found == layer_devices_.end() ? default_device_type() : found->second.type;
}

int BuilderConfig::add_optimization_profile(std::shared_ptr<const OptimizationProfile> profile) {
  profile->check();
  profiles_.push_back(std::move(profile));
  return num_optimization_profiles() - 1;
}

size_t BuilderConfig::memory_pool_limit(MemoryPoolType pool) const {
  check_enum(pool, "memory pool");
  return memory_limits_[static_cast<size_t>(pool)];
}

void BuilderConfig::set_memory_pool_limit(MemoryPoolType pool, size_t bytes) {
  check_enum(pool, "memory pool");
  memory_limits_[static_cast<size_t>(pool)] = bytes;
}

void BuilderConfig::set_avg_timing_iterations(int count) {
  require(count > 0, "avg_timing_iterations is ", count, "; expected 1 or more");
  avg_timing_iterations_ = count;
}

void BuilderConfig::set_optimization_level(int level) {
  tuning_effort(level, max_num_tactics_);
  optimization_level_ = level;
}

void BuilderConfig::set_max_num_tactics(int count) {
  tuning_effort(optimization_level_, count);
  max_num_tactics_ = count;
}

void BuilderConfig::set_max_aux_streams(int count) {
  require(count >= 0, "max_aux_streams is ", count, "; expected 0 or more");
  max_aux_streams_ = count;
}

void BuilderConfig::set_tiling_optimization_level(TilingOptimizationLevel level) {
  check_enum(level, "level");
  tiling_ = level;
}

void BuilderConfig::set_l2_limit_for_tiling(int64_t bytes) {
  require(bytes >= -1, "l2_limit_for_tiling is ", bytes, "; expected bytes, or -1");
  l2_limit_ = bytes;
}

void BuilderConfig::set_hardware_compatibility_level(HardwareCompatibilityLevel level) {
  check_enum(level, "level");
  hardware_compatibility_ = level;
}

void BuilderConfig::set_kernel_seconds(double seconds) {
  require(seconds > 0, "kernel_seconds is ", seconds, "; expected more than 0");
  kernel_seconds_ = seconds;
}

void BuilderConfig::set_verification(VerificationLevel level) {
  check_enum(level, "verification level");
  verification_ = level;
}

void BuilderConfig::set_limits(const Limits& limits) {
  check_limits(limits);
  limits_ = limits;
}

void BuilderConfig::set_runtime_platform(RuntimePlatform platform) {
  require(platform == RuntimePlatform::kSAME_AS_BUILD,
          "RuntimePlatform.SAME_AS_BUILD is the only one that is here; build the engine there");
}

void BuilderConfig::set_engine_capability(EngineCapability capability) {
  require(capability == EngineCapability::kSTANDARD,
          "EngineCapability.STANDARD is the only one that is here");
}

void BuilderConfig::set_remote_auto_tuning_config() {
  fail("remote auto-tuning: only engines for safety are tuned elsewhere, and they are not here");
}

void BuilderConfig::set_build_route(std::string_view route) {
  require(route.empty(), "the build route is '", route,
          "', but there are no options of the compiler to set; expected an empty text");
}

const char* BuilderConfig::all_build_routes() {
  return R"({"tuner_version": ")" OPWRIGHT_VERSION R"(", "tuner_options": []})";
}

std::shared_ptr<TimingCache> BuilderConfig::create_timing_cache(
    std::span<const std::byte> bytes) const {
  if (bytes.empty()) return std::make_shared<TimingCache>(get_device(device_).identity());
  require(bytes.data() != nullptr, "the bytes of the timing cache are null");
  return TimingCache::deserialize(bytes);
}

void BuilderConfig::set_timing_cache(std::shared_ptr<TimingCache> cache, bool ignore_mismatch) {
  timing_cache_ =
      adapt_timing_cache(std::move(cache), get_device(device_).identity(), ignore_mismatch);
}

BuildConfig BuilderConfig::build_config(bool strongly_typed) const {
  check_builder_flags(flags.bits);
  for (const auto& [layer, chosen] : layer_devices_)
    check_layer_device(chosen.layer, chosen.type, default_device_type());
  BuildConfig build;
  build.device = device_;
  build.may_fall_back = !is_device_chosen_ && layer_devices_.empty();
  build.hardware_compatibility = hardware_compatibility_;
  build.set_precisions(flags.bits, strongly_typed);
  for (const auto& profile : profiles_) {
    profile->check();
    build.profiles.push_back(*profile);
  }
  build.shape_source = shape_source;
  build.avg_timing_iterations = avg_timing_iterations_;
  const TuningEffort effort = tuning_effort(optimization_level_, max_num_tactics_);
  build.timing = timing && effort.timing;
  build.max_candidates = effort.max_candidates;
  if (const size_t bytes = memory_pool_limit(MemoryPoolType::kWORKSPACE); bytes > 0)
    build.workspace_limit = bytes;
  if (!flags.has(BuilderFlag::kDISABLE_TIMING_CACHE)) build.timing_cache = timing_cache_;
  build.error_on_timing_cache_miss = flags.has(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS);
  build.detailed_inspection = verbosity == ProfilingVerbosity::kDETAILED;
  build.plugins_to_serialize = plugins_to_serialize;
  build.embed_plugin_sources = embed_plugin_sources;
  build.refit = refit_mode(flags.bits);
  build.strip = strips_plan(flags.bits);
  build.weight_streaming = flags.has(BuilderFlag::kWEIGHT_STREAMING);
  build.direct_io = flags.has(BuilderFlag::kDIRECT_IO);
  build.debug_plugins = debug_plugins;
  build.graphs = graphs;
  build.max_aux_streams = max_aux_streams_ < 0 ? kDefaultAuxStreams : max_aux_streams_;
  build.tactic_sources = tactic_sources;
  build.kernel_seconds = kernel_seconds_;
  build.verification = verification_;
  build.all_tactics = all_tactics;
  build.limits = limits_;
  return build;
}

}  // namespace opwright
