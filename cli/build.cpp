#include "build.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "base/did_you_mean.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/printable.h"
#include "base/units.h"
#include "compile/build_budget.h"
#include "compile/compile.h"
#include "compile/progress_display.h"
#include "crash_report.h"
#include "onnx/parser.h"

namespace opwright::cli {
namespace {

volatile std::sig_atomic_t interrupt = 0;

/// While this object lives, the first SIGINT or SIGTERM asks the build to end. The next one ends
/// the program.
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

OptimizationProfile make_profile(const std::vector<InputShapes>& shapes, const Network& network) {
  OptimizationProfile profile;
  std::vector<std::string> names;
  for (const Tensor* input : network.inputs()) names.push_back(input->name());
  for (const InputShapes& given : shapes) {
    bool is_used = false;
    for (const Tensor* input : network.inputs()) {
      if (!matches(given.input, input->name())) continue;
      is_used = true;
      if (input->is_shape_input())
        profile.set_values(input->name(), given.min, given.opt, given.max);
      else
        profile.set_shape(input->name(), given.min, given.opt, given.max);
    }
    if (is_used) continue;
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "'" : ", '") + name + "'";
    fail("the model has no input '", given.input, "'; it has ", known,
         did_you_mean(given.input, names));
  }
  return profile;
}

/// Tells the parser of extents that all profiles fix.
void set_fixed_shapes(OnnxParser& parser, const std::vector<std::vector<InputShapes>>& profiles) {
  std::map<std::string, Shape> known;
  for (const std::vector<InputShapes>& profile : profiles) {
    for (const InputShapes& given : profile) {
      if (given.min.rank() != given.max.rank() || given.input.find('*') != std::string::npos)
        continue;  // the profile refuses these ranks, or resolves the "*" later
      Shape& fixed = known.try_emplace(given.input, given.min).first->second;
      if (fixed.rank() != given.min.rank()) continue;
      for (int axis = 0; axis < fixed.rank(); ++axis)
        if (given.min[axis] != given.max[axis] || given.min[axis] != fixed[axis]) fixed[axis] = -1;
    }
  }
  for (const auto& [input, shape] : known) parser.set_input_shape(input, shape);
}

/// Throws Error unless a file can be written to `output`. A build would only find out at its end.
void check_folder(const std::string& output) {
  const std::filesystem::path folder = std::filesystem::path(output).parent_path();
  if (folder.empty()) return;
  std::error_code problem;
  const bool is_folder = std::filesystem::is_directory(folder, problem);
  require(is_folder, "'", output, "' cannot be written: there is no folder '", folder.string(),
          "'");
  require(access(folder.c_str(), W_OK) == 0, "'", output, "' cannot be written: the folder '",
          folder.string(), "' is not writable");
}

[[noreturn]] void refuse_model(const std::string& model, const OnnxParser& parser) {
  const bool lacks_plugin = std::ranges::any_of(parser.errors(), [](const OnnxError& error) {
    return error.kind == onnxparser::ErrorCode::kUNSUPPORTED_NODE;
  });
  fail("'", model, "' cannot be taken over: ", counted(parser.errors().size(), "problem"),
       ", see above",
       lacks_plugin ? "; operators come from plugin libraries, and from Python with --plugins "
                      "my_operators.py, which `python -m opwright build` takes, too"
                    : "");
}

}  // namespace

bool matches(const std::string& pattern, const std::string& name) {
  const size_t star = pattern.find('*');
  if (star == std::string::npos || pattern == name) return pattern == name;
  return name.size() + 1 >= pattern.size() && name.starts_with(pattern.substr(0, star)) &&
         name.ends_with(pattern.substr(star + 1));
}

