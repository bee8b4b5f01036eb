#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/device.h"
#include "compile/build_budget.h"
#include "compile/builder_config.h"
#include "compile/graph.h"
#include "compile/ports.h"

namespace opwright {

/// Plans the candidates of nodes, each within the time that a kernel may take to compile. Remembers
/// within a build which candidates do not compile, or fail otherwise.
class KernelCompiler {
 public:
  struct Work {
    const GraphNode* node = nullptr;
    NodePorts ports;  ///< with the candidate's types
    Candidate candidate;
    std::string key;  ///< the key for failure()
    /// Whether the ports have the constants in the candidate's types. Without constants, only a
    /// failure for the time proves anything.
    bool has_constants = false;
  };
  using Progress = std::function<void(int done, int total)>;
  /// What the thread of the build does with compiled kernels, one step after the other.
  struct Steps {
    static constexpr size_t kAll = SIZE_MAX;
    /// By step: how many kernels have to be compiled before it, from the first of the list on.
    /// Never less than for the step before.
    std::vector<size_t> kernels;
    std::function<void(size_t step)> run;
  };

  KernelCompiler(const Device& device, const BuilderConfig& config, const BuildBudget& budget)
      : device_(device), config_(config), budget_(budget) {}

  /// Whether planning the layer compiles its kernel, on any thread.
  bool compiles(const GraphNode& node) const;
  /// Calls the node's plan(), on the thread of the build. A candidate that fails to compile fails
  /// at once the next time.
  PlannedOperatorPtr plan(const Work& work) { return plan(work, true, nullptr); }
  /// Compiles all of them on all threads, so that plan() finds the kernels in the device's cache.
  void compile(std::span<const Work> work, const Progress& progress) {
    compile(work, progress, {});
  }
  /// The same. Meanwhile the thread of the build runs steps whose kernels are compiled, and
  /// compiles where it would wait for them. Parallel loops of these steps run serially. Returns the
  /// number of steps that it has run: those that need all kernels, and what is left once all are
  /// compiled, remain for the caller.
  size_t compile(std::span<const Work> work, const Progress& progress, const Steps& steps);
  /// Why the candidate with this key did not compile; empty where no failure is known.
  std::string failure(const std::string& key) const;
  /// Makes the candidate with this key fail as if it did not compile.
  void add_failure(const std::string& key, const std::string& reason);

 private:
  /// Asks for interrupts on the build's thread. Gives up compiling once `is_ended`.
  PlannedOperatorPtr plan(const Work& work, bool is_build_thread,
                          const std::atomic<bool>* is_ended);

  const Device& device_;
  const BuilderConfig& config_;
  const BuildBudget& budget_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::string> failures_;  // reasons by key
};

}  // namespace opwright
