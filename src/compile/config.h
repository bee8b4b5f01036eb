#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "base/shape.h"
#include "compile/timing_cache.h"
#include "network/shape_source.h"
#include "opwright/builder.h"
#include "opwright/resource_limits.h"
#include "plan/plan.h"

namespace opwright {

/// Shapes (or, for shape inputs, values) that an engine is made for. Network inputs with constant
/// shape need no entry.
class OptimizationProfile {
 public:
  struct Range {
    Shape min, opt, max;
  };
  /// Throws Error unless the ranks agree and min <= opt <= max.
  void set_shape(const std::string& input, const Shape& min, const Shape& opt, const Shape& max);
  void set_values(const std::string& input, const Shape& min, const Shape& opt, const Shape& max);
  /// The same one by one.
  void set_shape(const std::string& input, OptProfileSelector select, const Shape& shape);
  void set_values(const std::string& input, OptProfileSelector select, const Shape& values);
  /// Null where they are not all set.
  const Range* shape(const std::string& input) const;
  const Range* values(const std::string& input) const;
  /// One of them; null where it is not set.
  const Shape* shape(const std::string& input, OptProfileSelector select) const;
  const Shape* values(const std::string& input, OptProfileSelector select) const;
  /// How many values a shape input has; -1 where none are set.
  int num_values(const std::string& input) const;
  /// Throws Error naming an input that lacks one of the three.
  void check() const;
  /// The inputs that have shapes or values.
  std::vector<std::string> inputs() const;

  float extra_memory_target() const { return extra_memory_target_; }
  /// Throws Error unless it is 0 to 1. Without effect.
  void set_extra_memory_target(float target);
  /// Kept and given back, without effect.
  Queue profile_stream = nullptr;

 private:
  struct Choice {
    Range range;
    std::array<bool, 3> is_set{};
  };
  using Choices = std::unordered_map<std::string, Choice>;
  static void set(Choices& choices, const std::string& input, OptProfileSelector select,
                  const Shape& shape);
  static const Range* find(const Choices& choices, const std::string& input);
  static const Shape* find(const Choices& choices, const std::string& input,
                           OptProfileSelector select);
  static void check(const Choices& choices, const char* what);

  Choices shapes_, values_;
  float extra_memory_target_ = 1;
};

/// Called as the build goes on: phase, done steps, all steps. Returning false cancels the build.
using ProgressCallback = std::function<bool(const std::string& phase, int done, int total)>;

/// What an optimization level, 0 to 5, and a number of tactics (-1: as the level says) make of a
/// build: whether something is timed, and at most so many candidates of a layer (0: all).
struct TuningEffort {
  bool timing = true;
  int max_candidates = 0;
};
/// Throws Error for what is no level, or no number of tactics.
TuningEffort tuning_effort(int level, int max_tactics);

/// Throws Error for a set of BuilderFlag that asks for what is not here.
void check_builder_flags(uint32_t flags);

/// The bits 1 << TacticSource that a config has at first, as TensorRT's. Of these libraries'
/// sources CUBLAS_LT alone counts, and is not among them.
uint32_t default_tactic_sources();

/// Throws Error where a layer is asked to run on another device than the engine.
void check_layer_device(const std::string& layer, DeviceType asked, DeviceType engine);

/// What a build makes of the types that layers of a weakly typed network ask for.
enum class PrecisionConstraints {
  kIGNORE,
  kPREFER,  ///< They are met where there is a candidate for it; elsewhere a warning.
  kOBEY,    ///< It is an error where there is none.
};

/// Which weights of the engine can be exchanged: none; all, for the same ones, so that the build
/// may make use of their values; those that the network marks; all.
enum class RefitMode : uint8_t { kNone, kIdentical, kIndividual, kAll };
/// What a set of BuilderFlag asks for. Throws Error for flags that exclude each other.
RefitMode refit_mode(uint32_t flags);
/// Whether it asks for an engine without the weights that refitting gives.
bool strips_plan(uint32_t flags);

/// What a kernel may take to be compiled where nobody says more: most take less than one second.
inline constexpr double kKernelSeconds = 60;

class EnclosingBuild;

struct BuildConfig {
  /// The types that the bits 1 << BuilderFlag let the tuner choose, or make it choose. They say
  /// nothing for strongly typed networks.
  void set_precisions(uint32_t builder_flags, bool strongly_typed);

