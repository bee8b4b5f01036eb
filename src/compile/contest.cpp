#include "compile/contest.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "compile/build_budget.h"
#include "compile/candidate_failure.h"
#include "operators/host_run.h"
#include "operators/movement.h"
#include "plan/hash.h"
#include "plan/tuning_table.h"
#include "plugin/model/plugin_model.h"
#include "plugin/registry/callback.h"

namespace opwright {
namespace {

// Number of assignments that are compared, and the most that the sum of an assignment's separate
// times may be, relative to the least sum.
constexpr size_t kContestants = 4;
constexpr double kMost = 1.2;
// An assignment replaces the one with the least sum of times only if its engine takes less than
// this part of the time. Two runs of one engine differ by less on a busy machine.
constexpr double kClearly = 0.9;
constexpr double kClearlyOnStreams = 0.98;
// An engine that is slower than the best by this factor is not run any more.
constexpr double kHopelessEngine = 2;
// Short engines are compared up to this many times as often as the config says, for at most this
// time.
constexpr int kEngineRounds = 4;
constexpr double kEngineMilliseconds = 1000;
// A sample is the median of as many runs as take about this time.
constexpr double kSampleMilliseconds = 10;
constexpr double kMaxRuns = 5;
// A GPU whose run takes less than this gets several runs before the host waits for them.
constexpr double kShortRunMilliseconds = 1;
constexpr int kRunsAtOnce = 10;

constexpr float kNotRun = std::numeric_limits<float>::infinity();

double milliseconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

uint64_t memory_of(const Schedule& schedule) {
  uint64_t bytes = schedule.arena_size + schedule.workspace_size;
  for (const PlanStep& step : schedule.steps)
    for (const PackedInput& packed : step.packed) bytes += packed.data.size();
  return bytes;
}

/// The exception's text. Rethrows an exception that ends the build.
std::string failure(const std::exception_ptr& reason) {
  rethrow_end(reason);
  return text_of(reason);
}

}  // namespace

std::vector<bool> beside_callbacks(std::span<GraphNode* const> nodes, const Device& device) {
  std::vector<bool> beside(nodes.size());
  if (!device.is_host()) return beside;
  std::vector<size_t> running;  // a view takes no time
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i]->as<Reshape>() == nullptr) running.push_back(i);
  for (size_t i = 0; running.size() > 1 && i < running.size(); ++i) {
    const PluginModel* const plugin = nodes[running[i]]->op->plugin();
    if (plugin == nullptr || plugin->is_compiled()) continue;
    for (size_t j = i - std::min<size_t>(i, 1); j < std::min(i + 2, running.size()); ++j)
      beside[running[j]] = true;
  }
  return beside;
}

const TunedOption& Contest::option(const std::vector<int>& assignment, size_t node) const {
  return build_.tuned[node].options[assignment[build_.graph.inputs.size() + node]];
}

/// Layers that share timings make one choice.
std::vector<std::vector<int>> Contest::groups(const std::vector<bool>& contested) const {
  std::vector<std::vector<int>> groups;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < contested.size(); ++i) {
    if (!contested[i] || build_.tuned[i].options.size() < 2) continue;
    std::string keys;
    for (const TunedOption& option : build_.tuned[i].options) {
      const std::string key = build_.tuner.key(*build_.nodes[i], option.candidate);
      keys += key.empty() ? str("layer ", i) : key;
    }
    const auto [group, is_new] = known.emplace(keys, groups.size());
    if (is_new) groups.emplace_back();
    groups[group->second].push_back(static_cast<int>(build_.graph.inputs.size() + i));
  }
  return groups;
}

std::string Contest::key(const Contestant& contestant) const {
  std::map<const GraphValue*, size_t> numbers;
  const auto number = [&](const GraphValue* value) {
    if (value == nullptr || value->is_known()) return std::string("-");
    return str(numbers.emplace(value, numbers.size()).first->second);
  };
  std::string text;
  for (const GraphValue* input : build_.graph.inputs) text += number(input) + ",";
  for (size_t i = 0; i < build_.nodes.size(); ++i) {
    const GraphNode& node = *build_.nodes[i];
    const std::string own = build_.tuner.key(node, option(contestant.assignment, i).candidate);
    if (own.empty()) return {};
    text += "\n" + own + "|";
    for (const GraphValue* input : node.inputs) text += number(input) + ",";
    for (const GraphValue* output : node.outputs) text += number(output) + ",";
  }
  text += "\n";
  for (const GraphValue* output : build_.graph.outputs()) text += number(output) + ",";
  if (contestant.rules.aux_streams > 0) {
    text += "\nstreams";
    for (const ScheduleStep& step : schedule(contestant).steps) text += str(' ', step.stream);
  }
  const Hash128 hash = hash128(std::as_bytes(std::span(text)));
  return str("Engine|", hash[0], "-", hash[1], "|0|");
}

