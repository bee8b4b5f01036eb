#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/shape.h"
#include "runtime/engine.h"

namespace opwright::cli {

// One per subcommand: adds it with its options; it runs when the command line has been parsed.
void add_build(CLI::App& app);
void add_run(CLI::App& app);
void add_inspect(CLI::App& app);
void add_bench(CLI::App& app);
void add_view(CLI::App& app);
void add_serve(CLI::App& app);
/// `status` becomes what the command ends with.
void add_trtexec(CLI::App& app, int& status);
void add_completion(CLI::App& app);

/// What a command may spend: --max-memory and --max-time.
struct LimitOptions {
  std::string memory;  ///< empty: the default
  double seconds = 0;  ///< 0: without end

  /// `memory_help` says what is counted; empty: there is no --max-memory.
  void add_to(CLI::App& command, const std::string& memory_help);
  /// 0 for the default.
  uint64_t memory_bytes() const;
};

/// Options that all commands that load an engine share.
struct EngineOptions {
  std::string path;
  std::vector<std::string> plugins;
  LoadOptions how;  ///< what flags say of it
  bool defer_weight_check = false;
  bool verbose = false;
  std::string device;  ///< empty: the engine's
  LimitOptions limits;

  void add_to(CLI::App& command);
  std::shared_ptr<Engine> load() const;
};

/// Whether a file of plugins is Python.
bool is_python(const std::string& path);
/// Loads plugin libraries into the process's registry, and runs Python files, which register
/// theirs.
void load_plugins(const std::vector<std::string>& paths);
/// Messages of at least warning level to stderr, all of them with `verbose`.
Log make_log(bool verbose);
/// "2G" or "1048576" as bytes; throws UsageError naming `what` for anything else.
uint64_t parse_bytes(const std::string& text, const std::string& what);
/// "1x3x224x224", or "scalar"; throws UsageError naming `what` for anything else.
Shape parse_shape(const std::string& text, const std::string& what);
/// What is said of an input: a shape, or its smallest, typical and largest one.
struct InputShapes {
  std::string input;
  Shape min, opt, max;
};
/// Reads "x:1x3x224x224", "x:MIN,OPT,MAX" and several of them, "x:1x8,y:2x8"; of an input twice, or
/// what is no such list, throws UsageError naming `option`.
std::vector<InputShapes> parse_shapes(const std::vector<std::string>& texts,
                                      const std::string& option);
/// Splits "NAME=REST" behind the longest of the ports' names that it begins with, since a name may
/// have a "=" itself, or else behind the first "="; without one the name is empty.
std::pair<std::string, std::string> split_name(const std::string& text,
                                               const std::vector<PlanPort>& ports);
/// A JSON string with its quotes.
std::string json_string(const std::string& text);
/// Extents as a JSON array.
std::string json_array(const Shape& shape);

}  // namespace opwright::cli
