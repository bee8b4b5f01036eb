// TensorRT's program trtexec: its options for what `opwright build`, `bench` and `run` do, and its
// report.

#include "trtexec.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "backend/backend.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/printable.h"
#include "build.h"
#include "measure.h"
#include "opwright/version.h"
#include "program.h"
#include "runtime/inspect.h"
#include "trtexec_report.h"

namespace opwright::cli {
namespace {

using Arguments = TrtexecArguments;

class TrtexecLogger final : public ILogger {
 public:
  explicit TrtexecLogger(Severity least) : least_(least) {}
  void log(Severity severity, char const* message) noexcept override {
    if (severity <= least_) tell(severity, str("[TRT] ", message));
  }

 private:
  const Severity least_;
};

Log trtexec_log(const Arguments& arguments) {
  using Severity = ILogger::Severity;
  static TrtexecLogger info(Severity::kINFO), all(Severity::kVERBOSE);
  return Log(arguments.has("verbose") ? &all : &info);
}

std::string version_text() {
  return str("[TensorRT v", NV_TENSORRT_VERSION, "] [b", NV_TENSORRT_BUILD, "]");
}

std::string enabled(bool is_enabled) { return is_enabled ? "Enabled" : "Disabled"; }

/// Refuses options that ask for features which do not exist here. Ignoring them would be wrong.
void refuse(const Arguments& arguments) {
  if (arguments.has("useDLACore"))
    fail("Cannot create DLA engine, ", arguments.get("useDLACore"), " not available");
  constexpr std::pair<const char*, const char*> kRefused[] = {
      {"safe", "there is no safety runtime"},
      {"consistency", "there is no safety runtime"},
      {"restricted", "there is no safety runtime"},
      {"safetyPlugins", "there is no safety runtime"},
      {"buildDLAStandalone", "there is no DLA"},
      {"loadRefOutputs", "`polygraphy run --trt --onnxrt` and opwright.testing compare outputs"},
      {"saveDebugTensors", "IExecutionContext::setDebugListener shows debug tensors"},
      {"saveAllDebugTensors", "IExecutionContext::setDebugListener shows debug tensors"},
      {"refitFromOnnx", "IParserRefitter exchanges weights for those of a model"}};
  for (const auto& [name, otherwise] : kRefused)
    require_usage(!arguments.has(name), "--", name, " is not here: ", otherwise);
  const std::string platform = arguments.get("runtimePlatform");
  require_usage(platform.empty() || platform == "SameAsBuild" || platform == "sameAsBuild",
                "--runtimePlatform=", platform, " is not here: build the engine there");
}

void warn_of_no_effect(const Arguments& arguments) {
  for (const Arguments::Given& given : arguments.all())
    if (given.option->no_effect != nullptr)
      tell_warning(str("--", given.option->name, " has no effect: ", given.option->no_effect));
}

// Building ----------------------------------------------------------------------------------------

constexpr std::string_view kUnits = "BKMG";

/// Bytes of "0.5G" or "4096B". A number without a unit is in the unit `usual`.
size_t bytes_of(const std::string& text, const std::string& option, char usual) {
  const size_t unit = text.empty() ? std::string::npos : kUnits.find(text.back());
  const std::string number = unit == std::string::npos ? text : text.substr(0, text.size() - 1);
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  require_usage(!number.empty() && *end == '\0' && value >= 0 && value < 1e12, option, ": '", text,
                "' is no size; expected ", usual == 'M' ? "MiB" : "bytes",
                ", or a number with B, K, M or G");
  const size_t power = unit == std::string::npos ? kUnits.find(usual) : unit;
  return static_cast<size_t>(std::ldexp(value, 10 * static_cast<int>(power)));
}

size_t pool_bytes(const std::string& text, const std::string& option) {
  return bytes_of(text, option, 'M');
}

void set_pools(BuilderConfig& config, const Arguments& arguments) {
  if (arguments.has("workspace"))
    config.set_memory_pool_limit(MemoryPoolType::kWORKSPACE,
                                 pool_bytes(arguments.get("workspace"), "--workspace"));
  for (const std::string& text : arguments.list("memPoolSize")) {
    const size_t colon = text.find(':');
    const std::string pool = text.substr(0, colon);
    require_usage(colon != std::string::npos, "--memPoolSize '", text,
                  "'; expected POOL:SIZE, such as workspace:1024");
    const size_t bytes = pool_bytes(text.substr(colon + 1), "--memPoolSize");
    if (pool == "workspace")
      config.set_memory_pool_limit(MemoryPoolType::kWORKSPACE, bytes);
    else if (pool == "tacticSharedMem" || pool.starts_with("dla"))
      tell_warning(str("--memPoolSize: the limit of ", pool, " has no effect"));
    else
      throw UsageError(str("--memPoolSize: there is no pool '", pool,
                           "'; expected workspace, tacticSharedMem, dlaSRAM, dlaLocalDRAM or "
                           "dlaGlobalDRAM"));
  }
}

constexpr const char* kPrecisions[] = {"fp16", "bf16", "int8", "fp8", "int4"};

bool allows(const Arguments& arguments, const std::string& precision) {
  return arguments.has(precision) || arguments.has("best");
}

/// Networks are strongly typed, as with trtexec 11, unless an option of trtexec 10 asks for other
/// types.
bool is_strongly_typed(const Arguments& arguments) {
  if (arguments.has("stronglyTyped")) return true;
  for (const char* precision : kPrecisions)
    if (allows(arguments, precision)) return false;
  return !arguments.has("layerPrecisions") && !arguments.has("layerOutputTypes") &&
         !arguments.has("precisionConstraints") && !arguments.has("inputIOFormats") &&
         !arguments.has("outputIOFormats");
}

void set_flags(BuilderConfig& config, const Arguments& arguments) {
  using Flag = BuilderFlag;
  Flags<Flag>& flags = config.flags;
  flags.set(Flag::kTF32, !arguments.has("noTF32"));
  if (!is_strongly_typed(arguments)) {
    flags.set(Flag::kFP16, allows(arguments, "fp16"));
    flags.set(Flag::kBF16, allows(arguments, "bf16"));
    flags.set(Flag::kINT8, allows(arguments, "int8"));
    flags.set(Flag::kFP8, allows(arguments, "fp8"));
    flags.set(Flag::kINT4, allows(arguments, "int4"));
  }
  const std::string constraints = arguments.get("precisionConstraints");
  require_usage(constraints.empty() || constraints == "none" || constraints == "prefer" ||
                    constraints == "obey",
                "--precisionConstraints=", constraints, "; expected none, prefer or obey");
  flags.set(Flag::kPREFER_PRECISION_CONSTRAINTS, constraints == "prefer");
  flags.set(Flag::kOBEY_PRECISION_CONSTRAINTS, constraints == "obey");
  const bool strips_all = arguments.has("stripAllWeights");
  const bool refits = arguments.has("refit") || strips_all;
  const bool strips = arguments.has("stripWeights") || strips_all;
  flags.set(Flag::kREFIT, refits);
  flags.set(Flag::kSTRIP_PLAN, strips);
  flags.set(Flag::kREFIT_IDENTICAL, strips && !refits);
  flags.set(Flag::kVERSION_COMPATIBLE, arguments.has("versionCompatible"));
  flags.set(Flag::kDIRECT_IO, arguments.has("directIO"));
  flags.set(Flag::kWEIGHT_STREAMING, arguments.has("allowWeightStreaming"));
  const std::string sparsity = arguments.get("sparsity");
  flags.set(Flag::kSPARSE_WEIGHTS, sparsity == "enable" || sparsity == "force");
  flags.set(Flag::kERROR_ON_TIMING_CACHE_MISS, arguments.has("errorOnTimingCacheMiss"));
}

void set_tactic_sources(BuilderConfig& config, const Arguments& arguments) {
  constexpr std::pair<const char*, TacticSource> kSources[] = {
      {"CUBLAS", TacticSource::kCUBLAS},
      {"CUBLAS_LT", TacticSource::kCUBLAS_LT},
      {"CUDNN", TacticSource::kCUDNN},
      {"EDGE_MASK_CONVOLUTIONS", TacticSource::kEDGE_MASK_CONVOLUTIONS},
      {"JIT_CONVOLUTIONS", TacticSource::kJIT_CONVOLUTIONS}};
  for (const std::string& text : arguments.list("tacticSources")) {
    const auto* source = std::ranges::find_if(
        kSources, [&](const auto& each) { return text.substr(1) == each.first; });
    require_usage(source != std::end(kSources) && (text[0] == '+' || text[0] == '-'),
                  "--tacticSources: '", text,
                  "' is none; expected + or - and CUBLAS, CUBLAS_LT, CUDNN, "
                  "EDGE_MASK_CONVOLUTIONS or JIT_CONVOLUTIONS");
    const uint32_t bit = uint32_t{1} << static_cast<int>(source->second);
    config.tactic_sources =
        text[0] == '+' ? config.tactic_sources | bit : config.tactic_sources & ~bit;
  }
}

void configure(BuilderConfig& config, const Arguments& arguments) {
  set_flags(config, arguments);
  set_pools(config, arguments);
  set_tactic_sources(config, arguments);
  config.graphs = !arguments.has("noCudaGraph");
  if (arguments.has("avgTiming"))
    set(config, &BuilderConfig::avg_timing_iterations, arguments.integer("avgTiming", 0, 1));
  if (arguments.has("builderOptimizationLevel"))
    set(config, &BuilderConfig::optimization_level,
        arguments.integer("builderOptimizationLevel", 0));
  if (arguments.has("maxTactics"))
    set(config, &BuilderConfig::max_num_tactics, arguments.integer("maxTactics", 0, -1));
  if (arguments.has("maxAuxStreams"))
    set(config, &BuilderConfig::max_aux_streams, arguments.integer("maxAuxStreams", 0));
  if (arguments.has("tilingOptimizationLevel"))
    set(config, &BuilderConfig::tiling,
        static_cast<TilingOptimizationLevel>(arguments.integer("tilingOptimizationLevel", 0)));
  if (arguments.has("l2LimitForTiling"))
    set(config, &BuilderConfig::l2_limit_for_tiling, arguments.integer("l2LimitForTiling", 0, -1));
  std::string verbosity = arguments.get("profilingVerbosity");
  if (verbosity.empty()) verbosity = arguments.get("nvtxMode");
  require_usage(verbosity.empty() || verbosity == "layer_names_only" || verbosity == "default" ||
                    verbosity == "detailed" || verbosity == "verbose" || verbosity == "none",
                "--profilingVerbosity=", verbosity,
                "; expected layer_names_only, detailed or none");
  if (verbosity == "none") config.verbosity = ProfilingVerbosity::kNONE;
  const std::string level = arguments.get("hardwareCompatibilityLevel");
  require_usage(
      level.empty() || level == "none" || level == "ampere+" || level == "sameComputeCapability",
      "--hardwareCompatibilityLevel=", level, "; expected none, ampere+ or sameComputeCapability");
  if (level == "ampere+") config.hardware_compatibility = HardwareCompatibilityLevel::kAMPERE_PLUS;
  if (level == "sameComputeCapability")
    config.hardware_compatibility = HardwareCompatibilityLevel::kSAME_COMPUTE_CAPABILITY;
}

DataType precision_of(const std::string& text, const std::string& option) {
  constexpr std::pair<const char*, DataType> kTypes[] = {
      {"fp32", DataType::kFLOAT}, {"fp16", DataType::kHALF},   {"bf16", DataType::kBF16},
      {"int8", DataType::kINT8},  {"int32", DataType::kINT32}, {"int64", DataType::kINT64},
      {"fp8", DataType::kFP8},    {"bool", DataType::kBOOL},   {"uint8", DataType::kUINT8}};
  for (const auto& [name, type] : kTypes)
    if (text == name) return type;
  throw UsageError(str(option, ": there is no type '", text,
                       "'; expected fp32, fp16, bf16, int8, fp8, int32, int64, uint8 or bool"));
}

/// Parses formats such as "chw", joined by "+", as a set of formats.
uint32_t formats_of(const std::string& text, const std::string& option) {
  using Format = TensorFormat;
  constexpr std::pair<const char*, Format> kFormats[] = {
      {"chw", Format::kLINEAR},  {"chw2", Format::kCHW2},     {"hwc8", Format::kHWC8},
      {"chw4", Format::kCHW4},   {"chw16", Format::kCHW16},   {"chw32", Format::kCHW32},
      {"dhwc8", Format::kDHWC8}, {"cdhw32", Format::kCDHW32}, {"hwc", Format::kHWC},
      {"hwc16", Format::kHWC16}, {"dhwc", Format::kDHWC}};
  uint32_t formats = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('+', at), text.size());
    const std::string name = text.substr(at, end - at);
    const auto* format =
        std::ranges::find_if(kFormats, [&](const auto& each) { return name == each.first; });
    require_usage(format != std::end(kFormats), option, ": there is no format '", name,
                  "'; expected chw, chw2, hwc8, chw4, chw16, chw32, dhwc8, cdhw32, hwc, hwc16 or "
                  "dhwc");
    formats |= uint32_t{1} << static_cast<int>(format->second);
    at = end + 1;
  }
  return formats;
}

