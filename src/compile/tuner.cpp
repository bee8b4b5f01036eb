#include "compile/tuner.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/parallel.h"
#include "base/types.h"
#include "compile/candidate_failure.h"
#include "compile/candidate_run.h"
#include "compile/single_step.h"
#include "compile/tuning_report.h"
#include "network/no_kernel.h"
#include "operators/assertion.h"
#include "operators/fused_attention.h"
#include "operators/movement.h"
#include "operators/pooling.h"
#include "plan/concatenation.h"
#include "plugin/model/plugin_model.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/plugin_library.h"
#include "plugin/registry/registry.h"

namespace opwright {
namespace {

// Bytes per millisecond that a conversion moves if nothing is timed: on one core, and in a GPU's
// memory.
constexpr double kBytesPerMillisecond = 8e6;
constexpr double kGpuBytesPerMillisecond = 1e9;
// About the time of the least kernel on a GPU.
constexpr double kGpuLaunchMilliseconds = 0.002;
// What the memory of no GPU moves.
constexpr double kMostGpuBytesPerMillisecond = 8e9;
// A sample of a short kernel is the median of as many runs as take about this time.
constexpr double kShortMilliseconds = 0.5;
constexpr double kMaxIterations = 50;
// The most that the two least samples may differ, and how many times the usual number of samples
// are taken until they agree.
constexpr double kAgreement = 1.05;
constexpr int kMaxRounds = 4;
// A candidate that is slower than the best one by this factor after so many samples is not timed
// any longer.
constexpr double kHopeless = 2;
constexpr int kHopelessRounds = 2;

std::string port_text(const PortDesc& port) {
  if (!port.present) return "-";
  std::string text = str(name(port.type.dtype), ":", name(port.type.format), ":", port.opt.str());
  if (!(port.min == port.max)) text += str("[", port.min.str(), "..", port.max.str(), "]");
  if (port.type.dtype == DataType::kINT8 && port.scale > 0) text += ":scaled";
  if (port.is_constant) text += ":const";
  return text;
}

/// Multiplications or comparisons of a layer whose windows may be much larger than its tensors.
double work_of(const GraphNode& node, const NodePorts& ports) {
  const auto elements = [](const Shape& shape) {
    double product = 1;
    for (const int64_t extent : shape) product *= static_cast<double>(extent);
    return product;
  };
  if (node.as<Pooling>() != nullptr) {
    double window = 1;
    for (const int64_t extent : node.as<Pooling>()->params().window)
      window *= static_cast<double>(extent);
    return window * elements(ports.outputs[0].opt);
  }
  return 0;
}

/// Whether each such type is converted to each other one.
bool is_convertible(DataType type) {
  return type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16;
}

std::string none_works(const GraphNode& node, size_t count, const std::string& reasons) {
  return str("Layer '", node.name, "' (", kind_of(*node.op), "): none of its ", count,
             " candidates works:", reasons);
}

/// The file with the plugin's creator; empty where the creator is not in a shared library.
std::string library_of(const PluginRequirement& plugin) {
  const IPluginCreatorInterface* creator =
      find_creator(nullptr, {plugin.name, plugin.version, plugin.plugin_namespace});
  return creator != nullptr ? code_file(*creator) : "";
}

NodePorts with_types(NodePorts ports, const Candidate& candidate) {
  for (size_t i = 0; i < candidate.inputs.size(); ++i)
    if (ports.inputs[i].present) ports.inputs[i].type = candidate.inputs[i];
  for (size_t i = 0; i < candidate.outputs.size(); ++i)
    ports.outputs[i].type = candidate.outputs[i];
  return ports;
}

/// A conversion as a node with its one candidate.
struct ConversionNode {
  ConversionNode(const Conversion& conversion, const ProfileRanges& ranges)
      : candidate{{conversion.from}, {conversion.to}, 0, ""} {
    const GraphValue& value = *conversion.value;
    // The operands' values are unknown: their bytes do not matter to a conversion.
    in.info.dtype = conversion.from.dtype, out.info.dtype = conversion.to.dtype;
    in.info.dims = out.info.dims = value.info.dims;
    in.scale = out.scale = value.scale;
    node.name = value.name;
    node.op = std::make_shared<Reformat>();
    node.inputs = {&in};
    node.outputs = {&out};
    ports = with_types(network_ports(node, ranges), candidate);
  }
  ConversionNode(const ConversionNode&) = delete;
  ConversionNode& operator=(const ConversionNode&) = delete;

  bool is_possible(const Device& device) const {
    CandidateQuery query;
    query.layer = node.name;
    query.inputs = ports.inputs;
    query.outputs = ports.outputs;
    query.device = &device;
    return !node.op->candidates(query).empty();
  }

