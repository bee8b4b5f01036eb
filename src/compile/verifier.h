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

/// Compares the results of a layer's candidates with a reference, within the error that their types
/// allow. The reference of a built-in layer is the CPU's kernel for FP32. That of a plugin is the
/// one that the plugin names (PluginModel::reference()), or else its first candidate. All get the
/// same values, which each floating type represents exactly. Constants are rounded for the
/// reference as for the candidate.
///
/// A type allows a multiple of its rounding error, relative to the largest element of the result.
/// Where the error is larger, the reference runs again on operands that differ by the type's
/// rounding error, and the change of its result is allowed as well. So an operator that magnifies
/// errors raises no false alarm. A layer that gives other results when it runs again is not
/// compared.
class Verifier {
 public:
  Verifier(const ProfileRanges& ranges, const Device& device, const BuilderConfig& config,
           Constants& constants, TimingMemory& memory)
      : ranges_(ranges), device_(device), config_(config), constants_(constants), memory_(memory) {}

  /// Sets the layer of the calls that follow, and its number of candidates.
  void start(const GraphNode& node, size_t candidates);
  /// Throws CandidateFault if the candidate computes a wrong result. `ports` have its types. `who`
  /// begins the message.
  void verify(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
              const PlannedOperatorPtr& op, const std::string& who);
  /// Whether verify() has anything to compare.
  bool wants(const GraphNode& node) const;
  /// Number of candidates that were compared.
  int compared() const { return compared_; }

 private:
  /// Elements in the types of the network's tensors, except that floating ones are FP32; empty for
  /// known inputs. Dense and row-major.
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
    /// The second part, which reads the first one's result and the inputs that the first does not
    /// have.
    std::shared_ptr<const Way> next = nullptr;
  };
  struct Tolerance {
    double unit = 0;     ///< the rounding error of the type, relative
    double of_most = 0;  ///< the allowed error, relative to the largest element
  };

  void find_reference();
  std::optional<Way> host_reference(const NodePorts& typed) const;
  /// The CPU's kernel for FP32 and LINEAR tensors, with constants rounded to these types, one for
  /// each input. Nothing where the CPU has no such kernel.
  std::optional<Way> host_way(const GraphNode& node, std::span<const DataType> stored) const;
  Tensors draw(Draw which) const;
  /// The same tensors with each floating element changed by the relative error, up or down.
  Tensors disturbed(const Tensors& tensors, double error, uint32_t seed) const;
  /// Runs the way and returns its outputs.
  Tensors run(const Way& way, const Tensors& inputs);
  Tolerance error_of(const Way& way, const Way& reference) const;
  /// How the outputs differ by more than is allowed; empty where they do not. `disturbed`: the
  /// reference's results for disturbed operands, if it has computed them.
  std::string difference(const Tensors& results, const Tensors& expected, const Tolerance& error,
                         const Way& way, const Way& reference,
                         std::span<const Tensors> disturbed) const;

  const ProfileRanges& ranges_;
  const Device& device_;
  const BuilderConfig& config_;
  Constants& constants_;
  TimingMemory& memory_;

  const GraphNode* node_ = nullptr;
  /// The node as a product and the program of the product's result, if it is both.
  std::unique_ptr<const FusedParts> parts_;
  bool is_plugin_ = false;
  bool is_steady_ = true;         ///< whether the layer computes the same each time, as far as is
                                  ///< known
  std::optional<Way> reference_;  ///< a plugin's reference
  bool is_asked_ = false;         ///< whether the plugin declares the reference
  std::map<Draw, Tensors> inputs_, expected_;
  int compared_ = 0;
};

}  // namespace opwright