/// Applies specifications such as "fp16:chw+hwc8", one for each tensor or one for all. The type may
/// be left out.
void set_io_formats(std::span<Tensor* const> tensors, const Arguments& arguments,
                    const std::string& name) {
  const std::vector<std::string> specs = arguments.list(name);
  const std::string option = "--" + name;
  require_usage(specs.size() <= 1 || specs.size() == tensors.size(), option, " has ", specs.size(),
                " formats; the model has ", tensors.size(), " of them: write one for each, or one");
  for (size_t i = 0; i < tensors.size() && !specs.empty(); ++i) {
    const std::string& spec = specs[specs.size() == 1 ? 0 : i];
    const size_t colon = spec.find(':');
    if (colon != std::string::npos)
      tensors[i]->set_dtype(precision_of(spec.substr(0, colon), option));
    tensors[i]->set_allowed_formats(
        formats_of(colon == std::string::npos ? spec : spec.substr(colon + 1), option));
  }
}

/// Parses "LAYER:TYPE"; "*" stands for all other layers. Calls `set` with each named layer.
template <class Set>
void set_of_layers(Network& network, const Arguments& arguments, const std::string& name,
                   Set&& set) {
  for (const std::string& text : arguments.list(name)) {
    const size_t colon = text.rfind(':');
    require_usage(colon != std::string::npos, "--", name, " '", text, "'; expected LAYER:TYPE");
    const std::string layer = text.substr(0, colon);
    bool is_used = layer == "*";
    for (int i = 0; i < network.num_layers(); ++i) {
      if (layer != "*" && network.layer(i)->name() != layer) continue;
      is_used = true;
      set(*network.layer(i), text.substr(colon + 1), layer == "*");
    }
    if (!is_used) tell_warning(str("--", name, ": there is no layer '", layer, "'"));
  }
}

