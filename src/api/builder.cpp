#include "api/builder.h"

#include <optional>

#include "base/parallel.h"
#include "compile/compile.h"

namespace opwright {
namespace {

/// Tells a monitor of the phases that a ProgressCallback receives.
class ProgressReport {
 public:
  ProgressReport(BuildMonitor& monitor, Log log) : monitor_(monitor), log_(log) {}
  /// The build has failed already.
  ~ProgressReport() {
    try {
      finish();
    } catch (const std::exception& error) {
      log_.error("The progress monitor failed after the build: ", error.what());
    } catch (...) {
    }
  }
  ProgressReport(const ProgressReport&) = delete;
  ProgressReport& operator=(const ProgressReport&) = delete;

  bool step(const std::string& phase, int done, int total) {
    if (phase != phase_) {
      finish();
      phase_ = phase;
      monitor_.phase_start(phase, total);
    }
    return monitor_.step_complete(phase, done);
  }
  void finish() {
    const std::string phase = std::exchange(phase_, {});
    if (!phase.empty()) monitor_.phase_finish(phase);
  }

 private:
  BuildMonitor& monitor_;
  const Log log_;
  std::string phase_;
};

}  // namespace

int Builder::max_threads() const { return max_threads_ > 0 ? max_threads_ : thread_count(); }

void Builder::set_max_threads(int threads) { max_threads_ = checked_threads(threads, "a builder"); }

void Builder::reset() {
  errors_.set_recorder(nullptr);
  allocator_ = nullptr;
  max_threads_ = 0;
}

BuilderConfig Builder::checked(const Network& network, const BuilderConfig& config) const {
  BuilderConfig build = config.checked(network.flags().strongly_typed);
  build.log = log();
  build.services = {errors_.recorder(), allocator_, nullptr};
  return build;
}

Plan Builder::build(const Network& network, const BuilderConfig& config,
                    InterruptCheck check) const {
  const ThreadLimit limit(max_threads_);
  BuilderConfig build = checked(network, config);
  build.interrupt_check = std::move(check);
  std::optional<ProgressReport> report;
  if (config.monitor != nullptr) {
    report.emplace(*config.monitor, log());
    build.progress = [&report](const std::string& phase, int done, int total) {
      return report->step(phase, done, total);
    };
  }
  Plan plan = compile(network, build);
  if (report) report->finish();
  return plan;
}

void Builder::time_candidates(const Network& network, const BuilderConfig& config,
                              TimingFilter filter, InterruptCheck check) const {
  const ThreadLimit limit(max_threads_);
  BuilderConfig build = checked(network, config);
  require(build.timing_cache != nullptr && build.times(),
          "time_candidates needs a config that times and has a timing cache (set_timing_cache)");
  build.interrupt_check = std::move(check);
  build.timing_filter = std::move(filter);
  compile(network, build);
}

std::shared_ptr<Engine> Builder::load(Plan plan, const Network& network,
                                      const BuilderConfig& config) const {
  LoadOptions options;
  options.plugins = network.plugins();
  options.log = log();
  options.recorder = errors_.recorder();
  options.allocator = allocator_;
  options.max_threads = max_threads_;
  if (plan.backend == config.device.backend) options.device_ordinal = config.device.ordinal;
  options.limits = config.limits;
  const ThreadLimit limit(max_threads_);  // the device is the one for which the engine was tuned
  return Engine::load(std::move(plan), options);
}

void Builder::check_supported(const Network& network, const BuilderConfig& config) const {
  const ThreadLimit limit(max_threads_);
  BuilderConfig trial = checked(network, config);
  trial.timing = false;
  compile(network, trial);
}

}  // namespace opwright
