#include "compile/compile.h"

#include <unordered_set>

#include "backend/backend.h"
#include "base/error.h"
#include "compile/build_budget.h"
#include "compile/build_progress.h"
#include "compile/compile_profile.h"
#include "compile/emit.h"
#include "compile/enclosing_build.h"
#include "compile/expansion.h"
#include "compile/graph.h"
#include "compile/passes.h"
#include "compile/profile_ranges.h"
#include "compile/settle_extents.h"
#include "network/no_kernel.h"
#include "plan/trusted.h"
#include "plugin/registry/callback.h"

namespace opwright {
namespace {

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

  const BuildProgress progress(config, budget);
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
    compile_profile({graph, network, ranges, device, config, budget, cache, emitter,
                     trials ? &*trials : nullptr});
  progress("done", 1, 1);
  if (config.timing_filter) return {};
  emitter.add_plugin_libraries(config.plugins_to_serialize);
  if (config.embed_plugin_sources) emitter.add_plugin_sources();
  Plan plan = emitter.finish();
  format.check_level(config.hardware_compatibility, device, plan.code);
  plan.debug_plugins = config.debug_plugins;
  plan.graphs = config.graphs;
  plan.weight_streaming = config.flags.has(BuilderFlag::kWEIGHT_STREAMING);
  const RefitMode refit = config.refit();
  plan.refit.can_refit = refit == RefitMode::kIdentical || refit == RefitMode::kAll;
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