BuiltEngine build_engine(const BuildOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Log& log = options.log;
  const uint64_t memory = options.limits.memory_bytes();
  // The build ends itself at the limit and reports what took so long, but it cannot stop within one
  // kernel or file. There the alarm ends the process a little later.
  constexpr double kGraceSeconds = 1;
  if (options.limits.seconds > 0)
    end_after(options.limits.seconds + kGraceSeconds, options.limits.seconds);
  if (!options.output.empty()) check_folder(options.output);
  load_plugins(options.plugins);
  load_plugins(options.embedded_plugins);
  set_crash_stage("building '" + (options.output.empty() ? options.model : options.output) + "'");
  Network network(options.network);
  OnnxParser parser(network, log);
  parser.set_shape_source(ShapeSource::kProgram);
  parser.set_links_allowed(options.allow_links);
  if (options.limits.seconds > 0) parser.set_time_limit(options.limits.seconds);
  set_fixed_shapes(parser, options.profiles);
  if (options.adjust_parser) options.adjust_parser(parser);
  if (!parser.parse_file(options.model)) refuse_model(options.model, parser);
  if (options.adjust_network) options.adjust_network(network);

  if (!options.output.empty()) {
    require_other_file(options.output, parser.files(), "a file of the model that is built");
    for (const std::vector<std::string>* files : {&options.plugins, &options.embedded_plugins})
      require_other_file(options.output, *files, "a plugin library, or a file of plugins");
    if (!options.timing_cache.empty())
      require_other_file(options.output, std::array{options.timing_cache}, "the timing cache");
  }

  BuilderConfig settings;
  if (!options.device.empty()) settings.set_device(parse_device(options.device, "--device"));
  if (options.configure) options.configure(settings);
  for (const std::string& file : options.embedded_plugins) {
    if (is_python(file))
      settings.embed_plugin_sources = true;
    else
      settings.plugins_to_serialize.push_back(file);
  }
  for (const std::vector<InputShapes>& shapes : options.profiles)
    settings.add_optimization_profile(
        std::make_shared<OptimizationProfile>(make_profile(shapes, network)));
  BuilderConfig config = settings.checked(options.network.strongly_typed);
  config.shape_source = ShapeSource::kProgram;
  config.limits.build_memory = memory;
  config.log = log;
  config.progress = options.progress;
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
  config.interrupt_check = InterruptHandler::check;
  BuiltEngine built;
  {
    // Measured times are saved however the build ends, so that the next build continues from them.
    const auto ended = [&](bool is_built) {
      if (options.finished) options.finished(is_built);
      if (config.timing_cache != nullptr) config.timing_cache->save(options.timing_cache);
    };
    const InterruptHandler handler;
    try {
      built.plan = compile(network, config);
    } catch (const BuildCancelledError& error) {
      ended(false);
      throw BuildCancelledError(
          str(error.what(),
              options.timing_cache.empty()
                  ? "; with --timing-cache the next one goes on from there"
                  : "; the next one goes on from what is in '" + options.timing_cache + "'"));
    } catch (...) {
      ended(false);
      throw;
    }
    ended(true);
  }
  std::vector<std::span<const std::byte>> parts;
  const std::vector<Blob> pieces = serialize(built.plan);
  for (const Blob& piece : pieces) {
    parts.push_back(piece.bytes());
    built.bytes += piece.size();
  }
  if (!options.output.empty()) write_file_atomically(options.output, parts);
  built.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return built;
}

namespace {

/// BuildOptions, and further values of the command line.
struct BuildCommand {
  BuildOptions options;
  std::vector<std::string> shapes;
  bool fp16 = false, bf16 = false, json = false, verbose = false, quiet = false;
  std::vector<std::function<void(BuilderConfig&)>> settings;  ///< each sets one property
};

/// Adds a command-line flag for each setting of a builder config.
class SettingFlags {
 public:
  SettingFlags(CLI::App& app, BuildCommand& command) : app_(app), command_(command) {}
  template <class T>
  void operator()(const Setting<BuilderConfig, T>& row) {
    if constexpr (std::is_scalar_v<T>)
      for (const Flag<T>& flag : row.flags)
        if (flag.name != nullptr) add(row, flag);
  }
  template <class T>
  void operator()(const ComputedSetting<BuilderConfig, T>&) {}

 private:
  template <class T>
  void add(const Setting<BuilderConfig, T>& row, const Flag<T>& flag) {
    const auto keep = [&command = command_, row](const T& value) {
      command.settings.emplace_back(
          [row, value](BuilderConfig& config) { row.set(config, value); });
    };
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      CLI::Option* option = app_.add_option_function<T>(flag.name, keep, flag.help)
                                ->default_str(str(defaults_.*row.member));
      if (flag.most > 0)
        option->check(CLI::Range(T{1}, flag.most));
      else
        option->check(CLI::PositiveNumber);
    } else {
      app_.add_flag_callback(
          flag.name, [keep, value = flag.value] { keep(value); }, flag.help);
    }
  }

