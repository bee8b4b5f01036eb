#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compile/graph.h"
#include "compile/profile_ranges.h"
#include "compile/tuner.h"
#include "plan/plan.h"

namespace opwright {

/// Memory that one or several tensors share.
struct ScheduleStorage {
  PlanTensor::Location location = PlanTensor::Location::kArena;
  int index = -1;     ///< kInput, kOutput: number
  uint64_t size = 0;  ///< bytes at the maximum shape
  uint64_t offset = 0;
  int within = -1;  ///< the storage of which it is a part, while memory is planned
};

struct ScheduleTensor {
  const GraphValue* value = nullptr;
  PortType type;
  int storage = -1;
};

struct ScheduleStep {
  std::string name, metadata;
  const GraphNode* node = nullptr;  ///< null: a conversion that the schedule added
  OperatorPtr op;
  PlannedOperatorPtr planned;  ///< null: not yet
  Candidate candidate;
  float time_ms = 0;
  std::vector<TimedCandidate> considered;
  std::vector<int> inputs, outputs;  ///< tensors, -1: absent
  int32_t stream = kAlone;
};

/// The steps of one profile in order, what they read and write, and where that lies.
struct StepSchedule {
  std::vector<ScheduleTensor> tensors;
  std::vector<ScheduleStorage> storages;
  std::vector<ScheduleStep> steps;
  std::vector<OutputCopy> copies;
  std::vector<DebugTensor> debug;
  uint64_t arena_size = 0;
  int reformats = 0;  ///< conversions among the steps
};

/// The type and format of a network input or output in its allowed formats: LINEAR where allowed.
PortType network_port_type(const Tensor& tensor);

/// For each network output, the network input in whose memory it is computed, or -1. That is so
/// where in-place operators alone lead from the one to the other and to no other output: two
/// results cannot have one memory. No other operator changes the memory of a network input.
std::vector<int> aliased_inputs(const Network& network);

/// What a schedule may go by beside the chosen candidates.
struct ScheduleRules {
  /// Milliseconds that a conversion of the value takes; empty: that is not known.
  std::function<float(const GraphValue& value, PortType from, PortType to)> conversion_time = {};
  int aux_streams = 0;  ///< on so many, beside that of the run, steps may run beside each other
};

/// Lays the graph out: conversions where a tensor is needed in another type, views instead of
/// reshapes, outputs in the user's memory, results in place of operands that die, operands of a
/// concatenation in their place in its result, one arena, in which the tensors of steps that run
/// beside each other lie apart. Debug tensors are LINEAR as soon as they are written, before an
/// in-place operator may change them.
StepSchedule make_schedule(const Graph& graph, const Network& network, const ProfileRanges& ranges,
                           const Device& device, const std::vector<GraphNode*>& nodes,
                           const std::vector<TunedNode>& tuned, const std::vector<int>& chosen,
                           const ScheduleRules& rules = {});

}  // namespace opwright
