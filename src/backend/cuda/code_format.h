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

/// The oldest GPU of HardwareCompatibilityLevel::kAMPERE_PLUS.
inline constexpr int kAmpere = 80;

/// The GPUs that run code for a target. A cubin of "sm_90" runs on GPUs of its major number that
/// are not older, PTX of "compute_80" on all that are not older, "sm_90a" only on 9.0. Nothing
/// where the target is not a GPU's.
std::optional<GpuRange> served_gpus(std::string_view target);
/// "GPUs of compute capability 9.0", "... 9.0 to 9.9", "... 8.0 and newer", "no GPU".
std::string gpus_text(std::optional<GpuRange> range);

/// The format of PTX and cubins. PTX is text and names its target itself.
const CodeFormat& code_format();

}  // namespace opwright::cuda
