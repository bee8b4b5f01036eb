#include "base/sha256.h"

#include <algorithm>
#include <bit>

namespace opwright {
namespace {

constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace

void Sha256::add_block(const std::byte* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) {
    w[i] = 0;
    for (size_t b = 0; b < 4; ++b) w[i] = w[i] << 8 | std::to_integer<uint32_t>(block[i * 4 + b]);
  }
  for (size_t i = 16; i < w.size(); ++i) {
    const uint32_t a = w[i - 15], e = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
           (std::rotr(e, 17) ^ std::rotr(e, 19) ^ e >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < w.size(); ++i) {
    const uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                         ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t two =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < added.size(); ++i) state_[i] += added[i];
}

void Sha256::update(std::span<const std::byte> bytes) {
  const size_t held = size_ % kBlock;
  size_ += bytes.size();
  if (held > 0) {
    const size_t count = std::min(bytes.size(), kBlock - held);
    std::copy_n(bytes.begin(), count, rest_.begin() + held);
    bytes = bytes.subspan(count);
    if (held + count < kBlock) return;
    add_block(rest_.data());
  }
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) add_block(bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

Sha256::Digest Sha256::finish() {
  const uint64_t bits = size_ * 8;
  std::array<std::byte, 2 * kBlock> padding{std::byte{0x80}};
  // The length fills the end of the last block.
  const size_t count = (size_ % kBlock < kBlock - 8 ? kBlock : 2 * kBlock) - size_ % kBlock;
  for (size_t i = 0; i < 8; ++i)
    padding[count - 1 - i] = static_cast<std::byte>(bits >> 8 * i & 0xff);
  update(std::span(padding).first(count));
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - i % 4 * 8));
  return digest;
}

}  // namespace opwright
