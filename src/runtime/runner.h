#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/run_graph.h"
#include "runtime/run_shapes.h"
#include "runtime/run_table.h"

namespace opwright {

class Deadline;

/// Throws Error: the run has taken longer than it may, when `when`.
[[noreturn]] void fail_run_time(const Deadline& deadline, const char* when);

/// Runs a context in one profile: nothing but calls of what the table has, once shapes are told.
class Runner {
 public:
  /// As for RunTable.
  Runner(const Engine& engine, int profile, ShapeState& shapes, const PluginServices& services,
         std::atomic<int32_t>& current);

  RunTable& table() { return table_; }
  RunShapes& shapes() { return shapes_; }
  /// Sets where intermediate tensors lie, 64-byte aligned, Schedule::arena_size bytes.
  void set_arena(std::byte* arena);
  /// The application's event that runs record once they have read the inputs; null: none.
  void set_input_event(void* event) { input_event_ = event; }
  /// The application's queues that runs use before those of the context.
  void set_aux_queues(std::span<const Queue> queues) {
    if (table_.streams) table_.streams->set_queues(queues);
  }

  /// Runs all steps and output copies. An Error names its layer; other exceptions pass unchanged.
  /// Returns whether it found that the caller captures the queue's work, for which it only looks
  /// where it has graphs of its own.
  bool run(void* workspace, Queue queue);
  /// What happens between the steps of a run.
  struct Watch {
    const DebugTensors* debug = nullptr;  ///< whose listener sees tensors; null: none are shown
    bool waits = false;                   ///< for each step, so that it is known which one failed
    const Deadline* deadline = nullptr;   ///< after which no step begins; null: there is none
    explicit operator bool() const { return debug != nullptr || waits || deadline != nullptr; }
  };
  /// Runs all steps and output copies, replaying nothing. Returns whether the caller captures the
  /// queue's work.
  bool run_watched(void* workspace, Queue queue, const Watch& watch);
  /// The same, writing each step's time in milliseconds into `times`. Returns when all is done.
  void run_timed(void* workspace, Queue queue, std::span<float> times, const Watch& watch);

  /// After the queue was waited for and all was well.
  void trust_all() { suspects_ = {}; }
  /// The plugins of which nobody knows yet whether their work went well, as a list in words; empty:
  /// none.
  std::string suspects() const;

 private:
  void begin(void* workspace, Queue queue);
  [[noreturn]] void fail_at(uint32_t step);
  void end(Queue queue, bool are_outputs_copied = false);
  /// On several queues where the clock has no times to take.
  template <class Clock>
  void enqueue_steps(uint32_t first, uint32_t last, Queue queue, Clock& clock, uint32_t& current);
  void run_replayed(void* workspace, Queue queue);
  template <class Clock>
  void run_with(void* workspace, Queue queue, Clock& clock, const Watch& watch);
  template <class Clock>
  void enqueue_watched(Queue queue, Clock& clock, const Watch& watch, uint32_t& current);
  void wait_for(uint32_t step, Queue queue) const;
  void show(const RunTable::Shown& shown, const DebugTensors& debug, Queue queue);
  /// After steps [first, last) were given to the queue; the end of the run counts as one more.
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
  std::vector<std::unique_ptr<Event>> events_;  ///< of timed runs
  void* input_event_ = nullptr;
};

}  // namespace opwright
