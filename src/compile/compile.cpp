#include "compile/compile.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "backend/backend.h"
#include "base/error.h"
#include "compile/build_budget.h"
#include "compile/contest.h"
#include "compile/emit.h"
#include "compile/enclosing_build.h"
#include "compile/expansion.h"
#include "compile/graph.h"
#include "compile/passes.h"
#include "compile/profile_nodes.h"
#include "compile/profile_ranges.h"
#include "compile/schedule.h"
#include "compile/selection.h"
#include "compile/settle_extents.h"
#include "compile/tune_parts.h"
#include "compile/tuner.h"
#include "compile/tuning_report.h"
#include "network/no_kernel.h"
#include "operators/fused_attention.h"
#include "plan/trusted.h"
#include "plugin/registry/callback.h"

namespace opwright {
namespace {

/// Reports phases and steps to the user's callback, which may cancel the build.
class Progress {
 public:
  Progress(const BuilderConfig& config, const BuildBudget& budget)
      : config_(config), budget_(budget) {}
  /// `node` is the subject of the next step; null: none.
  void operator()(const std::string& phase, int done, int total,
                  const GraphNode* node = nullptr) const {
    if (node != nullptr)
      budget_.check_time(phase, " layer '", node->name, "', ", done, " of ", total);
    else
      budget_.check_time(phase);
    if (config_.progress && !config_.progress(phase, done, total))
      throw BuildCancelledError(
          str("The build was cancelled by its progress callback in '", phase, "'"));
    if (config_.interrupt_check) config_.interrupt_check();
  }

 private:
  const BuilderConfig& config_;
  const BuildBudget& budget_;
};

int number_of(std::vector<PortType>& types, PortType type) {
  auto found = std::find(types.begin(), types.end(), type);
  if (found == types.end()) found = types.insert(found, type);
  return static_cast<int>(found - types.begin());
}

/// Milliseconds that are added to a conversion to avoid, which is chosen only where there is no
/// other way.
constexpr float kAvoided = 1e6F;

/// The nodes' options as a problem of selection. The network's inputs come before the nodes and its
/// outputs behind them, each with its one type. `direct_io`: as BuilderFlag::kDIRECT_IO says.
SelectionProblem make_problem(const Graph& graph, const Network& network,
                              const std::vector<GraphNode*>& nodes,
                              const std::vector<TunedNode>& tuned, Tuner& tuner, bool direct_io) {
  SelectionProblem problem;
  std::vector<PortType> types;
  std::map<const GraphValue*, int> tensor_of;  // in problem.tensors
  std::vector<const GraphValue*> values;
  auto produce = [&](const GraphValue* value, int node, int port) {
    tensor_of[value] = static_cast<int>(problem.tensors.size());
    problem.tensors.push_back({{node, port}, {}, {}, {}});
    values.push_back(value);
  };
  auto consume = [&](const GraphValue* value, int node, int port) {
    problem.tensors[tensor_of.at(value)].consumers.push_back({node, port});
  };
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const int node = static_cast<int>(problem.nodes.size());
    problem.nodes.push_back({{0, {number_of(types, network_port_type(*network.inputs()[i]))}}});
    produce(graph.inputs[i], node, 0);
  }
  for (size_t n = 0; n < nodes.size(); ++n) {
    const int node = static_cast<int>(problem.nodes.size());
    const GraphNode& each = *nodes[n];
    for (size_t i = 0; i < each.inputs.size(); ++i)
      if (each.inputs[i] && !each.inputs[i]->is_known())
        consume(each.inputs[i], node, static_cast<int>(i));
    for (size_t i = 0; i < each.outputs.size(); ++i)
      produce(each.outputs[i], node, static_cast<int>(each.inputs.size() + i));
    std::vector<SelectionProblem::Option> options;
    for (const TunedOption& option : tuned[n].options) {
      const float time = option.time_ms > 0 ? option.time_ms : option.candidate.estimated_ms;
      SelectionProblem::Option chosen{time, {}};
      for (size_t i = 0; i < each.inputs.size(); ++i)
        chosen.ports.push_back(each.inputs[i] && !each.inputs[i]->is_known()
                                   ? number_of(types, option.candidate.inputs[i])
                                   : SelectionProblem::kNoEdge);
      for (const PortType& type : option.candidate.outputs)
        chosen.ports.push_back(number_of(types, type));
      options.push_back(std::move(chosen));
    }
    problem.nodes.push_back(std::move(options));
  }
  const auto consume_as = [&](const GraphValue* value, PortType type) {
    if (value->is_known()) return;
    const int node = static_cast<int>(problem.nodes.size());
    problem.nodes.push_back({{0, {number_of(types, type)}}});
    consume(value, node, 0);
  };
  for (size_t i = 0; i < graph.outputs().size(); ++i)
    consume_as(graph.outputs()[i], network_port_type(*network.outputs()[i]));
  for (const Graph::Debug& debug : graph.debug()) consume_as(debug.value, {debug.dtype});

  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    SelectionProblem::Tensor& tensor = problem.tensors[t];
    std::vector<int> given, taken;
    auto collect = [&](SelectionProblem::Port port, std::vector<int>& into) {
      for (const auto& option : problem.nodes[port.node]) {
        const int type = option.ports[port.port];
        if (std::find(into.begin(), into.end(), type) == into.end()) into.push_back(type);
        if (std::find(tensor.types.begin(), tensor.types.end(), type) == tensor.types.end())
          tensor.types.push_back(type);
      }
    };
    collect(tensor.producer, given);
    for (SelectionProblem::Port port : tensor.consumers) collect(port, taken);
    const size_t count = tensor.types.size();
    tensor.convert.assign(count, std::vector<float>(count));
    auto contains = [](const std::vector<int>& list, int type) {
      return std::find(list.begin(), list.end(), type) != list.end();
    };
    for (size_t from = 0; from < count; ++from)
      for (size_t to = 0; to < count; ++to)
        if (from != to && contains(given, tensor.types[from]) && contains(taken, tensor.types[to]))
          tensor.convert[from][to] =
              tuner.reformat_time(*values[t], types[tensor.types[from]], types[tensor.types[to]]);
  }
  const auto avoid = [](SelectionProblem::Tensor& tensor, int type) {
    for (size_t from = 0; from < tensor.types.size(); ++from)
      for (size_t to = 0; to < tensor.types.size(); ++to)
        if (from != to && (tensor.types[from] == type || tensor.types[to] == type))
          tensor.convert[from][to] += kAvoided;
  };
  if (direct_io) {
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      if (network.inputs()[i]->has_allowed_formats())
        avoid(problem.tensors[tensor_of.at(graph.inputs[i])],
              number_of(types, network_port_type(*network.inputs()[i])));
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      const Tensor& output = *network.outputs()[i];
      if (!output.has_allowed_formats() || graph.outputs()[i]->is_known()) continue;
      avoid(problem.tensors[tensor_of.at(graph.outputs()[i])],
            number_of(types, network_port_type(output)));
    }
  }
  return problem;
}

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

