#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <random>

#include "base/file.h"
#include "base/half.h"
#include "base/parallel.h"
#include "base/printable.h"
#include "commands.h"
#include "plugin/plugin_operators.h"
#include "run.h"
#include "runtime/trace.h"

namespace opwright::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchOptions {
  EngineOptions engine;
  std::vector<std::string> inputs, shapes;
  double seconds = 3;
  int warmup = 5, iterations = 0, threads = 0;
  bool profile = false, json = false;
  std::string trace;
};

/// Standard normal values; integers are 0 or 1, which are valid as most things.
NpyArray random_array(PortType type, const Shape& shape) {
  const DataType dtype = type.dtype;
  // With what the format pads.
  const int64_t bytes = tensor_bytes(shape, dtype, type.format), count = bytes * 8 / bits(dtype);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = is_floating(dtype) ? normal(random) : static_cast<float>(random() & 1);
  return {dtype, shape, Blob::make(static_cast<size_t>(bytes), [&](void* out) {
            convert(values.data(), DataType::kFLOAT, out, dtype, count);
          })};
}

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)))];
}

struct LayerTime {
  std::string name;
  std::vector<double> times;
  double median() const { return quantile(times, 0.5); }
};

/// The layers of one kind.
struct KindTime {
  std::string_view kind;
  int layers = 0;
  double median = 0;  ///< the sum of theirs
};

