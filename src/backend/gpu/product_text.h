#pragma once

#include <string_view>

// The parts that kernels of products are put together from. They use the types ElementA, ElementB,
// Sum and Output, and the constants kTileM, kTileN, kTileK, kWarpsM, kWarpsN, kStages, kAlongKA and
// kAlongKB.
namespace opwright::gpu {

/// How tiles lie in shared memory where each thread copies and multiplies.
inline constexpr std::string_view kPaddedTiles = R"(
constexpr int kThreads = 32 * kWarpsM * kWarpsN;
constexpr int kVector = 16 / sizeof(ElementA);  // neighbours that are copied at once
constexpr int kPack = 16 / sizeof(Output);      // neighbours that are stored at once
constexpr int kWarpM = kTileM / kWarpsM, kWarpN = kTileN / kWarpsN;

__device__ inline int copying_thread() { return (int)threadIdx.x; }
// Rows are so long that eight, one below the other, begin in different banks.
template <int inner, int outer> struct TileLayout {
  static constexpr int kLength = inner + kVector, kElements = outer * kLength;
  __device__ static int place(int row, int element) { return row * kLength + element; }
};
typedef TileLayout<kAlongKA ? kTileK : kTileM, kAlongKA ? kTileM : kTileK> LayoutA;
typedef TileLayout<kAlongKB ? kTileK : kTileN, kAlongKB ? kTileN : kTileK> LayoutB;
constexpr int kRowA = LayoutA::kLength, kRowB = LayoutB::kLength;
constexpr int kSizeA = LayoutA::kElements, kSizeB = LayoutB::kElements;
// A stage: a tile of a, and behind it one of b.
constexpr int kStageBytes = kSizeA * sizeof(ElementA) + kSizeB * sizeof(ElementB);
)";

/// How tiles are copied to shared memory. TileLayout<inner, outer>::place() tells where an element
/// of one of `outer` rows of `inner` lies; the first of kThreads threads that copy has
/// copying_thread() 0.
inline constexpr std::string_view kTileCopies = R"(
// Of kVector elements the first `count`, the others become 0.
template <bool is_aligned, class Element>
__device__ inline void copy_vector(Element* to, const Element* from, Index count) {
  if (is_aligned) {
    const int bytes = count <= 0 ? 0 : count >= kVector ? 16 : (int)count * (int)sizeof(Element);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) to[i] = i < count ? from[i] : Element{};
}

// A matrix, `extents` being what is left of it along k and along the other axis.
template <class Element, int extent, bool is_along_k>
struct MatrixReader {
  static constexpr int kInner = is_along_k ? kTileK : extent, kOuter = is_along_k ? extent : kTileK;
  static constexpr int kStep = kThreads * kVector, kCopies = (kInner * kOuter + kStep - 1) / kStep;
  const Element* matrix;
  Index stride, extents, depth;
  bool is_aligned;
  __device__ void copy(Element* tile, Index k) const {
    if (is_aligned)
      copy_all<true>(tile, k);
    else
      copy_all<false>(tile, k);
  }
  template <bool is_aligned>
  __device__ void copy_all(Element* tile, Index k) const {
    // Where a step is whole rows, a thread's copies lie below each other.
    constexpr int kRows = kStep % kInner == 0 ? kStep / kInner : 0;
    constexpr int kUnrolled = is_aligned ? kCopies : 1;
    const Index outers = is_along_k ? extents : depth - k;
    const Index inners = is_along_k ? depth - k : extents;
    const int first = copying_thread() * kVector;
    int outer = first / kInner, inner = first % kInner;
    const Element* from = matrix + (is_along_k ? k : k * stride) + (outer * stride + inner);
#pragma unroll kUnrolled
    for (int i = 0; i < kCopies; ++i) {
      if (kInner * kOuter % kStep != 0 && first + i * kStep >= kInner * kOuter) break;
      copy_vector<is_aligned>(tile + TileLayout<kInner, kOuter>::place(outer, inner), from,
                              outer < outers ? inners - inner : 0);
      if (kRows > 0) {
        outer += kRows;
        from += kRows * stride;
      } else {
        const int next = first + (i + 1) * kStep;
        from += (next / kInner - outer) * stride + (next % kInner - inner);
        outer = next / kInner, inner = next % kInner;
      }
    }
  }
};
)";

