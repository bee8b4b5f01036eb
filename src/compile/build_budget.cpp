#include "compile/build_budget.h"

#include <algorithm>

namespace opwright {
namespace {

// A small model may compute constants of any size, such as 60 concatenations that each double their
// operand. Computed constants may have kFoldedPerGiven times the bytes of the model's own
// constants, and kFoldedAnyway more.
constexpr uint64_t kFoldedPerGiven = 32;
constexpr uint64_t kFoldedAnyway = uint64_t{256} << 20;
// Operations per second; no machine is faster.
constexpr double kHostSpeed = 1e13;

}  // namespace

void BuildBudget::fail_time(const std::string& doing) const {
  throw BuildTimeError(str("The build was not done after ", deadline_.seconds(),
                           " seconds, before ", doing, " (build_seconds); ",
                           limit_hint("build_seconds")));
}

void BuildBudget::check_work(double operations, const std::string& doing) const {
  const double seconds = operations / kHostSpeed;
  if (deadline_.is_set() && seconds > deadline_.seconds_left())
    throw BuildTimeError(str("The build has ", std::max(0.0, deadline_.seconds_left()), " of its ",
                             deadline_.seconds(), " seconds left, and ", doing, " takes at least ",
                             seconds, " (build_seconds); ", limit_hint("build_seconds")));
}

void BuildBudget::require_memory(uint64_t bytes, const std::string& who) const {
  if (bytes <= memory_left()) return;
  const std::string held =
      folded_ > 0 ? str(" beside ", bytes_text(folded_), " of computed constants") : "";
  fail_with(ErrorCode::kFAILED_ALLOCATION, who, " ", bytes_text(bytes), held,
            ", more than the limit of ", bytes_text(limits_.build_memory), " (build_memory); ",
            limit_hint("build_memory"));
}

void BuildBudget::require_workspace(uint64_t bytes, const std::string& layer) const {
  if (bytes > workspace_limit_)
    fail_with(ErrorCode::kUNSUPPORTED_STATE, layer, " needs a workspace of ", bytes_text(bytes),
              " at the profile's maximum, more than the limit of ", bytes_text(workspace_limit_),
              " (MemoryPoolType.WORKSPACE); raise it with set_memory_pool_limit, or narrow the "
              "profile");
}

bool BuildBudget::try_fold(uint64_t bytes) {
  const uint64_t most = std::min(limits_.build_memory, kFoldedAnyway + kFoldedPerGiven * given_);
  if (folded_ > most || bytes > most - folded_) return false;
  folded_ += bytes;
  return true;
}

}  // namespace opwright
