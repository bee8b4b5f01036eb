#pragma once

#include <unordered_map>
#include <vector>

#include "backend/device.h"
#include "compile/build_budget.h"
#include "compile/builder_config.h"
#include "compile/graph.h"
#include "compile/ports.h"
#include "compile/profile_ranges.h"
#include "compile/refit_weights.h"
#include "compile/schedule.h"
#include "plan/plan.h"
#include "symbolic/expr_program.h"

namespace opwright {

/// Writes a plan: first the parts that describe the whole network, then a schedule per profile.
class PlanEmitter {
 public:
  /// `declared`: the network before its extents were settled, with the extents that callers may
  /// leave open. `weights`: the weights that can be exchanged, as mark_refittable() returned them.
  PlanEmitter(const Graph& graph, const Network& network, const Network& declared,
              const Device& device, const BuilderConfig& config, const BuildBudget& budget,
              std::vector<RefitWeight> weights);

  /// Makes every step's kernel once more, for its packed constants and its workspace.
  void add_schedule(const StepSchedule& steps, const ProfileRanges& ranges, Constants& constants);
  /// Adds the files as code that is loaded with the engine. Throws Error naming a file that is no
  /// library for this host.
  void add_plugin_libraries(std::span<const std::string> paths);
  /// Adds the sources of the required plugins that are implemented in a SourceLanguage. Call it
  /// after the last add_schedule().
  void add_plugin_sources();
  /// The finished plan, which is valid.
  Plan finish();
  /// The steps' operators, per schedule.
  const std::vector<std::vector<PlannedOperatorPtr>>& operators() const { return operators_; }

 private:
  std::vector<int32_t> dims(const SymShape& shape);
  std::vector<PlanPort> ports(std::span<Tensor* const> tensors, std::span<Tensor* const> declared,
                              std::span<GraphValue* const> values);
  PlanTensor tensor(const StepSchedule& steps, const ScheduleTensor& tensor,
                    const ProfileRanges& ranges);
  PlanStep step(const StepSchedule& steps, const ScheduleStep& step, const ProfileRanges& ranges,
                Constants& constants, uint64_t* workspace);
  int32_t code_index(const CodeObject& object);
  Blob shared(Blob data);
  void note_sources(const StepSchedule& steps, Schedule& schedule);

  const Device& device_;
  const BuildBudget& budget_;
  const PluginServices services_;
  const HardwareCompatibilityLevel hardware_compatibility_;
  bool detailed_;
  ExprProgramBuilder expressions_;
  Plan plan_;
  std::vector<std::vector<PlannedOperatorPtr>> operators_;
  RefitRecorder refit_;
  // Kept bytes by their hash: weights and packed inputs, and indices of code objects in the plan.
  // Equal bytes are kept once.
  std::unordered_multimap<uint64_t, Blob> stored_;
  std::unordered_multimap<uint64_t, int32_t> code_;
};

}  // namespace opwright