std::vector<int> Contest::choose(const SelectionProblem& problem,
                                 const std::vector<bool>& contested) const {
  std::vector<Contestant> contestants;
  for (std::vector<int>& assignment :
       select_several(problem, groups(contested), kContestants, kMost))
    contestants.push_back({std::move(assignment)});
  if (contestants.size() < 2) return contestants[0].assignment;
  const std::vector<float> times = this->times(contestants);
  if (times.empty()) return contestants[0].assignment;
  size_t winner = static_cast<size_t>(std::ranges::min_element(times) - times.begin());
  if (!(times[winner] < kClearly * times[0])) winner = 0;
  report(problem, contestants, times, winner);
  return contestants[winner].assignment;
}

bool Contest::gain_streams(const std::vector<int>& assignment, const ScheduleRules& rules) const {
  const std::vector<Contestant> contestants = {{assignment}, {assignment, rules}};
  if (rules.aux_streams == 0 ||
      std::ranges::all_of(schedule(contestants[1]).steps,
                          [](const ScheduleStep& step) { return step.stream == kAlone; }))
    return false;
  // Made-up inputs do no harm to the engine's own kernels. Plugins may rely on properties of the
  // data that the network computes for them.
  if (std::ranges::any_of(build_.nodes, [](const GraphNode* node) {
        return node->op->plugin() != nullptr || !node->op->bodies().empty() ||
               node->op->communicates();
      }))
    return true;
  const std::vector<float> times = this->times(contestants);
  if (times.empty()) return false;
  build_.config.log.verbose("Compared engines as a whole: ", time_text(times[0]),
                            " with one stream, ", time_text(times[1]), " with several");
  return times[1] < kClearlyOnStreams * times[0];
}

std::vector<float> Contest::times(const std::vector<Contestant>& contestants) const {
  std::vector<std::string> keys;
  std::vector<float> times;
  for (const Contestant& contestant : contestants) {
    keys.push_back(key(contestant));
    const std::optional<float> known = build_.cache.find(keys.back());
    if (known) times.push_back(*known);
  }
  if (times.size() == keys.size()) return times;
  times = time(contestants, !keys[0].empty());
  for (size_t i = 0; i < times.size(); ++i)
    if (!keys[i].empty() && times[i] < kNotRun) build_.cache.insert(keys[i], times[i]);
  return times;
}

std::vector<float> Contest::time(const std::vector<Contestant>& contestants,
                                 bool can_be_cached) const {
  const BuilderConfig& config = build_.config;
  if (!config.times()) return {};
  std::vector<std::function<void()>> runs = make_runs(contestants);
  if (runs.empty()) return {};
  if (can_be_cached && config.flags.has(BuilderFlag::kERROR_ON_TIMING_CACHE_MISS))
    fail_with(ErrorCode::kINVALID_STATE,
              "The times of whole engines, which are compared where plugins' own code runs in them "
              "or steps may run beside each other, are not in the timing cache, and "
              "ERROR_ON_TIMING_CACHE_MISS is set; build once without the flag and use the timing "
              "cache of that build");
  std::vector<float> times(runs.size(), kNotRun);
  double spent = 0;
  int at_once = 1;
  const auto run = [&](size_t i) {
    const double all = milliseconds_of([&] {
      for (int count = 0; count < at_once; ++count) runs[i]();
      build_.device.synchronize(nullptr);
    });
    spent += all;
    const double one = all / at_once;
    if (!build_.device.is_host() && one < kShortRunMilliseconds) at_once = kRunsAtOnce;
    return one;
  };
  const auto sample = [&](size_t i) {
    const double first = run(i);  // follows another engine's run; not in the sample
    std::vector<double> all(
        static_cast<size_t>(std::clamp(kSampleMilliseconds / first, 1.0, kMaxRuns)));
    for (double& each : all) each = run(i);
    const auto middle = all.begin() + static_cast<long>(all.size() / 2);
    std::ranges::nth_element(all, middle);
    return static_cast<float>(*middle);
  };
  const int least_rounds = std::max(1, config.avg_timing_iterations);
  for (int round = 0; round < least_rounds ||
                      (round < kEngineRounds * least_rounds && spent < kEngineMilliseconds);
       ++round) {
    build_.progress(std::min(round, least_rounds - 1), least_rounds);
    const float least = std::ranges::min(times);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!runs[i] || (round > 0 && times[i] > kHopelessEngine * least)) continue;
      if (config.interrupt_check) config.interrupt_check();
      build_.budget.check_time("comparing whole engines");
      try {
        times[i] = std::min(times[i], sample(i));
      } catch (...) {
        config.log.warning(
            "Comparing whole engines: one is left out, because its run on made-up "
            "inputs failed: ",
            failure(std::current_exception()));
        runs[i] = nullptr;
        times[i] = kNotRun;
      }
    }
  }
  return times;
}

