#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "run.h"

namespace opwright::cli {

/// Milliseconds since the measurement began of what happened to one run: on the host, the call that
/// gives it to the device and the whole; on the device, the copies of inputs, the work, the copies
/// of outputs. On the CPU the call is the work.
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

/// For how long is measured: until both numbers are reached.
struct MeasureOptions {
  int warmup_runs = 0, runs = 0;
  double warmup_ms = 0, seconds = 0;
  double idle_ms = 0;      ///< between a run and the next
  bool transfers = false;  ///< whether inputs and outputs are copied from and to the host
};

/// What was measured. Of more than a million runs of a runner every second, fourth ... one is kept.
struct Measured {
  std::vector<RunTrace> runs;  ///< that are kept, in the order of their ends
  size_t count = 0;            ///< of all runs
  size_t warmups = 0;          ///< before them
  double start = 0, end = 0;   ///< of the first and the last of all, in milliseconds

  double milliseconds() const { return end - start; }
  double per_second() const { return 1000 * static_cast<double>(count) / milliseconds(); }
};

/// Measures all runners, each in a thread of its own where there are several.
Measured measure(const std::vector<std::unique_ptr<Runner>>& runners,
                 const MeasureOptions& options);

/// What the inputs of a run are to be, by their names.
struct InputOptions {
  std::map<std::string, NpyArray> arrays;
  std::map<std::string, Shape> shapes;  ///< of random values; the profile's typical ones otherwise
};
/// Gives a runner all inputs and prepares it. Throws Error for a name that is none of an input.
void set_inputs(Runner& runner, const InputOptions& options);

/// The times of a layer in several runs, in the order in which layers run.
struct LayerTimes {
  std::string name;
  std::vector<double> milliseconds;
};
std::vector<LayerTimes> profile_layers(Runner& runner, int runs);

/// Sorted values' element at that part of them, 0 to 1.
double quantile(const std::vector<double>& sorted, double q);

}  // namespace opwright::cli