void adjust(Network& network, const Arguments& arguments) {
  set_io_formats(network.inputs(), arguments, "inputIOFormats");
  set_io_formats(network.outputs(), arguments, "outputIOFormats");
  set_of_layers(network, arguments, "layerPrecisions",
                [](Layer& layer, const std::string& type, bool is_rest) {
                  const DataType precision = precision_of(type, "--layerPrecisions");
                  if (!is_rest || (!layer.precision() && is_floating(layer.computed_in())))
                    layer.set_precision(precision);
                });
  set_of_layers(network, arguments, "layerOutputTypes",
                [](Layer& layer, const std::string& types, bool is_rest) {
                  size_t at = 0;
                  for (Tensor* output : layer.outputs()) {
                    const size_t end = std::min(types.find('+', at), types.size());
                    const DataType type =
                        precision_of(types.substr(at, end - at), "--layerOutputTypes");
                    if (!is_rest || is_floating(output->dtype())) output->set_stored_type(type);
                    if (end < types.size()) at = end + 1;
                  }
                });
}

/// The shapes of each profile, from --minShapes, --optShapes and --maxShapes, and --profile before
/// them; or only from --shapes.
std::vector<std::vector<InputShapes>> profiles_of(const Arguments& arguments) {
  struct Texts {
    std::vector<std::string> min, opt, max;
  };
  std::vector<Texts> texts;
  for (const Arguments::Given& given : arguments.all()) {
    const std::string name = given.option->name;
    if (name == "profile" || texts.empty()) texts.emplace_back();
    if (name == "minShapes") texts.back().min.push_back(given.value);
    if (name == "optShapes") texts.back().opt.push_back(given.value);
    if (name == "maxShapes") texts.back().max.push_back(given.value);
  }
  std::vector<std::vector<InputShapes>> profiles;
  for (const Texts& each : texts) {
    if (each.min.empty() && each.opt.empty() && each.max.empty()) continue;
    const std::vector<InputShapes> lists[] = {parse_shapes(each.min, "--minShapes"),
                                              parse_shapes(each.opt, "--optShapes"),
                                              parse_shapes(each.max, "--maxShapes")};
    std::vector<InputShapes>& profile = profiles.emplace_back();
    // Missing options follow trtexec: the typical shapes stand for missing smallest and largest
    // ones.
    for (const size_t list : {1, 2, 0}) {
      for (const InputShapes& given : lists[list]) {
        if (std::ranges::find(profile, given.input, &InputShapes::input) != profile.end()) continue;
        const auto of = [&](size_t wanted, size_t otherwise) {
          for (const size_t from : {wanted, otherwise, list})
            for (const InputShapes& found : lists[from])
              if (found.input == given.input) return found.opt;
          return given.opt;
        };
        profile.push_back({given.input, of(0, 1), of(1, 2), of(2, 1)});
      }
    }
  }
  if (profiles.empty() && arguments.has("shapes"))
    profiles.push_back(parse_shapes({arguments.get("shapes")}, "--shapes"));
  return profiles;
}