  GraphValue in, out;
  GraphNode node;
  const Candidate candidate;
  NodePorts ports;
};

/// The least of several samples, because other work on the machine only adds time. Takes at least
/// `least` samples, and more until the two least agree. `sample` runs a kernel as often as its
/// argument says and returns the milliseconds of a run. `scene_ms`: additional time of each run.
double least_time(const std::function<double(int)>& sample, int least, double scene_ms,
                  double best_before) {
  double best = sample(1), second = std::numeric_limits<double>::infinity();
  for (int round = 1; round < kMaxRounds * least; ++round) {
    if (round >= least && second <= kAgreement * best) break;
    if (round >= std::min(least, kHopelessRounds) && best > kHopeless * best_before) break;
    const double repeats = kShortMilliseconds / std::max(best + scene_ms, 1e-5);
    const double time = sample(static_cast<int>(std::clamp(repeats, 1.0, kMaxIterations)));
    second = std::min(std::max(best, time), second);
    best = std::min(best, time);
  }
  return best;
}

}  // namespace

Tuner::Tuner(const ProfileRanges& ranges, const Device& device, const BuilderConfig& config,
             bool strongly_typed, TimingCache& cache, const BuildBudget& budget,
             CacheScene::Levels caches, TrialProcess* trials)
    : ranges_(ranges),
      device_(device),
      config_(config),
      strongly_typed_(strongly_typed),
      cache_(cache),
      budget_(budget),
      caches_(caches),
      memory_(device),
      verifier_(ranges, device, config, constants_, memory_),
      trials_(trials),
      compiler_(device, config, budget) {}

std::string Tuner::key(const GraphNode& node, const NodePorts& ports,
                       const Candidate& candidate) const {
  const std::optional<std::string> timing_key = node.op->timing_key();
  if (!timing_key) return {};
  std::string text = str(node.op->kind(), "|", *timing_key, "|");
  for (size_t i = 0; i < ports.inputs.size(); ++i) {
    text += port_text(ports.inputs[i]) + ",";
    if (reads_values(node, i))
      for (const Expr& element : *node.inputs[i]->info.values)
        text += str(ranges_.opt(element), ";");
  }
  text += ">";
  for (const PortDesc& port : ports.outputs) text += port_text(port) + ",";
  for (const auto& place : places_in_result(node, ports, device_)) text += place ? '^' : '-';
  if (caches_ != CacheScene::Levels())
    text += str('@', static_cast<int>(caches_.constants), static_cast<int>(caches_.tensors));
  return str(text, "|", candidate.tactic, "|", candidate.tactic_name);
}

std::string Tuner::key(const GraphNode& node, const Candidate& candidate) const {
  return key(node, with_types(network_ports(node, ranges_), candidate), candidate);
}

void Tuner::check_cached(const GraphNode& node, const NodePorts& ports,
                         const Candidate& candidate) const {
  const std::string cache_key = key(node, ports, candidate);
  if (cache_key.empty() || cache_.find(cache_key)) return;
  fail_with(ErrorCode::kINVALID_STATE, "Layer '", node.name, "' (", kind_of(*node.op),
            "): the candidate ", label_of(candidate),
            " is not in the timing cache, and ERROR_ON_TIMING_CACHE_MISS is set; build once "
            "without the flag and use the timing cache of that build");
}

std::string Tuner::obstacle(const GraphNode& node, const NodePorts& ports,
                            const Candidate& candidate) const {
  require(candidate.inputs.size() == ports.inputs.size() &&
              candidate.outputs.size() == ports.outputs.size(),
          "Layer '", node.name, "': a candidate has ", candidate.inputs.size(), " inputs and ",
          candidate.outputs.size(), " outputs, the layer ", ports.inputs.size(), " and ",
          ports.outputs.size());
  const auto misfit = [](const char* port, size_t number, TensorFormat format, int rank) {
    return str(port, " ", number, " has rank ", rank, ", which the format ", name(format),
               " cannot have");
  };
  for (size_t i = 0; i < ports.inputs.size(); ++i) {
    if (!ports.inputs[i].present) continue;
    const TensorFormat format = candidate.inputs[i].format;
    const int rank = ports.inputs[i].opt.rank();
    if (!is_valid(format, rank)) return misfit("input", i, format, rank);
    // The runtime writes values, and only in this format.
    if (node.inputs[i]->is_values() && format != TensorFormat::kLINEAR)
      return str("input ", i, " is a shape tensor, which is LINEAR, not ", name(format));
  }
  for (size_t i = 0; i < ports.outputs.size(); ++i) {
    const TensorFormat format = candidate.outputs[i].format;
    const int rank = ports.outputs[i].opt.rank();
    if (!is_valid(format, rank)) return misfit("output", i, format, rank);
    const int aliased = node.aliased_input(static_cast<int>(i));
    if (aliased >= 0 && candidate.outputs[i] != candidate.inputs[aliased])
      return str("output ", i, " is aliased to input ", aliased,
                 ", so that they must have the same type and format");
  }
  return {};
}

void Tuner::require_budget(const GraphNode& node, const NodePorts& ports, uint64_t workspace) {
  uint64_t bytes = workspace;
  const auto add = [&](const PortDesc& port, bool is_constant) {
    if (!port.present || is_constant) return;
    if (__builtin_add_overflow(bytes, most_bytes(port), &bytes)) bytes = ~uint64_t{0};
  };
  for (const PortDesc& port : ports.inputs) add(port, port.is_constant);
  for (const PortDesc& port : ports.outputs) add(port, false);
  const uint64_t left = budget_.memory_left();
  if (const uint64_t held = memory_.size(); held > left || bytes > left - held) memory_.clear();
  budget_.require_memory(bytes, str("Timing layer '", node.name, "' (", kind_of(*node.op),
                                    ") at the profile's maximum needs"));
  if (budget_.has_deadline())
    budget_.check_work(work_of(node, ports),
                       str("timing layer '", node.name, "' (", kind_of(*node.op), ")"));
}

void Tuner::run_elsewhere(const GraphNode& node, const PlannedOperator& op, const NodePorts& ports,
                          const Candidate& candidate) {
  const auto give_up = [&](const std::string& why) {
    config_.log.verbose("Layer '", node.name, "': the candidate ", label_of(candidate),
                        " does not run in another process first: ", why);
  };
  std::vector<std::string> libraries;
  TrialProcess::Answer answer;
  try {
    for (const PluginRequirement& plugin : op.requirements()) {
      std::string file = library_of(plugin);
      if (file.empty())
        return give_up(str("its plugin '", plugin.name, "' is of this process, not of a library"));
      libraries.push_back(std::move(file));
    }
    const Plan plan = single_step_plan(node, ports, candidate, op,
                                       {ranges_, device_, config_.services, constants_});
    const auto check = [&] {
      if (config_.interrupt_check) config_.interrupt_check();
      budget_.check_time("running layer '", node.name, "', candidate ", label_of(candidate),
                         ", in another process");
    };
    const auto ask = [&] { return trials_->run(plan, libraries, config_.kernel_seconds, check); };
    answer = ask();
    if (answer.outcome == TrialOutcome::kNoMemory) {
      // Earlier timing may hold the memory that is missing.
      memory_.clear();
      memory_.release_constants();
      answer = ask();
    }
  } catch (const Error& error) {
    const std::exception_ptr reason = std::current_exception();
    rethrow_end(reason);
    rethrow_lost_device(reason, node.name, candidate);
    return give_up(error.what());
  }
  if (answer.outcome == TrialOutcome::kFault)
    throw CandidateFault(
        str(who_computes(node), "faults, in another process that ran it first: ", answer.text));
  if (answer.outcome != TrialOutcome::kRan) give_up(answer.text);
}

float Tuner::run(const GraphNode& node, const PlannedOperator& op, const NodePorts& ports,
                 const Candidate& candidate, float best_before) {
  KernelArgs args;
  args.layer = node.name;
  args.candidate = &candidate;
  args.inputs = ports.inputs;
  args.outputs = ports.outputs;
  args.device = &device_;
  args.services = &config_.services;
  std::unique_ptr<Kernel> kernel = op.make_kernel(args);
  budget_.require_workspace(kernel->workspace_size(),
                            str("Layer '", node.name, "' (", kind_of(*node.op), ")"));
  require_budget(node, ports, kernel->workspace_size());
  // TensorRT looks at no element, so libraries that were written for it may leave some.
  const bool is_of_library = node.op->plugin() != nullptr && node.op->plugin()->is_of_library();
  CandidateRun run(node, op, ports, *kernel, {ranges_, device_, constants_, memory_, caches_},
                   is_of_library);
  ++timed_;
  const auto sample = [&](int iterations) {
    if (config_.interrupt_check) config_.interrupt_check();
    budget_.check_time("timing layer '", node.name, "', candidate ", label_of(candidate));
    return run.time(iterations);
  };
  const int least = std::max(1, config_.avg_timing_iterations);
  // A user's function runs as often as the user said; it runs long enough for the clock.
  const double time =
      kernel->domain() != nullptr
          ? sample(least)
          : least_time(sample, least, device_.scene_milliseconds(caches_), best_before);
  while (!run.is_checked()) sample(1);
  if (!run.left_elements().empty())
    config_.log.warning(run.left_elements(), "; these have any value in a run");
  return static_cast<float>(time);
}

std::optional<Tuner::Measured> Tuner::find(const std::string& key) const {
  if (key.empty()) return std::nullopt;
  const std::optional<float> known = cache_.find(key);
  if (!known) return std::nullopt;
  const auto timed = timed_layers_.find(key);
  return Measured{*known, nullptr, true, timed != timed_layers_.end() ? timed->second : ""};
}

bool Tuner::is_wanted(const GraphNode& node, const std::string& key) const {
  return !config_.timing_filter || (!key.empty() && config_.timing_filter(node.name, key));
}

Tuner::Measured Tuner::measure(const GraphNode& node, const NodePorts& ports,
                               const Candidate& candidate, float best) {
  const NodePorts typed = candidate_ports(node, ports, candidate, constants_);
  const std::string cache_key = key(node, typed, candidate);
  const std::string id = failure_key(node, typed, candidate);
  // The cache may have a time for a candidate that does not compile here.
  if (const std::string reason = compiler_.failure(id); !reason.empty()) fail(reason);
  const std::optional<Measured> known = find(cache_key);
  const bool is_verified = config_.verification == VerificationLevel::kPLUGINS ||
                           !verifier_.wants(node) || cache_.find("Verified|" + cache_key);
  if (known && is_verified) return *known;
  // The candidate stays an option, so that the build asks for the conversions beside it.
  if (!known && !is_wanted(node, cache_key)) return {};
  Measured measured = known.value_or(Measured());
  measured.planned = compiler_.plan({&node, typed, candidate, id, true});
  // Data may decide how often a body runs, and whether it ends at all, and a build has no data. A
  // body has only one candidate. A build has no other ranks either.
  if (!node.op->bodies().empty() || node.op->communicates()) return measured;
  const auto run_and_verify = [&] {
    if (!known && trials_ != nullptr) {
      try {
        run_elsewhere(node, *measured.planned, typed, candidate);
      } catch (const CandidateFault& fault) {
        // Other layers may have the same candidate.
        compiler_.add_failure(id, fault.what());
        throw;
      }
    }
    if (!known) measured.time_ms = run(node, *measured.planned, typed, candidate, best);
    verifier_.verify(node, typed, candidate, measured.planned, who_computes(node));
  };
  try {
    run_and_verify();
  } catch (const CandidateFault& fault) {
    // A build that trusts the cache would take this candidate.
    if (known) cache_.update(cache_key, {0, std::numeric_limits<float>::quiet_NaN()});
    if (config_.verification != VerificationLevel::kSTRICT) throw;
    throw BuildEndError(str("Layer '", node.name, "' (", kind_of(*node.op), "), candidate ",
                            label_of(candidate), ": ", fault.what(), " (verification is strict)"));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kFAILED_ALLOCATION) throw;
    // Earlier timing may hold the memory that is missing.
    memory_.clear();
    memory_.release_constants();
    run_and_verify();
  }
  if (!cache_key.empty() && !known) {
    cache_.insert(cache_key, measured.time_ms);
    timed_layers_.emplace(cache_key, node.name);
  }
  if (!cache_key.empty() && !is_verified) cache_.insert("Verified|" + cache_key, 0);
  return measured;
}

