#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/shape.h"
#include "runtime/engine.h"

namespace opwright::cli {

// One function for each subcommand. It adds the subcommand with its options, which runs when the
// command line has been parsed.
void add_build(CLI::App& app);
void add_run(CLI::App& app);
void add_inspect(CLI::App& app);
void add_bench(CLI::App& app);
void add_view(CLI::App& app);
void add_serve(CLI::App& app);
void add_shard(CLI::App& app);
/// `status` receives the exit status of the command.
void add_trtexec(CLI::App& app, int& status);
void add_completion(CLI::App& app);

/// Limits of a command: --max-memory and --max-time.
struct LimitOptions {
  std::string memory;  ///< empty: the default
  double seconds = 0;  ///< 0: no limit

  /// `memory_help` is the help text of --max-memory; empty: the command does not have the option.
  void add_to(CLI::App& command, const std::string& memory_help);
  /// Parsed --max-memory; 0 for the default.
  uint64_t memory_bytes() const;
};

/// Options that all commands that load an engine share.
struct EngineOptions {
  std::string path;
  std::vector<std::string> plugins;
  LoadOptions how;  ///< load options that flags set
  bool defer_weight_check = false;
  bool verbose = false;
  std::string device;  ///< empty: the engine's
  LimitOptions limits;

  void add_to(CLI::App& command);
  std::shared_ptr<Engine> load() const;
};

/// Whether a file of plugins is Python.
bool is_python(const std::string& path);
/// Loads plugin libraries into the process's registry, and runs Python files, which register their
/// plugins.
void load_plugins(const std::vector<std::string>& paths);
/// A log that writes messages of at least warning level to stderr. With `verbose` it writes all
/// messages.
Log make_log(bool verbose);
/// "2G" or "1048576" as bytes; throws UsageError naming `what` for anything else.
uint64_t parse_bytes(const std::string& text, const std::string& what);
/// "1x3x224x224", or "scalar"; throws UsageError naming `what` for anything else.
Shape parse_shape(const std::string& text, const std::string& what);
/// Shapes of an input on the command line: one shape, or the smallest, typical and largest one.
struct InputShapes {
  std::string input;
  Shape min, opt, max;
};
/// Reads "x:1x3x224x224", "x:MIN,OPT,MAX" and lists of them, "x:1x8,y:2x8". Throws UsageError
/// naming `option` for any other text, and for an input that occurs twice.
std::vector<InputShapes> parse_shapes(const std::vector<std::string>& texts,
                                      const std::string& option);
/// Splits "NAME=REST" behind the longest port name that the text begins with, since a name may
/// contain "=". If no port name fits, splits behind the first "=". Without "=" the name is empty.
std::pair<std::string, std::string> split_name(const std::string& text,
                                               const std::vector<PlanPort>& ports);
/// A JSON string with its quotes.
std::string json_string(const std::string& text);
/// Extents as a JSON array.
std::string json_array(const Shape& shape);

}  // namespace opwright::cli