void tell_missing_shape(const std::string& input, const Shape& shape) {
  tell_warning(
      str("Dynamic dimensions required for input: ", input,
          ", but no shapes were provided. Automatically overriding shape to: ", shape_text(shape)));
}

/// The open extents of `input` are 1. Those with the name of a given input's dimension are as large
/// as that one, since equal names mean equal extents.
InputShapes missing_shapes(const Tensor& input, const Network& network,
                           std::span<const InputShapes> profile) {
  if (input.is_shape_input()) {
    const Shape values(std::vector<int64_t>(static_cast<size_t>(input.shape().numel()), 1));
    return {input.name(), values, values, values};
  }
  Shape fixed = input.shape();
  std::ranges::replace(fixed, -1, 1);
  InputShapes found{input.name(), fixed, fixed, fixed};
  for (int i = 0; i < input.rank(); ++i) {
    const std::string name = input.shape()[i] == -1 ? input.dimension_name(i) : "";
    if (name.empty()) continue;
    for (const Tensor* other : network.inputs()) {
      const auto given = std::ranges::find_if(
          profile, [&](const InputShapes& each) { return matches(each.input, other->name()); });
      if (given == profile.end() || other->is_shape_input()) continue;
      for (int k = 0; k < std::min(other->rank(), given->min.rank()); ++k) {
        if (other->dimension_name(k) != name) continue;
        found.min[i] = given->min[k];
        found.opt[i] = given->opt[k];
        found.max[i] = given->max[k];
      }
    }
  }
  return found;
}

/// As trtexec does: an input without a shape gets one, and a warning says so.
void add_missing_shapes(std::vector<std::vector<InputShapes>>& profiles, const Network& network) {
  for (const Tensor* input : network.inputs()) {
    const Shape shape = input->shape();
    const bool is_open = std::ranges::find(shape, -1) != shape.end();
    if (!is_open && !input->is_shape_input()) continue;
    if (profiles.empty()) profiles.emplace_back();
    for (std::vector<InputShapes>& profile : profiles) {
      if (std::ranges::any_of(profile, [&](const InputShapes& given) {
            return matches(given.input, input->name());
          }))
        continue;
      profile.push_back(missing_shapes(*input, network, profile));
      tell_missing_shape(input->name(), profile.back().opt);
    }
  }
}