/// A step into which several layers were joined cannot be run.
class FusionError final : public Error {
 public:
  using Error::Error;
};

void compile_profile(const Graph& graph, const Network& network, const ProfileRanges& ranges,
                     const Device& device, const BuilderConfig& config, TimingCache& cache,
                     PlanEmitter& emitter, const BuildBudget& budget, TrialProcess* trials) {
  const Progress progress(config, budget);
  const bool strongly_typed = network.flags().strongly_typed;
  const ProfileNodes profile_nodes(graph, {device, config, ranges, strongly_typed});
  const std::vector<GraphNode*>& nodes = profile_nodes.all();
  Tuner tuner(ranges, device, config, strongly_typed, cache, budget,
              caches_of_run(nodes, ranges, device), trials);
  const int total = static_cast<int>(nodes.size());
  const std::vector<bool> contested = beside_callbacks(nodes, device);
  const auto compile_ahead = [&](std::span<const TuningJob> jobs) {
    tuner.compile_ahead(jobs, [&](int done, int of) { progress("compiling kernels", done, of); });
  };
  const auto tune = [&](int i) {
    try {
      return tuner.tune({nodes[i], {}}, contested[i]);
    } catch (const NoKernelError& error) {
      fail_lacking(error, std::span(nodes).subspan(static_cast<size_t>(i) + 1), tuner, device);
    } catch (const DeviceLostError&) {
      throw;
    } catch (const BuildEndError&) {
      throw;
    } catch (const NoCandidateError& error) {
      if (nodes[i]->as<FusedAttention>() != nullptr) throw FusionError(error.code(), error.what());
      throw;
    } catch (const Error& error) {
      rethrow_naming(*nodes[i], error);
    }
  };
  std::vector<TuningJob> jobs(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) jobs[i].node = nodes[i];
  compile_ahead(jobs);
  std::vector<TunedNode> tuned;
  for (int i = 0; i < total; ++i) {
    progress("tuning", i, total, nodes[i]);
    tuned.push_back(tune(i));
  }
  std::vector<int> fused;
  jobs.clear();
  for (int i = 0; i < total; ++i) {
    if (nodes[i]->parts == nullptr) continue;
    fused.push_back(i);
    for (TuningJob& job : jobs_of_parts(*nodes[i], tuned[i], config))
      jobs.push_back(std::move(job));
  }
  compile_ahead(jobs);
  for (size_t i = 0; i < fused.size(); ++i) {
    const GraphNode& node = *nodes[fused[i]];
    progress("tuning parts", static_cast<int>(i), static_cast<int>(fused.size()), &node);
    tune_parts(node, tuned[fused[i]], tuner, config);
  }
  const Contest contest({graph, network, ranges, device, config, budget, nodes, tuned, emitter,
                         tuner, cache,
                         [&](int done, int of) { progress("comparing whole engines", done, of); }});
  SelectionProblem problem;
  std::vector<int> assignment, chosen;
  // A kernel whose time the timing cache knows may fail to compile here. Then another is chosen.
  for (std::vector<int> failed(1); !failed.empty();) {
    progress("selecting formats", 0, 1);
    problem = make_problem(graph, network, nodes, tuned, tuner,
                           config.flags.has(BuilderFlag::kDIRECT_IO));
    if (config.timing_filter) return;
    assignment = contest.choose(problem, contested);
    const auto first = assignment.begin() + static_cast<ptrdiff_t>(graph.inputs.size());
    chosen.assign(first, first + total);
    failed = tuner.compile_chosen(nodes, tuned, chosen, [&](int done, int of) {
      progress("compiling chosen kernels", done, of);
    });
    for (const int i : failed) {
      tuned[i] = tune(i);
      tune_parts(*nodes[i], tuned[i], tuner, config);
    }
  }
  const std::vector<std::vector<double>> costs = conversion_costs(problem, assignment);
  for (int i = 0; i < total; ++i)
    report_tuning(*nodes[i], tuned[i], chosen[i], costs[graph.inputs.size() + i], config.log);
  progress("planning memory", 0, 1);
  ScheduleRules rules;
  if (device.has_queues()) rules.aux_streams = config.aux_streams();
  if (config.times())
    rules.conversion_time = [&](const GraphValue& value, PortType from, PortType to) {
      return tuner.reformat_time(value, from, to);
    };
  if (!contest.gain_streams(assignment, rules)) rules.aux_streams = 0;
  const StepSchedule steps =
      make_schedule(graph, network, ranges, device, nodes, tuned, chosen, rules);
  if (config.flags.has(BuilderFlag::kDIRECT_IO)) require_direct_io(steps, graph, network);
  progress("writing", 0, 1);
  emitter.add_schedule(steps, ranges, tuner.constants());
  if (config.enclosing != nullptr) return;
  config.log.info("Compiled ", total, " layers into ", steps.steps.size(), " steps, ",
                  steps.reformats, " of them conversions; ", tuner.timed(), " kernels timed, ",
                  tuner.compared(), " compared with a reference; arena of ", steps.arena_size,
                  " bytes");
}