std::string Tuner::failure_key(const GraphNode& node, const NodePorts& ports,
                               const Candidate& candidate) const {
  const std::string known = key(node, ports, candidate);
  return known.empty() ? str(node.name, "|", label_of(candidate)) : known;
}

std::vector<Candidate> Tuner::candidates(const GraphNode& node, const NodePorts& ports,
                                         std::vector<DroppedCandidate>& dropped) const {
  CandidateQuery query;
  query.layer = node.name;
  query.inputs = ports.inputs;
  query.outputs = ports.outputs;
  query.device = &device_;
  query.strongly_typed = strongly_typed_;
  query.tf32 = config_.flags.has(BuilderFlag::kTF32);
  query.hardware_compatibility = config_.hardware_compatibility;
  query.tactic_sources = config_.tactic_sources;
  query.all_tactics = config_.all_tactics;
  query.dropped = &dropped;
  if (!strongly_typed_) {
    query.fp16 = config_.flags.has(BuilderFlag::kFP16);
    query.bf16 = config_.flags.has(BuilderFlag::kBF16);
    query.int8 = config_.flags.has(BuilderFlag::kINT8);
    query.fp8 = config_.flags.has(BuilderFlag::kFP8);
  }
  std::vector<Candidate> candidates = node.op->candidates(query);
  std::erase_if(candidates, [&](const Candidate& candidate) {
    std::string reason = obstacle(node, ports, candidate);
    if (reason.empty()) return false;
    dropped.push_back({candidate, std::move(reason)});
    return true;
  });
  if (candidates.empty()) {
    std::string types, reason;
    const std::string device =
        device_.is_host() ? "the CPU" : str("the GPU (", device_.architecture(), ")");
    for (const PortDesc& port : ports.inputs)
      types += (types.empty() ? "" : ", ") + port_text(port);
    if (!dropped.empty())
      reason = str("; ", str(dropped[0].candidate), " cannot be: ", dropped[0].reason);
    throw NoKernelError(ErrorCode::kUNSUPPORTED_STATE,
                        str("Layer '", node.name, "' (", kind_of(*node.op), "): ", device,
                            " has no kernel for inputs of ", types, reason));
  }
  return candidates;
}

