#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>

#include "backend/backend.h"
#include "base/printable.h"
#include "base/status_line.h"
#include "commands.h"
#include "crash_report.h"
#include "plugin/registry/registry.h"
#include "program.h"
#include "runtime/json.h"
#include "usage.h"

namespace opwright::cli {
namespace {

class StderrLogger final : public ILogger {
 public:
  explicit StderrLogger(Severity least) : least_(least) {}
  void log(Severity severity, char const* message) noexcept override {
    if (severity > least_) return;
    static constexpr const char* kNames[] = {"internal error", "error", "warning", "info",
                                             "verbose"};
    write_message(str("opwright: ", kNames[static_cast<int>(severity)], ": ",
                      printable(message, LineEnds::kKeep)));
  }

 private:
  const Severity least_;
};

}  // namespace

void EngineOptions::add_to(CLI::App& command) {
  command.add_option("engine", path, "The engine file")->type_name("FILE")->required();
  command
      .add_option("--plugins", plugins,
                  "A plugin library, or a Python file of plugins, to load first (repeatable)")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command.add_flag("--allow-host-code", how.allow_host_code,
                   "Execute code that the engine file holds. Only for files that you trust");
  command.add_flag(
      "--allow-device-code", how.allow_device_code,
      "Execute code for a GPU that the engine file holds, and no other. Only for files "
      "that you trust");
  command.add_flag("--defer-weight-check", defer_weight_check,
                   "Do not hash the weights while loading");
  command.add_option(
      "--device", device,
      "Which of several devices to use, as in cuda:1; without a number it only says what the "
      "engine must be for");
  limits.add_to(command,
                "Bytes that weights, tensors and scratch memory may take together: 2G, 512M, 64K");
  command.add_flag("-v,--verbose", verbose, "Print all messages");
}

void LimitOptions::add_to(CLI::App& command, const std::string& memory_help) {
  if (!memory_help.empty()) command.add_option("--max-memory", memory, memory_help);
  command
      .add_option("--max-time", seconds,
                  str("Seconds after which the command ends unfinished, with exit status ",
                      kTimeLimitStatus))
      ->check(CLI::PositiveNumber);
}

uint64_t LimitOptions::memory_bytes() const {
  return memory.empty() ? 0 : parse_bytes(memory, "--max-memory");
}

std::shared_ptr<Engine> EngineOptions::load() const {
  LoadOptions options = how;
  options.limits.memory = limits.memory_bytes();
  end_after(limits.seconds, limits.seconds);
  load_plugins(plugins);
  set_crash_stage("loading '" + path + "'");
  options.weights = defer_weight_check ? WeightCheck::kDeferred : WeightCheck::kVerify;
  options.log = make_log(verbose);
  if (device.empty()) return Engine::load_file(path, options);
  const DeviceId id = parse_device(device, "--device");
  Plan plan = read_plan(path, options.weights);
  require(plan.backend == id.backend, "'", path, "' is an engine for ", printable(plan.backend),
          ", not for ", device, "; build it with --device ", device);
  options.device_ordinal = id.ordinal;
  return Engine::load(std::move(plan), options);
}

bool is_python(const std::string& path) { return path.ends_with(".py"); }

void load_plugins(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (is_python(path)) {
      set_crash_stage("running the plugins of '" + path + "'");
      current_host().load_python(path);
      continue;
    }
    set_crash_stage("loading the plugin library '" + path + "'");
    PluginRegistry::global().load_library(path);
  }
}

Log make_log(bool verbose) {
  static StderrLogger quiet(ILogger::Severity::kWARNING), all(ILogger::Severity::kVERBOSE);
  return Log(verbose ? &all : &quiet);
}

uint64_t parse_bytes(const std::string& text, const std::string& what) {
  uint64_t bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, bytes);
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  const int shift = suffix.empty()  ? 0
                    : suffix == "K" ? 10
                    : suffix == "M" ? 20
                    : suffix == "G" ? 30
                    : suffix == "T" ? 40
                                    : -1;
  require_usage(
      problem == std::errc() && shift >= 0 && bytes > 0 && bytes << shift >> shift == bytes, what,
      ": '", text, "' is no number of bytes; expected one such as 2G, 512M, 64K or 4096");
  return bytes << shift;
}

