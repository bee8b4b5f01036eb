// How tiles lie in shared memory where each thread copies and multiplies.
// Expects the types ElementA, ElementB, Sum and Output, and the constants kTileM, kTileN and
// kTileK; kWarpsM and kWarpsN, how warps share a tile; kStages; kAlongKA and kAlongKB: neighbours
// of an operand lie along k.
#pragma once

constexpr int kThreads = 32 * kWarpsM * kWarpsN;
constexpr int kVector = 16 / sizeof(ElementA);  // neighbours that are copied at once
constexpr int kPack = 16 / sizeof(Output);      // neighbours that are stored at once
constexpr int kWarpM = kTileM / kWarpsM, kWarpN = kTileN / kWarpsN;

__device__ inline int copying_thread() { return (int)threadIdx.x; }
// Rows are so long that eight, one below the other, begin in different banks.
template <int inner, int outer>
struct TileLayout {
  static constexpr int kLength = inner + kVector, kElements = outer * kLength;
  __device__ static int place(int row, int element) { return row * kLength + element; }
};
typedef TileLayout<kAlongKA ? kTileK : kTileM, kAlongKA ? kTileM : kTileK> LayoutA;
typedef TileLayout<kAlongKB ? kTileK : kTileN, kAlongKB ? kTileN : kTileK> LayoutB;
constexpr int kRowA = LayoutA::kLength, kRowB = LayoutB::kLength;
constexpr int kSizeA = LayoutA::kElements, kSizeB = LayoutB::kElements;
// A stage: a tile of a, and behind it one of b.
constexpr int kStageBytes = kSizeA * sizeof(ElementA) + kSizeB * sizeof(ElementB);