/// Bytes of the network's own constants. A tensor that several layers share counts once.
uint64_t constant_bytes(const Graph& graph) {
  std::unordered_set<const std::byte*> seen;
  uint64_t bytes = 0;
  for (const GraphNode* node : graph.nodes())
    for (const GraphValue* output : node->outputs)
      if (const Blob& data = output->info.constant; seen.insert(data.data()).second)
        bytes += data.size();
  return bytes;
}

/// Number of layers, with those of bodies.
int64_t count_layers(const Network& network) {
  int64_t count = network.num_layers();
  for (int i = 0; i < network.num_layers(); ++i)
    for (const Network* body : network.layer(i)->op()->bodies()) count += count_layers(*body);
  return count;
}

/// `fuses_attention`: whether attentions may become one step each.
Plan compile_for(const Device& device, const Network& declared, const BuilderConfig& config,
                 const Deadline& deadline, TimingCache& cache, bool fuses_attention) {
  const DeviceScope scope(device);
  const Limits limits = resolved(config.limits, device.memory());
  const int64_t layers = config.enclosing == nullptr ? count_layers(declared) : 0;
  require(layers <= limits.steps, "The network '", declared.name(), "' has ", layers,
          " layers, more than the limit of ", limits.steps, " (steps); ", limit_hint("steps"));
  BuildBudget budget(limits, config.workspace_limit(), deadline);
  const EnclosingBuild build(config, budget, deadline);
  const CodeFormat& format = device.backend().code_format();
  format.check_level(config.hardware_compatibility, device, {});
  std::vector<ProfileRanges> profiles;
  if (config.profiles.empty()) profiles.emplace_back(declared, nullptr, config.shape_source);
  for (const auto& profile : config.profiles)
    profiles.emplace_back(declared, profile.get(), config.shape_source);
  const std::shared_ptr<const Network> settled = settle_extents(declared, profiles);
  const Network& network = settled ? *settled : declared;

  const Progress progress(config, budget);
  progress("optimizing", 0, 1);
  Graph graph(network, config.constraints() != PrecisionConstraints::kIGNORE);
  std::vector<RefitWeight> weights = mark_refittable(graph, network, config.refit());
  budget.set_given(constant_bytes(graph));
  plan_for_layers(graph, profiles);
  settle_broadcasts(graph, profiles);
  run_passes(graph, {device, config, profiles[0], network.flags().strongly_typed, &budget,
                     fuses_attention, profiles});
  PlanEmitter emitter(graph, network, declared, device, config, budget, std::move(weights));
  std::optional<TrialProcess> trials;
  if (!device.is_host() && config.verification != VerificationLevel::kPLUGINS)
    trials.emplace(device, config.log);
  for (const ProfileRanges& ranges : profiles)
    compile_profile(graph, network, ranges, device, config, cache, emitter, budget,
                    trials ? &*trials : nullptr);
  progress("done", 1, 1);
  if (config.timing_filter) return {};
  emitter.add_plugin_libraries(config.plugins_to_serialize);
  if (config.embed_plugin_sources) emitter.add_plugin_sources();
  Plan plan = emitter.finish();
  format.check_level(config.hardware_compatibility, device, plan.code);
  plan.debug_plugins = config.debug_plugins;
  plan.graphs = config.graphs;
  plan.weight_streaming = config.flags.has(BuilderFlag::kWEIGHT_STREAMING);
  plan.refit.is_stripped = config.flags.has(BuilderFlag::kSTRIP_PLAN);
  if (plan.refit.is_stripped && !plan.refit.weights.empty()) plan = strip(std::move(plan));
  trust_plan(plan);
  return plan;
}

