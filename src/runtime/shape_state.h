#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace opwright {

/// The shapes of one context in one profile: input shapes (and the values of shape inputs) go in,
/// the values of all expressions come out.
class ShapeState {
 public:
  /// `plan` must outlive the object.
  ShapeState(const Plan& plan, int profile);

  /// Throws Error naming input, range and shape when it is outside the profile; nothing changes
  /// then. Returns whether the shape differs from the one before.
  bool set_shape(int input, const Shape& shape);
  /// The input's shape. Until it is set: the plan's, with -1 for dynamic extents.
  const Shape& input_shape(int input) const { return inputs_[input].shape; }
  bool is_set(int input) const { return inputs_[input].is_set; }
  bool shapes_set() const { return unset_ == 0; }
  bool all_set() const;
  /// Restores the state after construction.
  void reset();

  /// The values that were last taken from a shape input's elements.
  std::span<const int64_t> input_values(int input) const { return inputs_[input].values; }
  /// Whether the elements at `data` differ from input_values(). Allocates nothing.
  bool differs(int input, const void* data) const;
  /// Takes a shape input's elements. Throws Error as set_shape does.
  void take_values(int input, const void* data);

  /// Evaluates all expressions anew if an input changed since the last call; size tensors count at
  /// their upper bounds. Throws Error when shapes are missing. Throws Error naming both inputs when
  /// their extents of one dimension differ.
  void update();
  bool is_current() const { return is_current_; }
  /// Called after a failed run: the sizes that it found do not count.
  void forget_sizes() { is_current_ &= !has_sizes_; }

  /// Sets the value that a step wrote to size tensor `symbol`. Throws Error unless it lies between
  /// 0 and its upper bound. Returns whether it differs from the value before; then the caller calls
  /// evaluate().
  bool set_size(int32_t symbol, int64_t value);
  void evaluate();
  /// Values of the expressions, with these sizes at the upper bounds that follow from the known
  /// values(). The step that writes the sizes is told these values. Valid until the next call.
  /// Allocates nothing.
  std::span<const int64_t> values_before(std::span<const int32_t> size_symbols);
  /// Says whether sizes are those of a finished run.
  void set_sizes_known(bool known) { sizes_known_ = known; }

  /// Values of the plan's symbols; size tensors as they were last set.
  std::span<const int64_t> symbols() const { return symbols_; }
  /// Values of the expressions with the last known sizes, and with all sizes at their upper bounds.
  std::span<const int64_t> values() const { return values_; }
  std::span<const int64_t> upper_values() const { return upper_values_; }
  /// A number that changes with every evaluation.
  uint64_t epoch() const { return epoch_; }
  /// Per expression, the result of resolving_steps().
  std::span<const int32_t> known() const { return known_; }
  bool has_sizes() const { return has_sizes_; }
  /// Whether an output has extents that only a run computes.
  bool depends_on_sizes(int output) const;

  /// Extents that are not known (yet) are -1.
  Shape output_shape(int output) const;
  /// Throws Error unless is_current().
  Shape max_output_shape(int output) const;

 private:
  struct Input {
    Shape shape;
    bool is_set = false;
    std::vector<int64_t> values;  // values of a shape input
    bool has_values = true;       // false for a shape input before its values are taken
  };
  void check_agreement() const;

  const Plan& plan_;
  const Schedule& schedule_;
  const int profile_;
  std::vector<Input> inputs_;
  int unset_ = 0;                       // inputs without a shape
  std::vector<int32_t> symbol_inputs_;  // from symbol_inputs()
  std::vector<int32_t> known_;
  std::vector<int64_t> symbols_, values_, upper_values_;
  std::vector<int64_t> symbols_before_, values_before_;
  uint64_t epoch_ = 0;
  bool has_sizes_ = false;
  bool is_current_ = false;
  bool sizes_known_ = false;
};

}  // namespace opwright
