#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/error_report.h"
#include "plan/file_stream.h"
#include "plugin/registry/registry.h"
#include "runtime/engine.h"

namespace opwright {

/// Loads engines, as IRuntime does; methods throw.
class Runtime {
 public:
  explicit Runtime(Log log);

  ErrorReport& errors() const { return errors_; }
  /// The registry in which engines look up plugins when they are loaded.
  const std::shared_ptr<PluginRegistry>& registry() const { return registry_; }
  /// The options for engines that are loaded from now on. The runtime adds registry, log and
  /// recorder.
  LoadOptions& options() { return options_; }
  const LoadOptions& options() const { return options_; }
  void set_limits(const Limits& limits);
  /// The most threads for loading and for the engines; at first the calling thread's number.
  int max_threads() const;
  void set_max_threads(int threads);

  /// Loads an engine, which keeps `file`.
  std::shared_ptr<Engine> load(const Blob& file) const;

  std::optional<std::string> temporary_directory;  ///< without effect

 private:
  mutable ErrorReport errors_;
  std::shared_ptr<PluginRegistry> registry_;
  LoadOptions options_;
};

}  // namespace opwright
