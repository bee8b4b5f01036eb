#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"
#include "base/blob.h"

namespace opwright {

/// Memory of the device that timed kernels read and write: filled with seeded values that are
/// harmless as data and as indices, and reused.
class TimingMemory {
 public:
  /// On either side of what each method gives, up to which a kernel does no harm to others.
  static constexpr size_t kMargin = 4096;
  explicit TimingMemory(const Device& device) : device_(device) {}
  /// At least `bytes` of elements of the type: floating ones about normally distributed, integers
  /// and booleans 0 or 1. `slot` tells operands of one kernel apart.
  void* operand(int slot, DataType type, size_t bytes);
  /// The same for an operand that the kernel changes: in memory of its own, filled at each call, so
  /// that what one kernel left (infinities, denormal numbers) does not slow down another.
  void* fresh_operand(int slot, DataType type, size_t bytes);
  void* scratch(int slot, size_t bytes);
  /// The elements of a constant; the same ones again at no cost until release_constants().
  const void* constant(const Blob& elements);
  /// The same elements in so many places, or in fewer where memory is lacking.
  std::vector<const void*> copies(const Blob& elements, size_t count);
  /// Gives up the copies of all others.
  void keep_copies(std::span<const Blob> elements);
  void release_constants() { constants_.clear(), copies_.clear(); }
  /// Bytes that it has now, but for constants.
  uint64_t size() const;
  void clear();
  /// Elements that the kernel reads, in memory of their own.
  const void* elements(int slot, const Blob& elements);

 private:
  const Device& device_;
  std::map<std::pair<int, int>, DeviceMemory> operands_;
  std::map<int, DeviceMemory> scratch_;
  std::map<const void*, std::pair<Blob, DeviceMemory>> constants_;
  std::map<const void*, std::vector<DeviceMemory>> copies_;
};

}  // namespace opwright
