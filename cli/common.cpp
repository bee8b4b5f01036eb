#include <cstdio>
#include <mutex>

#include "commands.h"
#include "crash_report.h"
#include "plugin/registry.h"
#include "python_host.h"

namespace opwright::cli {
namespace {

class StderrLogger final : public ILogger {
 public:
  explicit StderrLogger(Severity least) : least_(least) {}
  void log(Severity severity, char const* message) noexcept override {
    if (severity > least_) return;
    static constexpr const char* kNames[] = {"internal error", "error", "warning", "info",
                                             "verbose"};
    std::fprintf(stderr, "opwright: %s: %s\n", kNames[static_cast<int>(severity)], message);
  }

 private:
  const Severity least_;
};

}  // namespace

void EngineOptions::add_to(CLI::App& command) {
  command.add_option("engine", path, "The engine file")->required();
  command.add_option("--plugins", plugins, "A plugin library to load first (repeatable)")
      ->allow_extra_args(false);
  command.add_flag("--allow-host-code", allow_host_code,
                   "Execute code that the engine file holds. Only for files that you trust");
  command.add_flag(
      "--allow-device-code", allow_device_code,
      "Execute code for a GPU that the engine file holds, and no other. Only for files "
      "that you trust");
  command.add_flag("--defer-weight-check", defer_weight_check,
                   "Do not hash the weights while loading");
  command.add_option("--device", device,
                     "Which GPU to use, cuda:1; cpu and cuda only say what the engine must be for");
  command.add_flag("-v,--verbose", verbose, "Print all messages");
}

std::shared_ptr<Engine> EngineOptions::load(std::optional<bool> debug_plugins) const {
  offer_python();
  load_plugins(plugins);
  set_crash_stage("loading '" + path + "'");
  LoadOptions options;
  options.allow_host_code = allow_host_code;
  options.allow_device_code = allow_device_code;
  options.weights = defer_weight_check ? WeightCheck::kDeferred : WeightCheck::kVerify;
  options.log = make_log(verbose);
  options.debug_plugins = debug_plugins;
  if (device.empty()) return Engine::load_file(path, options);
  const auto [type, ordinal] = parse_device(device);
  Plan plan = read_plan(path, options.weights);
  require(plan.device_type == type, "'", path, "' is an engine for ",
          plan.device_type == DeviceType::kCPU ? "the CPU" : "GPUs", ", not for ", device,
          "; build it with --device ", device);
  options.device_ordinal = ordinal;
  return Engine::load(std::move(plan), options);
}

void load_plugins(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    set_crash_stage("loading the plugin library '" + path + "'");
    PluginRegistry::global().load_library(path);
  }
}

Log make_log(bool verbose) {
  static StderrLogger quiet(ILogger::Severity::kWARNING), all(ILogger::Severity::kVERBOSE);
  return Log(verbose ? &all : &quiet);
}

Shape parse_shape(const std::string& text, const std::string& what) {
  Shape shape;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t end = std::min(text.find('x', at), text.size());
    const std::string part = text.substr(at, end - at);
    require(!part.empty() && part.size() < 19 &&
                part.find_first_not_of("0123456789") == std::string::npos,
            what, ": '", text, "' is no shape; expected extents such as 1x3x224x224");
    shape.push_back(std::stoll(part));
    at = end + 1;
  }
  return shape;
}

std::pair<DeviceType, int> parse_device(const std::string& text) {
  if (text == "cpu") return {DeviceType::kCPU, -1};
  if (text == "cuda") return {DeviceType::kGPU, -1};
  const std::string number = text.starts_with("cuda:") ? text.substr(5) : "";
  require(!number.empty() && number.size() < 5 &&
              number.find_first_not_of("0123456789") == std::string::npos,
          "--device '", text, "'; expected cpu, cuda or cuda:1");
  return {DeviceType::kGPU, std::stoi(number)};
}

std::pair<std::string, std::string> split_name(const std::string& text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string::npos) return {std::string(), text};
  return {text.substr(0, at), text.substr(at + 1)};
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string json_array(const Shape& shape) {
  std::string out = "[";
  for (int i = 0; i < shape.rank(); ++i) out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

}  // namespace opwright::cli
