#include <charconv>
#include <cmath>
#include <iterator>

#include "base/did_you_mean.h"
#include "trtexec.h"

namespace opwright::cli {
namespace {

constexpr const char* kAlways = "it is always so";
constexpr const char* kNoDla = "there is no DLA";
constexpr const char* kNoLean = "an engine holds no runtime";
constexpr const char* kOnnxAlone = "models are ONNX";
constexpr const char* kNoNeed = "kernels need no such setting";

// The help of an option without effect says what TensorRT does.
constexpr TrtexecOption kOptions[] = {
    {"onnx", "", "FILE", "ONNX model"},
    // Build
    {"minShapes", "", "SPEC", "smallest shapes of inputs: x:1x3x224x224,y:1x8"},
    {"optShapes", "", "SPEC", "typical shapes of inputs"},
    {"maxShapes", "", "SPEC", "largest shapes of inputs"},
    {"profile", "", "N", "begin another optimization profile, which the shapes behind it are for"},
    {"inputIOFormats", "", "SPEC", "layouts of inputs: chw, fp16:chw, fp16:hwc8+chw16, ..."},
    {"outputIOFormats", "", "SPEC", "layouts of outputs"},
    {"memPoolSize", "", "SPEC", "limits of memory pools: workspace:1024 (MiB), workspace:2G"},
    {"workspace", "", "N", "MiB of scratch memory that a kernel may take"},
    {"profilingVerbosity", "", "MODE", "layer_names_only, detailed or none"},
    {"nvtxMode", "", "MODE", "profilingVerbosity's name before TensorRT 8.6"},
    {"avgTiming", "", "N", "runs over which a kernel's time is taken"},
    {"minTiming", "", "N", "least runs over which a kernel's time is taken", kNoNeed},
    {"refit", "", "", "weights can be exchanged"},
    {"stripWeights", "", "", "leave out the weights that refitting gives"},
    {"stripAllWeights", "", "", "refit and stripWeights"},
    {"versionCompatible", "vc", "", "run with other versions"},
    {"pluginInstanceNorm", "pi", "", "InstanceNormalization by a plugin"},
    {"enablePluginOverride", "", "", "plugins take the place of ONNX's operators of their names"},
    {"useRuntime", "", "KIND", "full, lean or dispatch", kNoLean},
    {"leanDLLPath", "", "FILE", "library of the lean runtime", kNoLean},
    {"excludeLeanRuntime", "", "", "no lean runtime in the engine", kNoLean},
    {"sparsity", "", "SPEC", "disable, enable or force"},
    {"noTF32", "", "", "no TF32 in products of FP32"},
    {"fp16", "", "", "allow FP16"},
    {"bf16", "", "", "allow BF16"},
    {"int8", "", "", "allow INT8"},
    {"fp8", "", "", "allow FP8"},
    {"int4", "", "", "allow INT4"},
    {"best", "", "", "allow all precisions"},
    {"stronglyTyped", "", "", "keep the model's types everywhere"},
    {"directIO", "", "", "no reformatting at inputs and outputs"},
    {"precisionConstraints", "", "SPEC", "none, prefer or obey what layerPrecisions says"},
    {"layerPrecisions", "", "SPEC", "types that layers compute in: conv1:fp16,*:fp32"},
    {"layerOutputTypes", "", "SPEC", "types of layers' outputs: conv1:fp16"},
    {"layerDeviceTypes", "", "SPEC", "devices of layers", kNoDla},
    {"calib", "", "FILE", "calibration cache", "scales come from QuantizeLinear nodes"},
    {"safe", "", "", "engine for a safety runtime"},
    {"consistency", "", "", "check a safety engine"},
    {"restricted", "", "", "scope of the safety runtime"},
    {"buildDLAStandalone", "", "", "loadable for DLA"},
    {"allowGPUFallback", "", "", "GPU for what DLA has not", kNoDla},
    {"uint8AsymmetricQuantizationDLA", "", "", "UINT8 on DLA", kNoDla},
    {"reportCapabilityDLA", "", "", "what DLA can run", kNoDla},
    {"adjustForDLA", "", "", "layers made for DLA", kNoDla},
    {"saveEngine", "", "FILE", "write the engine"},
    {"loadEngine", "", "FILE", "read an engine instead of building one"},
    {"asyncFileReader", "", "", "read it in pieces", "files are mapped"},
    {"getPlanVersionOnly", "", "", "print who made the engine of loadEngine"},
    {"tacticSources", "", "SPEC", "libraries with kernels: -CUBLAS,+CUBLAS_LT"},
    {"noBuilderCache", "", "", "time everything afresh"},
    {"noCompilationCache", "", "", "no code in timing caches", kAlways},
    {"errorOnTimingCacheMiss", "", "", "fail where the timing cache lacks something"},
    {"timingCacheFile", "", "FILE", "file of measured times: read before, extended after"},
    {"preview", "", "SPEC", "preview features", "there is none"},
    {"builderOptimizationLevel", "", "N", "0 to 5: how much is compared"},
    {"maxTactics", "", "N", "most candidates of a layer that are timed"},
    {"hardwareCompatibilityLevel", "", "MODE", "none, ampere+ or sameComputeCapability"},
    {"runtimePlatform", "", "NAME", "sameAsBuild"},
    {"tempdir", "", "DIR", "folder of temporary files", kNoNeed},
    {"tempfileControls", "", "SPEC", "which temporary files there may be", kNoNeed},
    {"maxAuxStreams", "", "N", "most streams beside that of a run"},
    {"allowWeightStreaming", "", "", "weights in the host's memory"},
    {"markDebug", "", "SPEC", "debug tensors", "the program does not show them"},
    {"markUnfusedTensorsAsDebugTensors", "", "", "debug tensors", "the program does not show them"},
    {"tilingOptimizationLevel", "", "N", "0 to 3"},
    {"l2LimitForTiling", "", "N", "bytes of the cache for tiling"},
    {"distributiveIndependence", "", "", "products are not regrouped", kAlways},
    {"decomposableAttentions", "", "SPEC", "attentions that may be taken apart", kNoNeed},
    {"monitorMemory", "", "", "print memory in use", kNoNeed},
    {"explicitBatch", "", "", "the batch is an extent as others are", kAlways},
    {"explicitPrecision", "", "", "QuantizeLinear nodes say what is quantized", kAlways},
    {"batch", "", "N", "implicit batch", "the batch is an extent: --shapes"},
    {"maxBatch", "", "N", "implicit batch", "the batch is an extent: --maxShapes"},
    {"output", "", "NAME", "outputs of UFF models", kOnnxAlone},
    // Inference
    {"shapes", "", "SPEC", "shapes of inputs for the runs"},
    {"loadInputs", "", "SPEC",
     "values of inputs: x:x.bin,y:y.npy, raw or NPY; random ones otherwise"},
    {"iterations", "", "N", "least number of runs (10)"},
    {"warmUp", "", "MS", "milliseconds of runs before measuring (200)"},
    {"duration", "", "S", "least seconds of measuring (3)"},
    {"sleepTime", "", "MS", "delay between launch and work", "runs begin at once"},
    {"idleTime", "", "MS", "milliseconds between a run and the next (0)"},
    {"infStreams", "streams", "N", "contexts that run at once (1)"},
    {"exposeDMA", "", "", "copies wait for the work", kAlways},
    {"includeDataTransfers", "", "", "copy inputs and outputs in each run"},
    {"noDataTransfers", "", "", "copy none, as without it"},
    {"useManagedMemory", "", "", "memory of host and device in one", kNoNeed},
    {"useSpinWait", "", "", "wait actively", kAlways},
    {"noSpinWait", "", "", "wait passively", kNoNeed},
    {"threads", "", "", "a thread for each context", kAlways},
    {"useCudaGraph", "", "", "replay runs as CUDA graphs, as without it"},
    {"noCudaGraph", "", "", "no CUDA graphs; of an engine that is built"},
    {"timeDeserialize", "", "", "time the loading of the engine, and end"},
    {"timeRefit", "", "", "time refitting", "the program does not refit"},
    {"separateProfileRun", "", "", "profile in runs of their own", kAlways},
    {"skipInference", "buildOnly", "", "end when the engine is built"},
    {"persistentCacheRatio", "", "X", "part of the L2 cache that is set aside", kNoNeed},
    {"useProfile", "", "N", "optimization profile of the runs (0)"},
    {"allocationStrategy", "", "SPEC", "static, profile or runtime", kNoNeed},
    {"weightStreamingBudget", "", "SPEC",
     "device memory for weights: 20%, 10M, -1 (what there is room for), -2 (all)"},
    {"loadRefOutputs", "", "SPEC", "expected outputs"},
    {"saveDebugTensors", "", "SPEC", "values of debug tensors"},
    {"saveAllDebugTensors", "", "SPEC", "values of all debug tensors"},
    {"refitFromOnnx", "", "FILE", "exchange the weights for those of a model"},
    // Reporting
    {"verbose", "v", "", "print all messages"},
    {"avgRuns", "", "N", "runs of which means are printed (10)"},
    {"percentile", "", "P1,P2", "percentages of the summary (90,95,99)"},
    {"dumpRefit", "", "", "print the weights that can be exchanged", "`opwright inspect` does"},
    {"dumpOutput", "", "", "print the outputs of the last run"},
    {"dumpRawBindingsToFile", "", "", "write the outputs of the last run into files"},
    {"dumpProfile", "", "", "print each layer's time"},
    {"dumpLayerInfo", "", "", "print the layers"},
    {"dumpOptimizationProfile", "", "", "print the optimization profiles"},
    {"exportTimes", "", "FILE", "write the times of all runs as JSON"},
    {"exportOutput", "", "FILE", "write the outputs as JSON"},
    {"exportProfile", "", "FILE", "write each layer's time as JSON"},
    {"exportLayerInfo", "", "FILE", "write the layers as JSON"},
    // System
    {"device", "", "N", "which GPU; also cpu or cuda"},
    {"useDLACore", "", "N", "a DLA core: there is none"},
    {"staticPlugins", "plugins", "FILE",
     "a plugin library, or a Python file of plugins (repeatable)"},
    {"dynamicPlugins", "", "FILE", "the same, which setPluginsToSerialize may name"},
    {"setPluginsToSerialize", "", "FILE", "a plugin library that the engine is to carry"},
    {"ignoreParsedPluginLibs", "", "", "no libraries that the parser names", kAlways},
    {"safetyPlugins", "", "SPEC", "plugins of the safety runtime"},
    {"allow-host-code", "", "",
     "Opwright's own: run code for the host that the engine holds; only for files that you trust"},
    {"allow-device-code", "", "",
     "Opwright's own: run code for a GPU that the engine holds; only for files that you trust"},
    {"version", "", "", "print the versions"},
    {"help", "h", "", "print this"},
};

std::vector<std::string> names_of(const TrtexecOption& option) {
  std::vector<std::string> names = {option.name};
  std::string aliases = option.aliases;
  for (size_t at = 0; at < aliases.size();) {
    const size_t end = std::min(aliases.find(' ', at), aliases.size());
    names.push_back(aliases.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

const TrtexecOption* find(const std::string& name) {
  for (const TrtexecOption& option : kOptions)
    for (const std::string& each : names_of(option))
      if (each == name) return &option;
  return nullptr;
}

const TrtexecOption& expect(const std::string& word, const std::string& name) {
  const TrtexecOption* option = find(name);
  if (option != nullptr) return *option;
  std::vector<std::string> known;
  for (const TrtexecOption& each : kOptions)
    for (const std::string& known_name : names_of(each)) known.push_back("--" + known_name);
  throw UsageError(str("Unknown option: ", word, did_you_mean("--" + name, known)));
}

}  // namespace

std::vector<OptionText> trtexec_options() {
  std::vector<OptionText> texts;
  for (const TrtexecOption& option : kOptions) {
    OptionText& text = texts.emplace_back();
    for (const std::string& name : names_of(option))
      text.names.push_back((name.size() == 1 ? "-" : "--") + name);
    text.value = option.value;
    text.help = option.help;
    if (option.no_effect != nullptr)
      text.help += str("; accepted without effect: ", option.no_effect);
  }
  return texts;
}

TrtexecArguments::TrtexecArguments(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const size_t hyphens = word.starts_with("--") ? 2 : 1;
    require_usage(word.size() > hyphens && word.front() == '-', "Unknown option: '", word,
                  "' is no option; they are written --name or --name=value");
    const size_t equals = word.find('=');
    const TrtexecOption& option =
        expect(word, word.substr(hyphens, std::min(equals, word.size()) - hyphens));
    Given& given = given_.emplace_back(Given{&option, ""});
    const bool takes_value = *option.value != '\0';
    if (equals != std::string::npos) {
      given.value = word.substr(equals + 1);
      require_usage(takes_value, "--", option.name, " takes no value, but is given '", given.value,
                    "'");
    } else if (takes_value) {
      require_usage(i + 1 < words.size() && !words[i + 1].starts_with("--"), "--", option.name,
                    " takes a value: --", option.name, "=", option.value);
      given.value = words[++i];
    }
  }
}

bool TrtexecArguments::has(const std::string& name) const {
  for (const Given& given : given_)
    if (given.option->name == name) return true;
  return false;
}

std::string TrtexecArguments::get(const std::string& name) const {
  std::string value;
  for (const Given& given : given_)
    if (given.option->name == name) value = given.value;
  return value;
}

std::vector<std::string> TrtexecArguments::list(const std::string& name) const {
  std::vector<std::string> values;
  for (const Given& given : given_) {
    if (given.option->name != name) continue;
    for (size_t at = 0; at <= given.value.size();) {
      const size_t end = std::min(given.value.find(',', at), given.value.size());
      if (end > at) values.push_back(given.value.substr(at, end - at));
      at = end + 1;
    }
  }
  return values;
}

double TrtexecArguments::number(const std::string& name, double otherwise, double least) const {
  if (!has(name)) return otherwise;
  const std::string text = get(name);
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  require_usage(problem == std::errc() && end == text.data() + text.size() &&
                    std::isfinite(value) && value >= least,
                "--", name, "=", text, ": expected a number of at least ", least);
  return value;
}

int TrtexecArguments::integer(const std::string& name, int otherwise, int least) const {
  const double value = number(name, otherwise, least);
  require_usage(value == std::floor(value) && value < 1e9, "--", name, "=", get(name),
                ": expected a whole number");
  return static_cast<int>(value);
}

}  // namespace opwright::cli
