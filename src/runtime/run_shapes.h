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
  uint32_t first = 0, last = 0;  ///< of the last run
};

/// What of a context's runs in one profile follows shapes: what kernels were told, the values
/// tensors, the bytes that are copied, and the sizes that runs compute.
class RunShapes {
 public:
  /// All must outlive the object.
  RunShapes(RunTable& table, ShapeState& shapes, Suspects& suspects);
  /// Waits for copies of sizes, whose memory goes.
  ~RunShapes() { abandon(); }
  RunShapes(const RunShapes&) = delete;
  RunShapes& operator=(const RunShapes&) = delete;

  /// Whose graphs are to hear of changes; null: none.
  void set_graph(RunGraph* graph) { graph_ = graph; }
  const ShapeState& state() const { return shapes_; }

  /// After the shapes were updated: tells kernels whose shapes changed, unless they depend on size
  /// tensors, and computes values tensors.
  void refresh();
  /// Before the first step of a run.
  void begin(Queue queue) {
    pending_.clear();
    next_pending_ = 0;
    if (table_.host_values.has_changed()) [[unlikely]]
      table_.host_values.upload(queue);
  }
  void copy_outputs(Queue queue);

  /// Sets the sizes to 0 before the step, as plugins that count up to them expect.
  void clear(const SizeGroup& group, Queue queue) const;
  /// Has the sizes that the step wrote read by the host: now where that has the memory, or copied
  /// in the order of the queue.
  void take(SizeGroup& group, Queue queue);
  /// Whether sizes of the last run are still to be read.
  bool has_pending() const { return next_pending_ < pending_.size(); }
  /// Waits for the sizes up to those of `last`, null: for all. An Error names the layer that wrote
  /// what is wrong.
  void settle(const SizeGroup* last = nullptr);
  /// The same for a run that goes on.
  void settle(const SizeGroup* last, Queue queue);
  /// After a failure: waits for copies, whose sizes do not count.
  void abandon() noexcept;
  Shape tensor_shape(const PlanTensor& tensor, std::span<const int64_t> values) const;

 private:
  /// What a kernel was told.
  struct Told {
    std::vector<Shape> inputs, outputs;
    bool is_current = false;
    std::vector<std::vector<int64_t>> values;  ///< elements, as Knowledge::values says of which
  };
  void check_fits(const PlanTensor& tensor, const Shape& shape) const;
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
  std::vector<Told> told_;           ///< of each step
  std::vector<size_t> copy_bytes_;   ///< of each copy
  std::vector<uint64_t> epochs_;     ///< of the shapes that each group of sizes knows
  std::vector<SizeGroup*> pending_;  ///< those of the run, of which the first ones were read
  size_t next_pending_ = 0;
};

}  // namespace opwright
