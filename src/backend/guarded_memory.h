#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"

namespace opwright {

/// A plugin's use of memory. It decides the pattern in and around the memory.
enum class Use {
  kWritten,  ///< NaNs with payloads that arithmetic does not make, integers far from 0, booleans
             ///< that are neither 0 nor 1; random bytes where a type has no such values
  kRead,     ///< values of the same kind, but different ones in each element, so that an element
             ///< copied to other memory shows
  kInPlace,  ///< numbers from -4 to -2: operations change them, as they do not change NaNs
};
/// Elements of a type for a use. The pattern is repeated every kPatternBytes.
inline constexpr size_t kPatternBytes = 4096;
std::span<const std::byte, kPatternBytes> pattern_of(DataType type, Use use);

/// Memory of a device that detects writes before and behind it.
class GuardedMemory {
 public:
  /// Bytes before and behind the memory in which a write is detected.
  static constexpr size_t kGuardBytes = kPatternBytes;

  GuardedMemory(const Device& device, DataType type) : device_(device), type_(type) {}

  /// Throws Error when there is no memory.
  void resize(size_t bytes);
  size_t size() const { return size_; }
  /// Bytes of device memory that the object holds. resize() never gives them back.
  size_t capacity() const { return memory_.size(); }
  /// The device's address: 64-byte aligned, never null after resize().
  std::byte* data() const { return memory_.data() + kGuardBytes; }
  /// Writes the pattern to the memory and to the guards; data()[i] gets pattern[i % kPatternBytes].
  void fill(Use use, Queue queue);
  /// Lets host() and damage...() see what the device has written, once the queue has done it.
  void fetch(Queue queue);
  /// The bytes at data(), readable by the host.
  const std::byte* host() const { return base() + kGuardBytes; }

  struct Damage {
    ptrdiff_t first = 0;  ///< byte, counted from data()
    size_t bytes = 0;     ///< bytes of all damaged units
  };
  /// Damage to the guards since fill(), in units of `unit` bytes. A damaged unit may contain bytes
  /// that did not change.
  std::optional<Damage> damage_before(size_t unit) const;
  std::optional<Damage> damage_behind(size_t unit) const;

 private:
  std::optional<Damage> damage(size_t begin, size_t end, size_t unit) const;
  const std::byte* base() const { return device_.is_host() ? memory_.data() : image_.data(); }

  const Device& device_;
  const DataType type_;
  const std::byte* pattern_ = nullptr;  ///< pattern of the last fill()
  DeviceMemory memory_;
  std::vector<std::byte> image_;  ///< the host's copy, where the host does not read the device's
                                  ///< memory
  size_t size_ = 0;
};

}  // namespace opwright
