// The reader of packed weights. Threads unpack a tile of them into shared memory, kVector
// neighbours at a time. `Side` is a ProductSide, `Codes` the struct of packed_weights.cuh.
// Expects prelude.cuh.
#pragma once

#include "packed_weights.cuh"

template <class Side, class Codes>
struct UnpackingReader {
  typedef typename Side::Element Element;
  static constexpr int kTileK = Side::kTileK, kExtent = Side::kExtent, kVector = Side::kVector,
                       kThreads = Side::kThreads;
  PackedWeights<Codes> weights;
  Index first, count;
  bool is_aligned;  // whether a thread's codes are aligned
  __device__ unsigned long long read(const unsigned char* from) const {
    if (is_aligned) {
      const Pack<unsigned char, Codes::kBits> pack =
          *(const Pack<unsigned char, Codes::kBits>*)from;
      unsigned long long word = 0;
#pragma unroll
      for (int i = 0; i < Codes::kBits; ++i) word |= (unsigned long long)pack.at[i] << 8 * i;
      return word;
    }
    unsigned long long word = 0;
#pragma unroll
    for (int i = 0; i < Codes::kBits; ++i) word |= (unsigned long long)from[i] << 8 * i;
    return word;
  }
  __device__ void copy(Element* tile, Index k) const {
    constexpr int kPacks = kTileK / kVector;
#pragma unroll 4
    for (int at = Side::thread(); at < kExtent * kPacks; at += kThreads) {
      const int line = at / kPacks, inner = at % kPacks * kVector;
      const Index row = first + line, element = k + inner;
      Pack<Element, kVector> pack;
      const bool is_there = row < count && element < Codes::kColumns;
      const Index block = is_there ? element / Codes::kBlock : 0, place = is_there ? row : 0;
      const unsigned long long word = read(weights.codes + place * Codes::kRowBytes +
                                           (is_there ? element : 0) * Codes::kBits / 8);
      const float scale = weights.scale(place, block);
      const float offset = -scale * weights.zero(place, block);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float code = (float)(unsigned)(word >> i * Codes::kBits & ((1u << Codes::kBits) - 1));
        pack.at[i] = store<Element>(
            is_there && element + i < Codes::kColumns ? code * scale + offset : 0.0f);
      }
      *(Pack<Element, kVector>*)(tile + Side::place(line, inner)) = pack;
    }
  }
};
