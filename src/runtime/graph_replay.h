#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/log.h"

namespace opwright {

/// Which steps of a run are captured into graphs of the device, and the graphs: what steps that
/// follow each other give to the queue becomes one call, once their shapes have stayed for some
/// runs.
class GraphReplay {
 public:
  struct Step {
    std::string name;         ///< "layer 'x' (FunctionPlugin 'n::x')"
    std::string obstacle;     ///< why it may not be captured; empty: it may
    bool must_begin = false;  ///< sizes are read before it
    bool must_end = false;    ///< sizes that it writes are read after it
  };
  /// Steps that are run together.
  struct Part {
    uint32_t first = 0, last = 0;
    bool is_captured = false;  ///< once it is time; else it always runs plainly
    bool has_copies = false;   ///< whether the copies into outputs belong to it
    int runs = 0;              ///< plain ones, since shapes changed
    std::unique_ptr<DeviceGraph> graph{};
  };
  /// What is captured.
  class Work {
   public:
    /// Gives the part's work to the queue, keeping `current` at the step that is run.
    virtual void enqueue_part(const Part& part, Queue queue, uint32_t& current) = 0;

   protected:
    ~Work() = default;
  };

  /// `has_copies`: whether copies into outputs follow the last step and may be captured with it.
  /// `who` begins messages. All must outlive the object.
  GraphReplay(const Device& device, const Log& log, std::string who, std::vector<Step> steps,
              bool has_copies);

  /// Nothing is, or will ever be, captured: the caller need not come here any more.
  bool is_over() const { return is_over_; }
  /// All steps, in order.
  std::span<Part> parts() { return parts_; }
  /// Launches the part's graph, which is captured first where it is time. False: the caller runs
  /// the part plainly, this time. Throws Error where the graph cannot be launched.
  bool replay(Part& part, Queue queue, Work& work) {
    if (part.graph == nullptr && !capture(part, work)) return false;
    part.graph->launch(queue);
    return true;
  }
  /// Memory lies elsewhere: graphs that cannot follow are captured again.
  void move(std::span<const DeviceGraph::Move> moves);
  /// What a step does depends on shapes that have changed.
  void forget(uint32_t step);
  void forget_all();
  void forget_copies();
  /// After a run: logs what has become of the steps, once.
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
  bool has_news_ = false;      ///< something has become of a part
  bool has_failed_ = false;    ///< a step turned out not to be captured
  bool is_described_ = false;  ///< the log has it
  bool is_over_ = false;
};

}  // namespace opwright
