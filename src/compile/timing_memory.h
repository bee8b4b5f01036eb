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

/// Floating elements of inputs.
enum class TimingNumbers {
  kNormal,     ///< about normally distributed, as activations are
  kFractions,  ///< in [0, 1): plugins take some inputs for indices or positions, and may check none
};

/// Device memory that timed kernels read and write. It is filled with seeded values that are
/// harmless as data and as indices, and is reused.
class TimingMemory {
 public:
  /// Bytes on either side of each returned address in which a kernel harms no other.
  static constexpr size_t kMargin = 4096;
  explicit TimingMemory(const Device& device) : device_(device) {}
  /// At least `bytes` of elements of the type for an input that kernels read. Integers and booleans
  /// are 0 or 1. The next kernel gets the same memory.
  void* input(int number, DataType type, size_t bytes, TimingNumbers numbers);
  /// The same as input() with indices below `limit` in no order.
  void* indices(int number, DataType type, size_t bytes, int64_t limit);
  /// The same as input() for an input that the kernel changes: in separate memory that each call
  /// fills, so that a kernel's results (infinities, denormal numbers) do not slow down the next
  /// kernel.
  void* changed_input(int number, DataType type, size_t bytes, TimingNumbers numbers);
  /// These elements for an input, in separate memory.
  const void* input(int number, const Blob& elements);
  /// At least `bytes` of any content.
  void* output(int number, size_t bytes);
  void* workspace(size_t bytes);
  /// An INT64 that is 0.
  const void* zero();
  /// The elements of a constant. Asking for them again costs nothing until release_constants().
  const void* constant(const Blob& elements);
  /// The same elements in `count` places, or in fewer where memory is lacking.
  std::vector<const void*> copies(const Blob& elements, size_t count);
  /// Frees the copies of all other elements.
  void keep_copies(std::span<const Blob> elements);
  void release_constants() { constants_.clear(), copies_.clear(); }
  /// Bytes of memory that it holds, without constants.
  uint64_t size() const;
  void clear();

 private:
  enum class Use { kInput, kIndices, kChangedInput, kGivenInput, kOutput, kWorkspace, kZero };
  using Place = std::tuple<Use, int, DataType, TimingNumbers>;

  /// Memory of any content.
  void* plain(Use use, int number, size_t bytes);

  const Device& device_;
  std::map<Place, DeviceMemory> places_;
  std::map<Place, int64_t> limits_;  ///< of the indices in these places
  std::map<const void*, std::pair<Blob, DeviceMemory>> constants_;
  std::map<const void*, std::vector<DeviceMemory>> copies_;
};

}  // namespace opwright
