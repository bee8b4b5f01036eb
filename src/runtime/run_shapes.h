#pragma once

#include <span>
#include <utility>
#include <vector>

#include "runtime/run_table.h"
#include "runtime/shape_state.h"

namespace opwright {

class RunGraph;

/// Steps whose work may still fail.
struct Suspects {
  bool earlier_runs = false;
  uint32_t first = 0, last = 0;  ///< steps of the last run
};

/// The state of a context's runs in one profile that follows shapes: the shapes that kernels were
/// told, the values tensors, the bytes that are copied, and the sizes that runs compute.
class RunShapes {
 public:
  /// All must outlive the object.
  RunShapes(RunTable& table, ShapeState& shapes, Suspects& suspects);
  /// Waits for copies of sizes, because their memory goes.
  ~RunShapes() { abandon(); }
  RunShapes(const RunShapes&) = delete;
  RunShapes& operator=(const RunShapes&) = delete;

  /// Sets the graphs that hear of changes; null: none.
  void set_graph(RunGraph* graph) { graph_ = graph; }
  const ShapeState& state() const { return shapes_; }

  /// Called after an update of the shapes. Tells kernels whose shapes changed, unless they depend
  /// on size tensors, and computes values tensors.
  void refresh();
  /// Called before the first step of a run.
  void begin(Queue queue) {
    pending_.clear();
    next_pending_ = 0;
    if (table_.host_values.has_changed()) [[unlikely]]
      table_.host_values.upload(queue);
  }
  void copy_outputs(Queue queue);

  /// Sets the sizes to 0 before the step, as plugins that count up to them expect.
  void clear(const SizeGroup& group, Queue queue) const;
  /// Has the host read the sizes that the step wrote: at once if the host reads that memory,
  /// otherwise from a copy in the order of the queue.
  void take(SizeGroup& group, Queue queue);
  /// Whether sizes of the last run are still to be read.
  bool has_pending() const { return next_pending_ < pending_.size(); }
  /// Waits for the sizes up to those of `last`; null: for all. An Error names the layer that wrote
  /// a wrong size.
  void settle(const SizeGroup* last = nullptr);
  /// The same during a run.
  void settle(const SizeGroup* last, Queue queue);
  /// Called after a failure: waits for copies and ignores their sizes.
  void abandon() noexcept;
  Shape tensor_shape(const PlanTensor& tensor, std::span<const int64_t> values) const;

 private:
  /// The shapes and values that a kernel was told.
  struct Told {
    std::vector<Shape> inputs, outputs;
    bool is_current = false;
    std::vector<std::vector<int64_t>> values;  ///< elements of the inputs in Knowledge::values
  };
  void check_fits(const PlanTensor& tensor, const Shape& shape) const;
  void check_views() const;
  void tell(int step);
  std::vector<int64_t> elements(int32_t tensor) const;
  bool update_values(int step);
  void check(int step) const;
  void check_outputs(const SizeGroup& group) const;
  void compute(const RunTable::ValuesTensor& values);
  void resolve(SizeGroup& group);

  RunTable& table_;
  ShapeState& shapes_;
  Suspects& suspects_;
  RunGraph* graph_ = nullptr;
  std::vector<Told> told_;           ///< per step
  std::vector<size_t> copy_bytes_;   ///< per copy
  std::vector<uint64_t> epochs_;     ///< epoch of the shapes that each group of sizes knows
  std::vector<SizeGroup*> pending_;  ///< of the run; the first `next_pending_` were read
  size_t next_pending_ = 0;
};

}  // namespace opwright
