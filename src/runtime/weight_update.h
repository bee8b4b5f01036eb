#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"
#include "runtime/engine.h"

namespace opwright {

/// The bytes in an engine's plan that depend on weights, for new weights. Evaluates Plan::refit:
/// operations run on the CPU, and kernels that pack are made again.
class WeightUpdate {
 public:
  /// `elements`: per weight, the new elements, or empty. No weight that is needed may be missing,
  /// see missing_weights(). Throws Error where an operation cannot run, or its results differ from
  /// those in the plan; the engine is not changed.
  WeightUpdate(const Engine& engine, std::vector<RefitTarget> targets,
               std::span<const Blob> elements);

  /// Puts the bytes into a plan of the same structure.
  void apply(Plan& plan) const;

 private:
  void run(const RefitOperation& operation);
  Blob stored(const PlanTensor& tensor, const Shape& shape, PortType type);
  std::vector<PackedInput> packed(const RefitTarget& target, const Schedule& schedule);

  const Engine& engine_;
  const Plan& plan_;
  std::vector<Blob> values_;
  std::vector<RefitTarget> targets_;
  std::vector<Blob> tensors_;                     ///< per target; empty for packed inputs
  std::vector<std::vector<PackedInput>> packed_;  ///< per target; empty for tensors
  std::vector<Blob> kept_;                        ///< per weight
};

}  // namespace opwright
