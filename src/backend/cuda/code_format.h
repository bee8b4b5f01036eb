#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "backend/code_format.h"

namespace opwright::cuda {

/// GPUs by their compute capability, ten times the major number plus the minor one.
struct GpuRange {
  int first = 0, last = 0;
  static constexpr int kNewest = std::numeric_limits<int>::max();  ///< `last` without an end
  friend bool operator==(const GpuRange&, const GpuRange&) = default;
};

/// The oldest of HardwareCompatibilityLevel::kAMPERE_PLUS.
inline constexpr int kAmpere = 80;

/// Which GPUs code for a target runs on: a cubin of "sm_90" on those of its major number that are
/// not older, PTX of "compute_80" on all that are not older, "sm_90a" on 9.0 alone. Nothing where
/// the target is none of a GPU.
std::optional<GpuRange> served_gpus(std::string_view target);
/// "GPUs of compute capability 9.0", "... 9.0 to 9.9", "... 8.0 and newer", "no GPU".
std::string gpus_text(std::optional<GpuRange> range);

/// PTX, which is text and says its target itself, and cubins.
const CodeFormat& code_format();

}  // namespace opwright::cuda