  CLI::App& app_;
  BuildCommand& command_;
  const BuilderConfig defaults_{DeviceId{}};
};

void build(BuildCommand& command) {
  BuildOptions& options = command.options;
  options.log = make_log(command.verbose);
  if (std::vector<InputShapes> shapes = parse_shapes(command.shapes, "--shapes"); !shapes.empty())
    options.profiles = {std::move(shapes)};
  options.configure = [&](BuilderConfig& config) {
    config.flags.set(BuilderFlag::kFP16, command.fp16);
    config.flags.set(BuilderFlag::kBF16, command.bf16);
    for (const auto& give : command.settings) give(config);
  };
  ProgressDisplay progress = ProgressDisplay::on_stderr();
  if (!command.quiet && !command.json)
    options.progress = [&](const std::string& phase, int done, int total) {
      progress.step(phase, done, total);
      return true;
    };
  options.finished = [&](bool is_built) { progress.finish(is_built); };
  const BuiltEngine built = build_engine(options);
  const size_t layers = built.plan.schedules.at(0).steps.size();
  if (command.json)
    std::printf("{\"engine\": %s, \"bytes\": %zu, \"layers\": %zu, \"seconds\": %.3f}\n",
                json_string(options.output).c_str(), built.bytes, layers, built.seconds);
  else if (!command.quiet)
    std::printf("%s: %s, %s, built in %s\n", printable(options.output).c_str(),
                counted(layers, "layer").c_str(), bytes_text(built.bytes).c_str(),
                time_text(1000 * built.seconds).c_str());
}

}  // namespace

void add_build(CLI::App& app) {
  auto options = std::make_shared<BuildCommand>();
  CLI::App* command = app.add_subcommand("build", "Build an engine file from an ONNX model");
  command->add_option("model", options->options.model, "The ONNX file")
      ->type_name("FILE")
      ->required();
  command->add_option("-o,--output", options->options.output, "The engine file to write")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--shapes", options->shapes,
                   "Shape of an input of dynamic shape, INPUT:1x3x224x224, or its range, "
                   "INPUT:MIN,OPT,MAX (repeatable, or with commas: x:1x8,z:1x8)")
      ->allow_extra_args(false);
  command
      ->add_option("--plugins", options->options.plugins,
                   "A plugin library, or a Python file of plugins, to load first (repeatable)")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--embed-plugins", options->options.embedded_plugins,
          "A plugin library or Python file to load, as --plugins does, and to put into the "
          "engine file, which then needs no --plugins to run, but --allow-host-code "
          "(repeatable)")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command->add_flag("--allow-links", options->options.allow_links,
                    "Read external data of the model through symbolic links that lead out of its "
                    "folder; for links of somebody whom you trust");
  command->add_option("--device", options->options.device,
                      "What the engine is for: cpu, cuda, or cuda:1 to tune it on that GPU; the "
                      "GPU where there is one that runs all layers, else the CPU");
  command->add_flag("--fp16", options->fp16, "Allow FP16 where it is faster");
  command->add_flag("--bf16", options->bf16, "Allow BF16 where it is faster");
  command->add_flag("--strongly-typed", options->options.network.strongly_typed,
                    "Keep the model's types everywhere");
  command
      ->add_option("--timing-cache", options->options.timing_cache,
                   "File of measured times: read before, extended after")
      ->type_name("FILE");
  CLI::Option* aot =
      command->add_flag("--prefer-aot", options->options.network.prefer_aot_python_plugins,
                        "Of plugins in Python that have both, take the compiled implementation");
  command
      ->add_flag("--prefer-jit", options->options.network.prefer_jit_python_plugins,
                 "Take the one that is called in Python")
      ->excludes(aot);
  BuilderConfig::visit(SettingFlags(*command, *options));
  options->options.limits.add_to(
      *command, "Bytes that constants and tensors may take during the build: 2G, 512M, 64K");
  command->add_flag("-v,--verbose", options->verbose,
                    "Print all messages, the tuner's tables among them");
  command->add_flag("-q,--quiet", options->quiet, "Print errors and warnings only");
  command->add_flag("--json", options->json, "Print the result as JSON");
  command->callback([options] { build(*options); });
}

}  // namespace opwright::cli
