#pragma once

#include <memory>
#include <vector>

#include "backend/memory.h"
#include "base/npy.h"
#include "crash_report.h"
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
  /// Runs once and returns when all is done.
  void run();
  Context& context() { return context_; }
  /// An output of the last run.
  NpyArray output(int index);

 private:
  std::shared_ptr<Engine> engine_;
  const Device& device_;
  Context context_;
  WatchedContext watched_;
  std::vector<NpyArray> inputs_;
  /// Memory of the device: of outputs, and of inputs where the device does not read the host's.
  std::vector<DeviceMemory> input_memory_, output_memory_;
};

}  // namespace opwright::cli