/// Largest first.
std::vector<KindTime> sum_by_kind(const std::vector<LayerTime>& layers, const Schedule& schedule) {
  std::map<std::string_view, KindTime> by_kind;
  for (size_t i = 0; i < layers.size(); ++i) {
    const PlanStep& step = schedule.steps[i];
    const std::string_view kind = shown_kind(step.kind, step.attributes);
    KindTime& sum = by_kind.try_emplace(kind, KindTime{kind}).first->second;
    ++sum.layers;
    sum.median += layers[i].median();
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

std::vector<LayerTime> profile(Context& context, int runs) {
  std::vector<LayerTime> layers;
  size_t next = 0;
  context.set_layer_time_callback([&](const std::string& layer, float ms) {
    if (next == layers.size()) layers.push_back({layer, {}});
    layers[next++].times.push_back(ms);
  });
  for (int i = 0; i < runs; ++i) {
    next = 0;
    context.enqueue();
    context.synchronize();
  }
  context.set_layer_time_callback(nullptr);
  for (LayerTime& layer : layers) std::sort(layer.times.begin(), layer.times.end());
  return layers;
}

void set_inputs(Runner& runner, const Plan& plan, const BenchOptions& options) {
  std::map<std::string, std::string> files, shapes;
  for (const std::string& text : options.inputs) files.insert(split_name(text, plan.inputs));
  for (const std::string& text : options.shapes) {
    const size_t colon = text.rfind(':');
    require(colon != std::string::npos && colon > 0, "--shapes '", text,
            "'; expected INPUT:1x3x224x224");
    shapes[text.substr(0, colon)] = text.substr(colon + 1);
  }
  for (const auto& [name, file] : files) find_port(plan.inputs, name, "input");
  for (const auto& [name, shape] : shapes) find_port(plan.inputs, name, "input");
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const PlanPort& port = plan.inputs[i];
    auto file = files.find(port.name);
    if (file == files.end() && plan.inputs.size() == 1) file = files.find("");
    if (file != files.end()) {
      runner.set_input(static_cast<int>(i), read_npy(file->second));
      continue;
    }
    Shape shape = plan.schedules.at(0).inputs[i].opt;
    if (auto given = shapes.find(port.name); given != shapes.end())
      shape = parse_shape(given->second, "--shapes");
    runner.set_input(static_cast<int>(i), random_array(port.type, shape));
  }
}

void bench(const BenchOptions& options) {
  if (options.threads > 0) set_thread_count(options.threads);
  const auto load_start = Clock::now();
  const std::shared_ptr<Engine> engine = options.engine.load();
  const double load_ms =
      std::chrono::duration<double, std::milli>(Clock::now() - load_start).count();
  set_crash_stage("running '" + options.engine.path + "'");
  Runner runner(engine);
  set_inputs(runner, engine->plan(), options);
  runner.prepare();
  Context& context = runner.context();
  for (int i = 0; i < options.warmup; ++i) runner.run();
  const Device& device = engine->device();
  const bool is_host = device.is_host();
  const std::unique_ptr<Event> begin = device.make_event(), end = device.make_event();
  // Of whole runs, and for a GPU of the calls that give them to it, and of its work.
  std::vector<double> times, host_times, device_times;
  const auto milliseconds = [](Clock::time_point from) {
    return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
  };
  const auto start = Clock::now();
  while (options.iterations > 0 ? static_cast<int>(times.size()) < options.iterations
                                : milliseconds(start) < 1000 * options.seconds) {
    const auto before = Clock::now();
    if (is_host) {
      context.enqueue();
    } else {
      const DeviceScope scope(device);
      begin->record(nullptr);
      const auto called = Clock::now();
      context.enqueue();
      host_times.push_back(milliseconds(called));
      end->record(nullptr);
      end->synchronize();
      device_times.push_back(end->milliseconds_since(*begin));
    }
    times.push_back(milliseconds(before));
  }
  const double total = milliseconds(start) / 1000;
  const double rate = static_cast<double>(times.size()) / total;
  for (auto* all : {&times, &host_times, &device_times}) std::sort(all->begin(), all->end());
  std::vector<LayerTime> layers;
  if (options.profile) layers = profile(context, std::clamp(static_cast<int>(times.size()), 1, 50));
  const std::vector<KindTime> kinds = sum_by_kind(layers, engine->schedule(context.profile()));
  if (!options.trace.empty())
    write_trace(runner, *engine, options.trace, std::clamp(static_cast<int>(times.size()), 1, 10));

  if (options.json) {
    std::printf(
        "{\"runs\": %zu, \"median_ms\": %.6f, \"p90_ms\": %.6f, \"p99_ms\": %.6f, \"min_ms\": "
        "%.6f, "
        "\"runs_per_second\": %.3f, \"load_ms\": %.3f, \"memory_bytes\": %zu",
        times.size(), quantile(times, 0.5), quantile(times, 0.9), quantile(times, 0.99),
        times.front(), rate, load_ms, context.memory_size());
    if (!is_host)
      std::printf(", \"host_ms\": %.6f, \"device_ms\": %.6f", quantile(host_times, 0.5),
                  quantile(device_times, 0.5));
    if (options.profile) {
      std::printf(", \"layers\": [");
      for (size_t i = 0; i < layers.size(); ++i)
        std::printf("%s{\"name\": %s, \"median_ms\": %.6f}", i > 0 ? ", " : "",
                    json_string(layers[i].name).c_str(), layers[i].median());
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
  std::printf(
      "runs        %zu\nmedian      %.4f ms\np90         %.4f ms\np99         %.4f ms\nminimum     "
      "%.4f ms\n"
      "throughput  %.1f runs/s\nload        %.1f ms\nmemory      %.2f MiB (activations and "
      "workspace)\n",
      times.size(), quantile(times, 0.5), quantile(times, 0.9), quantile(times, 0.99),
      times.front(), rate, load_ms, static_cast<double>(context.memory_size()) / (1 << 20));
  if (!is_host)
    std::printf("host        %.4f ms (median of the calls)\ndevice      %.4f ms (median)\n",
                quantile(host_times, 0.5), quantile(device_times, 0.5));
  if (!options.profile) return;
  double sum = 0;
  for (const LayerTime& layer : layers) sum += layer.median();
  const auto share = [&](double median) { return sum > 0 ? 100 * median / sum : 0.0; };
  std::printf("\n%10s %6s %6s  kind\n", "median ms", "share", "layers");
  for (const KindTime& kind : kinds)
    std::printf("%10.4f %5.1f%% %6d  %s\n", kind.median, share(kind.median), kind.layers,
                printable(kind.kind).c_str());
  std::ranges::stable_sort(layers, std::greater(), &LayerTime::median);
  std::printf("\n%10s %6s  layer\n", "median ms", "share");
  for (const LayerTime& layer : layers)
    std::printf("%10.4f %5.1f%%  %s\n", layer.median(), share(layer.median()),
                printable(layer.name).c_str());
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
      ->add_option("--shapes", options->shapes,
                   "INPUT:1x3x224x224; the profile's optimum otherwise (repeatable)")
      ->allow_extra_args(false);
  command->add_option("--seconds", options->seconds, "How long to measure")
      ->check(CLI::PositiveNumber);
  command->add_option("--iterations", options->iterations, "A number of runs instead")
      ->check(CLI::PositiveNumber);
  command->add_option("--warmup", options->warmup, "Runs before measuring")
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
