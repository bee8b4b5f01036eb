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
  /// -D, -U, -I and -std options, as g++ takes them.
  std::vector<std::string> options;
  /// Kernels to instantiate beside those in the source.
  std::vector<std::string> expressions;
  int architecture = 0;
  /// Asked now and then; true ends the compilation. Empty: nobody ends it.
  std::function<bool()> is_cancelled;
};

struct CompiledLibrary {
  bool succeeded = false, cancelled = false;
  /// The shared object's bytes and what the compiler said.
  std::string bytes, log;
};

/// Compiles the kernels for the host, or takes them from the folder of earlier compilations.
CompiledLibrary compile(const Request& request);

}  // namespace emulation