Plan compile_for(const Device& device, const Network& network, const BuilderConfig& config,
                 const Deadline& deadline) {
  TimingCache fresh(device.identity());
  TimingCache& cache = config.timing_cache ? *config.timing_cache : fresh;
  require(cache.device_identity() == device.identity(), "The timing cache was made on '",
          cache.device_identity(), "', this device is '", device.identity(),
          "'; use a cache of this device or none");
  try {
    return compile_for(device, network, config, deadline, cache, true);
  } catch (const FusionError& error) {
    config.log.warning("The network is built with attentions as separate layers: ", error.what());
  }
  return compile_for(device, network, config, deadline, cache, false);
}

/// `reason`: why the GPU, which nobody chose, cannot run all of the network.
Plan compile_on_cpu_instead(const Network& network, const BuilderConfig& config,
                            const Deadline& deadline, const std::string& reason) {
  config.log.warning(
      "The engine is built for the CPU, because the GPU cannot run all of it: ", reason,
      ". Choose a device (default_device_type, OPWRIGHT_DEVICE) to get this as an error");
  BuilderConfig on_cpu = config;
  on_cpu.device = device_of(DeviceType::kCPU);
  on_cpu.timing_cache = nullptr;  // the GPU's
  const std::string why = str(
      "The engine was to be built for the CPU, where plugins get host addresses, because the GPU "
      "cannot run all of the network: ",
      reason);
  try {
    return compile_for(get_device(on_cpu.device), network, on_cpu, deadline);
  } catch (const BuildEndError&) {
    throw;
  } catch (const Error& error) {
    fail_with(error.code(), error.what(), ". ", why);
  } catch (...) {
    add_exception_note(std::current_exception(), why);
    throw;
  }
}

}  // namespace

Plan compile(const Network& given, const BuilderConfig& config) {
  const Deadline own(resolved(config.limits, machine_memory()).build_seconds);
  const Deadline& deadline = config.enclosing != nullptr ? config.enclosing->end() : own;
  given.infer();
  std::shared_ptr<const Network> expanded = expand(given);
  if (const RefitMode mode = config.refit(); mode != RefitMode::kNone) {
    const Network& whole = expanded ? *expanded : given;
    std::shared_ptr<const Network> lifted = lift_body_weights(whole, [&](const std::string& name) {
      return mode != RefitMode::kIndividual || whole.weight_names().is_marked(name);
    });
    if (lifted) expanded = std::move(lifted);
  }
  const Network& network = expanded ? *expanded : given;
  const Device& device = get_device(config.device);
  if (device.is_host()) return compile_for(device, network, config, deadline);
  std::string reason;
  try {
    return compile_for(device, network, config, deadline);
  } catch (const NoKernelError& error) {
    reason = error.what();
    if (!config.may_fall_back())
      throw NoKernelError(error.code(), reason + "; build the engine for the CPU");
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    // A plugin's function raised an exception in its own language. The function may run only on the
    // CPU.
    if (!config.may_fall_back() || !is_plugin_exception(std::current_exception())) throw;
    reason = error.what();
  }
  return compile_on_cpu_instead(network, config, deadline, reason);
}

}  // namespace opwright