float Tuner::estimate_reformat(const Shape& opt, PortType from, PortType to) const {
  const auto bytes = static_cast<double>(tensor_bytes(opt, from.dtype, from.format) +
                                         tensor_bytes(opt, to.dtype, to.format));
  return static_cast<float>(device_.is_host()
                                ? bytes / kBytesPerMillisecond
                                : kGpuLaunchMilliseconds + bytes / kGpuBytesPerMillisecond);
}

float Tuner::estimate_traffic(const NodePorts& ports, const Candidate& candidate) const {
  double bytes = 0;
  const auto add = [&](const PortDesc& port, PortType type) {
    if (port.present) bytes += static_cast<double>(tensor_bytes(port.opt, type.dtype, type.format));
  };
  for (size_t i = 0; i < ports.inputs.size(); ++i) add(ports.inputs[i], candidate.inputs[i]);
  for (size_t i = 0; i < ports.outputs.size(); ++i) add(ports.outputs[i], candidate.outputs[i]);
  return static_cast<float>(kGpuLaunchMilliseconds + bytes / kGpuBytesPerMillisecond);
}

float Tuner::least_traffic_time(const GraphNode& node) const {
  if (device_.is_host()) return 0;
  const NodePorts ports = network_ports(node, ranges_);
  double bytes = 0;
  for (const auto* list : {&ports.inputs, &ports.outputs})
    for (const PortDesc& port : *list)
      if (port.present)
        bytes += static_cast<double>(tensor_bytes(port.opt, port.type.dtype, port.type.format));
  return static_cast<float>(kGpuLaunchMilliseconds + bytes / kMostGpuBytesPerMillisecond);
}

