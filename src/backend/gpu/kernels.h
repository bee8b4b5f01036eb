#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "network/operator.h"
#include "plugin/kernel/compiled_kernel.h"

// Names of this library are in a namespace of their own, apart from those of libopwright.so.
namespace opwright::gpu {

/// The source of one way to run an operator, and its launch.
struct GeneratedKernel {
  /// Defines `extern "C" __global__ void NAME(...)`, where NAME is launch.name. Includes only
  /// headers of device/.
  std::string source;
  /// All of the code but `object`, which the device compiles from the source.
  KernelCode launch;
  /// Whether the source uses features that later GPUs need not have ("sm_90a").
  bool is_for_one_architecture = false;
};

/// The GPU's functions for the operators of one kind.
struct KernelEntry {
  /// All ways to run the operator for the query's ports; empty when there is none.
  std::vector<Candidate> (*candidates)(const Operator& op, const CandidateQuery& query);
  /// Generates the code of `args.candidate`, which is one of the candidates. Returns nothing for a
  /// candidate without code of its own (a plain copy). Null where no candidate has code.
  std::optional<GeneratedKernel> (*generate)(const Operator& op, const KernelArgs& args);
  /// Makes the kernel of a candidate without code; null where all have code.
  std::unique_ptr<Kernel> (*make)(const Operator& op, const KernelArgs& args);
  /// Throws Error unless `make` can make the kernel for `args`, and the kernel fits them. It checks
  /// stored plans, from whose attributes nothing is compiled. Null where `make` is null.
  void (*check)(const Operator& op, const KernelArgs& args) = nullptr;
  /// KernelTactics::names; null where there is one tactic.
  std::vector<std::string> (*tactics)() = nullptr;
};

/// Tactics of all kinds of operators, by kind.
std::vector<KernelTactics> kernel_tactics();

/// Throws Error unless the candidate of `args` is one of all those that can compute their ports. So
/// nothing else is launched, whatever a list of tactics to time, a plan or a cache contains.
void require_candidate(const KernelEntry& entry, const Operator& op, const KernelArgs& args);

/// Null where GPUs have no kernels for that kind of operator.
const KernelEntry* find_entry(std::string_view kind);

/// Called while the library is loaded, by RegisteredKernels.
void register_kernels(std::string_view kind, const KernelEntry& entry);

/// Makes the kernels of an operator known to GPUs. The file of the kernels defines one such object,
/// and nothing else names it.
template <class Op>
class RegisteredKernels {
 public:
  explicit RegisteredKernels(const KernelEntry& entry) { register_kernels(Op::kKind, entry); }
};

}  // namespace opwright::gpu
