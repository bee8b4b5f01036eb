#include "compile/tuner.h"

#include <algorithm>
#include <exception>
#include <iomanip>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/types.h"
#include "operators/movement.h"
#include "plugin/callback.h"

namespace opwright {
namespace {

// Bytes per millisecond that a conversion moves where nothing is timed: what one core does.
constexpr double kBytesPerMillisecond = 8e6;
// A sample of a short kernel is the median of so many runs that they take about this time.
constexpr double kShortMilliseconds = 0.5;
constexpr double kMaxIterations = 50;
// How far apart the two least samples may be, and how many times the usual number are taken to get
// there.
constexpr double kAgreement = 1.05;
constexpr int kMaxRounds = 4;
// A candidate that is slower than the best one by this factor is not timed longer.
constexpr double kHopeless = 2;

std::string port_text(const PortDesc& port) {
  if (!port.present) return "-";
  std::string text = str(name(port.type.dtype), ":", name(port.type.format), ":", port.opt.str());
  if (!(port.min == port.max)) text += str("[", port.min.str(), "..", port.max.str(), "]");
  if (port.type.dtype == DataType::kINT8 && port.scale > 0) text += ":scaled";
  if (port.is_constant) text += ":const";
  return text;
}

size_t port_bytes(const PortDesc& port) {
  return static_cast<size_t>(std::max(tensor_bytes(port.opt, port.type.dtype, port.type.format),
                                      tensor_bytes(port.max, port.type.dtype, port.type.format)));
}

std::string what(const std::exception_ptr& reason) {
  try {
    std::rethrow_exception(reason);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

/// "Convolution", "PluginV3 'circ_pad'".
std::string kind_of(const Operator& op) {
  std::string text(op.kind());
  for (const PluginRequirement& plugin : op.requirements()) text += " '" + plugin.name + "'";
  return text;
}

bool is_error(const std::exception_ptr& reason) {
  try {
    std::rethrow_exception(reason);
  } catch (const Error&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

Tuner::Tuner(const ProfileRanges& ranges, const Device& device, const BuildConfig& config,
             bool strongly_typed, TimingCache& cache)
    : ranges_(ranges),
      device_(device),
      config_(config),
      strongly_typed_(strongly_typed),
      cache_(cache),
      memory_(device) {}

std::string Tuner::key(const GraphNode& node, const NodePorts& ports,
                       const Candidate& candidate) const {
  const std::optional<std::string> timing_key = node.op->timing_key();
  if (!timing_key) return {};
  std::string text = str(node.op->kind(), "|", *timing_key, "|");
  for (size_t i = 0; i < ports.inputs.size(); ++i) {
    text += port_text(ports.inputs[i]) + ",";
    if (node.inputs[i] && node.inputs[i]->is_values())
      for (const Expr& element : *node.inputs[i]->info.values)
        text += str(ranges_.opt(element), ";");
  }
  text += ">";
  for (const PortDesc& port : ports.outputs) text += port_text(port) + ",";
  return str(text, "|", candidate.tactic, "|", candidate.tactic_name);
}

void Tuner::check_cached(const GraphNode& node, const NodePorts& ports,
                         const Candidate& candidate) {
  if (!config_.error_on_timing_cache_miss) return;
  const std::string cache_key =
      key(node, candidate_ports(node, ports, candidate, constants_), candidate);
  if (cache_key.empty() || cache_.find(cache_key)) return;
  fail_with(ErrorCode::kINVALID_STATE, "Layer '", node.name, "' (", kind_of(*node.op),
            "): the candidate ", str(candidate), " tactic ", candidate.tactic, " ",
            candidate.tactic_name,
            " is not in the timing cache, and ERROR_ON_TIMING_CACHE_MISS is set; build once "
            "without the flag and use the timing cache of that build");
}

bool Tuner::acceptable(const GraphNode& node, const NodePorts& ports,
                       const Candidate& candidate) const {
  require(candidate.inputs.size() == ports.inputs.size() &&
              candidate.outputs.size() == ports.outputs.size(),
          "Layer '", node.name, "': a candidate has ", candidate.inputs.size(), " inputs and ",
          candidate.outputs.size(), " outputs, the layer ", ports.inputs.size(), " and ",
          ports.outputs.size());
  for (size_t i = 0; i < ports.inputs.size(); ++i) {
    if (!ports.inputs[i].present) continue;
    if (!is_valid(candidate.inputs[i].format, ports.inputs[i].opt.rank())) return false;
    // Values are written by the runtime, which knows no other format.
    if (node.inputs[i]->is_values() && candidate.inputs[i].format != TensorFormat::kLINEAR)
      return false;
  }
  for (size_t i = 0; i < ports.outputs.size(); ++i) {
    if (!is_valid(candidate.outputs[i].format, ports.outputs[i].opt.rank())) return false;
    const int aliased = node.aliased_input(static_cast<int>(i));
    if (aliased >= 0 && candidate.outputs[i] != candidate.inputs[aliased]) return false;
  }
  return true;
}

float Tuner::run(const GraphNode& node, const Operator& op, const NodePorts& ports,
                 const Candidate& candidate, float best_before) {
  KernelArgs args;
  args.layer = node.name;
  args.candidate = &candidate;
  args.inputs = ports.inputs;
  args.outputs = ports.outputs;
  args.device = &device_;
  args.services = &config_.services;
  std::unique_ptr<Kernel> kernel = op.make_kernel(args);
  std::vector<Shape> in_shapes, out_shapes;
  std::vector<const void*> in;
  std::vector<void*> out;
  std::vector<Blob> known;  // keeps values and constants alive
  for (size_t i = 0; i < ports.inputs.size(); ++i) {
    const PortDesc& port = ports.inputs[i];
    in_shapes.push_back(port.opt);
    if (!port.present) {
      in.push_back(nullptr);
      continue;
    }
    const GraphValue& value = *node.inputs[i];
    bool aliased = false;
    for (size_t j = 0; j < ports.outputs.size(); ++j)
      aliased = aliased || node.aliased_input(static_cast<int>(j)) == static_cast<int>(i);
    if (aliased) {
      in.push_back(memory_.operand(static_cast<int>(i), port.type.dtype, port_bytes(port)));
    } else if (port.is_constant) {
      known.push_back(constants_.stored(value, port.type));
      in.push_back(known.back().data());
    } else if (value.is_values()) {
      std::vector<int64_t> elements;
      for (const Expr& element : *value.info.values) elements.push_back(ranges_.opt(element));
      known.push_back(dense_values(elements, port.type.dtype));
      in.push_back(known.back().data());
    } else {
      in.push_back(memory_.operand(static_cast<int>(i), port.type.dtype, port_bytes(port)));
    }
  }
  for (size_t i = 0; i < ports.outputs.size(); ++i) {
    out_shapes.push_back(node.defines_sizes()
                             ? ranges_.unwritten(node.outputs[i]->info.dims, node.size_symbols)
                             : ports.outputs[i].opt);
    const int aliased = node.aliased_input(static_cast<int>(i));
    out.push_back(aliased >= 0
                      ? const_cast<void*>(in[aliased])
                      : memory_.scratch(static_cast<int>(i), port_bytes(ports.outputs[i])));
  }
  void* workspace = memory_.scratch(-1, kernel->workspace_size());
  kernel->on_shape_change(in_shapes, out_shapes);
  ++timed_;
  auto sample = [&](int iterations) {
    return device_.time(*kernel, in.data(), out.data(), workspace, iterations);
  };
  // The least of several samples, because what else runs on the machine only ever adds; enough of
  // them that the two least agree.
  double best = sample(1), second = std::numeric_limits<double>::infinity();
  const int least = std::max(1, config_.avg_timing_iterations);
  for (int round = 1; round < kMaxRounds * least; ++round) {
    if (round >= least && (second <= kAgreement * best || best > kHopeless * best_before)) break;
    const double repeats = kShortMilliseconds / std::max(best, 1e-5);
    const double time = sample(static_cast<int>(std::clamp(repeats, 1.0, kMaxIterations)));
    second = std::min(std::max(best, time), second);
    best = std::min(best, time);
  }
  return static_cast<float>(best);
}

Tuner::Measured Tuner::measure(const GraphNode& node, const NodePorts& ports,
                               const Candidate& candidate, float best) {
  const NodePorts typed = candidate_ports(node, ports, candidate, constants_);
  const std::string cache_key = key(node, typed, candidate);
  if (!cache_key.empty())
    if (std::optional<float> known = cache_.find(cache_key)) {
      const auto timed = timed_layers_.find(cache_key);
      return {*known, nullptr, true, timed != timed_layers_.end() ? timed->second : ""};
    }
  KernelArgs args;
  args.layer = node.name;
  args.candidate = &candidate;
  args.inputs = typed.inputs;
  args.outputs = typed.outputs;
  args.device = &device_;
  args.services = &config_.services;
  Measured measured;
  measured.specialized = node.op->specialize(args);
  const Operator& op = measured.specialized ? *measured.specialized : *node.op;
  measured.time_ms = run(node, op, typed, candidate, best);
  if (!cache_key.empty()) {
    cache_.insert(cache_key, measured.time_ms);
    timed_layers_.emplace(cache_key, node.name);
  }
  return measured;
}

TunedNode Tuner::tune(const GraphNode& node) {
  const NodePorts ports = network_ports(node, ranges_);
  CandidateQuery query;
  query.layer = node.name;
  query.inputs = ports.inputs;
  query.outputs = ports.outputs;
  query.device = &device_;
  query.strongly_typed = strongly_typed_;
  if (!strongly_typed_) {
    query.fp16 = config_.fp16, query.bf16 = config_.bf16;
    query.int8 = config_.int8, query.fp8 = config_.fp8;
  }
  std::vector<Candidate> candidates = node.op->candidates(query);
  std::erase_if(candidates, [&](const Candidate& c) { return !acceptable(node, ports, c); });
  if (candidates.empty()) {
    std::string types;
    for (const PortDesc& port : ports.inputs)
      types += (types.empty() ? "" : ", ") + port_text(port);
    fail_with(ErrorCode::kUNSUPPORTED_STATE, "Layer '", node.name, "' (", node.op->kind(),
              "): the device has no kernel for inputs of ", types);
  }

  TunedNode result;
  if (node.as<Reshape>()) {
    // A view, as a rule; where it is not, its cost is the same whatever the neighbours choose.
    result.options.push_back({candidates[0], 0, nullptr});
    return result;
  }
  if (!config_.timing) {
    result.options.push_back({candidates.front(), 0, nullptr});
    return result;
  }
  std::exception_ptr first_reason;
  auto drop = [&](const Candidate& candidate) {
    const std::exception_ptr reason = std::current_exception();
    if (is_interrupt(reason)) std::rethrow_exception(reason);
    if (!first_reason) first_reason = reason;
    config_.log.warning("Layer '", node.name, "': the candidate ", str(candidate), " tactic ",
                        candidate.tactic, " ", candidate.tactic_name,
                        " is left out: ", what(reason));
  };
  float best = std::numeric_limits<float>::infinity();
  std::vector<Measured> all_measured;
  for (const Candidate& candidate : candidates) {
    check_cached(node, ports, candidate);
    Measured measured;
    if (candidates.size() == 1) {
      measured = measure(node, ports, candidate, best);  // nothing to fall back to
    } else {
      try {
        measured = measure(node, ports, candidate, best);
      } catch (...) {
        drop(candidate);
        continue;
      }
    }
    best = std::min(best, measured.time_ms);
    result.considered.push_back(
        {str(candidate), candidate.tactic, candidate.tactic_name, measured.time_ms});
    auto same_types = std::find_if(result.options.begin(), result.options.end(), [&](auto& option) {
      return option.candidate.inputs == candidate.inputs &&
             option.candidate.outputs == candidate.outputs;
    });
    TunedOption option{candidate, measured.time_ms, measured.specialized};
    all_measured.push_back(std::move(measured));
    if (same_types == result.options.end())
      result.options.push_back(std::move(option));
    else if (option.time_ms < same_types->time_ms)
      *same_types = std::move(option);
  }
  if (result.options.empty()) {
    if (!is_error(first_reason)) std::rethrow_exception(first_reason);
    fail_with(ErrorCode::kFAILED_EXECUTION, "Layer '", node.name, "' (", node.op->kind(),
              "): none of its ", candidates.size(),
              " candidates works; the first failed with: ", what(first_reason));
  }
  log_times(node, result, all_measured);
  return result;
}

void Tuner::log_times(const GraphNode& node, const TunedNode& tuned,
                      const std::vector<Measured>& measured) const {
  const auto cached = std::count_if(measured.begin(), measured.end(),
                                    [](const Measured& each) { return each.is_cached; });
  std::ostringstream table;
  table << "Layer '" << node.name << "' (" << kind_of(*node.op) << "): " << measured.size()
        << " candidates, " << measured.size() - cached << " timed, " << cached
        << " found in the timing cache:";
  for (size_t i = 0; i < measured.size(); ++i) {
    const TimedCandidate& candidate = tuned.considered[i];
    table << "\n  " << std::fixed << std::setprecision(4) << std::setw(10) << candidate.time_ms
          << " ms  " << candidate.types << "  tactic " << candidate.tactic << " "
          << candidate.tactic_name;
    if (!measured[i].same_as.empty()) table << "  as for layer '" << measured[i].same_as << "'";
  }
  config_.log.verbose(table.str());
}

float Tuner::reformat_time(const GraphValue& value, PortType from, PortType to) {
  const Shape min = ranges_.min(value.info.dims), max = ranges_.max(value.info.dims);
  if (same_bytes(min, max, from, to)) return 0;
  GraphNode node;
  node.name = value.name;
  node.op = std::make_shared<Reformat>();
  // Operands that nothing knows: the real bytes of the value do not matter.
  GraphValue in, out;
  in.info.dtype = from.dtype, out.info.dtype = to.dtype;
  in.info.dims = out.info.dims = value.info.dims;
  in.scale = out.scale = value.scale;
  node.inputs = {&in};
  node.outputs = {&out};
  const Candidate candidate{{from}, {to}, 0, ""};
  if (!config_.timing) {
    const Shape opt = ranges_.opt(value.info.dims);
    return static_cast<float>(
        (tensor_bytes(opt, from.dtype, from.format) + tensor_bytes(opt, to.dtype, to.format)) /
        kBytesPerMillisecond);
  }
  const NodePorts ports = network_ports(node, ranges_);
  check_cached(node, ports, candidate);
  try {
    return measure(node, ports, candidate, std::numeric_limits<float>::infinity()).time_ms;
  } catch (const Error& error) {
    config_.log.verbose("Tensor '", value.name, "': no conversion from ", str(from), " to ",
                        str(to), ": ", error.what());
    return std::numeric_limits<float>::infinity();
  }
}

}  // namespace opwright
