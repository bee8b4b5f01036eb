#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
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
  /// At least `bytes` of elements of the type for an input that kernels read: floating ones about
  /// normally distributed, integers and booleans 0 or 1. The next kernel finds them again.
  void* input(int number, DataType type, size_t bytes);
  /// The same for an input that the kernel changes: in memory of its own, filled at each call, so
  /// that what one kernel left (infinities, denormal numbers) does not slow down another.
  void* changed_input(int number, DataType type, size_t bytes);
  /// These elements for an input, in memory of their own.
  const void* input(int number, const Blob& elements);
  /// At least `bytes` of any content.
  void* output(int number, size_t bytes);
  void* workspace(size_t bytes);
  /// An INT64 that is 0.
  const void* zero();
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

 private:
  enum class Use { kInput, kChangedInput, kGivenInput, kOutput, kWorkspace, kZero };
  using Place = std::tuple<Use, int, DataType>;

  /// Of any content.
  void* plain(Use use, int number, size_t bytes);

  const Device& device_;
  std::map<Place, DeviceMemory> places_;
  std::map<const void*, std::pair<Blob, DeviceMemory>> constants_;
  std::map<const void*, std::vector<DeviceMemory>> copies_;
};

}  // namespace opwright