// Devices -----------------------------------------------------------------------------------------

/// The device of --device, a number or a name; empty: the default device.
std::string device_text(const Arguments& arguments) {
  std::string text = arguments.get("device");
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return text;
  const DeviceId device = default_device();
  if (device.backend != "cpu") return device.backend + ":" + text;
  if (text != "0")
    fail("Cannot find device ID ", text, "!: there is no GPU that can be used, and one CPU");
  tell_warning("--device=0: there is no GPU that can be used; the CPU takes its place");
  return "";
}

/// Prints a heading and a "key: value" line for each pair.
void tell_section(const std::string& heading,
                  const std::vector<std::pair<std::string, std::string>>& lines) {
  tell_info("=== " + heading + " ===");
  for (const auto& [key, value] : lines) tell_info(str(key, ": ", value));
  tell_info();
}

void tell_options(const Arguments& arguments) {
  std::string precision = "FP32";
  for (const char* each : kPrecisions) {
    if (!allows(arguments, each)) continue;
    std::string name = each;
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    precision += "+" + name;
  }
  if (is_strongly_typed(arguments)) precision = "Strongly typed";
  const bool builds = !arguments.has("loadEngine");
  tell_section("Model Options",
               {{"Format", builds ? "ONNX" : "*"}, {"Model", arguments.get("onnx")}});
  tell_section("Build Options",
               {{"Precision", precision},
                {"Refit", enabled(arguments.has("refit"))},
                {"Version Compatible", enabled(arguments.has("versionCompatible"))},
                {"Skip inference", enabled(arguments.has("skipInference"))},
                {"Save engine", arguments.get("saveEngine")},
                {"Load engine", arguments.get("loadEngine")},
                {"timingCacheFile", arguments.get("timingCacheFile")}});
  const auto or_default = [&](const char* name, const char* otherwise) {
    return arguments.has(name) ? arguments.get(name) : std::string(otherwise);
  };
  tell_section("Inference Options",
               {{"Batch", "Explicit"},
                {"Input inference shapes", or_default("shapes", "model")},
                {"Iterations", or_default("iterations", "10")},
                {"Duration", or_default("duration", "3") + "s (+ " + or_default("warmUp", "200") +
                                 "ms warm up)"},
                {"Idle time", or_default("idleTime", "0") + "ms"},
                {"Inference Streams", or_default("infStreams", "1")},
                {"Data transfers", enabled(arguments.has("includeDataTransfers"))},
                {"CUDA Graph", enabled(!arguments.has("noCudaGraph"))}});
}

void tell_device(const Device& device) {
  const uint64_t mib = device.memory() >> 20;
  tell_section("Device Information", {{"Selected Device", device.identity()},
                                      {"Selected Device ID", std::to_string(device.ordinal())},
                                      {"Architecture", device.architecture()},
                                      {"Device Global Memory", std::to_string(mib) + " MiB"}});
}

// Engines -----------------------------------------------------------------------------------------

std::string mib_text(uint64_t bytes) {
  return str(number_text(static_cast<double>(bytes) / (1 << 20)), " MiB");
}

std::shared_ptr<Engine> build(const Arguments& arguments, const std::vector<std::string>& plugins,
                              const Log& log) {
  BuildOptions options;
  options.model = arguments.get("onnx");
  options.output = arguments.get("saveEngine");
  if (!arguments.has("noBuilderCache")) options.timing_cache = arguments.get("timingCacheFile");
  options.device = device_text(arguments);
  options.plugins = plugins;
  options.embedded_plugins = arguments.list("setPluginsToSerialize");
  options.profiles = profiles_of(arguments);
  options.network.strongly_typed = is_strongly_typed(arguments);
  options.log = log;
  options.adjust_parser = [&](OnnxParser& parser) {
    using Flag = onnxparser::OnnxParserFlag;
    if (arguments.has("pluginInstanceNorm")) parser.clear_flag(Flag::kNATIVE_INSTANCENORM);
    if (arguments.has("enablePluginOverride")) parser.set_flag(Flag::kENABLE_PLUGIN_OVERRIDE);
  };
  options.adjust_network = [&](Network& network) {
    add_missing_shapes(options.profiles, network);
    adjust(network, arguments);
  };
  options.configure = [&](BuilderConfig& config) { configure(config, arguments); };
  tell_info("Start parsing network model.");
  BuiltEngine built = build_engine(options);
  tell_info(str("Created engine with size: ", mib_text(built.bytes)));
  tell_info(str("[TRT] Engine generation completed in ", number_text(built.seconds), " seconds."));
  tell_info(str("Engine built in ", number_text(built.seconds), " sec."));
  LoadOptions load;
  load.log = log;
  load.device_ordinal =
      options.device.empty() ? -1 : parse_device(options.device, "--device").ordinal;
  return Engine::load(std::move(built.plan), load);
}

