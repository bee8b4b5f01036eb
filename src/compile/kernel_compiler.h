#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "backend/device.h"
#include "compile/build_budget.h"
#include "compile/builder_config.h"
#include "compile/graph.h"
#include "compile/ports.h"

namespace opwright {

/// Plans the candidates of nodes, each within the time that a kernel may take to compile, and knows
/// within a build which do not compile, or fail otherwise.
class KernelCompiler {
 public:
  struct Work {
    const GraphNode* node = nullptr;
    NodePorts ports;  ///< with the candidate's types
    Candidate candidate;
    std::string key;  ///< what failure() knows the candidate by
    /// Whether the ports have the constants in the candidate's types. Without, a failure that is
    /// not for the time proves nothing.
    bool has_constants = false;
  };
  using Progress = std::function<void(int done, int total)>;

  KernelCompiler(const Device& device, const BuilderConfig& config, const BuildBudget& budget)
      : device_(device), config_(config), budget_(budget) {}

  /// Whether the layer's kernel is compiled when the layer is planned, on any thread.
  bool compiles(const GraphNode& node) const;
  /// The node's plan(), on the thread of the build. What fails to compile fails at once the next
  /// time.
  PlannedOperatorPtr plan(const Work& work) { return plan(work, true, nullptr); }
  /// All of them on all threads, so that plan() finds them in the device's cache.
  void compile(std::span<const Work> work, const Progress& progress);
  /// Why the candidate with this key did not compile; empty where nothing is known against it.
  std::string failure(const std::string& key) const;
  /// Lets the candidate with this key fail like one that does not compile.
  void add_failure(const std::string& key, const std::string& reason);

 private:
  /// Asks for interrupts where the thread is the build's. Once `is_ended` what is compiled is given
  /// up.
  PlannedOperatorPtr plan(const Work& work, bool is_build_thread,
                          const std::atomic<bool>* is_ended);

  const Device& device_;
  const BuilderConfig& config_;
  const BuildBudget& budget_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::string> failures_;  // why, by key
};

}  // namespace opwright