CandidateChoice Tuner::choose(const TuningJob& job, const NodePorts& ports,
                              std::vector<DroppedCandidate>& dropped) const {
  const GraphNode& node = *job.node;
  std::vector<Candidate> all = candidates(node, ports, dropped);
  constrain(node, ports, all);
  const auto is_known = [&](const Candidate& candidate) {
    return find(key(node, with_types(ports, candidate), candidate)).has_value();
  };
  if (!job.tactics.empty()) {
    const auto is_left_out = [&](const Candidate& candidate) {
      return std::ranges::find(job.tactics, candidate.tactic_name) == job.tactics.end() &&
             !is_known(candidate);
    };
    if (!std::ranges::all_of(all, is_left_out)) std::erase_if(all, is_left_out);
  }
  if (config_.all_tactics || config_.verification != VerificationLevel::kPLUGINS ||
      node.op->plugin() != nullptr)
    return {std::move(all), {}};
  // Selection may want a slow group of candidates where a conversion may be impossible.
  ConversionEstimate convert;
  if (!config_.flags.has(BuilderFlag::kDIRECT_IO))
    convert = [&](bool is_input, size_t number, PortType from,
                  PortType to) -> std::optional<float> {
      const PortDesc& port = is_input ? ports.inputs[number] : ports.outputs[number];
      if (port.is_constant || !port.present) return 0;
      if (from.dtype != to.dtype && !(is_convertible(from.dtype) && is_convertible(to.dtype)))
        return std::nullopt;
      return estimate_reformat(port.opt, from, to);
    };
  CandidateChoice choice = choose_candidates(std::move(all), config_.search_range(), convert);
  const auto slower = std::stable_partition(choice.slower.begin(), choice.slower.end(), is_known);
  std::move(choice.slower.begin(), slower, std::back_inserter(choice.timed));
  choice.slower.erase(choice.slower.begin(), slower);
  for (const Candidate& each : choice.slower)
    dropped.push_back({each, str("it is expected to be slower than others "
                                 "(builder_optimization_level ",
                                 config_.optimization_level, ")")});
  return choice;
}