/// `Product`: a warp's sums, by multiply-adds. A lane has every fourth row and every eighth column.
/// kStepsOfPart: of long sums, after how many steps what they add up to is added to what those
/// before do, since a sum that grows loses what is added to it; 0 of others.
inline constexpr std::string_view kScalarProduct = R"(
// Integers wrap around.
__device__ inline float multiply_add(float a, float b, float sum) { return fmaf(a, b, sum); }
__device__ inline int multiply_add(int a, int b, int sum) {
  return (int)((unsigned)a * (unsigned)b + (unsigned)sum);
}
__device__ inline long long multiply_add(long long a, long long b, long long sum) {
  return (long long)((unsigned long long)a * (unsigned long long)b + (unsigned long long)sum);
}
struct Product {
  static constexpr int kRows = kWarpM / 4, kColumns = kWarpN / 8;
  static constexpr bool kHasParts = kStepsOfPart > 0;
  Sum sums[kRows][kColumns];
  Sum totals[kHasParts ? kRows : 1][kHasParts ? kColumns : 1];  // of the parts before
  int steps = 0;
  __device__ Product() {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        sums[i][j] = 0;
        if constexpr (kHasParts) totals[i][j] = 0;
      }
  }
  __device__ Sum sum(int i, int j) const {
    if constexpr (kHasParts) return totals[i][j] + sums[i][j];
    return sums[i][j];
  }
  template <bool is_along_k, int row_length, class Element>
  __device__ static void read(Sum (&to)[4], const Element* tile, int position, int k) {
    if (is_along_k) {
      const Pack<Element, 4> pack = *(const Pack<Element, 4>*)(tile + position * row_length + k);
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = load(pack.at[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = load(tile[(k + i) * row_length + position]);
    }
  }
  // From the warp's first row and column on.
  __device__ void add(const ElementA* a, const ElementB* b, int m, int n) {
    const int lane = (int)threadIdx.x % 32;
    if constexpr (kHasParts) {
      if (steps++ == kStepsOfPart) {
        steps = 1;
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
          for (int j = 0; j < kColumns; ++j) totals[i][j] += sums[i][j], sums[i][j] = 0;
      }
    }
#pragma unroll
    for (int k = 0; k < kTileK; k += 4) {
      Sum columns[kColumns][4];
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        read<kAlongKB, kRowB>(columns[j], b, n + lane % 8 + 8 * j, k);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        Sum row[4];
        read<kAlongKA, kRowA>(row, a, m + lane / 8 + 4 * i, k);
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[i][j] = multiply_add(row[e], columns[j][e], sums[i][j]);
      }
    }
  }
  // Puts each sum `threads` elements behind the one before, and adds what was put so.
  __device__ void save(Sum* to, int threads) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) to[(i * kColumns + j) * threads] = sum(i, j);
  }
  __device__ void add_saved(const Sum* from, int threads) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        sums[i][j] = multiply_add((Sum)1, __ldcg(from + (i * kColumns + j) * threads), sums[i][j]);
  }
  // Rows 16 part to 16 part + 15.
  __device__ void put(Sum* to, int row_length, int part) const {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (i / 4 == part)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          to[(lane / 8 + 4 * (i % 4)) * row_length + lane % 8 + 8 * j] = sum(i, j);
  }
};
)";

