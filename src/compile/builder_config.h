#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/flags.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/setting.h"
#include "compile/candidate_choice.h"
#include "compile/optimization_profile.h"
#include "compile/timing_cache.h"
#include "network/shape_source.h"
#include "opwright/builder.h"
#include "opwright/resource_limits.h"
#include "plan/plan.h"

namespace opwright {

class EnclosingBuild;

/// Receives the phases of a build, as TensorRT's IProgressMonitor does. A method may throw, which
/// ends the build.
class BuildMonitor {
 public:
  virtual ~BuildMonitor() = default;
  virtual void phase_start(const std::string& phase, int steps) = 0;
  /// False cancels the build.
  virtual bool step_complete(const std::string& phase, int step) = 0;
  virtual void phase_finish(const std::string& phase) = 0;
};

/// The build calls it with the phase, the number of done steps and of all steps. It returns false
/// to cancel the build.
using ProgressCallback = std::function<bool(const std::string& phase, int done, int total)>;

/// Flags of TensorRT 10's calibration.
enum class QuantizationFlag : int32_t { kCALIBRATE_BEFORE_FUSION = 0 };
namespace impl {
template <>
struct EnumMaxImpl<QuantizationFlag> {
  static constexpr int32_t kVALUE = 1;
};
}  // namespace impl

/// How a build treats the types that layers of a weakly typed network ask for.
enum class PrecisionConstraints {
  kIGNORE,
  kPREFER,  ///< The build uses a candidate with the types where there is one, and warns elsewhere.
  kOBEY,    ///< It is an error if no candidate has the types.
};

/// Which weights of the engine can be exchanged: none; all, for equal values, so that the build may
/// use the values; the weights that the network marks; all.
enum class RefitMode : uint8_t { kNone, kIdentical, kIndividual, kAll };

/// Settings of a build, as IBuilderConfig has them, and the other arguments of compile(). visit()
/// describes the settings. set() of base/setting.h checks their values.
struct BuilderConfig {
  /// A config for default_device().
  BuilderConfig();
  explicit BuilderConfig(DeviceId device) : device(std::move(device)), is_device_chosen(true) {}

  // Settings
  // ---------------------------------------------------------------------------------------

  DeviceId device;
  /// Whether the caller chose the device. The build falls back to the CPU where a GPU that nobody
  /// chose has no kernel for some layer.
  bool is_device_chosen = false;
  Flags<BuilderFlag> flags;
  Flags<PreviewFeature> preview_features{~0U};  ///< without effect
  Flags<QuantizationFlag> quantization_flags;   ///< without effect
  /// Bits 1 << TacticSource, with TensorRT's default. Of the sources that are libraries only
  /// CUBLAS_LT and CUDNN count, and the default lacks both.
  TacticSources tactic_sources = 1u << static_cast<int>(TacticSource::kEDGE_MASK_CONVOLUTIONS) |
                                 1u << static_cast<int>(TacticSource::kJIT_CONVOLUTIONS);
  /// The build uses each profile as it is set when the build begins. Empty: one profile of the
  /// network's constant shapes.
  std::vector<std::shared_ptr<const OptimizationProfile>> profiles;
  int avg_timing_iterations = 4;
  bool timing = true;
  int optimization_level = 3;
  int max_num_tactics = -1;
  bool all_tactics = false;
  VerificationLevel verification = VerificationLevel::kPLUGINS;
  double kernel_seconds = 60;
  Limits limits;
  std::shared_ptr<TimingCache> timing_cache;  ///< null: a new one
  int max_aux_streams = -1;
  HardwareCompatibilityLevel hardware_compatibility = HardwareCompatibilityLevel::kNONE;
  TilingOptimizationLevel tiling = TilingOptimizationLevel::kNONE;  ///< without effect
  int64_t l2_limit_for_tiling = -1;                                 ///< without effect
  Queue profile_stream = nullptr;                                   ///< without effect
  /// The engine loads the libraries in this order, so a library stands behind those that it needs.
  /// The build itself takes plugins from the registry.
  std::vector<std::string> plugins_to_serialize;
  bool embed_plugin_sources = false;
  bool graphs = true;
  bool debug_plugins = false;
  ProfilingVerbosity verbosity = ProfilingVerbosity::kDETAILED;
  std::shared_ptr<BuildMonitor> monitor;  ///< null: none
  ShapeSource shape_source = ShapeSource::kProfile;

  // Other arguments of a build
  // ---------------------------------------------------------------

