#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <random>
#include <span>
#include <thread>

#include "base/half.h"
#include "commands.h"

namespace opwright::cli {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Standard normal values. Integers are 0 or 1, which are valid for most purposes, such as indices.
NpyArray random_array(PortType type, const Shape& shape) {
  const DataType dtype = type.dtype;
  // The count includes the elements that the format pads.
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

/// The typical values of a shape input as an array.
NpyArray typical_values(const PlanPort& port, const Shape& values) {
  Shape shape;
  if (!port.dims.empty()) shape.push_back(values.rank());
  std::vector<float> numbers(values.begin(), values.end());
  const auto bytes = static_cast<size_t>(bytes_of(port.type.dtype, shape.numel()));
  return {port.type.dtype, shape, Blob::make(bytes, [&](void* out) {
            convert(numbers.data(), DataType::kFLOAT, out, port.type.dtype, shape.numel());
          })};
}

/// Measures the runs of one runner.
class Measurement {
 public:
  Measurement(Runner& runner, const MeasureOptions& options, Clock::time_point origin)
      : runner_(runner), options_(options), device_(runner.device()), origin_(origin) {
    if (device_.is_host()) return;
    const DeviceScope scope(device_);
    for (std::unique_ptr<Event>* event : {&begin_, &copied_, &computed_, &ended_, &first_})
      *event = device_.make_event();
    first_->record(runner_.queue());
    first_->synchronize();
    offset_ = milliseconds_since(origin_);
  }

  Measured measure() {
    Measured found;
    const double begin = milliseconds_since(origin_);
    for (; found.warmups < static_cast<size_t>(options_.warmup_runs) ||
           milliseconds_since(origin_) < begin + options_.warmup_ms;
         ++found.warmups)
      run();
    found.start = found.end = milliseconds_since(origin_);
    size_t step = 1;  // number of runs from one kept trace to the next
    for (; found.count < static_cast<size_t>(options_.runs) ||
           found.end < found.start + 1000 * options_.seconds;
         ++found.count) {
      if (options_.idle_ms > 0)
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options_.idle_ms));
      const RunTrace trace = run();
      found.end = trace.end;
      if (found.count % step != 0) continue;
      if (found.runs.size() == kMost) {
        halve(found.runs);
        step *= 2;
      }
      found.runs.push_back(trace);
    }
    return found;
  }

 private:
  static constexpr size_t kMost = 1'000'000;  // traces that are kept; even, for halve()

  /// Keeps the first trace of each pair.
  static void halve(std::vector<RunTrace>& runs) {
    for (size_t i = 0; i < runs.size() / 2; ++i) runs[i] = runs[2 * i];
    runs.resize(runs.size() / 2);
  }

  RunTrace run() {
    RunTrace trace;
    trace.start = milliseconds_since(origin_);
    if (device_.is_host()) {
      runner_.start();
      trace.end = milliseconds_since(origin_);
      trace.enqueue_start = trace.h2d_start = trace.h2d_end = trace.start;
      trace.enqueue_end = trace.compute_end = trace.d2h_end = trace.end;
      return trace;
    }
    const DeviceScope scope(device_);
    begin_->record(runner_.queue());
    if (options_.transfers) runner_.copy_inputs();
    copied_->record(runner_.queue());
    trace.enqueue_start = milliseconds_since(origin_);
    runner_.start();
    trace.enqueue_end = milliseconds_since(origin_);
    computed_->record(runner_.queue());
    if (options_.transfers) runner_.copy_outputs();
    ended_->record(runner_.queue());
    ended_->synchronize();
    trace.end = milliseconds_since(origin_);
    trace.h2d_start = device_time(*begin_);
    trace.h2d_end = device_time(*copied_);
    trace.compute_end = device_time(*computed_);
    trace.d2h_end = device_time(*ended_);
    return trace;
  }
  double device_time(Event& event) const { return offset_ + event.milliseconds_since(*first_); }