/// What a warp's tensor cores do at once, by instructions that NVIDIA's GPUs have since 8.0. They
/// take 16 x 8 results and 32 bytes along k: 16 elements of FP16 or BF16, 8 of TF32, 32 of INT8.
/// PRODUCT_INSTRUCTION is the name behind "mma.sync.aligned.", PRODUCT_SUM the constraint of a sum.
inline constexpr std::string_view kTensorInstruction = R"(
__device__ inline void multiply_fragments(Sum (&sum)[4], const unsigned (&a)[4],
                                          const unsigned (&b)[2]) {
  asm("mma.sync.aligned.PRODUCT_INSTRUCTION "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+PRODUCT_SUM"(sum[0]), "+PRODUCT_SUM"(sum[1]), "+PRODUCT_SUM"(sum[2]),
        "+PRODUCT_SUM"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
)";
/// Likewise of 32 elements of FP8. Before 8.9 they become FP16, which has all of their values, two
/// of a word's four at a time: in which order elements along k are multiplied does not matter.
inline constexpr std::string_view kFp8Instruction = R"(
// Bytes 0 and 2 of the word. Exponents are less by 8 in FP16's place; NaN has all bits set.
__device__ inline unsigned halves(unsigned word) {
  const unsigned magnitude = word & 0x007f007fu, nan = magnitude + 0x00010001u & 0x00800080u;
  const unsigned small = (word & 0x00800080u) << 8 | magnitude << 7 | nan * 0xf8u;
  unsigned result;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(small), "r"(0x5c005c00u));
  return result;
}
template <bool has_fp8>
__device__ inline void multiply_fp8(float (&sum)[4], const unsigned (&a)[4],
                                    const unsigned (&b)[2]) {
  if constexpr (has_fp8) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
#pragma unroll
    for (int shift = 0; shift < 16; shift += 8)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
          : "r"(halves(a[0] >> shift)), "r"(halves(a[1] >> shift)), "r"(halves(a[2] >> shift)),
            "r"(halves(a[3] >> shift)), "r"(halves(b[0] >> shift)), "r"(halves(b[1] >> shift)));
  }
}
__device__ inline void multiply_fragments(float (&sum)[4], const unsigned (&a)[4],
                                          const unsigned (&b)[2]) {
  multiply_fp8<kHasFp8>(sum, a, b);
}
)";
/// `Product` by that. kPromotes: tensor cores keep some 14 bits of a sum of FP8 (DeepSeek-V3, 2024,
/// section 3.3.2), so that those of a tile are added up in FP32.
inline constexpr std::string_view kTensorProduct = R"(
struct Product {
  static constexpr int kRows = kWarpM / 16, kColumns = kWarpN / 8;
  // Elements along k of an instruction, and of a register.
  static constexpr int kStep = 32 / sizeof(ElementA), kOfWord = 4 / sizeof(ElementA);
  static_assert(sizeof(ElementA) == sizeof(ElementB), "operands have one type");
  Sum sums[kRows][kColumns][4];
  __device__ Product() {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
  }
  // What ldmatrix cannot transpose: elements that lie `row_length` apart along k.
  template <int row_length, class Element>
  __device__ static unsigned gather(const Element* tile, int position, int k) {
    const Element* const from = tile + k * row_length + position;
    if constexpr (kOfWord == 1) return *(const unsigned*)from;
    unsigned word = 0;
#pragma unroll
    for (int e = 0; e < kOfWord; ++e)
      word |= (unsigned)*(const unsigned char*)(from + e * row_length) << 8 * e;
    return word;
  }
  // TF32 has the first 10 bits of a float's fraction.
  __device__ static void round(unsigned& word) {
    if constexpr (kOfWord == 1)
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
  }
  // From the warp's first row and column on.
  __device__ void add(const ElementA* a, const ElementB* b, int m, int n) {
    if constexpr (!kPromotes) {
      add_tile(a, b, m, n);
    } else {
      Product of_tile;
      of_tile.add_tile(a, b, m, n);
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[i][j][e] += of_tile.sums[i][j][e];
    }
  }
  __device__ void add_tile(const ElementA* a, const ElementB* b, int m, int n) {
    const int lane = (int)threadIdx.x % 32;
    const int near = lane % 8, middle = lane / 8 % 2, far = lane / 16;
#pragma unroll
    for (int k = 0; k < kTileK; k += kStep) {
      unsigned rows[kRows][4], columns[kColumns][2];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int row = m + 16 * i;
        if constexpr (kAlongKA || kOfWord == 2) {
          load_matrices<!kAlongKA>(
              rows[i][0], rows[i][1], rows[i][2], rows[i][3],
              a + (kAlongKA ? (row + near + 8 * middle) * kRowA + k + kStep / 2 * far
                            : (k + near + 8 * far) * kRowA + row + 8 * middle));
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            rows[i][e] = gather<kRowA>(a, row + lane / 4 + 8 * (e % 2),
                                       k + (lane % 4 + 4 * (e / 2)) * kOfWord);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) round(rows[i][e]);
      }
#pragma unroll
      for (int j = 0; j < kColumns; j += 2) {
        const int column = n + 8 * j;
        if constexpr (kAlongKB || kOfWord == 2) {
          load_matrices<!kAlongKB>(
              columns[j][0], columns[j][1], columns[j + 1][0], columns[j + 1][1],
              b + (kAlongKB ? (column + near + 8 * far) * kRowB + k + kStep / 2 * middle
                            : (k + near + 8 * middle) * kRowB + column + 8 * far));
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            columns[j + e / 2][e % 2] = gather<kRowB>(b, column + lane / 4 + 8 * (e / 2),
                                                      k + (lane % 4 + 4 * (e % 2)) * kOfWord);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) round(columns[j + e / 2][e % 2]);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) multiply_fragments(sums[i][j], rows[i], columns[j]);
    }
  }
  // Puts each sum `threads` elements behind the one before, and adds what was put so.
  __device__ void save(Sum* to, int threads) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) to[((i * kColumns + j) * 4 + e) * threads] = sums[i][j][e];
  }
  __device__ void add_saved(const Sum* from, int threads) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sums[i][j][e] += __ldcg(from + ((i * kColumns + j) * 4 + e) * threads);
  }
  // Rows 16 part to 16 part + 15.
  __device__ void put(Sum* to, int row_length, int part) const {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (i == part)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
          for (int e = 0; e < 4; e += 2)
            *(Pack<Sum, 2>*)(to + (lane / 4 + 4 * e) * row_length + 8 * j + lane % 4 * 2) = {
                sums[i][j][e], sums[i][j][e + 1]};
  }
};
)";

