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
  int within = -1;  ///< the storage that contains this one, while memory is planned
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

/// The steps of one profile in order, the tensors that they read and write, and where these lie.
struct StepSchedule {
  std::vector<ScheduleTensor> tensors;
  std::vector<ScheduleStorage> storages;
  std::vector<ScheduleStep> steps;
  std::vector<OutputCopy> copies;
  std::vector<DebugTensor> debug;
  uint64_t arena_size = 0;
  int reformats = 0;  ///< conversions among the steps
};

/// The type and format of a network input or output, from its allowed formats: LINEAR where
/// allowed.
PortType network_port_type(const Tensor& tensor);

/// For each network output, the network input in whose memory the output is computed, or -1. A
/// network input's memory is used if only in-place operators lead from the input to the output, and
/// to no other output: two results cannot have one memory. No other operator changes the memory of
/// a network input.
std::vector<int> aliased_inputs(const Network& network);

/// Rules of a schedule, beside the chosen candidates.
struct ScheduleRules {
  /// Milliseconds that a conversion of the value takes; empty: not known.
  std::function<float(const GraphValue& value, PortType from, PortType to)> conversion_time = {};
  int aux_streams = 0;  ///< number of streams, beside that of the run, on which steps may run
                        ///< beside each other
};

/// Lays the graph out. Adds conversions where a step needs a tensor in another type, replaces
/// reshapes by views, also of network inputs and outputs, places outputs in the user's memory,
/// results over operands that die, and operands of a concatenation in its result. Places all other
/// tensors in one arena, in which tensors of steps that run beside each other do not overlap. Debug
/// tensors are LINEAR as soon as they are written, before an in-place operator may change them.
StepSchedule make_schedule(const Graph& graph, const Network& network, const ProfileRanges& ranges,
                           const Device& device, const std::vector<GraphNode*>& nodes,
                           const std::vector<TunedNode>& tuned, const std::vector<int>& chosen,
                           const ScheduleRules& rules = {});

}  // namespace opwright