  Runner& runner_;
  const MeasureOptions& options_;
  const Device& device_;
  const Clock::time_point origin_;
  std::unique_ptr<Event> first_, begin_, copied_, computed_, ended_;
  double offset_ = 0;  // host time of the device clock's zero
};

}  // namespace

Measured measure(const std::vector<std::unique_ptr<Runner>>& runners,
                 const MeasureOptions& options) {
  const Clock::time_point origin = Clock::now();
  std::vector<std::unique_ptr<Measurement>> all;
  all.reserve(runners.size());
  for (const std::unique_ptr<Runner>& runner : runners)
    all.push_back(std::make_unique<Measurement>(*runner, options, origin));
  if (all.size() == 1) return all.front()->measure();
  std::vector<Measured> found(all.size());
  std::vector<std::exception_ptr> problems(all.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        found[i] = all[i]->measure();
      } catch (...) {
        problems[i] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& problem : problems)
    if (problem) std::rethrow_exception(problem);
  Measured sum = std::move(found.front());
  for (const Measured& each : std::span(found).subspan(1)) {
    sum.runs.insert(sum.runs.end(), each.runs.begin(), each.runs.end());
    sum.count += each.count, sum.warmups += each.warmups;
    sum.start = std::min(sum.start, each.start), sum.end = std::max(sum.end, each.end);
  }
  std::ranges::sort(sum.runs, {}, &RunTrace::end);
  return sum;
}

namespace {

/// The typical shape of an input, except for extents that the engine knows to equal those of inputs
/// with a given shape or given values.
Shape fitting_shape(const Plan& plan, size_t input, const Shape& typical,
                    const InputOptions& options) {
  Shape shape = typical;
  for (const PlanPort& other : plan.inputs) {
    const auto given = options.shapes.find(other.name);
    const auto file = options.arrays.find(other.name);
    if (other.is_shape_input || (given == options.shapes.end() && file == options.arrays.end()))
      continue;
    const Shape& known = file != options.arrays.end() ? file->second.shape : given->second;
    const std::vector<int32_t>& dims = plan.inputs[input].dims;
    for (int i = 0; i < shape.rank(); ++i)
      for (int k = 0; k < std::min<int>(known.rank(), other.dims.size()); ++k)
        if (dims[i] == other.dims[k]) shape[i] = known[k];
  }
  return shape;
}

}  // namespace

void set_inputs(Runner& runner, const InputOptions& options) {
  const Plan& plan = runner.plan();
  for (const auto& [name, array] : options.arrays) find_port(plan.inputs, name, "input");
  for (const auto& [name, shape] : options.shapes) find_port(plan.inputs, name, "input");
  const std::vector<ProfileInput>& ranges = plan.schedules.at(runner.context().profile()).inputs;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const PlanPort& port = plan.inputs[i];
    const auto file = options.arrays.find(port.name);
    const auto given = options.shapes.find(port.name);
    const Shape shape = given != options.shapes.end() ? given->second
                        : ranges[i].values            ? ranges[i].opt
                                           : fitting_shape(plan, i, ranges[i].opt, options);
    runner.set_input(static_cast<int>(i), file != options.arrays.end() ? file->second
                                          : ranges[i].values           ? typical_values(port, shape)
                                                             : random_array(port.type, shape));
  }
  runner.prepare();
}

std::vector<LayerTimes> profile_layers(Runner& runner, int runs) {
  std::vector<LayerTimes> layers;
  size_t next = 0;
  Context& context = runner.context();
  context.set_layer_time_callback([&](const std::string& layer, float ms) {
    if (next == layers.size()) layers.push_back({layer, {}});
    layers[next++].milliseconds.push_back(ms);
  });
  for (int i = 0; i < runs; ++i) {
    next = 0;
    runner.run();
  }
  context.set_layer_time_callback(nullptr);
  return layers;
}

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)))];
}

}  // namespace opwright::cli
