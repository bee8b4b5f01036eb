#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "network/operator.h"
#include "plugin/kernel/compiled_kernel.h"

// The names of this library are in a namespace of their own, beside those of libopwright.so.
namespace opwright::gpu {

/// The source for one way to run an operator, and how it is launched.
struct GeneratedKernel {
  /// Defines `extern "C" __global__ void NAME(...)`, where NAME is launch.name; includes
  /// headers of device/ alone.
  std::string source;
  /// All but `object`, which the device compiles from the source.
  KernelCode launch;
  /// Whether it uses what later GPUs need not have ("sm_90a").
  bool is_for_one_architecture = false;
};

/// How GPUs run the operators of one kind.
struct KernelEntry {
  /// Every way to run the operator for the query's ports; empty when there is none.
  std::vector<Candidate> (*candidates)(const Operator& op, const CandidateQuery& query);
  /// The code of `args.candidate`, which is one of the candidates. Nothing where it needs no code
  /// of its own (a plain copy), and null where that is so for all of them.
  std::optional<GeneratedKernel> (*generate)(const Operator& op, const KernelArgs& args);
  /// The kernel of a candidate that has no code; null where all have.
  std::unique_ptr<Kernel> (*make)(const Operator& op, const KernelArgs& args);
  /// Throws Error unless `args` are such that `make` gives the kernel, and fit it: of what a plan
  /// stores, whose attributes nothing is compiled from. Null where `make` is.
  void (*check)(const Operator& op, const KernelArgs& args) = nullptr;
  /// KernelTactics::names; null where there is one tactic.
  std::vector<std::string> (*tactics)() = nullptr;
};

/// Of all kinds of operators, by their names.
std::vector<KernelTactics> kernel_tactics();

/// Throws Error unless the candidate of `args` is one of all that can compute their ports: whatever
/// a list of what is worth timing has, or a plan or a cache has kept, nothing else is launched.
void require_candidate(const KernelEntry& entry, const Operator& op, const KernelArgs& args);

/// Null where GPUs have no kernels for that kind of operator.
const KernelEntry* find_entry(std::string_view kind);

/// Called while the library is loaded, by RegisteredKernels.
void register_kernels(std::string_view kind, const KernelEntry& entry);

/// Makes the kernels of an operator known to GPUs. One is defined in the file that has them, and
/// nothing else names them.
template <class Op>
class RegisteredKernels {
 public:
  explicit RegisteredKernels(const KernelEntry& entry) { register_kernels(Op::kKind, entry); }
};

}  // namespace opwright::gpu
