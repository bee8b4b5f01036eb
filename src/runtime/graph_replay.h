#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/log.h"

namespace opwright {

/// Decides which steps of a run are captured, and has their graphs. Once shapes have stayed for
/// some runs, one launch replaces the work of consecutive steps.
class GraphReplay {
 public:
  struct Step {
    std::string name;         ///< "layer 'x' (FunctionPlugin 'n::x')"
    std::string obstacle;     ///< why the step may not be captured; empty: it may
    bool must_begin = false;  ///< sizes are read before it
    bool must_end = false;    ///< sizes that it writes are read after it
  };
  /// Consecutive steps that run together.
  struct Part {
    uint32_t first = 0, last = 0;
    bool is_captured = false;  ///< whether it may have a graph; else it always runs plainly
    bool has_copies = false;   ///< whether the part includes the copies into outputs
    int runs = 0;              ///< plain runs since shapes changed
    std::unique_ptr<DeviceGraph> graph{};
  };
  /// The work that is captured.
  class Work {
   public:
    /// Gives the part's work to the queue, and sets `current` to each step that runs.
    virtual void enqueue_part(const Part& part, Queue queue, uint32_t& current) = 0;

   protected:
    ~Work() = default;
  };

  /// `has_copies`: whether copies into outputs follow the last step and may be captured with it.
  /// `who` begins messages. All must outlive the object.
  GraphReplay(const Device& device, const Log& log, std::string who, std::vector<Step> steps,
              bool has_copies);

  /// Whether no part is captured or ever will be, so that the caller need not ask any more.
  bool is_over() const { return is_over_; }
  /// The parts with all steps, in order.
  std::span<Part> parts() { return parts_; }
  /// Launches the part's graph, and captures it first if it is time. False: the caller runs the
  /// part plainly, this time. Throws Error where the graph cannot be launched.
  bool replay(Part& part, Queue queue, Work& work) {
    if (part.graph == nullptr && !capture(part, work)) return false;
    part.graph->launch(queue);
    return true;
  }
  /// Tells graphs that memory lies elsewhere. Graphs that cannot follow are captured again.
  void move(std::span<const DeviceGraph::Move> moves);
  /// Drops the graphs with the step, whose work has changed with its shapes.
  void forget(uint32_t step);
  void forget_all();
  void forget_copies();
  /// Begins anew with steps that differ only in their obstacles.
  void restart(std::vector<Step> steps);
  /// Called after a run. Logs, once, what became of the steps.
  void finish() {
    if (has_news_) [[unlikely]]
      take_news();
  }

 private:
  bool capture(Part& part, Work& work);
  void take_news();
  void split();
  std::string describe() const;

  const Device& device_;
  const Log& log_;
  const std::string who_;
  std::vector<Step> steps_;
  const bool has_copies_;
  std::vector<Part> parts_;
  bool has_news_ = false;      ///< a part was captured or failed since the last report
  bool has_failed_ = false;    ///< capturing a step failed
  bool is_described_ = false;  ///< the log has the description
  bool is_over_ = false;
};

}  // namespace opwright