namespace {

std::optional<Shape> as_shape(const std::string& text) {
  Shape shape;
  if (text == "scalar") return shape;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t end = std::min(text.find('x', at), text.size());
    const std::string part = text.substr(at, end - at);
    if (part.empty() || part.size() >= 19 ||
        part.find_first_not_of("0123456789") != std::string::npos || shape.rank() == Dims::MAX_DIMS)
      return std::nullopt;
    shape.push_back(std::stoll(part));
    at = end + 1;
  }
  return shape;
}

}  // namespace

Shape parse_shape(const std::string& text, const std::string& what) {
  const std::optional<Shape> shape = as_shape(text);
  require_usage(shape.has_value(), what, ": '", text,
                "' is no shape; expected extents such as 1x3x224x224, at most ", Dims::MAX_DIMS);
  return *shape;
}

std::vector<InputShapes> parse_shapes(const std::vector<std::string>& texts,
                                      const std::string& option) {
  std::vector<std::pair<std::string, std::vector<Shape>>> found;
  for (const std::string& text : texts) {
    const std::string what = str(option, " '", text, "'");
    size_t count = found.size();
    std::string name;  // may contain the separators, ends before the shape
    size_t at = 0;
    while (at <= text.size()) {
      const size_t end = std::min(text.find(',', at), text.size());
      const std::string part = text.substr(at, end - at);
      at = end + 1;
      const std::optional<Shape> more = as_shape(part);
      if (more && name.empty() && found.size() > count) {
        found.back().second.push_back(*more);
        continue;
      }
      name += (name.empty() ? "" : ",") + part;
      const size_t colon = name.rfind(':');
      if (colon == std::string::npos || colon == 0) continue;
      const std::string rest = name.substr(colon + 1);
      const std::optional<Shape> first = rest.empty() ? Shape() : as_shape(rest);
      if (!first) continue;
      std::string input = name.substr(0, colon);
      if (input.size() > 2 && input.front() == '\'' && input.back() == '\'')
        input = input.substr(1, input.size() - 2);
      found.emplace_back(input, std::vector<Shape>{*first});
      name.clear();
    }
    const size_t colon = name.rfind(':');
    if (colon != std::string::npos && colon > 0) parse_shape(name.substr(colon + 1), what);
    require_usage(name.empty() && found.size() > count, what,
                  "; expected INPUT:1x3x224x224 or INPUT:MIN,OPT,MAX, of several inputs with a "
                  "comma between them");
    for (; count < found.size(); ++count)
      require_usage(found[count].second.size() == 1 || found[count].second.size() == 3, what,
                    " has ", found[count].second.size(),
                    " shapes; expected one, or three: MIN,OPT,MAX");
  }
  std::vector<InputShapes> all;
  for (const auto& [input, shapes] : found) {
    require_usage(std::ranges::find(all, input, &InputShapes::input) == all.end(), option,
                  " names the input '", input, "' twice");
    all.push_back({input, shapes.front(), shapes[shapes.size() / 2], shapes.back()});
  }
  return all;
}

std::pair<std::string, std::string> split_name(const std::string& text,
                                               const std::vector<PlanPort>& ports) {
  size_t at = text.find('=');
  for (const PlanPort& port : ports) {
    const size_t end = port.name.size();
    if (text.starts_with(port.name) && text.size() > end && text[end] == '=' &&
        (at == std::string::npos || end > at))
      at = end;
  }
  if (at == std::string::npos) return {std::string(), text};
  return {text.substr(0, at), text.substr(at + 1)};
}

std::string json_string(const std::string& text) {
  JsonWriter json;
  json.value(text);
  return json.take();
}

std::string json_array(const Shape& shape) {
  std::string out = "[";
  for (int i = 0; i < shape.rank(); ++i) out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

}  // namespace opwright::cli
