#pragma once

#include <functional>
#include <string>
#include <vector>

namespace opwright::cli {

/// What the program's first parameter is where it is called by TensorRT's name.
inline constexpr const char* kTrtexec = "trtexec";

/// What a process that runs commands has of its own.
struct Host {
  std::string name = "opwright";  ///< of the program, in messages
  /// Runs a Python file, which registers plugins; throws Error where it raises something.
  std::function<void(const std::string& file)> load_python;
  /// Runs a command that is the Python package's, with its name in front; does not return.
  std::function<void(const std::vector<std::string>& arguments)> run_in_python;
};

/// Runs a command line, without the program's name. Returns the exit status: 0, 2 for what is wrong
/// with the command line, 124 for --max-time, 128 + a signal's number, or 1.
int run_program(const std::vector<std::string>& arguments, const Host& host);

/// The host of the command that runs.
const Host& current_host();

}  // namespace opwright::cli
