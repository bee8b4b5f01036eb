#include "compile/compile_profile.h"

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "base/units.h"
#include "compile/build_progress.h"
#include "compile/contest.h"
#include "compile/profile_nodes.h"
#include "compile/schedule.h"
#include "compile/selection_problem.h"
#include "compile/tune_parts.h"
#include "compile/tuner.h"
#include "compile/tuning_report.h"
#include "network/no_kernel.h"
#include "operators/fused_attention.h"

namespace opwright {
namespace {

/// Throws Error where the steps convert an input or output whose formats were set.
void require_direct_io(const StepSchedule& steps, const Graph& graph, const Network& network) {
  using Location = PlanTensor::Location;
  const auto refuse = [&](std::string_view what, const Tensor& tensor, PortType given,
                          std::string_view layer, std::string_view does, PortType other) {
    fail("BuilderFlag.DIRECT_IO: the network's ", what, " '", tensor.name(), "' is ", str(given),
         ", but ", layer, " ", does, " it as ", str(other),
         ": allow that format (ITensor.allowed_formats) or clear the flag");
  };
  for (const ScheduleStep& step : steps.steps) {
    if (step.node != nullptr) continue;
    const ScheduleTensor &from = steps.tensors[step.inputs[0]],
                         &to = steps.tensors[step.outputs[0]];
    const ScheduleStorage &source = steps.storages[from.storage],
                          &target = steps.storages[to.storage];
    const auto neighbour = [&](int tensor, auto ports) {
      for (const ScheduleStep& each : steps.steps)
        if (each.node != nullptr && std::ranges::find(each.*ports, tensor) != (each.*ports).end())
          return str("layer '", each.name, "'");
      return std::string("the output");
    };
    // Other tensors may lie in the memory of an input or output.
    if (source.location == Location::kInput &&
        from.value == graph.inputs[static_cast<size_t>(source.index)]) {
      const Tensor& input = *network.inputs()[static_cast<size_t>(source.index)];
      if (input.has_allowed_formats() && from.type == network_port_type(input))
        refuse("input", input, from.type, neighbour(step.outputs[0], &ScheduleStep::inputs),
               "takes", to.type);
    }
    if (target.location == Location::kOutput &&
        to.value == graph.outputs()[static_cast<size_t>(target.index)]) {
      const Tensor& output = *network.outputs()[static_cast<size_t>(target.index)];
      if (output.has_allowed_formats() && to.type == network_port_type(output))
        refuse("output", output, to.type, neighbour(step.inputs[0], &ScheduleStep::outputs),
               "gives", from.type);
    }
  }
}

/// Throws one error for all nodes that the device cannot run: `first` is the error of the node
/// before `rest`.
[[noreturn]] void fail_lacking(const NoKernelError& first, std::span<GraphNode* const> rest,
                               const Tuner& tuner, const Device& device) {
  std::vector<std::string> lacks = {first.what()};
  for (const GraphNode* node : rest)
    if (std::string lack = tuner.lack(*node); !lack.empty()) lacks.push_back(std::move(lack));
  std::string text = lacks.front();
  if (lacks.size() > 1) {
    text = str(device.is_host() ? "the CPU" : "the GPU", " cannot run ", lacks.size(), " layers:");
    for (const std::string& lack : lacks) text += "\n  " + lack;
  }
  throw NoKernelError(first.code(), text);
}

/// Rethrows the error, which is being handled, with the layer's name unless it has the name.
[[noreturn]] void rethrow_naming(const GraphNode& node, const Error& error) {
  const std::string text = error.what();
  if (text.find("'" + node.name + "'") != std::string::npos) throw;
  throw Error(error.code(), str("Layer '", node.name, "' (", kind_of(*node.op), "): ", text));
}

/// Where a run finds its operands in the caches: each constant, and an arena that is about twice as
/// large as the tensors of one step.
CacheScene::Levels caches_of_run(const std::vector<GraphNode*>& nodes, const ProfileRanges& ranges,
                                 const Device& device) {
  std::unordered_set<const GraphValue*> seen;
  uint64_t constants = 0, largest = 0;
  for (const GraphNode* node : nodes) {
    uint64_t tensors = 0;
    const auto add = [&](const GraphValue* value) {
      if (value == nullptr) return;
      const auto bytes =
          static_cast<uint64_t>(bytes_of(value->info.dtype, ranges.opt(value->info.dims).numel()));
      if (!value->is_constant()) {
        tensors += bytes;
      } else if (seen.insert(value).second) {
        constants += bytes;
      }
    };
    for (const GraphValue* input : node->inputs) add(input);
    for (const GraphValue* output : node->outputs) add(output);
    largest = std::max(largest, tensors);
  }
  return {device.cache_level(constants + 2 * largest), device.cache_level(2 * largest)};
}

class ProfileCompiler {
 public:
  explicit ProfileCompiler(const ProfileBuild& build)
      : build_(build),
        progress_(build.config, build.budget),
        profile_nodes_(build.graph, {build.device, build.config, build.ranges, strongly_typed()}),
        nodes_(profile_nodes_.all()),
        contested_(beside_callbacks(nodes_, build.device)),
        tuner_(build.ranges, build.device, build.config, strongly_typed(), build.cache,
               build.budget, caches_of_run(nodes_, build.ranges, build.device), build.trials),
        contest_(
            {build.graph, build.network, build.ranges, build.device, build.config, build.budget,
             nodes_, tuned_, build.emitter, tuner_, build.cache,
             [this](int done, int total) { progress_("comparing whole engines", done, total); }}) {}

