// A tile of the weights, which threads unpack into shared memory: kVector neighbours each.
// Expects tile_copies.cuh or thread_copies.cuh, and the constants kBits, kBlock, kColumns, kBlocks,
// kRowBytes; kHasZeros: there are zero points; kPacksZeros: kPerByte of them lie in a byte, in rows
// of kZeroBytes, else each is an element.
#pragma once

template <class Scale, class Zero>
struct UnpackingReader {
  const unsigned char* codes;
  const Scale* scales;
  const Zero* zeros;
  Index first, count;
  bool is_aligned;  // the codes of a thread
  __device__ float zero(Index row, Index block) const {
    if constexpr (!kHasZeros)
      return (float)(1 << (kBits - 1));
    else if constexpr (kPacksZeros)
      return (float)(zeros[row * kZeroBytes + block / kPerByte] >> (int)(block % kPerByte) * kBits &
                     ((1 << kBits) - 1));
    else
      return load(zeros[row * kBlocks + block]);
  }
  __device__ unsigned long long read(const unsigned char* from) const {
    if (is_aligned) {
      const Pack<unsigned char, kBits> pack = *(const Pack<unsigned char, kBits>*)from;
      unsigned long long word = 0;
#pragma unroll
      for (int i = 0; i < kBits; ++i) word |= (unsigned long long)pack.at[i] << 8 * i;
      return word;
    }
    unsigned long long word = 0;
#pragma unroll
    for (int i = 0; i < kBits; ++i) word |= (unsigned long long)from[i] << 8 * i;
    return word;
  }
  __device__ void copy(ElementB* tile, Index k) const {
    constexpr int kPacks = kTileK / kVector;
#pragma unroll 4
    for (int at = copying_thread(); at < kTileN * kPacks; at += kThreads) {
      const int line = at / kPacks, inner = at % kPacks * kVector;
      const Index row = first + line, element = k + inner;
      Pack<ElementB, kVector> pack;
      const bool is_there = row < count && element < kColumns;
      const Index block = is_there ? element / kBlock : 0, place = is_there ? row : 0;
      const unsigned long long word =
          read(codes + place * kRowBytes + (is_there ? element : 0) * kBits / 8);
      const float scale = load(scales[place * kBlocks + block]);
      const float offset = -scale * zero(place, block);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float code = (float)(unsigned)(word >> i * kBits & ((1u << kBits) - 1));
        pack.at[i] =
            store<ElementB>(is_there && element + i < kColumns ? code * scale + offset : 0.0f);
      }
      *(Pack<ElementB, kVector>*)(tile + TileLayout<kTileK, kTileN>::place(line, inner)) = pack;
    }
  }
};