/// Makes inputs as the tuner's, with the shapes of the profile's optimum.
void Contest::add_tensors(Trial& trial) const {
  TimingMemory& memory = build_.tuner.memory();
  const auto bytes_of = [](const Tensor& tensor, const Shape& shape) {
    const PortType type = network_port_type(tensor);
    return static_cast<size_t>(tensor_bytes(shape, type.dtype, type.format));
  };
  const std::vector<int> aliased = aliased_inputs(build_.network);
  const bool has_plugins = std::ranges::any_of(
      build_.nodes, [](const auto& node) { return node->op->plugin() != nullptr; });
  const TimingNumbers numbers = has_plugins ? TimingNumbers::kFractions : TimingNumbers::kNormal;
  for (size_t i = 0; i < build_.network.inputs().size(); ++i) {
    const Tensor& tensor = *build_.network.inputs()[i];
    const ProfileInput& range = build_.ranges.inputs()[i];
    const int number = static_cast<int>(i);
    const Shape& shape = trial.input_shapes.emplace_back(build_.ranges.opt(tensor.dims()));
    const size_t bytes = bytes_of(tensor, shape);
    if (range.values) {
      const std::vector<int64_t> elements(range.opt.begin(), range.opt.end());
      trial.inputs.push_back(memory.input(number, dense_values(elements, tensor.dtype())));
    } else if (std::ranges::find(aliased, number) != aliased.end()) {
      trial.inputs.push_back(memory.changed_input(number, tensor.dtype(), bytes, numbers));
    } else {
      trial.inputs.push_back(memory.input(number, tensor.dtype(), bytes, numbers));
    }
  }
  for (size_t i = 0; i < aliased.size(); ++i) {
    const Tensor& tensor = *build_.network.outputs()[i];
    const size_t bytes = bytes_of(tensor, build_.ranges.max(tensor.dims()));
    trial.outputs.push_back(aliased[i] >= 0 ? nullptr : memory.output(static_cast<int>(i), bytes));
  }
}

StepSchedule Contest::schedule(const Contestant& contestant) const {
  const auto first = contestant.assignment.begin() + static_cast<long>(build_.graph.inputs.size());
  const std::vector<int> chosen(first, first + static_cast<long>(build_.nodes.size()));
  return make_schedule(build_.graph, build_.network, build_.ranges, build_.device, build_.nodes,
                       build_.tuned, chosen, contestant.rules);
}

Trial Contest::make_trial(const Contestant& contestant) const {
  PlanEmitter emitter = build_.emitter;
  emitter.add_schedule(schedule(contestant), build_.ranges, build_.tuner.constants());
  Trial trial;
  trial.operators = emitter.operators();
  trial.plan = emitter.finish();
  trial.profile = static_cast<int>(trial.plan.schedules.size()) - 1;
  trial.services = build_.config.services;
  trial.limits = build_.config.limits;
  trial.log = build_.config.log;
  return trial;
}

std::vector<std::function<void()>> Contest::make_runs(
    const std::vector<Contestant>& contestants) const {
  std::vector<std::optional<Trial>> trials;
  uint64_t bytes = 0;
  for (const Contestant& contestant : contestants) {
    build_.budget.check_time("comparing whole engines");
    std::optional<Trial>& trial = trials.emplace_back();
    try {
      trial = make_trial(contestant);
      bytes += memory_of(trial->plan.schedules.back());
    } catch (...) {
      // The first assignment is the build's choice without a comparison, so its failure fails the
      // build.
      if (trials.size() == 1) throw;
      build_.config.log.verbose("Comparing whole engines: one is left out, as it cannot be made: ",
                                failure(std::current_exception()));
    }
  }
  build_.tuner.memory().clear();
  for (std::optional<Trial>& trial : trials)
    if (trial) add_tensors(*trial);
  bytes += build_.tuner.memory().size();
  if (bytes > build_.budget.memory_left()) {
    build_.config.log.verbose("Whole engines are not compared: ", trials.size(),
                              " of them need more than the limit of the build's memory");
    return {};
  }
  std::vector<std::function<void()>> runs;
  runs.reserve(trials.size());
  for (std::optional<Trial>& trial : trials)
    runs.push_back(trial ? make_trial_run(std::move(*trial)) : nullptr);
  return runs;
}

void Contest::report(const SelectionProblem& problem, const std::vector<Contestant>& contestants,
                     const std::vector<float>& times, size_t winner) const {
  std::string lines;
  for (size_t i = 0; i < contestants.size(); ++i) {
    lines += str(i == winner ? "\n  *  " : "\n     ", time_text(times[i]), ", ",
                 time_text(static_cast<float>(selection_cost(problem, contestants[i].assignment))),
                 " as the sum of separate times");
    int others = 0;
    for (size_t n = 0; n < build_.nodes.size(); ++n) {
      const Candidate& candidate = option(contestants[i].assignment, n).candidate;
      if (candidate == option(contestants[0].assignment, n).candidate || ++others > 1) continue;
      lines += str("; layer '", build_.nodes[n]->name, "' ", label_of(candidate));
    }
    if (others > 1) lines += str(" and ", others - 1, " other layers");
  }
  build_.config.log.verbose("Compared ", contestants.size(),
                            " engines as a whole, since plugins' own code runs in them:", lines);
}

}  // namespace opwright
