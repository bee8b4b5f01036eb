#include "compile/tune_parts.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "compile/build_budget.h"
#include "plan/tuning_table.h"

namespace opwright {
namespace {

/// Number of tactics with which the unfused product is timed.
constexpr size_t kTacticsOfProduct = 4;
/// The part of a fused node's time that the program's step may take at least. Of 324 layers of 15
/// networks, the two steps were at best 1.18 times as slow where it was more.
constexpr float kMostOfFusedTime = 0.4F;
/// Two steps replace one step of the same types if their time is below this part of its time: times
/// of different runs differ, and each step needs memory.
constexpr float kClearlyLess = 0.97F;

std::string tactic_of(const Candidate& candidate) {
  return tactic_text(candidate.tactic, candidate.tactic_name);
}

/// Whether one of the candidates was timed, in this build or before.
bool is_known(const TunedNode& tuned) {
  return std::ranges::any_of(tuned.sources, [](const auto& source) { return source.option >= 0; });
}

bool is_cached(const TunedNode& tuned) {
  return std::ranges::all_of(
      tuned.sources, [](const auto& source) { return source.option < 0 || source.is_cached; });
}

/// Combines options of the parts to options of the node into which they were fused.
class Combination {
 public:
  explicit Combination(const GraphNode& node) : node_(node), parts_(*node.parts) {}

  /// Nothing where the parts want one value in two types.
  std::optional<Candidate> candidate(const Candidate& product, const Candidate& program) const {
    std::vector<std::optional<PortType>> types(node_.inputs.size());
    const auto set = [&](size_t port, PortType type) {
      const bool fits = !types[port] || types[port] == type;
      types[port] = type;
      return fits;
    };
    // The node's first inputs are the product's.
    const auto& inputs = node_.inputs;
    for (size_t i = 0; i < parts_.nodes[0].inputs.size(); ++i) {
      const GraphValue* value = parts_.nodes[0].inputs[i];
      if (value == nullptr || value->is_known()) continue;
      const auto same = i < inputs.size() && inputs[i] == value
                            ? inputs.begin() + static_cast<long>(i)
                            : std::ranges::find(inputs, value);
      if (!set(static_cast<size_t>(same - inputs.begin()), product.inputs[i])) return std::nullopt;
    }
    for (size_t i = 0; i < parts_.nodes[1].inputs.size(); ++i) {
      const GraphValue* value = parts_.nodes[1].inputs[i];
      if (value == &parts_.between || value->is_known()) continue;
      const auto same = std::find(inputs.rbegin(), inputs.rend(), value);
      if (!set(static_cast<size_t>(inputs.rend() - same) - 1, program.inputs[i]))
        return std::nullopt;
    }
    Candidate result;
    for (size_t i = 0; i < inputs.size(); ++i)
      result.inputs.push_back(
          types[i].value_or(inputs[i] != nullptr ? PortType{inputs[i]->info.dtype} : PortType{}));
    result.outputs = program.outputs;
    result.tactic_name = str("unfused: ", tactic_of(product), "; ", tactic_of(program));
    return result;
  }

  /// The type in which the program reads the product's result.
  PortType read_type(const Candidate& program) const {
    const auto& inputs = parts_.nodes[1].inputs;
    return program
        .inputs[static_cast<size_t>(std::ranges::find(inputs, &parts_.between) - inputs.begin())];
  }