  ProgressCallback progress;
  /// The thread that builds calls it between runs of kernels and while kernels are compiled. An
  /// exception that it throws ends the build.
  std::function<void()> interrupt_check;
  /// If set, nothing is built. Candidates that the timing cache lacks are timed into it if the
  /// filter returns true for their layer and key, and compile() returns an empty plan.
  std::function<bool(const std::string& layer, const std::string& key)> timing_filter;
  PluginServices services;                    ///< for the plugins that are run during the build
  const EnclosingBuild* enclosing = nullptr;  ///< the build that this build of a body belongs to,
                                              ///< whose time it uses; null: none
  Log log;

  // Settings that are no members
  // -------------------------------------------------------------------------

  void set_device(const DeviceId& chosen);
  DeviceType default_device_type() const { return type_of(device); }
  /// Chooses the first backend of that type. The device's number stays.
  void set_default_device_type(DeviceType type);
  /// Sets the device type of a layer. `layer` identifies it; `name` is its current name.
  void set_device_type(const void* layer, std::string name, DeviceType type);
  DeviceType device_type(const void* layer) const;
  bool is_device_type_set(const void* layer) const { return layer_devices_.contains(layer); }
  void reset_device_type(const void* layer) { layer_devices_.erase(layer); }
  /// Adds the profile and returns its index. Throws Error unless the profile is complete.
  int add_optimization_profile(std::shared_ptr<const OptimizationProfile> profile);
  int num_optimization_profiles() const { return static_cast<int>(profiles.size()); }
  size_t memory_pool_limit(MemoryPoolType pool) const;
  void set_memory_pool_limit(MemoryPoolType pool, size_t bytes);
  /// A cache for the device, read from the bytes. No bytes: a new cache.
  std::shared_ptr<TimingCache> create_timing_cache(std::span<const std::byte> bytes) const;
  /// Throws Error for a cache of another device, unless `ignore_mismatch`.
  void set_timing_cache(std::shared_ptr<TimingCache> cache, bool ignore_mismatch);

  // TensorRT's settings that Opwright lacks: these throw Error for all but one value.
  static void set_runtime_platform(RuntimePlatform platform);
  static void set_engine_capability(EngineCapability capability);
  [[noreturn]] static void set_remote_auto_tuning_config();
  static void set_build_route(std::string_view route);
  static const char* all_build_routes();

  // Settings as a build uses them ----------------------------------------------------------------

  /// A copy for one build of a network, with its own profiles and without the settings that a
  /// strongly typed network ignores. Throws Error for flags and layers' devices that Opwright
  /// lacks.
  BuilderConfig checked(bool strongly_typed) const;
  /// False: nothing is timed and no plugin is run.
  bool times() const { return timing && optimization_level > 0; }
  /// How many candidates of a layer are timed: the first that work. 0: all.
  int max_candidates() const;
  /// Which candidates with estimates are worth timing.
  SearchRange search_range() const;
  /// Bytes of scratch that one layer may use. Kernels that want more are left out.
  uint64_t workspace_limit() const;
  int aux_streams() const;
  PrecisionConstraints constraints() const;
  /// Throws Error for flags that exclude each other.
  RefitMode refit() const;
  bool may_fall_back() const { return !is_device_chosen && layer_devices_.empty(); }

  /// The settings that are properties of Python's IBuilderConfig, in the order of its properties.
  template <class V>
  static void visit(V&& v);