std::shared_ptr<Engine> load(const Arguments& arguments, const std::vector<std::string>& plugins,
                             const Log& log) {
  load_plugins(plugins);
  const std::string path = arguments.get("loadEngine");
  set_crash_stage("loading '" + path + "'");
  LoadOptions options;
  options.log = log;
  options.allow_host_code =
      arguments.has("allow-host-code") || is_permitted_by_environment(kAllowHostCode);
  options.allow_device_code =
      arguments.has("allow-device-code") || is_permitted_by_environment(kAllowDeviceCode);
  const std::string device = device_text(arguments);
  if (!device.empty()) options.device_ordinal = parse_device(device, "--device").ordinal;
  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<Engine> engine = Engine::load_file(path, options);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  tell_info(str("Engine loaded in ", number_text(seconds), " sec."));
  tell_info(str("Loaded engine with size: ", mib_text(map_file(path).size())));
  tell_info(str("Engine deserialized in ", number_text(seconds), " sec."));
  return engine;
}

void write_text(const std::string& path, const std::string& text) {
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(text))};
  write_file_atomically(path, parts, Durability::kCached);
}

void tell_lines(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    tell_info(text.substr(at, end - at));
    at = end + 1;
  }
}

void report_engine(const Plan& plan, const Arguments& arguments) {
  if (arguments.has("dumpLayerInfo")) {
    tell_info("Layer Information:");
    tell_lines(inspect_text(plan));
  }
  if (arguments.has("exportLayerInfo"))
    write_text(arguments.get("exportLayerInfo"), inspect_json(plan));
  if (!arguments.has("dumpOptimizationProfile")) return;
  tell_info("Optimization Profile Information:");
  for (size_t i = 0; i < plan.schedules.size(); ++i)
    for (size_t input = 0; input < plan.inputs.size(); ++input) {
      const ProfileInput& range = plan.schedules[i].inputs[input];
      tell_info(str("Model input ", plan.inputs[input].name, " (profile ", i,
                    "): min=", shape_text(range.min), ", opt=", shape_text(range.opt),
                    ", max=", shape_text(range.max)));
    }
}

/// Sets the weights that stay in the device's memory. "-2": all. "-1": as many as fit. "20%",
/// "10M": this amount.
void set_weight_budget(Engine& engine, const Arguments& arguments) {
  const std::string option = "--weightStreamingBudget", text = arguments.get(option.substr(2));
  if (text.empty() || text == "-2") return;
  const auto streamable = static_cast<double>(engine.streamable_weights_size());
  int64_t budget = 0;
  if (text == "-1") {
    budget = engine.automatic_weight_streaming_budget();
  } else if (text.back() == '%') {
    char* end = nullptr;
    const double percent = std::strtod(text.c_str(), &end);
    require_usage(
        end != text.c_str() && *end == '%' && end[1] == '\0' && percent >= 0 && percent <= 100,
        option, ": '", text, "' is no part of the weights; expected 0% to 100%");
    budget = static_cast<int64_t>(percent / 100 * streamable);
  } else {
    budget = static_cast<int64_t>(bytes_of(text, option, 'B'));
  }
  engine.set_weight_streaming_budget(budget);
  tell_info(
      str("Weight streaming: ", mib_text(static_cast<uint64_t>(engine.weight_streaming_budget())),
          " of ", mib_text(static_cast<uint64_t>(streamable)),
          " of weights may stay in the device's memory"));
}

// Runs --------------------------------------------------------------------------------------------

/// The array of an NPY file, or the raw bytes of another file.
NpyArray read_values(const std::string& path, const PlanPort& port, const Shape& shape) {
  Blob file = read_file(path);
  constexpr std::string_view kNpy = "\x93NUMPY";
  const std::string_view text(file.as<char>(), file.size());
  if (text.starts_with(kNpy)) return parse_npy(file, path);
  const int64_t bytes = tensor_bytes(shape, port.type.dtype, port.type.format);
  require(std::cmp_equal(file.size(), bytes), "'", path, "' has ", file.size(), " bytes; input '",
          port.name, "' of shape ", shape_text(shape), " (", name(port.type.dtype), ") takes ",
          bytes, ": --shapes says the shape of the values");
  return {port.type.dtype, shape, std::move(file)};
}

