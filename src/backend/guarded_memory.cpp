#include "backend/guarded_memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "base/error.h"

namespace opwright {
namespace {

using Pattern = std::array<std::byte, kPatternBytes>;

/// Random elements of type T with the bits of `set` set and those of `clear` cleared.
template <class T>
void write_pattern(Pattern& pattern, Use use, uint64_t set, uint64_t clear = 0) {
  std::mt19937_64 random(20251107 + static_cast<uint64_t>(use));
  for (size_t at = 0; at < pattern.size(); at += sizeof(T)) {
    const T value = static_cast<T>((random() & ~clear) | set);
    std::memcpy(pattern.data() + at, &value, sizeof(T));
  }
}

/// Fills the pattern with quiet NaNs, so that operations pass the payload on. The payload ends in 1
/// or 2; that of the processor's own NaN is 0.
template <class T>
void write_nans(Pattern& pattern, Use use, uint64_t nan) {
  const uint64_t payload = use == Use::kRead ? 2 : 1;
  write_pattern<T>(pattern, use, nan | payload, 3 - payload);
}

Pattern make_pattern(DataType type, Use use) {
  Pattern pattern;
  const bool in_place = use == Use::kInPlace;
  switch (type) {
    case DataType::kFLOAT:
      if (in_place)
        write_pattern<uint32_t>(pattern, use, 0xC0000001, 0x3F800000);
      else
        write_nans<uint32_t>(pattern, use, 0xFFC00000);
      break;
    case DataType::kHALF:
      if (in_place)
        write_pattern<uint16_t>(pattern, use, 0xC001, 0x3C00);
      else
        write_nans<uint16_t>(pattern, use, 0xFE00);
      break;
    case DataType::kBF16:
      if (in_place)
        write_pattern<uint16_t>(pattern, use, 0xC001, 0x3F80);
      else
        write_nans<uint16_t>(pattern, use, 0xFFC0);
      break;
    // Integers below -2^30 and -2^62.
    case DataType::kINT32:
      write_pattern<uint32_t>(pattern, use, 0x80000000, 0x40000000);
      break;
    case DataType::kINT64:
      write_pattern<uint64_t>(pattern, use, uint64_t{1} << 63, uint64_t{1} << 62);
      break;
    case DataType::kBOOL:
      write_pattern<uint8_t>(pattern, use, 0x02);
      break;
    default:
      write_pattern<uint8_t>(pattern, use, 0);
  }
  return pattern;
}

}  // namespace

std::span<const std::byte, kPatternBytes> pattern_of(DataType type, Use use) {
  constexpr int kUses = 3;
  static const auto* const patterns = [] {
    auto* all = new std::array<Pattern, EnumMax<DataType>() * kUses>;
    for (size_t i = 0; i < all->size(); ++i)
      (*all)[i] = make_pattern(static_cast<DataType>(i / kUses), static_cast<Use>(i % kUses));
    return all;
  }();
  return patterns->at(static_cast<size_t>(type) * kUses + static_cast<size_t>(use));
}

void GuardedMemory::resize(size_t bytes) {
  memory_.grow(device_, bytes + 2 * kGuardBytes);
  size_ = bytes;
  if (!device_.is_host()) image_.resize(bytes + 2 * kGuardBytes);
}

void GuardedMemory::fill(Use use, Queue queue) {
  pattern_ = pattern_of(type_, use).data();
  const size_t end = size_ + 2 * kGuardBytes;
  std::byte* const to = device_.is_host() ? memory_.data() : image_.data();
  for (size_t at = 0; at < end; at += kPatternBytes)
    std::memcpy(to + at, pattern_, std::min(kPatternBytes, end - at));
  if (!device_.is_host()) device_.copy(memory_.data(), image_.data(), end, queue);
}

void GuardedMemory::fetch(Queue queue) {
  if (!device_.is_host())
    device_.copy(image_.data(), memory_.data(), size_ + 2 * kGuardBytes, queue);
}

/// Damage between bytes `begin` and `end`, counted from the memory's base.
std::optional<GuardedMemory::Damage> GuardedMemory::damage(size_t begin, size_t end,
                                                           size_t unit) const {
  std::optional<Damage> found;
  const auto is_untouched = [&](size_t at, size_t bytes) {
    return std::memcmp(base() + at, pattern_ + at % kPatternBytes, bytes) == 0;
  };
  for (size_t next = begin; begin < end; begin = next) {
    next = std::min(end, (begin / kPatternBytes + 1) * kPatternBytes);
    if (is_untouched(begin, next - begin)) continue;
    for (size_t at = begin; at < next; at += unit) {
      if (is_untouched(at, unit)) continue;
      if (!found) found = {static_cast<ptrdiff_t>(at) - static_cast<ptrdiff_t>(kGuardBytes), 0};
      found->bytes += unit;
    }
  }
  return found;
}

std::optional<GuardedMemory::Damage> GuardedMemory::damage_before(size_t unit) const {
  return damage(0, kGuardBytes, unit);
}

std::optional<GuardedMemory::Damage> GuardedMemory::damage_behind(size_t unit) const {
  return damage(kGuardBytes + size_, size_ + 2 * kGuardBytes, unit);
}

}  // namespace opwright
