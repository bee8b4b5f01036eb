#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace opwright {

/// SHA-256 (FIPS 180-4), where collisions must not be possible.
class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  void update(std::span<const std::byte> bytes);
  /// Returns the digest of all bytes so far. The object cannot be used afterwards.
  Digest finish();

 private:
  static constexpr size_t kBlock = 64;
  void add_block(const std::byte* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlock> rest_{};
  uint64_t size_ = 0;  ///< bytes so far
};

}  // namespace opwright