InputOptions input_options(const Plan& plan, int profile, const Arguments& arguments) {
  InputOptions given;
  if (arguments.has("shapes"))
    for (const InputShapes& shapes : parse_shapes({arguments.get("shapes")}, "--shapes"))
      for (const PlanPort& port : plan.inputs)
        if (matches(shapes.input, port.name)) given.shapes[port.name] = shapes.opt;
  for (const std::string& text : arguments.list("loadInputs")) {
    size_t end = 0;
    const PlanPort* chosen = nullptr;
    for (const PlanPort& port : plan.inputs)
      for (const std::string& written : {port.name, "'" + port.name + "'"})
        if (text.starts_with(written + ":") && written.size() > end) {
          end = written.size();
          chosen = &port;
        }
    if (chosen == nullptr) {
      const size_t colon = text.find(':');
      require_usage(colon != std::string::npos, "--loadInputs '", text, "'; expected INPUT:FILE");
      find_port(plan.inputs, text.substr(0, colon), "input");
      continue;
    }
    const ProfileInput& range = plan.schedules[static_cast<size_t>(profile)]
                                    .inputs[static_cast<size_t>(chosen - plan.inputs.data())];
    const std::string file = text.substr(end + 1);
    Shape shape = range.opt;
    if (range.values) {
      shape = {};
      if (!chosen->dims.empty()) shape.push_back(range.opt.rank());
    } else if (const auto known = given.shapes.find(chosen->name); known != given.shapes.end()) {
      shape = known->second;
    }
    given.arrays.insert_or_assign(chosen->name, read_values(file, *chosen, shape));
    tell_info(str("Using values loaded from ", file, " for input ", chosen->name));
  }
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const PlanPort& port = plan.inputs[i];
    const ProfileInput& range = plan.schedules[static_cast<size_t>(profile)].inputs[i];
    if (given.arrays.contains(port.name)) continue;
    if (!given.shapes.contains(port.name) && !arguments.has("optShapes") &&
        range.min != range.max && !range.values)
      tell_missing_shape(port.name, range.opt);
    tell_info("Using random values for input " + port.name);
  }
  return given;
}

void tell_bindings(Runner& runner) {
  const Plan& plan = runner.plan();
  const auto line = [](const char* what, const PlanPort& port, const Shape& shape) {
    tell_info(str(what, " binding for ", port.name, " with dimensions ", shape_text(shape),
                  " and type ", name(port.type.dtype), " is created."));
  };
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    line("Input", plan.inputs[i], runner.context().input_shape(static_cast<int>(i)));
  for (size_t i = 0; i < plan.outputs.size(); ++i)
    line("Output", plan.outputs[i], runner.context().max_output_shape(static_cast<int>(i)));
}

void report_outputs(Runner& runner, const Arguments& arguments) {
  const Plan& plan = runner.plan();
  const bool shows = arguments.has("dumpOutput"), exports = arguments.has("exportOutput");
  for (const PlanPort& port : plan.outputs)
    require(!(shows || exports) || port.type.format == TensorFormat::kLINEAR, "output '", port.name,
            "' has the format ", name(port.type.format),
            ", which is not printed: --dumpRawBindingsToFile writes its bytes");
  if (shows) tell_info("Output Tensors:");
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const NpyArray array = runner.output(static_cast<int>(i));
    if (shows) {
      tell_info(str(plan.outputs[i].name, ": (", shape_text(array.shape), ")"));
      tell_info(values_text(array));
    }
    if (!arguments.has("dumpRawBindingsToFile")) continue;
    std::string file = plan.outputs[i].name;
    for (char& c : file)
      if (c == '/' || c == ':' || c == ' ' || c == '\0') c = '_';
    file += ".output." + shape_text(array.shape) + "." + std::string(name(array.dtype)) + ".raw";
    const std::span<const std::byte> parts[] = {array.data.bytes()};
    write_file_atomically(file, parts, Durability::kCached);
    tell_info(str("Output ", plan.outputs[i].name, " is in '", file, "'"));
  }
  if (exports) write_text(arguments.get("exportOutput"), outputs_json(runner));
}

ReportOptions report_options(const Arguments& arguments) {
  ReportOptions options;
  options.average = arguments.integer("avgRuns", options.average, 1);
  options.warmup_ms = arguments.number("warmUp", 200);
  options.streams = arguments.integer("infStreams", 1, 1);
  if (arguments.has("percentile")) {
    options.percentiles.clear();
    for (const std::string& text : arguments.list("percentile")) {
      char* end = nullptr;
      const double value = std::strtod(text.c_str(), &end);
      require_usage(*end == '\0' && value >= 0 && value <= 100, "--percentile=", text,
                    ": expected 0 to 100");
      options.percentiles.push_back(value);
    }
  }
  return options;
}

void run(const std::shared_ptr<Engine>& engine, const Arguments& arguments) {
  const Plan& plan = engine->plan();
  ReportOptions report = report_options(arguments);
  const int profile = arguments.integer("useProfile", 0);
  require_usage(std::cmp_less(profile, plan.schedules.size()), "--useProfile=", profile,
                ": the engine has ", plan.schedules.size(), " optimization profiles");
  constexpr double kForever = 1e9;
  MeasureOptions options;
  options.runs = arguments.integer("iterations", 10);
  options.warmup_ms = report.warmup_ms;
  options.seconds = arguments.number("duration", 3, -1);
  if (options.seconds < 0) options.seconds = kForever;
  options.idle_ms = arguments.number("idleTime", 0);
  options.transfers = arguments.has("includeDataTransfers") && !arguments.has("noDataTransfers");
  options.runs = std::max(options.runs, 1);
  const InputOptions inputs = input_options(plan, profile, arguments);
  std::vector<std::unique_ptr<Runner>> runners;
  for (int i = 0; i < report.streams; ++i) {
    runners.push_back(std::make_unique<Runner>(engine, report.streams == 1));
    if (profile != 0) runners.back()->context().set_profile(profile);
    set_inputs(*runners.back(), inputs);
  }
  Runner& runner = *runners.front();
  tell_bindings(runner);
  set_crash_stage("running the engine");
  tell_info("Starting inference");
  const Measured measured = measure(runners, options);
  report_runs(measured, report);
  if (arguments.has("exportTimes"))
    write_text(arguments.get("exportTimes"), times_json(measured.runs));
  report_outputs(runner, arguments);
  if (!arguments.has("dumpProfile") && !arguments.has("exportProfile")) return;
  const auto profiled = static_cast<int>(std::clamp<size_t>(measured.count, 1, 100));
  const std::vector<LayerTimes> layers = profile_layers(runner, profiled);
  if (arguments.has("dumpProfile")) report_layers(layers, profiled);
  if (arguments.has("exportProfile"))
    write_text(arguments.get("exportProfile"), profile_json(layers, profiled));
}

