#pragma once

#include <memory>
#include <vector>

#include "crash_report.h"
#include "npy.h"
#include "runtime/context.h"

namespace opwright::cli {

/// The index of the port of that name, or of the only one for an empty name. Throws Error that
/// names those there are; `what` is "input" or "output".
int find_port(const std::vector<PlanPort>& ports, const std::string& name, const char* what);

/// A context with its input arrays and memory for its outputs.
class Runner {
 public:
  explicit Runner(std::shared_ptr<Engine> engine);
  /// Throws Error when type or shape do not fit.
  void set_input(int index, NpyArray array);
  /// Allocates the outputs. Throws Error naming an input that is missing.
  void prepare();
  Context& context() { return context_; }
  /// An output of the last run; shares the runner's memory.
  NpyArray output(int index);

 private:
  std::shared_ptr<Engine> engine_;
  Context context_;
  WatchedContext watched_;
  std::vector<NpyArray> inputs_;
  std::vector<Blob> outputs_;
};

}  // namespace opwright::cli
