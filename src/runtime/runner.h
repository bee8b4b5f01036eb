#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "opwright/types.h"
#include "runtime/run_graph.h"
#include "runtime/run_shapes.h"
#include "runtime/run_table.h"
#include "runtime/trace.h"

namespace opwright {

class Deadline;
class DeviceSpans;

/// Throws Error: the run exceeded its time limit at the moment that `when` names.
[[noreturn]] void fail_run_time(const Deadline& deadline, const char* when);

/// Runs a context in one profile. Once shapes are told, a run only calls what the table has.
class Runner {
 public:
  /// The arguments are those of RunTable.
  Runner(const Engine& engine, int profile, ShapeState& shapes, const PluginServices& services,
         std::atomic<int32_t>& current);

  RunTable& table() { return table_; }
  RunShapes& shapes() { return shapes_; }
  /// Sets where intermediate tensors lie, 64-byte aligned, Schedule::arena_size bytes.
  void set_arena(std::byte* arena);
  /// The application's event that runs record once they have read the inputs; null: none.
  void set_input_event(void* event) { input_event_ = event; }
  /// The context has another communicator. Runs capture their graphs again.
  void change_communicator() {
    if (graph_) graph_->ask_again();
  }
  /// The application's queues that runs use before those of the context.
  void set_aux_queues(std::span<const Queue> queues) {
    if (table_.streams) table_.streams->set_queues(queues);
  }

  /// Runs all steps and output copies. An Error names its layer; other exceptions pass unchanged.
  /// Returns whether the caller captures the queue's work, as far as the run found out: it only
  /// checks where it has graphs of its own.
  bool run(void* workspace, Queue queue);
  /// Observers and limits that act between the steps of a run.
  struct Watch {
    const DebugTensors* debug = nullptr;  ///< its listener sees tensors; null: none are shown
    bool waits = false;                   ///< for each step, to know which one failed
    const Deadline* deadline = nullptr;   ///< no step begins after it; null: none
    /// Receives each step's time in milliseconds, for which the run waits; empty: no times are
    /// taken.
    std::span<float> times = {};
    Trace* trace = nullptr;  ///< records the run; null: none
    /// Records when steps run on the device, and is read after the run; null: none.
    DeviceSpans* device_spans = nullptr;
    /// How much NVTX ranges of the steps say; kNONE: there are none.
    ProfilingVerbosity nvtx = ProfilingVerbosity::kNONE;
    /// Whether the run stops between steps.
    bool stops() const { return debug != nullptr || waits || deadline != nullptr; }
    explicit operator bool() const {
      return stops() || !times.empty() || trace != nullptr || nvtx != ProfilingVerbosity::kNONE;
    }
  };
  /// Runs all steps and output copies without replaying graphs. Returns whether the caller captures
  /// the queue's work.
  bool run_watched(void* workspace, Queue queue, const Watch& watch);

  /// Called after the queue was waited for without an error.
  void trust_all() { suspects_ = {}; }
  /// The plugins whose work may still fail, as a list in words; empty: none.
  std::string suspects() const;

 private:
  void begin(void* workspace, Queue queue);
  [[noreturn]] void fail_at(uint32_t step);
  void end(Queue queue, bool are_outputs_copied = false);
  template <class Observer>
  void enqueue_steps(uint32_t first, uint32_t last, Queue queue, Observer& observer,
                     uint32_t& current);
  void run_replayed(void* workspace, Queue queue);
  template <class Observer>
  void run_with(void* workspace, Queue queue, Observer& observer, const Watch& watch);
  template <class Observer>
  void enqueue_watched(Queue queue, Observer& observer, const Watch& watch, uint32_t& current);
  void wait_for(uint32_t step, Queue queue) const;
  void show(const RunTable::Shown& shown, const DebugTensors& debug, Queue queue);
  /// Records the event once inputs are read: called after steps [first, last) were given to the
  /// queue. The end of the run counts as one more step.
  void note_inputs_read(uint32_t first, uint32_t last, Queue queue) {
    if (input_event_ != nullptr && first < table_.last_reader && table_.last_reader <= last)
        [[unlikely]]
      table_.device.record(input_event_, queue);
  }

  RunTable table_;
  Suspects suspects_;
  RunShapes shapes_;
  std::optional<RunGraph> graph_;  ///< none: nothing is captured
  std::byte* arena_ = nullptr;
  void* workspace_ = nullptr;                   ///< of the last run
  std::vector<std::unique_ptr<Event>> events_;  ///< for timed runs
  void* input_event_ = nullptr;
};

}  // namespace opwright
