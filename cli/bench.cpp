#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>

#include "base/file.h"
#include "base/parallel.h"
#include "base/printable.h"
#include "base/text_table.h"
#include "base/units.h"
#include "commands.h"
#include "measure.h"
#include "plugin/plugin_operators.h"
#include "run.h"
#include "runtime/trace.h"

namespace opwright::cli {
namespace {

struct BenchOptions {
  EngineOptions engine;
  std::vector<std::string> inputs, shapes;
  double seconds = 3;
  int warmup = 5, iterations = 0, threads = 0;
  bool profile = false, json = false;
  std::string trace;
};

InputOptions input_options(const BenchOptions& options, const Plan& plan) {
  InputOptions given;
  for (const std::string& text : options.inputs) {
    const auto [name, file] = split_name(text, plan.inputs);
    const int input = find_port(plan.inputs, name, "input");
    given.arrays.insert_or_assign(plan.inputs[input].name, read_npy(file));
  }
  for (const InputShapes& shapes : parse_shapes(options.shapes, "--shapes"))
    given.shapes.emplace(shapes.input, shapes.opt);
  return given;
}

/// Number and time of the layers of one kind.
struct KindTime {
  std::string_view kind;
  int layers = 0;
  double median = 0;  ///< sum of the layers' medians
};

/// Sums the layers' medians by kind and returns the largest sum first. `layers` have sorted times.
std::vector<KindTime> sum_by_kind(const std::vector<LayerTimes>& layers, const Schedule& schedule) {
  std::map<std::string_view, KindTime> by_kind;
  for (size_t i = 0; i < layers.size(); ++i) {
    const PlanStep& step = schedule.steps[i];
    const std::string_view kind = shown_kind(step.kind, step.attributes);
    KindTime& sum = by_kind.try_emplace(kind, KindTime{kind}).first->second;
    ++sum.layers;
    sum.median += quantile(layers[i].milliseconds, 0.5);
  }
  std::vector<KindTime> sorted;
  sorted.reserve(by_kind.size());
  for (const auto& [kind, sum] : by_kind) sorted.push_back(sum);
  std::ranges::stable_sort(sorted, std::greater(), &KindTime::median);
  return sorted;
}

void write_trace(Runner& runner, const Engine& engine, const std::string& path, int runs) {
  const std::shared_ptr<Trace> trace = engine.begin_trace();
  for (int i = 0; i < runs; ++i) runner.run();
  engine.end_trace(trace);
  const std::string text = trace->json();
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(text))};
  write_file_atomically(path, parts);
}

template <class Part>
std::vector<double> sorted(const std::vector<RunTrace>& runs, Part&& part) {
  std::vector<double> values;
  for (const RunTrace& run : runs) values.push_back(part(run));
  std::ranges::sort(values);
  return values;
}