  void compile() {
    tune_nodes();
    tune_parts_of_nodes();
    select();
    if (build_.config.timing_filter) return;
    report();
    emit(schedule());
  }

 private:
  bool strongly_typed() const { return build_.network.flags().strongly_typed; }

  void tune_nodes() {
    std::vector<std::vector<TuningJob>> jobs;
    for (const GraphNode* node : nodes_) jobs.push_back({{node, {}}});
    tune_all("tuning", nodes_, jobs, [&](int i) { tuned_.push_back(tune(i)); });
  }

  /// Tunes the parts of fused nodes, with the tactics that were fastest in the fused node.
  void tune_parts_of_nodes() {
    std::vector<int> numbers;
    std::vector<GraphNode*> fused;
    std::vector<std::vector<TuningJob>> jobs;
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      if (nodes_[i]->parts == nullptr) continue;
      numbers.push_back(i);
      fused.push_back(nodes_[i]);
      jobs.push_back(jobs_of_parts(*nodes_[i], tuned_[i], tuner_, build_.config));
    }
    tune_all("tuning parts", fused, jobs,
             [&](int i) { tune_parts(*fused[i], tuned_[numbers[i]], tuner_, build_.config); });
  }

  /// Calls `tune_one` for each of the nodes, which has these jobs, once their kernels are compiled.
  void tune_all(const std::string& phase, std::span<GraphNode* const> nodes,
                std::span<const std::vector<TuningJob>> jobs,
                const std::function<void(int)>& tune_one) {
    const size_t tuned = tuner_.compile_ahead(
        jobs, [&](int done, int total) { progress_("compiling kernels", done, total); },
        [&](size_t i) { tune_one(static_cast<int>(i)); });
    const int total = static_cast<int>(nodes.size());
    for (int i = static_cast<int>(tuned); i < total; ++i) {
      progress_(phase, i, total, nodes[i]);
      tune_one(i);
    }
  }

  TunedNode tune(int i) {
    const GraphNode& node = *nodes_[i];
    try {
      return tuner_.tune({&node, {}}, contested_[i]);
    } catch (const NoKernelError& error) {
      fail_lacking(error, std::span(nodes_).subspan(static_cast<size_t>(i) + 1), tuner_,
                   build_.device);
    } catch (const DeviceLostError&) {
      throw;
    } catch (const BuildEndError&) {
      throw;
    } catch (const NoCandidateError& error) {
      if (node.as<FusedAttention>() != nullptr) throw FusionError(error.code(), error.what());
      throw;
    } catch (const Error& error) {
      rethrow_naming(node, error);
    }
  }

