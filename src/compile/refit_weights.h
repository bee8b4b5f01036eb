#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "compile/builder_config.h"
#include "compile/graph.h"
#include "network/network.h"
#include "plan/plan.h"

namespace opwright {

/// Finds the weights that the config lets the engine exchange, and marks them in the graph, before
/// any pass. Weights with one name all have the same elements.
std::vector<RefitWeight> mark_refittable(Graph& graph, const Network& network, RefitMode mode);

/// Records how a plan's weights derive from the network's.
class RefitRecorder {
 public:
  explicit RefitRecorder(std::vector<RefitWeight> weights);
  /// The number of the constant's value, for PlanTensor::source. A constant that derives from no
  /// weights is recorded with its elements.
  int32_t add(const GraphValue& constant);
  /// The record, without weights from which nothing derives. Renumbers the values in the schedules.
  RefitPlan finish(std::vector<Schedule>& schedules);

 private:
  int32_t add(const Derived& origin, const TensorInfo& info, bool needs_shape);
  int32_t add_value(RefitValue value);

  RefitPlan refit_;
  std::map<std::pair<const Derivation*, int>, int32_t> known_;
  std::map<const void*, int32_t> fixed_;  // by the address of their elements
  std::vector<std::shared_ptr<const Derivation>> kept_;
};

}  // namespace opwright
