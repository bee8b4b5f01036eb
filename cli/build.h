#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands.h"
#include "compile/builder_config.h"
#include "network/network.h"
#include "onnx/parser.h"
#include "plan/plan.h"

namespace opwright::cli {

/// The model that an engine is built from, and how it is built.
struct BuildOptions {
  std::string model, output, timing_cache, device;  ///< no output: nothing is written
  std::vector<std::string> plugins, embedded_plugins;
  /// Shapes of inputs, one list for each optimization profile. A "*" in a name stands for any text
  /// in an input's name.
  std::vector<std::vector<InputShapes>> profiles;
  NetworkFlags network;
  bool allow_links = false;
  LimitOptions limits;
  Log log;
  /// Callbacks that change what is built, and how; empty: no change. `adjust_parser` is called
  /// before the model is parsed, the others after.
  std::function<void(Network&)> adjust_network;
  std::function<void(OnnxParser&)> adjust_parser;
  std::function<void(BuilderConfig&)> configure;
  ProgressCallback progress;
  std::function<void(bool is_built)> finished;
};

struct BuiltEngine {
  Plan plan;
  size_t bytes = 0;    ///< size of the engine's file
  double seconds = 0;  ///< duration of the whole build
};

/// Throws Error for a model that cannot be imported or built.
BuiltEngine build_engine(const BuildOptions& options);

/// Whether `pattern` equals `name` once its "*" is replaced by some text.
bool matches(const std::string& pattern, const std::string& name);

}  // namespace opwright::cli
