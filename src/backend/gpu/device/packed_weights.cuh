// Weights of 2, 4 or 8 bits. Neighbours in a row share a scale and a zero point.
//
// A template over a struct that the host writes:
//   Scale, Zero          the types in memory
//   kBits, kBlock        bits of a weight; neighbours that share a scale
//   kMatrixRows, kColumns, kBlocks, kRowBytes   of the matrix; of a row
//   kHasZeros            whether there are zero points. Without them it is half of the codes.
//   kPacksZeros          whether a byte holds kPerByte zero points, and a row of them kZeroBytes
// Expects prelude.cuh.
#pragma once

template <class Codes>
struct PackedWeights {
  const unsigned char* codes;
  const typename Codes::Scale* scales;
  const typename Codes::Zero* zeros;

  __device__ float scale(Index row, Index block) const {
    return load(scales[row * Codes::kBlocks + block]);
  }
  __device__ float zero(Index row, Index block) const {
    if constexpr (!Codes::kHasZeros)
      return (float)(1 << (Codes::kBits - 1));
    else if constexpr (Codes::kPacksZeros)
      return (float)(zeros[row * Codes::kZeroBytes + block / Codes::kPerByte] >>
                         (int)(block % Codes::kPerByte) * Codes::kBits &
                     ((1 << Codes::kBits) - 1));
    else
      return load(zeros[row * Codes::kBlocks + block]);
  }
};
