#pragma once

#include <span>
#include <string>
#include <vector>

#include "network/replay_observer.h"
#include "runtime/graph_replay.h"
#include "runtime/run_shapes.h"
#include "runtime/run_table.h"

namespace opwright {

/// The graphs of a context's runs in one profile. Captured graphs keep the addresses of memory.
class RunGraph final : private GraphReplay::Work {
 public:
  /// All must outlive the object.
  RunGraph(RunTable& table, RunShapes& shapes);

  /// Whether no graph is or can be captured.
  bool is_over() const { return replay_.is_over(); }
  /// Called before a run: tells graphs where memory lies now.
  void begin(void* workspace) {
    if (workspace != workspace_) replay_.forget_all();
    workspace_ = workspace;
    if (table_.are_addresses_new) [[unlikely]]
      move();
  }
  std::span<GraphReplay::Part> parts() { return replay_.parts(); }
  /// As GraphReplay::replay().
  bool replay(GraphReplay::Part& part, Queue queue) {
    if (!observers_.empty() && part.is_captured) [[unlikely]]
      return replay_observed(part, queue);
    return replay_.replay(part, queue, *this);
  }
  void finish() { replay_.finish(); }

  void forget(int step) { replay_.forget(static_cast<uint32_t>(step)); }
  void forget_copies() { replay_.forget_copies(); }
  void forget_all() { replay_.forget_all(); }
  /// The context has another communicator: drops all graphs, and asks again which steps may be
  /// captured.
  void ask_again();

 private:
  /// Addresses of the network's inputs and outputs that graphs know, inputs first.
  struct Bound {
    uint32_t slot = 0;
    void* address = nullptr;
    int32_t port = 0;
    bool is_input = false;
  };
  struct Observed {
    uint32_t step = 0;
    ReplayObserver* observer = nullptr;
  };
  void move();
  bool replay_observed(GraphReplay::Part& part, Queue queue);
  void enqueue_part(const GraphReplay::Part& part, Queue queue, uint32_t& current) override;

  RunTable& table_;
  RunShapes& shapes_;
  GraphReplay replay_;
  std::vector<Bound> bound_;
  std::vector<Observed> observers_;
  std::vector<std::string> obstacles_;  ///< that the kernels named
  std::vector<bool> left_out_;  ///< per copy: whether it is left out, as it would copy onto itself
  void* workspace_ = nullptr;   ///< workspace of the last replayed run
};

}  // namespace opwright
