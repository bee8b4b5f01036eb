#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "compile/builder_config.h"
#include "compile/graph.h"
#include "compile/ports.h"
#include "compile/profile_ranges.h"
#include "compile/timing_memory.h"

namespace opwright {

/// Compares what candidates of a layer compute with a reference, by the error that their types
/// allow. The reference of a built-in layer is the CPU's kernel for FP32, that of a plugin what the
/// plugin names (PluginModel::reference()) or else its first candidate. All are given the same
/// values, which each floating type has exactly; constants are rounded for the reference as they
/// are for the candidate.
///
/// What a type allows is a multiple of its rounding error, relative to the largest element of the
/// result. Where that is exceeded the reference runs again on operands that differ by the type's
/// rounding error, and what this changes is allowed as well: so an operator that magnifies errors
/// raises no false alarm. A layer that gives other results when it runs again is not compared.
class Verifier {
 public:
  Verifier(const ProfileRanges& ranges, const Device& device, const BuilderConfig& config,
           Constants& constants, TimingMemory& memory)
      : ranges_(ranges), device_(device), config_(config), constants_(constants), memory_(memory) {}

  /// The layer that the calls that follow are about, and how many candidates it has.
  void start(const GraphNode& node, size_t candidates);
  /// Throws CandidateFault where the candidate computes something else. `ports` have its types.
  /// `who` begins the message.
  void verify(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
              const PlannedOperatorPtr& op, const std::string& who);
  /// Whether verify() has anything to do.
  bool wants(const GraphNode& node) const;
  /// Candidates that were compared.
  int compared() const { return compared_; }

 private:
  /// Elements of the types that layers of networks have, but floating ones as FP32; of known inputs
  /// none. Dense and row-major.
  using Tensors = std::vector<Blob>;
  enum class Draw : uint8_t { kNormal, kExtreme };
  /// A way to compute the node, or the first part of it.
  struct Way {
    const GraphNode* node = nullptr;
    PlannedOperatorPtr op;
    Candidate candidate;
    NodePorts ports;  ///< with the candidate's types
    const Device* device = nullptr;
    std::string name;
    /// The second part, of the first one's result and of the inputs that the first has not.
    std::shared_ptr<const Way> next = nullptr;
  };
  struct Tolerance {
    double unit = 0;     ///< the rounding error of the type, relative
    double of_most = 0;  ///< allowed, relative to the largest element
  };

  void find_reference();
  std::optional<Way> host_reference(const NodePorts& typed) const;
  /// The CPU's kernel for FP32 and LINEAR tensors, with constants rounded to those types, one for
  /// each input. None where it has none.
  std::optional<Way> host_way(const GraphNode& node, std::span<const DataType> stored) const;
  Tensors draw(Draw which) const;
  /// The same with each floating element changed by the relative error, up or down.
  Tensors disturbed(const Tensors& tensors, double error, uint32_t seed) const;
  /// The outputs, as Tensors are.
  Tensors run(const Way& way, const Tensors& inputs);
  Tolerance error_of(const Way& way, const Way& reference) const;
  /// How the outputs differ by more than is allowed; empty: they do not. `disturbed`: what the
  /// reference makes of disturbed operands, where that was asked.
  std::string difference(const Tensors& results, const Tensors& expected, const Tolerance& error,
                         const Way& way, const Way& reference,
                         std::span<const Tensors> disturbed) const;

  const ProfileRanges& ranges_;
  const Device& device_;
  const BuilderConfig& config_;
  Constants& constants_;
  TimingMemory& memory_;

  const GraphNode* node_ = nullptr;
  /// The node as a product and the program of its result, where it is both.
  std::unique_ptr<const FusedParts> parts_;
  bool is_plugin_ = false;
  bool is_steady_ = true;         ///< whether it computes the same each time, as far as is known
  std::optional<Way> reference_;  ///< of a plugin
  bool is_asked_ = false;         ///< whether the plugin's author wrote it to be compared with
  std::map<Draw, Tensors> inputs_, expected_;
  int compared_ = 0;
};

}  // namespace opwright