void bench(const BenchOptions& options) {
  using Clock = std::chrono::steady_clock;
  if (options.threads > 0) set_thread_count(options.threads);
  const auto load_start = Clock::now();
  const std::shared_ptr<Engine> engine = options.engine.load();
  const double load_ms =
      std::chrono::duration<double, std::milli>(Clock::now() - load_start).count();
  set_crash_stage("running '" + options.engine.path + "'");
  std::vector<std::unique_ptr<Runner>> runners;
  runners.push_back(std::make_unique<Runner>(engine));
  Runner& runner = *runners.front();
  set_inputs(runner, input_options(options, engine->plan()));
  MeasureOptions plan;
  plan.warmup_runs = options.warmup;
  plan.runs = std::max(options.iterations, 1);
  plan.seconds = options.iterations > 0 ? 0 : options.seconds;
  const Measured measured = measure(runners, plan);
  const std::vector<RunTrace>& runs = measured.runs;
  const auto times = sorted(runs, [](const RunTrace& run) { return run.end - run.start; });
  const auto host_times = sorted(runs, [](const RunTrace& run) { return run.enqueue(); });
  const auto device_times = sorted(runs, [](const RunTrace& run) { return run.compute(); });
  const double rate = measured.per_second();
  const bool is_host = engine->device().is_host();
  std::vector<LayerTimes> layers;
  if (options.profile)
    layers = profile_layers(runner, std::clamp(static_cast<int>(times.size()), 1, 50));
  for (LayerTimes& layer : layers) std::ranges::sort(layer.milliseconds);
  const std::vector<KindTime> kinds =
      sum_by_kind(layers, engine->schedule(runner.context().profile()));
  if (!options.trace.empty())
    write_trace(runner, *engine, options.trace, std::clamp(static_cast<int>(times.size()), 1, 10));
  const size_t memory = runner.context().memory_size();

  if (options.json) {
    std::printf(
        "{\"runs\": %zu, \"median_ms\": %.6f, \"p90_ms\": %.6f, \"p99_ms\": %.6f, \"min_ms\": "
        "%.6f, "
        "\"runs_per_second\": %.3f, \"load_ms\": %.3f, \"memory_bytes\": %zu",
        measured.count, quantile(times, 0.5), quantile(times, 0.9), quantile(times, 0.99),
        times.front(), rate, load_ms, memory);
    if (!is_host)
      std::printf(", \"host_ms\": %.6f, \"device_ms\": %.6f", quantile(host_times, 0.5),
                  quantile(device_times, 0.5));
    if (options.profile) {
      std::printf(", \"layers\": [");
      for (size_t i = 0; i < layers.size(); ++i)
        std::printf("%s{\"name\": %s, \"median_ms\": %.6f}", i > 0 ? ", " : "",
                    json_string(layers[i].name).c_str(), quantile(layers[i].milliseconds, 0.5));
      std::printf("], \"kinds\": [");
      for (size_t i = 0; i < kinds.size(); ++i)
        std::printf("%s{\"kind\": %s, \"layers\": %d, \"median_ms\": %.6f}", i > 0 ? ", " : "",
                    json_string(std::string(kinds[i].kind)).c_str(), kinds[i].layers,
                    kinds[i].median);
      std::printf("]");
    }
    std::printf("}\n");
    return;
  }
  char throughput[32];
  std::snprintf(throughput, sizeof throughput, "%.1f runs/s", rate);
  std::vector<std::vector<std::string>> rows = {
      {"runs", std::to_string(measured.count)},
      {"median", time_text(quantile(times, 0.5))},
      {"p90", time_text(quantile(times, 0.9))},
      {"p99", time_text(quantile(times, 0.99))},
      {"minimum", time_text(times.front())},
      {"throughput", throughput},
      {"load", time_text(load_ms)},
      {"memory", bytes_text(memory) + " (activations and workspace)"}};
  if (!is_host) {
    rows.push_back({"host", time_text(quantile(host_times, 0.5)) + " (median of the calls)"});
    rows.push_back({"device", time_text(quantile(device_times, 0.5)) + " (median)"});
  }
  std::printf("%s", text_table(rows, "ll").c_str());
  if (!options.profile) return;
  double sum = 0;
  for (const KindTime& kind : kinds) sum += kind.median;
  const auto share = [&](double median) {
    char text[16];
    std::snprintf(text, sizeof text, "%.1f%%", sum > 0 ? 100 * median / sum : 0.0);
    return std::string(text);
  };
  rows = {{"median", "share", "layers", "kind"}};
  for (const KindTime& kind : kinds)
    rows.push_back({time_text(kind.median), share(kind.median), std::to_string(kind.layers),
                    printable(kind.kind)});
  std::printf("\n%s", text_table(rows, "rrrl").c_str());
  const auto median = [](const LayerTimes& layer) { return quantile(layer.milliseconds, 0.5); };
  std::ranges::stable_sort(layers, std::greater(), median);
  rows = {{"median", "share", "layer"}};
  for (const LayerTimes& layer : layers)
    rows.push_back({time_text(median(layer)), share(median(layer)), printable(layer.name)});
  std::printf("\n%s", text_table(rows, "rrl").c_str());
}

}  // namespace

void add_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Measure an engine's latency and throughput");
  options->engine.add_to(*command);
  command
      ->add_option("--input", options->inputs,
                   "NAME=FILE.npy; random values otherwise (repeatable)")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--shapes", options->shapes,
          "INPUT:1x3x224x224; the profile's optimum otherwise (repeatable, or with commas)")
      ->allow_extra_args(false);
  command->add_option("--seconds", options->seconds, "How long to measure")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--iterations", options->iterations, "A number of runs instead")
      ->check(CLI::PositiveNumber);
  command->add_option("--warmup", options->warmup, "Runs before measuring")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--threads", options->threads, "Threads to use")->check(CLI::PositiveNumber);
  command->add_flag("--profile", options->profile,
                    "Measure each layer too, and sum up by kinds, the slowest first");
  command->add_option(
      "--trace", options->trace,
      "Write what some runs do and when as JSON for Perfetto (ui.perfetto.dev): steps "
      "on the host's threads and the GPU's streams, copies, waits");
  command->add_flag("--json", options->json, "Print the figures as JSON");
  command->callback([options] { bench(*options); });
}

}  // namespace opwright::cli
