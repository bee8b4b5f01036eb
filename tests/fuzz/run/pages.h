#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace opwright::fuzz {

/// Whether the build has AddressSanitizer.
bool is_address_sanitized();

/// Pieces of memory that each end before a page that nobody may touch, so that code which no
/// sanitizer knows, such as a library's generated kernels, faults where it goes beyond. What lies
/// before a piece on its page is poisoned, or compared afterwards.
class GuardedPool {
 public:
  /// Memory until reset(), uninitialized. The piece ends exactly at the page's end where its size
  /// is a multiple of the alignment. Never null, also for 0 bytes.
  std::byte* allocate(size_t bytes, size_t alignment);
  /// Takes all memory back. Ends the process where something was written beside a piece.
  void reset();

 private:
  struct Slot {
    std::byte* begin = nullptr;
    size_t size = 0;
  };
  struct Piece {
    Slot slot;
    std::byte* data;
    size_t bytes;
  };
  std::map<size_t, std::vector<Slot>> free_;  ///< by pages
  std::vector<Piece> pieces_;
};

/// Memory with ranges that may be touched. Pages outside of all ranges are inaccessible.
class GuardedArena {
 public:
  /// Aligned to a page. `ranges` are offsets of first and behind the last byte, in any order, and
  /// may overlap; they get `fill`. Ends the process where something was written beside those of
  /// the last call. The inaccessible page behind `bytes` is there, too.
  std::byte* place(std::vector<std::pair<size_t, size_t>> ranges, size_t bytes, uint8_t fill);
  /// As place() with nothing.
  void reset() { place({}, 0, 0); }

  static constexpr size_t kMaxBytes = size_t{128} << 20;

 private:
  void check_gaps() const;

  std::byte* base_ = nullptr;
  std::vector<bool> is_open_;  ///< per page, up to the last open one
  std::vector<std::pair<size_t, size_t>> gaps_;
};

}  // namespace opwright::fuzz