std::string Tuner::lack(const GraphNode& node) const {
  std::vector<DroppedCandidate> dropped;
  try {
    candidates(node, network_ports(node, ranges_), dropped);
  } catch (const NoKernelError& error) {
    return error.what();
  } catch (...) {
    if (is_interrupt(std::current_exception())) throw;
  }
  return {};
}

std::vector<KernelCompiler::Work> Tuner::kernels_to_time(
    const TuningJob& job, std::unordered_set<std::string>& seen) const {
  const GraphNode& node = *job.node;
  if (!compiler_.compiles(node)) return {};
  std::vector<DroppedCandidate> dropped;
  std::vector<Candidate> all;
  const NodePorts ports = network_ports(node, ranges_);
  try {
    all = choose(job, ports, dropped).timed;
  } catch (const Error&) {
    return {};  // tune() reports it
  }
  if (const int most = config_.max_candidates(); most > 0 && std::ssize(all) > most)
    all.resize(static_cast<size_t>(most));
  std::vector<KernelCompiler::Work> kernels;
  for (const Candidate& candidate : all) {
    NodePorts typed = with_types(ports, candidate);
    const std::string cache_key = key(node, typed, candidate);
    if (cache_key.empty() || cache_.find(cache_key) || !seen.insert(cache_key).second) continue;
    if (!is_wanted(node, cache_key)) continue;
    kernels.push_back({&node, std::move(typed), candidate, cache_key});
  }
  return kernels;
}

bool Tuner::needs_cores(const TuningJob& job) const {
  // A plugin may run on the host, a body is a build of its own, and a verified candidate is
  // compared with what the host computes.
  return !compiler_.compiles(*job.node) || config_.verification != VerificationLevel::kPLUGINS;
}

size_t Tuner::compile_ahead(std::span<const std::vector<TuningJob>> steps,
                            const CompileProgress& progress,
                            const std::function<void(size_t step)>& run) {
  if (!config_.times() || thread_count() == 1) return 0;
  std::vector<KernelCompiler::Work> work;
  std::unordered_set<std::string> seen;
  KernelCompiler::Steps beside{{}, run};
  bool needs_cores_now = false;
  for (const std::vector<TuningJob>& jobs : steps) {
    for (const TuningJob& job : jobs) {
      std::ranges::move(kernels_to_time(job, seen), std::back_inserter(work));
      needs_cores_now = needs_cores_now || needs_cores(job);
    }
    beside.kernels.push_back(needs_cores_now ? KernelCompiler::Steps::kAll : work.size());
  }
  return compiler_.compile(work, progress, beside);
}

std::vector<int> Tuner::compile_chosen(std::span<GraphNode* const> nodes,
                                       std::span<const TunedNode> tuned,
                                       std::span<const int> chosen,
                                       const CompileProgress& progress) {
  std::vector<KernelCompiler::Work> work;
  std::vector<int> of;
  std::unordered_set<std::string> keys;
  const auto add = [&](const GraphNode& node, const TunedOption& option, size_t i) {
    if (option.planned != nullptr || !compiler_.compiles(node) ||
        is_channel_view(node, option.candidate))
      return;
    NodePorts ports =
        candidate_ports(node, network_ports(node, ranges_), option.candidate, constants_);
    const std::string key = failure_key(node, ports, option.candidate);
    of.push_back(static_cast<int>(i));
    work.push_back({&node, std::move(ports), option.candidate, key, true});
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    const TunedOption& option = tuned[i].options[static_cast<size_t>(chosen[i])];
    if (option.parts.empty()) add(*nodes[i], option, i);
    for (size_t part = 0; part < option.parts.size(); ++part)
      add(nodes[i]->parts->nodes[part], tuned[i].part(option, part), i);
  }
  std::vector<KernelCompiler::Work> distinct;
  for (const KernelCompiler::Work& each : work)
    if (keys.insert(each.key).second) distinct.push_back(each);
  compiler_.compile(distinct, progress);
  std::vector<int> failed;
  for (size_t i = 0; i < work.size(); ++i)
    if (!compiler_.failure(work[i].key).empty() && (failed.empty() || failed.back() != of[i]))
      failed.push_back(of[i]);
  return failed;
}