  /// Chooses an option of each node. A kernel whose time the timing cache knows may fail to compile
  /// here. Then another is chosen.
  void select() {
    const bool direct_io = build_.config.flags.has(BuilderFlag::kDIRECT_IO);
    do {
      progress_("selecting formats", 0, 1);
      problem_ = make_selection_problem(
          build_.graph, build_.network, nodes_, tuned_, tuner_, direct_io,
          [&](int done, int total) { progress_("compiling conversions", done, total); });
      if (build_.config.timing_filter) return;
      assignment_ = contest_.choose(problem_, contested_);
      const auto first = assignment_.begin() + first_node();
      chosen_.assign(first, first + static_cast<ptrdiff_t>(nodes_.size()));
    } while (!compile_chosen());
  }

  /// The index of the first node in the problem, whose first nodes are the network's inputs.
  ptrdiff_t first_node() const { return static_cast<ptrdiff_t>(build_.graph.inputs.size()); }

  /// Returns whether all chosen kernels compile. Tunes the nodes again whose kernel does not.
  bool compile_chosen() {
    const std::vector<int> failed = tuner_.compile_chosen(
        nodes_, tuned_, chosen_,
        [&](int done, int total) { progress_("compiling chosen kernels", done, total); });
    for (const int i : failed) {
      tuned_[i] = tune(i);
      tune_parts(*nodes_[i], tuned_[i], tuner_, build_.config);
    }
    return failed.empty();
  }

  void report() {
    const std::vector<std::vector<double>> costs = conversion_costs(problem_, assignment_);
    for (size_t i = 0; i < nodes_.size(); ++i)
      report_tuning(*nodes_[i], tuned_[i], chosen_[i], costs[first_node() + i], build_.config.log);
  }

  StepSchedule schedule() {
    const BuilderConfig& config = build_.config;
    progress_("planning memory", 0, 1);
    ScheduleRules rules;
    if (build_.device.has_queues()) rules.aux_streams = config.aux_streams();
    if (config.times())
      rules.conversion_time = [&](const GraphValue& value, PortType from, PortType to) {
        return tuner_.reformat_time({&value, from, to});
      };
    if (!contest_.gain_streams(assignment_, rules)) rules.aux_streams = 0;
    StepSchedule steps = make_schedule(build_.graph, build_.network, build_.ranges, build_.device,
                                       nodes_, tuned_, chosen_, rules);
    if (config.flags.has(BuilderFlag::kDIRECT_IO))
      require_direct_io(steps, build_.graph, build_.network);
    return steps;
  }

  void emit(const StepSchedule& steps) {
    progress_("writing", 0, 1);
    build_.emitter.add_schedule(steps, build_.ranges, tuner_.constants());
    if (build_.config.enclosing != nullptr) return;
    build_.config.log.info("Compiled ", counted(nodes_.size(), "layer"), " into ",
                           counted(steps.steps.size(), "step"), ", ", steps.reformats,
                           " of them conversions; ", counted(tuner_.timed(), "kernel"), " timed, ",
                           tuner_.compared(), " compared with a reference; arena of ",
                           steps.arena_size, " bytes");
  }

  const ProfileBuild& build_;
  const BuildProgress progress_;
  const ProfileNodes profile_nodes_;
  const std::vector<GraphNode*>& nodes_;
  const std::vector<bool> contested_;  ///< by node; see beside_callbacks()
  Tuner tuner_;
  std::vector<TunedNode> tuned_;  ///< by node
  const Contest contest_;
  SelectionProblem problem_;
  std::vector<int> assignment_;  ///< the option of each node of the problem
  std::vector<int> chosen_;      ///< the option of each node
};

}  // namespace

void compile_profile(const ProfileBuild& build) { ProfileCompiler(build).compile(); }

}  // namespace opwright
