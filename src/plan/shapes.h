#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "plan/plan.h"

namespace opwright {

/// The minimum, optimum or maximum of what has all three: a ProfileInput or a PortDesc.
template <class Range>
const Shape& shape_at(const Range& range, OptProfileSelector selector) {
  return selector == OptProfileSelector::kMIN   ? range.min
         : selector == OptProfileSelector::kOPT ? range.opt
                                                : range.max;
}

/// The values of all of the plan's expressions at the minimum, optimum and maximum of a profile.
/// Size tensors count as 1, their `opt` and their upper bound.
class ProfileValues {
 public:
  /// Throws Error when an expression cannot be evaluated there. The plan outlives the object.
  ProfileValues(const Plan& plan, std::span<const ProfileInput> inputs);
  std::span<const int64_t> at(OptProfileSelector selector) const {
    return values_[static_cast<int>(selector)];
  }
  /// What a size tensor counts as there.
  int64_t size(int32_t symbol, OptProfileSelector selector) const;
  /// Extents below zero, which only an unreachable minimum has, count as 0; elsewhere as
  /// shape_of().
  Shape shape(std::span<const int32_t> dims, OptProfileSelector selector) const;
  /// The largest size of a tensor in bytes over the three.
  uint64_t largest_bytes(PortType type, std::span<const int32_t> dims) const;

 private:
  const Plan& plan_;
  std::array<std::vector<int64_t>, 3> values_;
};

/// The size tensors among the tensors that the schedule's steps write, and their symbols.
std::unordered_map<int32_t, int32_t> size_tensors(const Schedule& schedule);

/// The shape that `dims` (indices of expressions) have with these values of the expressions. Throws
/// Error when an extent is negative.
Shape shape_of(std::span<const int32_t> dims, std::span<const int64_t> values);

/// Per expression: the step of the schedule that writes the last size tensor which it depends on,
/// -1 where the inputs determine it, kNeverKnown where no step writes one of them.
inline constexpr int32_t kNeverKnown = INT32_MAX;
std::vector<int32_t> resolving_steps(const Plan& plan, const Schedule& schedule);

/// Per expression: whether nothing occurs in it that takes several values in the profile.
std::vector<bool> fixed_expressions(const Plan& plan, const Schedule& schedule);

/// The shape of a network input or output, -1 for extents that are known at run time only.
Shape declared_shape(const Plan& plan, const PlanPort& port);

/// Per symbol: the number of the network input that it is an extent or a value of; -1 for size
/// tensors, and where there is no such input.
std::vector<int32_t> symbol_inputs(const Plan& plan);

/// Sets the size tensors' symbols to their upper bounds (kMAX), opt values (kOPT) or 1 (kMIN) given
/// the other symbols, and evaluates all expressions into `values`, in one pass: a valid plan has
/// the bounds of a size tensor, and of those before it, ahead of what uses it.
void evaluate_with_sizes(const Plan& plan, OptProfileSelector selector, std::span<int64_t> symbols,
                         std::span<int64_t> values);

}  // namespace opwright
