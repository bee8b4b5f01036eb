#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"

namespace opwright {

/// What a plugin does with memory, which decides what lies in and around it.
enum class Use {
  kWritten,  ///< NaNs with payloads that arithmetic does not make, integers far from 0, booleans
             ///< that are neither 0 nor 1; random bytes where a type has no such values
  kRead,     ///< the like, but no element the same, so that one copied to another memory shows
  kInPlace,  ///< numbers that operations change, as they do not change NaN: from -4 to -2
};
/// Elements of a type, to be repeated every kPatternBytes.
inline constexpr size_t kPatternBytes = 4096;
std::span<const std::byte, kPatternBytes> pattern_of(DataType type, Use use);

/// Memory of a device that shows what was written beside it.
class GuardedMemory {
 public:
  /// How far beside it a write is seen.
  static constexpr size_t kGuardBytes = kPatternBytes;

  GuardedMemory(const Device& device, DataType type) : device_(device), type_(type) {}

  /// Throws Error when there is no memory.
  void resize(size_t bytes);
  size_t size() const { return size_; }
  /// What it has of the device, which resize() never gives back.
  size_t capacity() const { return memory_.size(); }
  /// The device's address: 64-byte aligned, never null after resize().
  std::byte* data() const { return memory_.data() + kGuardBytes; }
  /// Writes the pattern to all of it and to the guards; data()[i] gets pattern[i % kPatternBytes].
  void fill(Use use, Queue queue);
  /// Lets host() and damage...() see what the device has written, once the queue has done it.
  void fetch(Queue queue);
  /// What lies at data(), for the host to read.
  const std::byte* host() const { return base() + kGuardBytes; }

  struct Damage {
    ptrdiff_t first = 0;  ///< byte, counted from data()
    size_t bytes = 0;     ///< of all units
  };
  /// What was written to the guards since fill(), in units of `unit` bytes: a byte that is written
  /// may be as it was before.
  std::optional<Damage> damage_before(size_t unit) const;
  std::optional<Damage> damage_behind(size_t unit) const;

 private:
  std::optional<Damage> damage(size_t begin, size_t end, size_t unit) const;
  const std::byte* base() const { return device_.is_host() ? memory_.data() : image_.data(); }

  const Device& device_;
  const DataType type_;
  const std::byte* pattern_ = nullptr;  ///< of the last fill()
  DeviceMemory memory_;
  std::vector<std::byte> image_;  ///< of a device whose memory the host does not read
  size_t size_ = 0;
};

}  // namespace opwright