TunedNode Tuner::tune(const TuningJob& job, bool all_tactics) {
  const GraphNode& node = *job.node;
  const NodePorts ports = network_ports(node, ranges_);
  std::vector<DroppedCandidate> dropped;
  const CandidateChoice choice = choose(job, ports, dropped);
  TunedNode result;
  result.has_all_tactics = all_tactics;
  if (node.as<Reshape>() || node.as<Assertion>()) {
    // A reshape is a view as a rule. Otherwise its cost does not depend on the neighbours' choice.
    // An assertion fails for the values of trials.
    result.options.push_back({choice.timed[0], 0, nullptr});
    return result;
  }
  if (config_.times()) {
    time(node, ports, choice, result);
    memory_.release_constants();
  } else {
    look_up(node, ports, choice, result);
  }
  if (node.as<Transpose>()) add_views(node, result);
  // One line per reason: most of thousands of combinations may fail for the same reason.
  std::vector<std::pair<const DroppedCandidate*, int>> reasons;
  for (const DroppedCandidate& each : dropped) {
    auto same = std::find_if(reasons.begin(), reasons.end(),
                             [&](const auto& known) { return known.first->reason == each.reason; });
    if (same == reasons.end()) same = reasons.insert(same, {&each, 0});
    ++same->second;
  }
  for (const auto& [first, count] : reasons) {
    const Candidate& candidate = first->candidate;
    const std::string more = count > 1 ? str(" (and ", count - 1, " more)") : "";
    result.considered.push_back(
        {str(candidate), candidate.tactic, candidate.tactic_name, 0, 0, first->reason + more});
    result.sources.emplace_back();
  }
  return result;
}

void Tuner::add_views(const GraphNode& node, TunedNode& result) const {
  std::vector<DataType> types;
  for (const TunedOption& option : result.options)
    if (const DataType type = option.candidate.inputs[0].dtype;
        std::ranges::find(types, type) == types.end())
      types.push_back(type);
  for (const DataType type : types)
    for (Candidate& view : channel_views(node, type, device_))
      result.options.push_back({std::move(view), 0, nullptr});
}

void Tuner::add(TunedNode& result, const Candidate& candidate, Measured measured) const {
  auto& options = result.options;
  auto same_types = std::find_if(options.begin(), options.end(), [&](const auto& option) {
    return !result.has_all_tactics && option.candidate.inputs == candidate.inputs &&
           option.candidate.outputs == candidate.outputs;
  });
  result.considered.push_back(
      {str(candidate), candidate.tactic, candidate.tactic_name, measured.time_ms, 0, ""});
  result.sources.push_back({static_cast<int>(same_types - options.begin()), measured.is_cached,
                            std::move(measured.same_as)});
  TunedOption option{candidate, measured.time_ms, std::move(measured.planned)};
  if (same_types == options.end())
    options.push_back(std::move(option));
  else if (option.time_ms < same_types->time_ms)
    *same_types = std::move(option);
}

void Tuner::look_up(const GraphNode& node, const NodePorts& ports, const CandidateChoice& choice,
                    TunedNode& result) const {
  std::string reasons;
  std::vector<Candidate> works;
  for (size_t i = 0; i < choice.size(); ++i) {
    if (i >= choice.timed.size() && !works.empty()) break;
    const Candidate& candidate = choice.at(i);
    const NodePorts typed = with_types(ports, candidate);
    const std::string reason = compiler_.failure(failure_key(node, typed, candidate));
    if (!reason.empty()) {
      report_failure(node, candidate, reason, reasons, result);
      continue;
    }
    works.push_back(candidate);
    if (config_.flags.has(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS))
      check_cached(node, typed, candidate);
    if (std::optional<Measured> known = find(key(node, typed, candidate))) {
      add(result, candidate, *known);
    } else {
      result.considered.push_back(
          {str(candidate), candidate.tactic, candidate.tactic_name, 0, 0, ""});
      result.sources.emplace_back();
    }
  }
  if (works.empty()) throw NoCandidateError(none_works(node, choice.size(), reasons));
  if (!result.options.empty()) return;
  const bool has_estimates = !device_.is_host() && node.op->plugin() == nullptr;
  if (!has_estimates) works.resize(1);
  for (Candidate& candidate : works) {
    const bool is_first = std::ranges::none_of(result.options, [&](const TunedOption& option) {
      return option.candidate.inputs == candidate.inputs &&
             option.candidate.outputs == candidate.outputs;
    });
    if (!is_first) continue;
    if (has_estimates && candidate.estimated_ms == 0)
      candidate.estimated_ms = estimate_traffic(ports, candidate);
    result.options.push_back({std::move(candidate), 0, nullptr});
  }
}

void Tuner::report_failure(const GraphNode& node, const Candidate& candidate,
                           const std::string& text, std::string& reasons, TunedNode& result) const {
  const std::string line = headline(text), label = label_of(candidate);
  const std::string errors = without_warnings(text);
  config_.log.warning("Layer '", node.name, "': the candidate ", label, " is left out: ", errors);
  if (errors != text)
    config_.log.verbose("Layer '", node.name, "', candidate ", label, ", with warnings: ", text);
  reasons += str("\n  ", label, ": ", line);
  result.considered.push_back(
      {str(candidate), candidate.tactic, candidate.tactic_name, 0, 0, line});
  result.sources.emplace_back();
}

