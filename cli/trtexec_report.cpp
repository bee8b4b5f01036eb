#include "trtexec_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <numeric>

#include "base/half.h"
#include "base/printable.h"
#include "commands.h"

namespace opwright::cli {
namespace {

using Severity = ILogger::Severity;

/// Statistics of one part of all runs, such as the latency.
class Part {
 public:
  template <class Get>
  Part(std::span<const RunTrace> runs, Get&& get) {
    for (const RunTrace& run : runs) sorted_.push_back(get(run));
    std::ranges::sort(sorted_);
  }
  double sum() const { return std::accumulate(sorted_.begin(), sorted_.end(), 0.0); }
  double mean() const { return sum() / static_cast<double>(sorted_.size()); }
  double median() const {
    const size_t half = sorted_.size() / 2;
    return sorted_.size() % 2 == 1 ? sorted_[half] : (sorted_[half - 1] + sorted_[half]) / 2;
  }
  /// The smallest value such that `percent` of the values are not larger.
  double percentile(double percent) const {
    const auto count = static_cast<double>(sorted_.size());
    const auto left_out = static_cast<size_t>((1 - percent / 100) * count);
    return sorted_[sorted_.size() - std::min(left_out + 1, sorted_.size())];
  }
  std::string text(const std::vector<double>& percentiles) const {
    std::string line =
        str("min = ", number_text(sorted_.front()), " ms, max = ", number_text(sorted_.back()),
            " ms, mean = ", number_text(mean()), " ms, median = ", number_text(median()), " ms");
    for (const double each : percentiles)
      line += str(", percentile(", each, "%) = ", number_text(percentile(each)), " ms");
    return line;
  }
  /// The standard deviation in percent of the mean.
  double variation() const {
    const double middle = mean();
    double squares = 0;
    for (const double value : sorted_) squares += (value - middle) * (value - middle);
    const double deviation = std::sqrt(squares / static_cast<double>(sorted_.size()));
    return middle > 0 ? 100 * deviation / middle : 0;
  }

