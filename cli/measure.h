#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "run.h"

namespace opwright::cli {

/// Times of one run, in milliseconds since the measurement began. On the host: the whole run and
/// the call that enqueues it. On the device: the copies of inputs, the work, the copies of outputs.
/// On the CPU the call itself does the work.
struct RunTrace {
  double start = 0, end = 0;
  double enqueue_start = 0, enqueue_end = 0;
  double h2d_start = 0, h2d_end = 0, compute_end = 0, d2h_end = 0;

  double enqueue() const { return enqueue_end - enqueue_start; }
  double h2d() const { return h2d_end - h2d_start; }
  double compute() const { return compute_end - h2d_end; }
  double d2h() const { return d2h_end - compute_end; }
  double latency() const { return d2h_end - h2d_start; }
};

/// How long to measure: until both the number of runs and the time are reached.
struct MeasureOptions {
  int warmup_runs = 0, runs = 0;
  double warmup_ms = 0, seconds = 0;
  double idle_ms = 0;      ///< between a run and the next
  bool transfers = false;  ///< whether inputs and outputs are copied from and to the host
};

/// Result of a measurement. If a runner makes more than a million runs, only the traces of every
/// second, fourth ... run are kept.
struct Measured {
  std::vector<RunTrace> runs;  ///< kept traces, in the order of their ends
  size_t count = 0;            ///< number of all runs
  size_t warmups = 0;          ///< number of warm-up runs
  double start = 0, end = 0;   ///< of the first and the last run, in milliseconds

  double milliseconds() const { return end - start; }
  double per_second() const { return 1000 * static_cast<double>(count) / milliseconds(); }
};

/// Measures all runners. Several runners each get a thread of their own.
Measured measure(const std::vector<std::unique_ptr<Runner>>& runners,
                 const MeasureOptions& options);

/// Values or shapes of a run's inputs, by name.
struct InputOptions {
  std::map<std::string, NpyArray> arrays;
  /// Of random values. Default: the profile's typical shapes, with the extents of other inputs
  /// where the engine knows them to be equal.
  std::map<std::string, Shape> shapes;
};
/// Gives a runner all inputs and prepares it. Throws Error for a name that no input has.
void set_inputs(Runner& runner, const InputOptions& options);

/// The times of a layer in several runs, in the order in which layers run.
struct LayerTimes {
  std::string name;
  std::vector<double> milliseconds;
};
std::vector<LayerTimes> profile_layers(Runner& runner, int runs);

/// The quantile `q`, 0 to 1, of sorted values.
double quantile(const std::vector<double>& sorted, double q);

}  // namespace opwright::cli
