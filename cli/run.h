#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/memory.h"
#include "base/npy.h"
#include "crash_report.h"
#include "runtime/context.h"

namespace opwright::cli {

/// The index of the port of that name, or of the only one for an empty name. Throws Error that
/// names those there are; `what` is "input" or "output".
int find_port(const std::vector<PlanPort>& ports, const std::string& name, const char* what);

/// An output that becomes an input of the next run.
struct Feed {
  int output = 0, input = 0;
};

/// A context with its input arrays and memory for its outputs. An output that is aliased to an
/// input lies in its memory, which is the runner's.
class Runner {
 public:
  /// One of several at once is not `watched`, and runs in a queue of its own.
  explicit Runner(std::shared_ptr<Engine> engine, bool watched = true);
  /// Takes the first profile that has these shapes; where none has, it stays, and set_input()
  /// fails. Before the inputs are set.
  void choose_profile(const std::vector<std::pair<int, Shape>>& shapes);
  /// Throws Error when type or shape do not fit.
  void set_input(int index, NpyArray array);
  /// Makes inputs of outputs, once they have been run; in another profile where the shapes are not
  /// in this one. Throws Error where one cannot be.
  void feed(const std::vector<Feed>& feeds);
  /// Allocates the outputs. Inputs that outputs are aliased to, and which are not given, begin as
  /// 0. Throws Error naming another one that is missing.
  void prepare();
  /// Runs once and returns when all is done.
  void run();
  /// The same without waiting.
  void start();
  void wait();
  /// In the order of the queue, and without waiting: all inputs from the host's memory, which has
  /// them anyway, and all outputs to the host's memory.
  void copy_inputs();
  void copy_outputs();
  Context& context() { return context_; }
  const Plan& plan() const { return engine_->plan(); }
  Queue queue() const { return queue_.get(); }
  const Device& device() const { return device_; }
  Shape output_shape(int index);
  const void* output_address(int index) const;
  /// An output of the last run.
  NpyArray output(int index);

 private:
  bool is_updated(int input) const;
  void* own_memory(int input, const void* from, size_t bytes);

  std::shared_ptr<Engine> engine_;
  const Device& device_;
  Context context_;
  std::optional<WatchedContext> watched_;
  std::shared_ptr<void> queue_;  // null: the default one
  std::vector<NpyArray> inputs_;
  /// Memory of the device: of outputs, and of inputs where the device does not read the host's.
  std::vector<DeviceMemory> input_memory_, output_memory_;
  /// Of the host, for copies: null where there were none.
  std::vector<std::unique_ptr<PinnedMemory>> host_inputs_, host_outputs_;
};

}  // namespace opwright::cli