std::vector<std::string> plugin_files(const Arguments& arguments) {
  std::vector<std::string> files = arguments.list("staticPlugins");
  const std::vector<std::string> embedded = arguments.list("setPluginsToSerialize");
  for (const std::string& file : arguments.list("dynamicPlugins"))
    if (std::ranges::find(embedded, file) == embedded.end()) files.push_back(file);
  return files;
}

void execute(const Arguments& arguments) {
  refuse(arguments);
  const bool builds = arguments.has("onnx"), loads = arguments.has("loadEngine");
  require_usage(builds || loads,
                "Model missing or format not recognized: give --onnx=FILE, or an "
                "engine with --loadEngine=FILE");
  report_options(arguments);
  const std::vector<std::string> plugins = plugin_files(arguments);
  tell_options(arguments);
  warn_of_no_effect(arguments);
  tell_info(str("TensorRT version: ", NV_TENSORRT_MAJOR, ".", NV_TENSORRT_MINOR, ".",
                NV_TENSORRT_PATCH, " (the API that Opwright ", OPWRIGHT_VERSION, " answers to)"));
  if (loads && arguments.has("getPlanVersionOnly")) {
    tell_info("Plan was created with " + read_plan(arguments.get("loadEngine")).builder);
    return;
  }
  const Log log = trtexec_log(arguments);
  std::vector<std::string> libraries;
  for (const std::string& file : plugins)
    if (!is_python(file)) libraries.push_back(file);
  for (const std::string& file : plugins) tell_info("Loading supplied plugin library: " + file);
  const std::shared_ptr<Engine> engine =
      loads ? load(arguments, libraries, log) : build(arguments, libraries, log);
  tell_device(engine->device());
  if (loads && arguments.has("timeDeserialize")) return;
  report_engine(engine->plan(), arguments);
  set_weight_budget(*engine, arguments);
  if (arguments.has("skipInference")) {
    tell_info("Skipped inference phase since --skipInference is added.");
    return;
  }
  run(engine, arguments);
}

void print_help() {
  std::printf(
      "trtexec of Opwright %s: builds an engine of an ONNX model or loads one, and times it, in "
      "the "
      "spelling\nof TensorRT's program. Values follow =, or are the next word.\n\n",
      OPWRIGHT_VERSION);
  for (const OptionText& option : trtexec_options()) {
    std::string names;
    for (const std::string& name : option.names)
      names += (names.empty() ? "" : ", ") + name +
               (option.value.empty() || name.size() == 2 ? "" : "=" + option.value);
    std::printf("  %-36s %s\n", names.c_str(), option.help.c_str());
  }
}

/// Runs trtexec and returns its exit status.
int trtexec(const std::vector<std::string>& words) {
  std::string line = str("TensorRT.trtexec ", version_text(), " # trtexec");
  for (const std::string& word : words) line += " " + printable(word);
  const auto tell_state = [&](const char* state) {
    std::printf("&&&& %s %s\n", state, line.c_str());
    std::fflush(stdout);
  };
  const auto fails = [&](const char* problem) {
    tell_error(problem);
    tell_state("FAILED");
    return 1;
  };
  try {
    // A Python file of plugins replaces this process by Python's, which then prints everything
    // below.
    const Arguments arguments(words);
    for (const std::string& file : plugin_files(arguments))
      if (is_python(file)) load_plugins({file});
    tell_state("RUNNING");
    if (words.empty() || arguments.has("help")) {
      print_help();
    } else if (arguments.has("version")) {
      std::printf("Opwright %s, TensorRT %d.%d.%d\n", OPWRIGHT_VERSION, NV_TENSORRT_MAJOR,
                  NV_TENSORRT_MINOR, NV_TENSORRT_PATCH);
    } else {
      execute(arguments);
    }
    tell_state("PASSED");
    return 0;
  } catch (const UsageError& problem) {
    return fails(str(problem.what(), " (--help shows all options)").c_str());
  } catch (const std::exception& problem) {
    return fails(problem.what());
  }
}

}  // namespace

void add_trtexec(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      kTrtexec,
      "Build, load and time engines with the options and the output of TensorRT's program");
  command->prefix_command();
  command->set_help_flag();  // its own
  command->callback([command, &status] { status = trtexec(command->remaining()); });
}

}  // namespace opwright::cli