void Tuner::time(const GraphNode& node, const NodePorts& ports, const CandidateChoice& choice,
                 TunedNode& result) {
  std::exception_ptr first_reason;
  std::string reasons;
  auto drop = [&](const Candidate& candidate) {
    const std::exception_ptr reason = std::current_exception();
    rethrow_end(reason);
    rethrow_lost_device(reason, node.name, candidate);
    if (!first_reason) first_reason = reason;
    report_failure(node, candidate, text_of(reason), reasons, result);
  };
  // Without another candidate, the error itself is clearest.
  const bool is_only = choice.size() == 1 && node.as<FusedAttention>() == nullptr;
  float best = std::numeric_limits<float>::infinity();
  int works = 0;
  verifier_.start(node, choice.size());
  for (size_t i = 0; i < choice.size(); ++i) {
    if (i >= choice.timed.size() && works > 0) break;
    const Candidate& candidate = choice.at(i);
    if (config_.flags.has(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS))
      check_cached(node, candidate_ports(node, ports, candidate, constants_), candidate);
    if (config_.interrupt_check) config_.interrupt_check();
    Measured measured;
    if (is_only) {
      try {
        measured = measure(node, ports, candidate, best);
      } catch (const CandidateFault& fault) {
        throw CandidateFault(str("Layer '", node.name, "' (", kind_of(*node.op), "), candidate ",
                                 label_of(candidate), ": ", fault.what()));
      }
    } else {
      try {
        measured = measure(node, ports, candidate, best);
      } catch (...) {
        drop(candidate);
        continue;
      }
    }
    best = std::min(best, measured.time_ms);
    add(result, candidate, std::move(measured));
    if (++works == config_.max_candidates()) break;
  }
  if (!result.options.empty()) return;
  const std::string text = none_works(node, choice.size(), reasons);
  if (is_error(first_reason)) throw NoCandidateError(text);
  add_exception_note(first_reason, text);
  std::rethrow_exception(first_reason);
}

bool Tuner::keeps_bytes(const Conversion& conversion) const {
  const SymShape& dims = conversion.value->info.dims;
  return same_bytes(ranges_.min(dims), ranges_.max(dims), conversion.from, conversion.to);
}

void Tuner::compile_conversions(std::span<const Conversion> conversions,
                                const CompileProgress& progress) {
  if (!config_.times() || device_.is_host() || thread_count() == 1) return;
  std::deque<ConversionNode> nodes;
  std::vector<KernelCompiler::Work> work;
  std::unordered_set<std::string> keys;
  for (const Conversion& conversion : conversions) {
    if (keeps_bytes(conversion)) continue;
    const ConversionNode& made = nodes.emplace_back(conversion, ranges_);
    const std::string cache_key = key(made.node, made.ports, made.candidate);
    if (cache_key.empty() || !keys.insert(cache_key).second) continue;
    if (find(cache_key) || !compiler_.compiles(made.node) || !made.is_possible(device_) ||
        !is_wanted(made.node, cache_key))
      continue;
    work.push_back({&made.node, made.ports, made.candidate, cache_key, true});
  }
  compiler_.compile(work, progress);
}

float Tuner::reformat_time(const Conversion& conversion) {
  if (keeps_bytes(conversion)) return 0;
  const ConversionNode made(conversion, ranges_);
  const auto what = [&] { return str("from ", str(conversion.from), " to ", str(conversion.to)); };
  const auto refuse = [&](const auto&... why) {
    config_.log.verbose("Tensor '", made.node.name, "': no conversion ", what(), ": ", why...);
    return std::numeric_limits<float>::infinity();
  };
  if (!made.is_possible(device_)) return refuse("the device has none");
  if (std::optional<Measured> known = find(key(made.node, made.ports, made.candidate)))
    return known->time_ms;
  if (!config_.times())
    return estimate_reformat(made.ports.inputs[0].opt, conversion.from, conversion.to);
  if (config_.flags.has(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS))
    check_cached(made.node, made.ports, made.candidate);
  try {
    return measure(made.node, made.ports, made.candidate, std::numeric_limits<float>::infinity())
        .time_ms;
  } catch (const BuildEndError&) {
    throw;
  } catch (const CandidateFault& fault) {
    config_.log.warning("Tensor '", made.node.name, "': the conversion ", what(),
                        " is left out: ", fault.what());
    return std::numeric_limits<float>::infinity();
  } catch (const Error& error) {
    return refuse(error.what());
  }
}

}  // namespace opwright
