#pragma once

#include <functional>
#include <string>
#include <vector>

namespace opwright::cli {

/// Name of the command that stands for TensorRT's program, and of links to the program.
inline constexpr const char* kTrtexec = "trtexec";

/// Properties of the process that runs commands: the native program or Python.
struct Host {
  std::string name = "opwright";  ///< the program's name in messages
  /// Runs a Python file, which registers plugins. Throws Error if the file raises an exception.
  std::function<void(const std::string& file)> load_python;
  /// Runs a command that the Python package implements. The command's name is the first argument.
  /// Does not return.
  std::function<void(const std::vector<std::string>& arguments)> run_in_python;
};

/// Runs a command line, which excludes the program's name. Returns the exit status: 0, 2 for a
/// wrong command line, 124 for --max-time, 128 + a signal's number, or 1.
int run_program(const std::vector<std::string>& arguments, const Host& host);

/// The host of the running command.
const Host& current_host();

}  // namespace opwright::cli