  DeviceId device{"cpu"};
  /// Whether the CPU takes the place of a GPU that has no kernel for some layer: where nobody chose
  /// the GPU.
  bool may_fall_back = false;
  bool fp16 = false, bf16 = false, int8 = false, fp8 = false;
  /// Whether layers take inputs, and give outputs, whose allowed formats were set, as they are.
  bool direct_io = false;
  bool tf32 = false;  ///< whether products of FP32 may round their operands, in any network
  uint32_t tactic_sources = 0;  ///< bits 1 << TacticSource
  /// How long a kernel may compile, or run in another process: it is left out beyond that.
  double kernel_seconds = kKernelSeconds;
  PrecisionConstraints constraints = PrecisionConstraints::kIGNORE;
  std::vector<OptimizationProfile>
      profiles;  ///< empty: one profile of the network's constant shapes
  ShapeSource shape_source = ShapeSource::kProfile;
  int avg_timing_iterations = 4;
  /// False: time nothing and run no plugin during the build. Each layer takes the fastest of those
  /// of its candidates whose times the timing cache has, or else its first one.
  bool timing = true;
  /// Bytes of scratch of one layer: kernels that want more are left out.
  uint64_t workspace_limit = UINT64_MAX;
  int max_candidates = 0;  ///< of a layer, those that are timed: the first that work; 0: all
  /// Whether all candidates that can compute a layer are timed, not only those that may be the
  /// fastest.
  bool all_tactics = false;
  /// Which candidates are compared with a reference while they are timed.
  VerificationLevel verification = VerificationLevel::kPLUGINS;
  std::shared_ptr<TimingCache> timing_cache;  ///< null: a fresh one
  /// Fail instead of timing what the cache could hold and does not.
  bool error_on_timing_cache_miss = false;
  /// Where it is set, nothing is built: candidates that the timing cache lacks are timed into it if
  /// this says so of their layer and their key, and compile() returns an empty plan.
  std::function<bool(const std::string& layer, const std::string& key)> timing_filter;
  /// Called between runs of kernels and while kernels are compiled, by the thread that builds; what
  /// it throws ends the build.
  std::function<void()> interrupt_check;
  bool detailed_inspection = true;  ///< keep layer names and what the tuner compared in the plan
  /// Shared libraries that the plan carries, so that engines need no file of them: plugin
  /// libraries, and what those need that other machines lack, listed before them. They are
  /// loaded with the engine in this order. The build itself takes plugins
  /// from the registry, so they must be registered for it as for any other.
  std::vector<std::string> plugins_to_serialize;
  /// Whether the plan carries the sources of those plugins whose language allows it.
  bool embed_plugin_sources = false;
  bool debug_plugins = false;     ///< whether the engine checks every call of a plugin
  bool graphs = true;             ///< whether contexts on a GPU replay their runs as graphs
  bool weight_streaming = false;  ///< whether weights of the engine may stay on the host
  /// On so many streams beside that of the run an engine for a GPU may run steps beside each other.
  int max_aux_streams = 0;
  /// What other GPUs an engine for a GPU must run on, too.
  HardwareCompatibilityLevel hardware_compatibility{};
  RefitMode refit = RefitMode::kNone;
  bool strip = false;  ///< leave out the weights that refitting gives
  ProgressCallback progress;
  Limits limits;
  PluginServices services;                    ///< for the plugins that are run during the build
  const EnclosingBuild* enclosing = nullptr;  ///< of a body, which is built in its time; null: none
  Log log;
};

}  // namespace opwright
