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

/// What an engine is built from, and how.
struct BuildOptions {
  std::string model, output, timing_cache, device;  ///< no output: nothing is written
  std::vector<std::string> plugins, embedded_plugins;
  /// What is said of inputs, a list for each optimization profile. A "*" in a name stands for
  /// whatever inputs' names have there.
  std::vector<std::vector<InputShapes>> profiles;
  NetworkFlags network;
  bool allow_links = false;
  LimitOptions limits;
  Log log;
  /// Change what is built, and how, once the model is taken over; empty: nothing.
  std::function<void(Network&)> adjust_network;
  std::function<void(OnnxParser&)> adjust_parser;
  std::function<void(BuilderConfig&)> configure;
  ProgressCallback progress;
  std::function<void(bool is_built)> finished;
};

struct BuiltEngine {
  Plan plan;
  size_t bytes = 0;    ///< of the engine's file
  double seconds = 0;  ///< of all of it
};

/// Throws Error for a model that cannot be taken over, or built.
BuiltEngine build_engine(const BuildOptions& options);

/// Whether `pattern` is the name, or becomes it with something in the place of its "*".
bool matches(const std::string& pattern, const std::string& name);

}  // namespace opwright::cli
