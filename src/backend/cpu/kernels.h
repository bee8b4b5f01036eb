#pragma once

#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "network/operator.h"

namespace opwright {

/// The CPU's functions for the operators of one kind.
struct KernelEntry {
  /// All ways to run the operator for the query's ports; empty when there is none.
  std::vector<Candidate> (*candidates)(const Operator& op, const CandidateQuery& query);
  /// The kernel for `args.candidate`, which is one of the candidates.
  std::unique_ptr<Kernel> (*make)(const Operator& op, const KernelArgs& args);
  /// PlannedOperator::check(), where it goes beyond PortRules::require_sound(). It decides whether
  /// `make` and the kernel can rely on a plan. Everything that `candidates` lists passes.
  void (*check)(const Operator& op, const KernelArgs& args);
  /// The inputs that the kernel may have packed.
  int packed_input = -1, other_packed_input = -1;
  /// KernelTactics::names; null where there is one tactic. kDnnlTactic stands for all
  /// implementations that oneDNN names, which depend on the processor.
  std::vector<std::string> (*tactics)() = nullptr;
};
inline constexpr std::string_view kDnnlTactic = "oneDNN";

/// Called while the library is loaded, by RegisteredKernels.
void register_kernels(std::string_view kind, const KernelEntry& entry);

/// Makes the kernels of an operator known to the CPU. The file of the kernels defines one such
/// object, and nothing else names it.
template <class Op>
class RegisteredKernels {
 public:
  explicit RegisteredKernels(const KernelEntry& entry) { register_kernels(Op::kKind, entry); }
};

/// KernelEntry::make of a kernel whose constructor takes `args` and perhaps the operator or its
/// parameters.
template <class KernelType, class Op>
std::unique_ptr<Kernel> make_kernel(const Operator& op, const KernelArgs& args) {
  const Op& own = static_cast<const Op&>(op);
  if constexpr (std::is_constructible_v<KernelType, const KernelArgs&>)
    return std::make_unique<KernelType>(args);
  else if constexpr (std::is_constructible_v<KernelType, const Op&, const KernelArgs&>)
    return std::make_unique<KernelType>(own, args);
  else
    return std::make_unique<KernelType>(own.params(), args);
}

}  // namespace opwright