 private:
  std::vector<double> sorted_;
};

void report_means(std::span<const RunTrace> runs, int average) {
  // If there are many lines, only the first and the last ones are printed.
  constexpr size_t kShown = 200;
  tell_info();
  tell_info("=== Trace details ===");
  tell_info(str("Trace averages of ", average, " runs:"));
  const auto size = static_cast<size_t>(average);
  const size_t groups = runs.size() / size;
  for (size_t group = 0; group < groups; ++group) {
    if (groups > 2 * kShown && group == kShown) {
      tell_info(str("... Omitting ", groups - 2 * kShown, " lines"));
      group = groups - kShown;
    }
    const std::span<const RunTrace> part = runs.subspan(group * size, size);
    const auto mean = [&](auto&& get) { return number_text(Part(part, get).mean()); };
    tell_info(str("Average on ", average,
                  " runs - GPU latency: ", mean([](const RunTrace& run) { return run.compute(); }),
                  " ms - Host latency: ", mean([](const RunTrace& run) { return run.latency(); }),
                  " ms (enqueue ", mean([](const RunTrace& run) { return run.enqueue(); }),
                  " ms)"));
  }
}

double total(const LayerTimes& layer) {
  return std::accumulate(layer.milliseconds.begin(), layer.milliseconds.end(), 0.0);
}

double total(const std::vector<LayerTimes>& layers) {
  double sum = 0;
  for (const LayerTimes& layer : layers) sum += total(layer);
  return sum;
}

double median(const LayerTimes& layer) {
  std::vector<double> sorted = layer.milliseconds;
  std::ranges::sort(sorted);
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string profile_row(double sum, double mean, double middle, double percent,
                        const std::string& name) {
  char row[128];
  std::snprintf(row, sizeof row, "%11.2f%13.4f%13.4f%10.1f   ", sum, mean, middle, percent);
  return row + printable(name);
}

}  // namespace

void tell(Severity severity, const std::string& line) {
  constexpr const char* kMarks[] = {"[F]", "[E]", "[W]", "[I]", "[V]"};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "[%m/%d/%Y-%H:%M:%S] ", &parts);
  std::FILE* const stream = severity >= Severity::kINFO ? stdout : stderr;
  const std::string text =
      str(stamp, kMarks[static_cast<int>(severity)], " ", printable(line, LineEnds::kKeep), "\n");
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

void tell_info(const std::string& line) { tell(Severity::kINFO, line); }
void tell_warning(const std::string& line) { tell(Severity::kWARNING, line); }
void tell_error(const std::string& line) { tell(Severity::kERROR, line); }

std::string number_text(double value) {
  std::string text = str(value);
  if (text.find('e') == std::string::npos) return text;
  char digits[64];
  std::snprintf(digits, sizeof digits, std::abs(value) < 1 ? "%.9f" : "%.1f", value);
  return digits;
}

void report_runs(const Measured& measured, const ReportOptions& options) {
  const std::vector<RunTrace>& runs = measured.runs;
  const double wall_ms = measured.milliseconds();
  tell_info(str("Warmup completed ", measured.warmups, " queries over ", options.warmup_ms, " ms"));
  tell_info(str("Timing trace has ", measured.count, " queries over ", number_text(wall_ms / 1000),
                " s"));
  report_means(runs, options.average);
  const Part latency(runs, [](const RunTrace& run) { return run.latency(); });
  const Part enqueue(runs, [](const RunTrace& run) { return run.enqueue(); });
  const Part h2d(runs, [](const RunTrace& run) { return run.h2d(); });
  const Part compute(runs, [](const RunTrace& run) { return run.compute(); });
  const Part d2h(runs, [](const RunTrace& run) { return run.d2h(); });
  const auto& percentiles = options.percentiles;
  tell_info();
  tell_info("=== Performance summary ===");
  tell_info(str("Throughput: ", number_text(measured.per_second()), " qps"));
  tell_info("Latency: " + latency.text(percentiles));
  tell_info("Enqueue Time: " + enqueue.text(percentiles));
  tell_info("H2D Latency: " + h2d.text(percentiles));
  tell_info("GPU Compute Time: " + compute.text(percentiles));
  tell_info("D2H Latency: " + d2h.text(percentiles));
  tell_info(str("Total Host Walltime: ", number_text(wall_ms / 1000), " s"));
  const double kept = static_cast<double>(runs.size()) / static_cast<double>(measured.count);
  tell_info(str("Total GPU Compute Time: ", number_text(compute.sum() / kept / 1000), " s"));
  constexpr double kUnstable = 2.5;
  if (compute.variation() > kUnstable)
    tell_warning(str("* GPU compute time is unstable, with coefficient of variance = ",
                     compute.variation(), "%."));
  if (options.streams > 1)
    tell_warning(
        "* Multiple inference streams are used. Latencies may not be accurate since inferences "
        "may run in parallel. Please use \"Throughput\" as the performance metric instead.");
  tell_info();
}

std::string times_json(const std::vector<RunTrace>& runs) {
  std::ostringstream text;
  text.precision(9);  // enough digits for large numbers of milliseconds
  const char* separator = "[\n  { ";
  for (const RunTrace& run : runs) {
    const std::pair<const char*, double> parts[] = {{"startEnqMs", run.enqueue_start},
                                                    {"endEnqMs", run.enqueue_end},
                                                    {"startH2dMs", run.h2d_start},
                                                    {"endH2dMs", run.h2d_end},
                                                    {"startComputeMs", run.h2d_end},
                                                    {"endComputeMs", run.compute_end},
                                                    {"startD2hMs", run.compute_end},
                                                    {"endD2hMs", run.d2h_end},
                                                    {"h2dMs", run.h2d()},
                                                    {"computeMs", run.compute()},
                                                    {"d2hMs", run.d2h()},
                                                    {"latencyMs", run.latency()}};
    for (const auto& [name, value] : parts) {
      text << separator << '"' << name << "\" : " << value;
      separator = ", ";
    }
    text << " }\n";
    separator = ", { ";
  }
  text << "]\n";
  return text.str();
}

void report_layers(const std::vector<LayerTimes>& layers, int runs) {
  const double sum = total(layers);
  double medians = 0;
  tell_info();
  tell_info(str("=== Profile (", runs, " iterations ) ==="));
  tell_info("   Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer");
  for (const LayerTimes& layer : layers) {
    medians += median(layer);
    tell_info(profile_row(total(layer), total(layer) / runs, median(layer),
                          share(total(layer), sum), layer.name));
  }
  tell_info(profile_row(sum, sum / runs, medians, 100, "Total"));
  tell_info();
}

std::string profile_json(const std::vector<LayerTimes>& layers, int runs) {
  const double sum = total(layers);
  std::string text = str("[\n  { \"count\" : ", runs, " }\n");
  for (const LayerTimes& layer : layers)
    text += str(", { \"name\" : ", json_string(layer.name), ", \"timeMs\" : ", total(layer),
                ", \"averageMs\" : ", total(layer) / runs, ", \"medianMs\" : ", median(layer),
                ", \"percentage\" : ", share(total(layer), sum), " }\n");
  return text + "]\n";
}

std::string values_text(const NpyArray& array) {
  const int64_t count = array.shape.numel();
  const bool is_real = is_floating(array.dtype);
  const auto each = [&](auto type, DataType as) {
    using T = decltype(type);
    std::vector<T> values(static_cast<size_t>(count));
    convert(array.data.data(), array.dtype, values.data(), as, count);
    std::string text;
    char digits[64];
    for (const T value : values) {
      if (!text.empty()) text += ' ';
      if constexpr (std::is_floating_point_v<T>)
        if (!std::isfinite(value)) {
          text += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
          continue;
        }
      text.append(digits, std::to_chars(digits, std::end(digits), value).ptr);
    }
    return text;
  };
  return is_real ? each(float(), DataType::kFLOAT) : each(int64_t(), DataType::kINT64);
}

std::string outputs_json(Runner& runner) {
  const std::vector<PlanPort>& ports = runner.plan().outputs;
  std::string text = "[\n";
  for (size_t i = 0; i < ports.size(); ++i) {
    const NpyArray array = runner.output(static_cast<int>(i));
    std::string values = values_text(array);
    for (size_t at = 0; (at = values.find(' ', at)) != std::string::npos; at += 2)
      values.replace(at, 1, ", ");
    text += str(i > 0 ? ", " : "  ", "{ \"name\" : ", json_string(ports[i].name),
                "\n  , \"dimensions\" : \"", shape_text(array.shape), "\"\n  , \"values\" : [ ",
                values, " ]\n  }\n");
  }
  return text + "]\n";
}

std::string shape_text(const Shape& shape) {
  if (shape.rank() == 0) return "scalar";
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

}  // namespace opwright::cli
