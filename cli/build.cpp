#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <tuple>

#include "base/file.h"
#include "base/limits.h"
#include "commands.h"
#include "compile/build_budget.h"
#include "compile/compile.h"
#include "compile/progress_display.h"
#include "crash_report.h"
#include "onnx/parser.h"

namespace opwright::cli {
namespace {

struct BuildOptions {
  std::string model, output, timing_cache, device;
  std::vector<std::string> shapes, plugins, embedded_plugins;
  bool fp16 = false, bf16 = false, no_timing = false, strongly_typed = false, json = false,
       verbose = false, allow_links = false, quiet = false, verify = false, verify_strictly = false,
       all_tactics = false;
  int iterations = 4;
  double kernel_seconds = kKernelSeconds;
  LimitOptions limits;
};

/// What a --shapes says of an input.
struct InputRange {
  std::string input;
  Shape min, opt, max;
};

/// Reads "x:1x3x224x224" or "x:MIN,OPT,MAX".
InputRange parse_range(const std::string& text) {
  const size_t colon = text.rfind(':');
  require(colon != std::string::npos && colon > 0, "--shapes '", text,
          "'; expected INPUT:1x3x224x224 or INPUT:MIN,OPT,MAX");
  const std::string input = text.substr(0, colon);
  std::vector<Shape> shapes;
  std::stringstream list(text.substr(colon + 1));
  for (std::string part; std::getline(list, part, ',');)
    shapes.push_back(parse_shape(part, "--shapes '" + text + "'"));
  require(shapes.size() == 1 || shapes.size() == 3, "--shapes '", text, "' has ", shapes.size(),
          " shapes; expected one, or three: MIN,OPT,MAX");
  return {input, shapes.front(), shapes[shapes.size() / 2], shapes.back()};
}

volatile std::sig_atomic_t interrupt = 0;

/// Within its lifetime the first SIGINT or SIGTERM asks the build to end, and the next one ends the
/// program.
class InterruptHandler {
 public:
  InterruptHandler() {
    struct sigaction action = {};
    action.sa_handler = [](int signal) { interrupt = signal; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before_[i]);
  }
  ~InterruptHandler() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;
  static void check() {
    if (interrupt != 0)
      throw BuildCancelledError(
          str("The build was interrupted (", interrupt == SIGINT ? "SIGINT" : "SIGTERM", ")"));
  }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM};
  std::array<struct sigaction, kSignals.size()> before_{};
};

Plan compile_showing(ProgressDisplay& progress, const Network& network, const BuildConfig& config) {
  try {
    Plan plan = compile(network, config);
    progress.finish(true);
    return plan;
  } catch (...) {
    progress.finish(false);
    throw;
  }
}

void build(const BuildOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Log log = make_log(options.verbose);
  BuildConfig config;
  config.shape_source = ShapeSource::kProgram;
  config.limits.build_memory = options.limits.memory_bytes();
  // The build ends by itself, which tells what took so long; not within one kernel or file.
  constexpr double kGraceSeconds = 1;
  if (options.limits.seconds > 0)
    end_after(options.limits.seconds + kGraceSeconds, options.limits.seconds);
  load_plugins(options.plugins);
  load_plugins(options.embedded_plugins);
  set_crash_stage("building '" + options.output + "'");
  NetworkFlags flags;
  flags.strongly_typed = options.strongly_typed;
  Network network(flags);
  OnnxParser parser(network, log);
  parser.set_links_allowed(options.allow_links);
  if (options.limits.seconds > 0) parser.set_time_limit(options.limits.seconds);
  std::vector<InputRange> ranges;
  for (const std::string& text : options.shapes) {
    ranges.push_back(parse_range(text));
    const InputRange& range = ranges.back();
    if (range.min.rank() != range.max.rank()) continue;  // which the profile refuses
    Shape fixed = range.min;
    for (int axis = 0; axis < fixed.rank(); ++axis)
      if (range.min[axis] != range.max[axis]) fixed[axis] = -1;
    parser.set_input_shape(range.input, fixed);
  }
  if (!parser.parse_file(options.model))
    fail("'", options.model, "' cannot be taken over: ", parser.errors().size(), " problem",
         parser.errors().size() == 1 ? "" : "s", ", see above");

  require_other_file(options.output, parser.files(), "a file of the model that is built");
  for (const std::vector<std::string>* libraries : {&options.plugins, &options.embedded_plugins})
    require_other_file(options.output, *libraries, "a plugin library");
  if (!options.timing_cache.empty())
    require_other_file(options.output, std::array{options.timing_cache}, "the timing cache");

  config.device = default_device();
  config.may_fall_back = !is_default_device_chosen();
  if (!options.device.empty()) {
    config.device = parse_device(options.device, "--device");
    config.may_fall_back = false;
  }
  config.fp16 = options.fp16, config.bf16 = options.bf16;
  config.timing = !options.no_timing;
  config.avg_timing_iterations = options.iterations;
  config.all_tactics = options.all_tactics;
  if (options.verify) config.verification = VerificationLevel::kALL;
  if (options.verify_strictly) config.verification = VerificationLevel::kSTRICT;
  config.log = log;
  config.plugins_to_serialize = options.embedded_plugins;
  if (!ranges.empty()) {
    OptimizationProfile profile;
    for (const InputRange& range : ranges)
      profile.set_shape(range.input, range.min, range.opt, range.max);
    config.profiles.push_back(profile);
  }
  if (!options.timing_cache.empty()) {
    const std::string identity = get_device(config.device).identity();
    config.timing_cache = TimingCache::load(options.timing_cache, identity);
    if (config.timing_cache == nullptr)
      config.timing_cache = std::make_shared<TimingCache>(identity);
  }
  if (options.limits.seconds > 0) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    config.limits.build_seconds = std::max(options.limits.seconds - spent.count(), 1e-9);
  }
  ProgressDisplay progress = ProgressDisplay::on_stderr();
  if (!options.quiet && !options.json)
    config.progress = [&](const std::string& phase, int done, int total) {
      progress.step(phase, done, total);
      return true;
    };
  // What was measured is kept, whatever ends the build: the next one goes on from there.
  const auto save_times = [&] {
    if (config.timing_cache != nullptr) config.timing_cache->save(options.timing_cache);
  };
  config.kernel_seconds = options.kernel_seconds;
  config.interrupt_check = InterruptHandler::check;
  const Plan plan = [&] {
    const InterruptHandler handler;
    try {
      return compile_showing(progress, network, config);
    } catch (const BuildCancelledError& error) {
      save_times();
      throw BuildCancelledError(
          str(error.what(),
              options.timing_cache.empty()
                  ? "; with --timing-cache the next one goes on from there"
                  : "; the next one goes on from what is in '" + options.timing_cache + "'"));
    } catch (...) {
      save_times();
      throw;
    }
  }();
  save_times();

