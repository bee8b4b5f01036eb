#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "network/operator.h"

namespace opwright {

/// What the code is instead of what it should be: a shared object for this host where `host` is
/// set, PTX or a cubin otherwise ("PTX for sm_90"). Empty where it is that.
std::string code_fault(const CodeObject& object);
/// The target of code for GPUs as plans record it: "compute_80" of PTX, which says so itself, what
/// `object.target` says of a cubin.
std::string device_target(const CodeObject& object);

/// GPUs by their compute capability, ten times the major number plus the minor one.
struct GpuRange {
  int first = 0, last = 0;
  static constexpr int kNewest = std::numeric_limits<int>::max();  ///< `last` without an end
  friend bool operator==(const GpuRange&, const GpuRange&) = default;
};

/// Which GPUs code for a target runs on: a cubin of "sm_90" on those of its major number that are
/// not older, PTX of "compute_80" on all that are not older, "sm_90a" on 9.0 alone. Nothing where
/// the target is none of a GPU.
std::optional<GpuRange> served_gpus(std::string_view target);
/// Which GPUs all of the code for GPUs runs on; nothing where there is no such code, an empty range
/// (first > last) where no GPU runs all.
std::optional<GpuRange> served_gpus(std::span<const CodeObject> code);
/// Whether the code runs on all GPUs that the level names, as far as it runs on any.
bool serves(GpuRange range, HardwareCompatibilityLevel level);
/// The highest level that all of the code meets; kNONE where none is for GPUs.
HardwareCompatibilityLevel hardware_compatibility(std::span<const CodeObject> code);
/// "GPUs of compute capability 9.0", "... 9.0 to 9.9", "... 8.0 and newer", "no GPU".
std::string gpus_text(std::optional<GpuRange> range);

}  // namespace opwright
