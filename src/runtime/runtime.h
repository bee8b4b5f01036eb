#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/error_report.h"
#include "plan/stream.h"
#include "plugin/registry/registry.h"
#include "runtime/engine.h"

namespace opwright {

/// Loads engines, as IRuntime does; methods throw.
class Runtime {
 public:
  explicit Runtime(Log log);

  ErrorReport& errors() const { return errors_; }
  /// Where engines look plugins up when they are loaded.
  const std::shared_ptr<PluginRegistry>& registry() const { return registry_; }
  /// Of engines that are loaded from now on; the runtime adds registry, log and recorder.
  LoadOptions& options() { return options_; }
  const LoadOptions& options() const { return options_; }
  void set_limits(const Limits& limits);
  /// Of loading and of the engines: at first those of the thread that calls.
  int max_threads() const;
  void set_max_threads(int threads);

  /// `file` stays as long as the engine.
  std::shared_ptr<Engine> load(const Blob& file) const;

  std::optional<std::string> temporary_directory;  ///< without effect

 private:
  mutable ErrorReport errors_;
  std::shared_ptr<PluginRegistry> registry_;
  LoadOptions options_;
};

}  // namespace opwright