 private:
  const GraphNode& node_;
  const FusedParts& parts_;
};

void add_combinations(const GraphNode& node, TunedNode& tuned, Tuner& tuner) {
  const Combination combination(node);
  const std::vector<TunedOption>&products = tuned.parts[0].options,
        &programs = tuned.parts[1].options;
  std::vector<TunedOption> best;
  for (size_t i = 0; i < products.size(); ++i)
    for (size_t j = 0; j < programs.size(); ++j) {
      const TunedOption &product = products[i], &program = programs[j];
      std::optional<Candidate> candidate =
          combination.candidate(product.candidate, program.candidate);
      if (!candidate) continue;
      const float between = tuner.reformat_time({&node.parts->between, product.candidate.outputs[0],
                                                 combination.read_type(program.candidate)});
      TunedOption option{std::move(*candidate),
                         product.time_ms + program.time_ms + between,
                         nullptr,
                         {static_cast<int>(i), static_cast<int>(j)}};
      const auto same = std::ranges::find_if(best, [&](const TunedOption& other) {
        return other.candidate.inputs == option.candidate.inputs &&
               other.candidate.outputs == option.candidate.outputs;
      });
      if (same == best.end())
        best.push_back(std::move(option));
      else if (option.time_ms < same->time_ms)
        *same = std::move(option);
    }
  const auto as_one_step = static_cast<std::ptrdiff_t>(tuned.options.size());
  for (TunedOption& option : best) {
    if (!(option.time_ms < std::numeric_limits<float>::infinity())) continue;
    tuned.considered.push_back(
        {str(option.candidate), 0, option.candidate.tactic_name, option.time_ms, 0, ""});
    tuned.sources.push_back({-1, is_cached(tuned.parts[0]) && is_cached(tuned.parts[1]), ""});
    const bool is_beaten = std::any_of(
        tuned.options.begin(), tuned.options.begin() + as_one_step, [&](const TunedOption& fused) {
          return fused.candidate.inputs == option.candidate.inputs &&
                 fused.candidate.outputs == option.candidate.outputs &&
                 option.time_ms > kClearlyLess * fused.time_ms;
        });
    if (is_beaten) continue;
    tuned.sources.back().option = static_cast<int>(tuned.options.size());
    tuned.options.push_back(std::move(option));
  }
}

}  // namespace

std::vector<TuningJob> jobs_of_parts(const GraphNode& node, const TunedNode& tuned,
                                     const Tuner& tuner, const BuilderConfig& config) {
  if (node.parts == nullptr) return {};
  std::vector<std::pair<float, std::string>> tactics;
  for (size_t i = 0; i < tuned.considered.size(); ++i)
    if (tuned.sources[i].option >= 0)
      tactics.emplace_back(tuned.considered[i].time_ms, tuned.considered[i].tactic_name);
  std::ranges::sort(tactics);
  if (!config.all_tactics && !tactics.empty() &&
      tuner.least_traffic_time(node.parts->nodes[1]) > kMostOfFusedTime * tactics[0].first)
    return {};
  std::vector<std::string> names;
  // When several builds share the timing, each of them knows only some of the times.
  for (size_t i = 0; !config.timing_filter && i < tactics.size(); ++i)
    if (names.size() < kTacticsOfProduct &&
        std::ranges::find(names, tactics[i].second) == names.end())
      names.push_back(tactics[i].second);
  return {{&node.parts->nodes[0], std::move(names)}, {&node.parts->nodes[1], {}}};
}

void tune_parts(const GraphNode& node, TunedNode& tuned, Tuner& tuner,
                const BuilderConfig& config) {
  if (node.parts == nullptr || (!config.times() && !is_known(tuned))) return;
  try {
    const std::vector<TuningJob> jobs = jobs_of_parts(node, tuned, tuner, config);
    if (jobs.empty()) return;
    for (const TuningJob& job : jobs) {
      tuned.parts.push_back(tuner.tune(job, false));
      if (!config.times() && !is_known(tuned.parts.back())) {
        tuned.parts.clear();
        return;
      }
    }
    add_combinations(node, tuned, tuner);
  } catch (const BuildEndError&) {
    throw;
  } catch (const DeviceLostError&) {
    throw;
  } catch (const Error& error) {
    if (config.flags.has(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS)) throw;
    tuned.parts.clear();
    config.log.verbose("Layer '", node.name, "' is not compared with its parts: ", error.what());
  }
}

}  // namespace opwright
