#pragma once

#include <functional>
#include <string>
#include <vector>

namespace emulation {

struct Header {
  std::string name, content;
};

struct Request {
  std::string source, name;
  std::vector<Header> headers;
  /// -D, -U, -I and -std options in g++'s form.
  std::vector<std::string> options;
  /// Kernels to instantiate beside those in the source.
  std::vector<std::string> expressions;
  int architecture = 0;
  /// Called from time to time; true ends the compilation. Empty: it is never ended.
  std::function<bool()> is_cancelled;
};

struct CompiledLibrary {
  bool succeeded = false, cancelled = false;
  /// The shared object's bytes, and the compiler's messages.
  std::string bytes, log;
};

/// Compiles the kernels for the host, or takes them from the folder of earlier compilations.
CompiledLibrary compile(const Request& request);

}  // namespace emulation
