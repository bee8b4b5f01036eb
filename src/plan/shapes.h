#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "plan/plan.h"

namespace opwright {

/// The minimum, optimum or maximum of a ProfileInput or a PortDesc.
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
  /// The value that a size tensor counts as.
  int64_t size(int32_t symbol, OptProfileSelector selector) const;
  /// The shape of these expressions. Extents below zero occur only at an unreachable minimum and
  /// count as 0 there; elsewhere see shape_of().
  Shape shape(std::span<const int32_t> dims, OptProfileSelector selector) const;
  /// The largest size of a tensor in bytes over minimum, optimum and maximum.
  uint64_t largest_bytes(PortType type, std::span<const int32_t> dims) const;
  /// The size of a tensor in bytes at the maximum.
  uint64_t most_bytes(PortType type, std::span<const int32_t> dims) const;

 private:
  const Plan& plan_;
  std::array<std::vector<int64_t>, 3> values_;
};

/// The size tensors among the tensors that the schedule's steps write, and their symbols.
std::unordered_map<int32_t, int32_t> size_tensors(const Schedule& schedule);

/// The shape of `dims` (indices of expressions) with these values of the expressions. Throws Error
/// when an extent is negative.
Shape shape_of(std::span<const int32_t> dims, std::span<const int64_t> values);

/// Per expression: the step of the schedule that writes the last size tensor in it; -1: the inputs
/// determine it; kNeverKnown: no step writes one of its size tensors.
inline constexpr int32_t kNeverKnown = INT32_MAX;
std::vector<int32_t> resolving_steps(const Plan& plan, const Schedule& schedule);

/// Per expression: whether everything in it has only one value in the profile.
std::vector<bool> fixed_expressions(const Plan& plan, const Schedule& schedule);

/// Whether a tensor in the memory of a network input or output is another one than this port: it
/// has the same bytes in another shape or format.
bool is_view(const PlanTensor& tensor, const PlanPort& port);

/// The shape of a network input or output; extents that are only known at run time are -1.
Shape declared_shape(const Plan& plan, const PlanPort& port);

/// Per symbol: the number of the network input whose extent or value it is; -1 for size tensors,
/// and where there is no such input.
std::vector<int32_t> symbol_inputs(const Plan& plan);

/// Sets the size tensors' symbols to their upper bounds (kMAX), opt values (kOPT) or 1 (kMIN),
/// given the other symbols, and evaluates all expressions into `values`. One pass suffices: in a
/// valid plan the bounds of a size tensor, and of size tensors before it, precede the expressions
/// that use it.
void evaluate_with_sizes(const Plan& plan, OptProfileSelector selector, std::span<int64_t> symbols,
                         std::span<int64_t> values);

}  // namespace opwright
