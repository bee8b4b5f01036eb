#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/memory.h"
#include "base/npy.h"
#include "crash_report.h"
#include "runtime/context.h"

namespace opwright::cli {

/// The index of the port `name`. An empty name stands for the only port. Throws Error that lists
/// the ports' names; `what` is "input" or "output".
int find_port(const std::vector<PlanPort>& ports, const std::string& name, const char* what);

/// An output that becomes an input of the next run.
struct Feed {
  int output = 0, input = 0;
};

/// A context with its input arrays and memory for its outputs. An output that is aliased to an
/// input lies in that input's memory, which the runner owns.
class Runner {
 public:
  /// A runner that is one of several at once is not `watched`, and runs in its own queue.
  explicit Runner(std::shared_ptr<Engine> engine, bool watched = true);
  /// Selects the first profile that has these shapes. If none has, the profile stays and
  /// set_input() fails. Call it before set_input().
  void choose_profile(const std::vector<std::pair<int, Shape>>& shapes);
  /// Throws Error when type or shape do not fit.
  void set_input(int index, NpyArray array);
  /// Makes outputs of the last run the next inputs. Changes the profile if the shapes are not in
  /// the current one. Throws Error if an output cannot become the input.
  void feed(const std::vector<Feed>& feeds);
  /// Allocates the outputs. A missing input that an output is aliased to begins as 0. Throws Error
  /// naming any other missing input.
  void prepare();
  /// Runs once and waits for the end.
  void run();
  /// Parts of run(): start() enqueues a run without waiting for it.
  void start();
  void wait();
  /// Enqueue copies without waiting for them: of all inputs from the host's memory, which always
  /// holds them, and of all outputs to the host's memory.
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
  /// Device memory of outputs, and of inputs if the device does not read the host's memory.
  std::vector<DeviceMemory> input_memory_, output_memory_;
  /// Pinned host memory for copies; null for ports that were not copied.
  std::vector<std::unique_ptr<PinnedMemory>> host_inputs_, host_outputs_;
};

}  // namespace opwright::cli