/// What the epilogue reads of a tile's columns, where it is constant, comes near meanwhile.
inline constexpr std::string_view kColumnPrefetch = R"(
template <class T>
__device__ inline void prefetch_columns(const T* from, Index first, Index columns) {
  constexpr int kLine = 128 / sizeof(T);
  const int offset = copying_thread() * kLine;
  if (offset < kTileN + kLine && first + offset < columns)
    asm volatile("prefetch.global.L2 [%0];" :: "l"(from + first + offset));
}
)";

/// The loop over tiles along k.
inline constexpr std::string_view kProductLoop = R"(
// What of the first stages depends on no kernel before.
template <class A, class B>
__device__ inline void prefetch_tiles(char* tiles, const A& a, const B& b, Index first, Index end) {
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    ElementA* const to = (ElementA*)(tiles + stage * kStageBytes);
    if (first + stage >= end) break;
    if (kIsConstantA) a.copy(to, (first + stage) * kTileK);
    if (kIsConstantB) b.copy((ElementB*)(to + kSizeA), (first + stage) * kTileK);
  }
}
// Copies run ahead of the products by all stages but one.
template <class A, class B>
__device__ inline void multiply_tiles(Product& product, char* tiles, const A& a, const B& b,
                                      Index first, Index end, int warp_m, int warp_n,
                                      bool is_prefetched) {
  const auto tile_a = [&](int stage) { return (ElementA*)(tiles + stage * kStageBytes); };
  const auto tile_b = [&](int stage) { return (ElementB*)(tile_a(stage) + kSizeA); };
  const auto copy = [&](int stage, Index step, bool is_prefetched) {
    if (step < end) {
      if (!kIsConstantA || !is_prefetched) a.copy(tile_a(stage), step * kTileK);
      if (!kIsConstantB || !is_prefetched) b.copy(tile_b(stage), step * kTileK);
    }
    end_copies();
  };
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) copy(stage, first + stage, is_prefetched);
  int stage = 0;
  for (Index step = first; step < end; ++step) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    copy(stage == 0 ? kStages - 1 : stage - 1, step + kStages - 1, false);
    product.add(tile_a(stage), tile_b(stage), warp_m, warp_n);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  wait_for_copies<0>();
  __syncthreads();
}
)";

}  // namespace opwright::gpu