  const std::vector<Blob> pieces = serialize(plan);
  std::vector<std::span<const std::byte>> parts;
  size_t size = 0;
  for (const Blob& piece : pieces) {
    parts.push_back(piece.bytes());
    size += piece.size();
  }
  write_file_atomically(options.output, parts);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const size_t layers = plan.schedules.at(0).steps.size();
  if (options.json)
    std::printf("{\"engine\": %s, \"bytes\": %zu, \"layers\": %zu, \"seconds\": %.3f}\n",
                json_string(options.output).c_str(), size, layers, seconds.count());
  else if (!options.quiet)
    std::printf("%s: %zu layers, %s, built in %.1f s\n", options.output.c_str(), layers,
                bytes_text(size).c_str(), seconds.count());
}

}  // namespace

void add_build(CLI::App& app) {
  auto options = std::make_shared<BuildOptions>();
  CLI::App* command = app.add_subcommand("build", "Build an engine file from an ONNX model");
  command->add_option("model", options->model, "The ONNX file")->required();
  command->add_option("-o,--output", options->output, "The engine file to write")->required();
  command
      ->add_option("--shapes", options->shapes,
                   "Shape of an input of dynamic shape, INPUT:1x3x224x224, or its range, "
                   "INPUT:MIN,OPT,MAX (repeatable)")
      ->allow_extra_args(false);
  command->add_option("--plugins", options->plugins, "A plugin library to load first (repeatable)")
      ->allow_extra_args(false);
  command
      ->add_option("--embed-plugins", options->embedded_plugins,
                   "A plugin library to load, as --plugins does, and to put into the engine file, "
                   "which then needs no --plugins to run, but --allow-host-code (repeatable)")
      ->allow_extra_args(false);
  command->add_flag("--allow-links", options->allow_links,
                    "Read external data of the model through symbolic links that lead out of its "
                    "folder; for links of somebody whom you trust");
  command->add_option("--device", options->device,
                      "What the engine is for: cpu, cuda, or cuda:1 to tune it on that GPU; the "
                      "GPU where there is one that runs all layers, else the CPU");
  command->add_flag("--fp16", options->fp16, "Allow FP16 where it is faster");
  command->add_flag("--bf16", options->bf16, "Allow BF16 where it is faster");
  command->add_flag("--strongly-typed", options->strongly_typed,
                    "Keep the model's types everywhere");
  command->add_option("--timing-cache", options->timing_cache,
                      "File of measured times: read before, extended after");
  command
      ->add_option("--timing-iterations", options->iterations,
                   "Runs over which a kernel's time is taken")
      ->check(CLI::Range(1, 10000));
  command->add_flag("--verify", options->verify,
                    "Compare what each candidate computes with a reference (the CPU's kernel in "
                    "FP32, a plugin's own), and leave out what differs by more than its types "
                    "allow, with a warning");
  command->add_flag("--verify-strictly", options->verify_strictly,
                    "The same, and end the build where something differs");
  command->add_flag("--all-tactics", options->all_tactics,
                    "Time all candidates that can compute a layer, not only those that may be the "
                    "fastest for its sizes");
  command->add_flag("--no-timing", options->no_timing,
                    "Time nothing and run no plugin: each layer takes the fastest candidate that "
                    "the timing cache has, or else its first one");
  command
      ->add_option("--kernel-seconds", options->kernel_seconds,
                   "Seconds that a kernel for the GPU may take to be compiled; one that takes "
                   "longer is left out")
      ->check(CLI::PositiveNumber);
  options->limits.add_to(
      *command, "Bytes that constants and tensors may take during the build: 2G, 512M, 64K");
  command->add_flag("-v,--verbose", options->verbose,
                    "Print all messages, the tuner's tables among them");
  command->add_flag("-q,--quiet", options->quiet, "Print errors and warnings only");
  command->add_flag("--json", options->json, "Print the result as JSON");
  command->callback([options] { build(*options); });
}

}  // namespace opwright::cli
