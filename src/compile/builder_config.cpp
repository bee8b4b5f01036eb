#include "compile/builder_config.h"

#include "opwright/version.h"

namespace opwright {
namespace {

/// Auxiliary streams where the caller sets no number.
constexpr int kDefaultAuxStreams = 3;

struct MissingFlag {
  BuilderFlag flag;
  const char* name;
  const char* why;
};

constexpr MissingFlag kMissingFlags[] = {
    {BuilderFlag::kSAFETY_SCOPE, "SAFETY_SCOPE", "there are no engines for safety"},
    {BuilderFlag::kSTRICT_NANS, "STRICT_NANS", "no kernel is built otherwise for it"},
    {BuilderFlag::kDISTRIBUTIVE_INDEPENDENCE, "DISTRIBUTIVE_INDEPENDENCE",
     "kernels may compute parts of an axis in different ways"},
};

/// Throws Error where a layer is asked to run on another device than the engine.
void check_layer_device(const std::string& layer, DeviceType asked, DeviceType engine) {
  static constexpr const char* kNames[EnumMax<DeviceType>()] = {"the GPU", "a DLA", "the CPU"};
  require(asked == engine, "layer '", layer, "' is to run on ", kNames[static_cast<size_t>(asked)],
          ", but the engine is built for ", kNames[static_cast<size_t>(engine)],
          ", where all of its layers run: choose the default device type");
}

}  // namespace

BuilderConfig::BuilderConfig()
    : device(default_device()), is_device_chosen(is_default_device_chosen()) {}

void BuilderConfig::set_device(const DeviceId& chosen) {
  device = chosen;
  is_device_chosen = true;
}

void BuilderConfig::set_default_device_type(DeviceType type) {
  check_enum(type, "device type");
  device.backend = device_of(type).backend;
  is_device_chosen = true;
}

void BuilderConfig::set_device_type(const void* layer, std::string name, DeviceType type) {
  check_enum(type, "device type");
  layer_devices_[layer] = {type, std::move(name)};
}

DeviceType BuilderConfig::device_type(const void* layer) const {
  const auto found = layer_devices_.find(layer);
  return found == layer_devices_.end() ? default_device_type() : found->second.type;
}

int BuilderConfig::add_optimization_profile(std::shared_ptr<const OptimizationProfile> profile) {
  profile->check();
  profiles.push_back(std::move(profile));
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

std::shared_ptr<TimingCache> BuilderConfig::create_timing_cache(
    std::span<const std::byte> bytes) const {
  if (bytes.empty()) return std::make_shared<TimingCache>(get_device(device).identity());
  require(bytes.data() != nullptr, "the bytes of the timing cache are null");
  return TimingCache::deserialize(bytes);
}

void BuilderConfig::set_timing_cache(std::shared_ptr<TimingCache> cache, bool ignore_mismatch) {
  timing_cache =
      adapt_timing_cache(std::move(cache), get_device(device).identity(), ignore_mismatch);
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

BuilderConfig BuilderConfig::checked(bool strongly_typed) const {
  for (const MissingFlag& missing : kMissingFlags)
    require(!flags.has(missing.flag), "BuilderFlag.", missing.name,
            " is set, but this is not here: ", missing.why, "; clear the flag");
  refit();
  for (const auto& [layer, chosen] : layer_devices_)
    check_layer_device(chosen.layer, chosen.type, default_device_type());
  BuilderConfig copy = *this;
  for (std::shared_ptr<const OptimizationProfile>& profile : copy.profiles) {
    profile->check();
    profile = std::make_shared<OptimizationProfile>(*profile);
  }
  if (strongly_typed)
    for (const BuilderFlag flag :
         {BuilderFlag::kFP16, BuilderFlag::kBF16, BuilderFlag::kINT8, BuilderFlag::kFP8,
          BuilderFlag::kOBEY_PRECISION_CONSTRAINTS, BuilderFlag::kPREFER_PRECISION_CONSTRAINTS})
      copy.flags.clear(flag);
  if (flags.has(BuilderFlag::kDISABLE_TIMING_CACHE)) copy.timing_cache = nullptr;
  copy.monitor = nullptr;
  return copy;
}

int BuilderConfig::max_candidates() const {
  if (max_num_tactics > 0) return max_num_tactics;
  return optimization_level == 1 || optimization_level == 2 ? 2 * optimization_level : 0;
}

SearchRange BuilderConfig::search_range() const {
  // By the optimization level. Level 3 times a quarter of the products of seven networks. The best
  // of those take 0.4 % longer in sum than the best of all
  // (docs/results/gpu-networks-2026-11-29.md).
  constexpr SearchRange kRanges[] = {
      {.of_group = 1, .of_layer = 1, .most = 1},
      {.of_group = 1.1F, .of_layer = 1.2F, .most = 2},
      {.of_group = 1.15F, .of_layer = 1.2F, .most = 4},
      {.of_group = 1.2F, .of_layer = 1.3F, .least = 3, .most = 6},
      {.of_group = 1.5F, .of_layer = 1.5F, .least = 4, .most = 12},
      {},
  };
  return kRanges[optimization_level];
}

uint64_t BuilderConfig::workspace_limit() const {
  const size_t bytes = memory_pool_limit(MemoryPoolType::kWORKSPACE);
  return bytes > 0 ? bytes : UINT64_MAX;
}

int BuilderConfig::aux_streams() const {
  return max_aux_streams < 0 ? kDefaultAuxStreams : max_aux_streams;
}

PrecisionConstraints BuilderConfig::constraints() const {
  return flags.has(BuilderFlag::kOBEY_PRECISION_CONSTRAINTS)     ? PrecisionConstraints::kOBEY
         : flags.has(BuilderFlag::kPREFER_PRECISION_CONSTRAINTS) ? PrecisionConstraints::kPREFER
                                                                 : PrecisionConstraints::kIGNORE;
}

RefitMode BuilderConfig::refit() const {
  const bool all = flags.has(BuilderFlag::kREFIT),
             identical = flags.has(BuilderFlag::kREFIT_IDENTICAL),
             individual = flags.has(BuilderFlag::kREFIT_INDIVIDUAL);
  require(!individual || (!all && !identical), "BuilderFlag.REFIT_INDIVIDUAL is set beside ",
          all ? "REFIT" : "REFIT_IDENTICAL", "; clear one of them");
  if (individual) return RefitMode::kIndividual;
  if (all) return RefitMode::kAll;
  return identical || flags.has(BuilderFlag::kSTRIP_PLAN) ? RefitMode::kIdentical
                                                          : RefitMode::kNone;
}

}  // namespace opwright