 private:
  struct LayerDevice {
    DeviceType type;
    std::string layer;
  };
  std::map<const void*, LayerDevice> layer_devices_;
  std::array<size_t, EnumMax<MemoryPoolType>()> memory_limits_{};
};

template <class V>
void BuilderConfig::visit(V&& v) {
  using Self = BuilderConfig;
  v(Setting<Self, int>{.name = "avg_timing_iterations",
                       .member = &Self::avg_timing_iterations,
                       .doc = "Runs over which a kernel's time is taken.",
                       .check =
                           [](const int& count) {
                             require(count > 0, "avg_timing_iterations is ", count,
                                     "; expected 1 or more");
                           },
                       .flags = {{{.name = "--timing-iterations",
                                   .help = "Runs over which a kernel's time is taken",
                                   .most = 10000}}}});
  v(Setting<Self, bool>{
      .name = "timing",
      .member = &Self::timing,
      .doc = "False: time nothing and run no plugin during the build. Each layer takes the fastest "
             "of its candidates that the timing cache has, or else its first one.",
      .flags = {{{.name = "--no-timing",
                  .help = "Time nothing and run no plugin: each layer takes the fastest candidate "
                          "that the timing cache has, or else its first one",
                  .value = false}}}});
  v(Setting<Self, Flags<BuilderFlag>>{
      .name = "flags", .member = &Self::flags, .doc = "Bits 1 << int(BuilderFlag)."});
  v(ComputedSetting<Self, DeviceType>{
      .name = "default_device_type",
      .get = [](const Self& self) { return self.default_device_type(); },
      .set = [](Self& self, const DeviceType& type) { self.set_default_device_type(type); },
      .doc = "What the engine is to run on: the GPU where one can be used, unless the environment "
             "variable OPWRIGHT_DEVICE says cpu, else the CPU. A GPU that was not asked for is "
             "left for the CPU where it has no kernel for some layer."});
  v(Setting<Self, Queue>{.name = "profile_stream",
                         .member = &Self::profile_stream,
                         .doc = "A stream for timing; without effect, kernels are timed on one of "
                                "the build's own."});
  v(ComputedSetting<Self, int>{
      .name = "device_ordinal",
      .get = [](const Self& self) { return self.device.ordinal; },
      .set = [](Self& self, const int& ordinal) { self.device.ordinal = ordinal; },
      .doc = "Which of several GPUs; -1: the one that the thread has chosen with CUDA, else the "
             "first."});
  v(Setting<Self, std::shared_ptr<BuildMonitor>>{.name = "progress_monitor",
                                                 .member = &Self::monitor});
  v(ComputedSetting<Self, int>{.name = "num_optimization_profiles", .get = [](const Self& self) {
                                 return self.num_optimization_profiles();
                               }});
  v(Setting<Self, int>{
      .name = "builder_optimization_level",
      .member = &Self::optimization_level,
      .doc = "How many candidates of a layer are timed. A GPU's backend estimates the times of "
             "products and convolutions. 0: none is timed, as with timing = False; the best "
             "estimate counts. 1 and 2: the first 2 or 4 that work, the best estimates first. 3, "
             "the default: those whose estimate is near the best one of the same types and "
             "formats. 4: those that are less near, too. 5: all. What has no estimate is timed "
             "from level 3 on: all candidates on a CPU, and those of plugins.",
      .check = [](const int& level) {
        require(level >= 0 && level <= 5, "the builder optimization level is ", level,
                "; expected 0 to 5");
      }});
  v(Setting<Self, int>{
      .name = "max_num_tactics",
      .member = &Self::max_num_tactics,
      .doc = "The candidates of each layer that are timed at most: the first ones that work. -1, "
             "the default: as many as the optimization level says.",
      .check = [](const int& count) {
        require(count == -1 || count > 0, "the number of tactics is ", count,
                "; expected 1 or more, or -1 for what the optimization level says");
      }});
  v(ComputedSetting<Self, EngineCapability>{
      .name = "engine_capability",
      .get = [](const Self&) { return EngineCapability::kSTANDARD; },
      .set = [](Self&, const EngineCapability& given) { set_engine_capability(given); },
      .doc = "STANDARD; any other raises Error."});
  v(Setting<Self, HardwareCompatibilityLevel>{
      .name = "hardware_compatibility_level",
      .member = &Self::hardware_compatibility,
      .doc = "The GPUs that an engine for the GPU is to run on beside this one; at first NONE. For "
             "AMPERE_PLUS its kernels are stored as PTX, and a build raises Error that has a "
             "compiled kernel of a plugin for less. SAME_COMPUTE_CAPABILITY is always met. What "
             "plugins do by themselves is theirs to keep.",
      .check = [](const HardwareCompatibilityLevel& level) { check_enum(level, "level"); }});
  v(ComputedSetting<Self, RuntimePlatform>{
      .name = "runtime_platform",
      .get = [](const Self&) { return RuntimePlatform::kSAME_AS_BUILD; },
      .set = [](Self&, const RuntimePlatform& given) { set_runtime_platform(given); },
      .doc = "SAME_AS_BUILD; any other raises Error."});
  v(Setting<Self, int>{
      .name = "max_aux_streams",
      .member = &Self::max_aux_streams,
      .doc = "On so many streams beside that of the run an engine for a GPU may run layers beside "
             "each other, where the times that were measured say that it pays. 0: on none; -1, the "
             "default: on as many as the builder likes.",
      .check = [](const int& count) {
        require(count >= 0, "max_aux_streams is ", count, "; expected 0 or more");
      }});
  v(Setting<Self, TilingOptimizationLevel>{
      .name = "tiling_optimization_level",
      .member = &Self::tiling,
      .doc = "A hint, without effect.",
      .check = [](const TilingOptimizationLevel& level) { check_enum(level, "level"); }});
  v(Setting<Self, int64_t>{.name = "l2_limit_for_tiling",
                           .member = &Self::l2_limit_for_tiling,
                           .doc = "A hint in bytes, without effect.",
                           .check = [](const int64_t& bytes) {
                             require(bytes >= -1, "l2_limit_for_tiling is ", bytes,
                                     "; expected bytes, or -1");
                           }});
  v(ComputedSetting<Self, std::nullptr_t>{
      .name = "remote_auto_tuning_config",
      .get = [](const Self&) { return nullptr; },
      .set = [](Self&, const std::nullptr_t&) { set_remote_auto_tuning_config(); },
      .doc = "None; setting it raises Error: only engines for safety are tuned elsewhere, and they "
             "are not here."});
  v(ComputedSetting<Self, std::string>{
      .name = "build_route",
      .get = [](const Self&) { return std::string(); },
      .set = [](Self&, const std::string& route) { set_build_route(route); },
      .doc = "Options of TensorRT's compiler, of which there are none: an empty text; any other "
             "raises Error."});
  v(ComputedSetting<Self, std::string>{
      .name = "all_build_routes",
      .get = [](const Self&) { return std::string(all_build_routes()); },
      .doc = "A JSON object with the version of Opwright and an empty list of options."});
  v(Setting<Self, std::vector<std::string>>{
      .name = "plugins_to_serialize",
      .member = &Self::plugins_to_serialize,
      .doc = "Paths of plugin libraries that the engine carries, so that it runs without their "
             "files; loading it then needs permission for host code. The build takes plugins from "
             "the registry, so load them there as well."});
  v(Setting<Self, bool>{
      .name = "embed_python_plugins",
      .member = &Self::embed_plugin_sources,
      .doc = "Whether the engine carries the sources of plugins that Python implements, so that it "
             "runs where nothing was imported; loading it then needs permission for host code."});
  v(Setting<Self, bool>{
      .name = "cuda_graphs",
      .member = &Self::graphs,
      .doc = "Whether execution contexts on a GPU capture what they run into CUDA graphs, once "
             "shapes have stayed for a few runs, and replay them. True at first."});
  v(Setting<Self, bool>{
      .name = "debug_plugins",
      .member = &Self::debug_plugins,
      .doc = "Whether the engine checks every call of a plugin: writes beside its outputs and "
             "workspace, to its inputs, outputs left unwritten, and sizes out of range raise "
             "Error, NaN and infinity that come of finite inputs are a warning."});
  v(Setting<Self, VerificationLevel>{
      .name = "verify",
      .member = &Self::verification,
      .doc = "Whether the build compares what each candidate of a layer computes with a reference: "
             "the CPU's kernel in FP32, of plugins a function that they name, or else the first "
             "candidate. What differs by more than its types allow is left out with a warning; "
             "'strict': it ends the build. For a GPU each candidate that never ran on the device "
             "runs in another process first, so that one that faults is left out, too. False, the "
             "default: only plugins are compared.",
      .check = [](const VerificationLevel& level) { check_enum(level, "verification level"); },
      .flags = {{{.name = "--verify",
                  .help = "Compare what each candidate computes with a reference (the CPU's kernel "
                          "in FP32, a plugin's own), and leave out what differs by more than its "
                          "types allow, or faults on a GPU, with a warning",
                  .value = VerificationLevel::kALL},
                 {.name = "--verify-strictly",
                  .help = "The same, and end the build where something differs",
                  .value = VerificationLevel::kSTRICT}}}});
  v(Setting<Self, bool>{
      .name = "all_tactics",
      .member = &Self::all_tactics,
      .doc = "Whether all candidates that can compute a layer are timed, not only those that may "
             "be the fastest for its sizes. False at first.",
      .flags = {{{.name = "--all-tactics",
                  .help = "Time all candidates that can compute a layer, not only those that may "
                          "be the fastest for its sizes",
                  .value = true}}}});
  v(Setting<Self, Limits>{
      .name = "limits",
      .member = &Self::limits,
      .doc = "Limits on what the model may make the build spend (build_memory, build_seconds, "
             "steps), and on what the engine of build_engine_with_config may ask for.",
      .check = check_limits});
  v(Setting<Self, double>{
      .name = "kernel_seconds",
      .member = &Self::kernel_seconds,
      .doc = "Seconds that a kernel for a GPU may take to be compiled, and with verify to run in "
             "another process, 60 at first. A candidate that takes longer is left out, with the "
             "reason in the log. NVRTC before 13 cannot be ended.",
      .check =
          [](const double& seconds) {
            require(seconds > 0, "kernel_seconds is ", seconds, "; expected more than 0");
          },
      .flags = {{{.name = "--kernel-seconds",
                  .help = "Seconds that a kernel for the GPU may take to be compiled, and with "
                          "--verify to run in another process; one that takes longer is left "
                          "out"}}}});
  v(Setting<Self, ProfilingVerbosity>{
      .name = "profiling_verbosity",
      .member = &Self::verbosity,
      .doc = "How much the engine keeps to say about its layers; DETAILED at first."});
}

}  // namespace opwright
