#pragma once

#include <string_view>

// The parts of kernels whose products are those of warpgroups (wgmma), beside those of
// product_text.h. They use its constants, and kWarpGroups, of those that multiply, kThreads, those
// that copy, which are behind them, kTurns, how many tiles are multiplied by threads of their own,
// kHasMaps, whether these let the copying unit (TMA) do it, and kWarpN, the columns that a warp
// stores at once.
namespace opwright::gpu {

/// How tiles lie in shared memory, and who copies them: the warps behind those that multiply.
inline constexpr std::string_view kSwizzledTiles = R"(
constexpr int kMultipliers = 128 * kWarpGroups;    // threads that multiply a tile
constexpr int kVector = 16 / sizeof(ElementA);     // neighbours that are copied at once
constexpr int kPack = 16 / sizeof(Output);         // neighbours that are stored at once
constexpr int kSwizzled = 128 / sizeof(ElementA);  // neighbours of one row of a column of blocks
constexpr int kWarpM = 16;

__device__ inline int copying_thread() { return (int)threadIdx.x - kTurns * kMultipliers; }
__device__ inline void sync_multipliers() {
  asm volatile("bar.sync 1, %0;" :: "n"(kMultipliers) : "memory");
}
// Columns of blocks of 8 rows of 128 bytes, of which row r has its vector i at i ^ r.
template <int inner, int outer> struct TileLayout {
  static constexpr int kElements = inner * outer;
  __device__ static int place(int row, int element) {
    return element / kSwizzled * (kSwizzled * outer) + row * kSwizzled +
           (element / kVector ^ row) % 8 * kVector + element % kVector;
  }
};
constexpr int kSizeA = kTileM * kTileK, kSizeB = kTileN * kTileK;
// A stage: a tile of a, and behind it one of b.
constexpr int kStageBytes = (kSizeA + kSizeB) * (int)sizeof(ElementA);
)";

/// `Product`: the sums of a warpgroup's threads. `multiply_matrices` is the instruction, which
/// WarpGroupUnit writes.
inline constexpr std::string_view kWarpGroupProduct = R"(
// How the instruction is told where a tile begins in shared memory: across k its columns of blocks
// are kTileK rows long, and along k blocks follow each other.
template <bool is_along_k>
__device__ inline unsigned long long describe_matrix(unsigned address) {
  constexpr unsigned long long kLeading = is_along_k ? 1 : kTileK * 128 / 16;
  constexpr unsigned long long kBlock = 1024 / 16, kSwizzle128 = 1;
  return (address & 0x3ffffu) >> 4 | kLeading << 16 | kBlock << 32 | kSwizzle128 << 62;
}
// Where element k of a tile's rows begins, in the units of the description.
template <bool is_along_k, int extent>
__device__ inline constexpr int place_along_k(int k) {
  return (is_along_k ? k / kSwizzled * (extent * 128) + k % kSwizzled * (int)sizeof(ElementA)
                     : k * 128) / 16;
}
struct Product {
  static constexpr int kBlocks = kTileM / (64 * kWarpGroups);
  // Of 64 rows, in the same units.
  static constexpr int kBlock = (kAlongKA ? 64 : kTileK) * 128 / 16;
  float sums[kBlocks][kTileN / 2];
  __device__ Product() {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kTileN / 2; ++j) sums[i][j] = 0.0f;
  }
  // Starts products of the tiles at these addresses in shared memory.
  __device__ void add(unsigned a, unsigned b) {
    const int group = (int)threadIdx.x / 128 % kWarpGroups;
    const unsigned long long rows = describe_matrix<kAlongKA>(a) + group * (kBlocks * kBlock);
    const unsigned long long columns = describe_matrix<kAlongKB>(b);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < kTileK; k += 16)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
        multiply_matrices(sums[i], rows + (place_along_k<kAlongKA, kTileM>(k) + i * kBlock),
                          columns + place_along_k<kAlongKB, kTileN>(k));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  // Puts the sums into a tile of rows of that length.
  __device__ void put_all(float* to, int row_length) const {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kTileN / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          const int row = (warp / 4 * kBlocks + i) * 64 + warp % 4 * 16 + lane / 4 + 4 * e;
          *(float2*)(to + row * row_length + 8 * j + lane % 4 * 2) =
              make_float2(sums[i][4 * j + e], sums[i][4 * j + e + 1]);
        }
  }
};
// Until all but the last `count` of the thread's steps are done.
template <int count>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(count) : "memory");
}
// The 16 rows of a warp in one of the product's blocks, and kWarpN columns of them.
struct ProductPart {
  const Product& product;
  int block, first;
  __device__ void put(float* to, int row_length, int) const {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < Product::kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kTileN / 8; ++j)
        if (i == block && j >= first / 8 && j < (first + kWarpN) / 8)
#pragma unroll
          for (int e = 0; e < 4; e += 2)
            *(float2*)(to + (lane / 4 + 4 * e) * row_length + 8 * j - first + lane % 4 * 2) =
                make_float2(product.sums[i][4 * j + e], product.sums[i][4 * j + e + 1]);
  }
};
)";

/// How the blocks of a cluster, each of which has the sums of a part of k, add them up.
inline constexpr std::string_view kClusterSums = R"(
constexpr int kSumRow = kTileN + 8;  // neighbouring rows begin in different banks
static_assert(kTileM * kSumRow * 4 <= kStages * kStageBytes, "sums take the place of the stages");
__device__ inline void sync_cluster() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
               ::: "memory");
}
// 16 rows and kWarpN columns of the tile, which begin at `sums` in the memory of each block.
struct ClusterPart {
  unsigned sums;
  __device__ void put(float* to, int row_length, int) const {
    for (int at = (int)threadIdx.x % 32 * 4; at < 16 * kWarpN; at += 32 * 4) {
      const unsigned place = sums + (at / kWarpN * kSumRow + at % kWarpN) * 4;
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int rank = 0; rank < kParts; ++rank) {
        unsigned address;
        float4 part;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                     : "=r"(address) : "r"(place), "r"(rank));
        asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(part.x), "=f"(part.y), "=f"(part.z), "=f"(part.w)
                     : "r"(address) : "memory");
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
      }
      *(float4*)(to + at / kWarpN * row_length + at % kWarpN) = sum;
    }
  }
};
)";

/// The stages, and the loop over tiles along k of those that multiply.
inline constexpr std::string_view kWarpGroupLoop = R"(
__device__ inline void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}
// Until the barrier's phase of that parity is over.
__device__ inline void wait(unsigned barrier, unsigned parity) {
  unsigned is_over = 0;
  while (is_over == 0)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                 "selp.u32 %0, 1, 0, p;}"
                 : "=r"(is_over) : "r"(barrier), "r"(parity) : "memory");
}
// Stages that are filled and multiplied in turns, with two barriers each.
struct Ring {
  char* tiles;
  unsigned barriers;
  int stage = 0;
  unsigned parity = 0;
  int prefetched = 0;  // stages that have what is constant

  __device__ Ring(char* tiles, char* barriers)
      : tiles(tiles), barriers(shared_address(barriers)) {}
  // By one thread, before any other uses it.
  __device__ void init() const {
    constexpr int kCopies = kHasMaps ? 1 : kThreads + kThreads / 32;
    constexpr int kProducts = kMultipliers / 32;
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                   :: "r"(barriers + 16 * i), "r"(kCopies) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                   :: "r"(barriers + 16 * i + 8), "r"(kProducts) : "memory");
    }
#pragma unroll
    for (int i = 0; i < kTurns && kTurns > 1; ++i)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                   :: "r"(barriers + 16 * kStages + 8 * i), "r"(kProducts) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ unsigned is_full() const { return barriers + 16 * stage; }
  __device__ unsigned is_empty() const { return barriers + 16 * stage + 8; }
  __device__ char* tile_a() const { return tiles + stage * kStageBytes; }
  __device__ char* tile_b() const { return tile_a() + kSizeA * sizeof(ElementA); }
  __device__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
  // Those that multiply a tile wait until those of the one before have found all of their stages
  // full: a phase is not told from the one two before. Tile `turn` of a block is that of group
  // `turn % 2`.
  __device__ void begin_turn(int turn) const {
    if (turn > 0)
      wait(barriers + 16 * kStages + 8 * ((turn - 1) % 2), (unsigned)(turn - 1) / 2 % 2);
  }
  __device__ void end_turn(int turn) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barriers + 16 * kStages + 8 * (turn % 2));
  }
  // Over stages that are for others.
  __device__ void skip(Index count) {
    parity ^= (unsigned)((stage + count) / kStages & 1);
    stage = (int)((stage + count) % kStages);
  }
};
// Products of one step run while the next one's begin.
__device__ inline void multiply_tiles(Product& product, Ring& ring, Index first, Index end) {
  unsigned before = 0;
  for (Index step = first; step < end; ++step) {
    wait(ring.is_full(), ring.parity);
    // The products read by another way than threads' copies have written.
    if (!kHasMaps) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    product.add(shared_address(ring.tile_a()), shared_address(ring.tile_b()));
    if (step > first) {
      wait_for_products<1>();
      if (threadIdx.x % 32 == 0) arrive(before);
    }
    before = ring.is_empty();
    ring.advance();
  }
  wait_for_products<0>();
  if (first < end && threadIdx.x % 32 == 0) arrive(before);
}
)";

/// The loop over tiles along k of threads that copy (cp.async).
inline constexpr std::string_view kThreadCopies = R"(
// What of the first stages depends on no kernel before.
template <class A, class B>
__device__ inline void prefetch_tiles(Ring& ring, const A& a, const B& b, Index first, Index end) {
  for (; ring.prefetched < kStages && first + ring.prefetched < end; ++ring.prefetched) {
    ElementA* const to = (ElementA*)(ring.tiles + ring.prefetched * kStageBytes);
    if (kIsConstantA) a.copy(to, (first + ring.prefetched) * kTileK);
    if (kIsConstantB) b.copy((ElementB*)(to + kSizeA), (first + ring.prefetched) * kTileK);
  }
}
template <class A, class B>
__device__ inline void copy_tiles(Ring& ring, const A& a, const B& b, Index first, Index end) {
  for (Index step = first; step < end; ++step) {
    wait(ring.is_empty(), ring.parity ^ 1);
    const bool is_prefetched = ring.prefetched > 0;
    if (is_prefetched) --ring.prefetched;
    if (!kIsConstantA || !is_prefetched) a.copy((ElementA*)ring.tile_a(), step * kTileK);
    if (!kIsConstantB || !is_prefetched) b.copy((ElementB*)ring.tile_b(), step * kTileK);
    // Asynchronous copies arrive when they are there. What the warp has stored by itself is before
    // the arrival of its first lane.
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
                 :: "r"(ring.is_full()) : "memory");
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(ring.is_full());
    ring.advance();
  }
}
)";

/// Likewise where one thread lets the copying unit (TMA) copy boxes of tensors, whose rows come as
/// TileLayout has them. A barrier counts the bytes, those of a box being the same where a part of
/// it lies outside of the tensor and becomes 0.
inline constexpr std::string_view kBoxCopies = R"(
__device__ inline bool is_copying_thread() { return copying_thread() == 0; }
// So that the first copy does not wait for the map.
__device__ inline void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
}
// Arrives, and makes the phase wait for so many bytes.
__device__ inline void expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void copy_box(void* to, const TensorMap& map, Index inner, Index outer,
                                Index matrix, unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5}], [%2];"
               :: "r"(shared_address(to)), "l"(&map), "r"(barrier), "r"((int)inner),
                  "r"((int)outer), "r"((int)matrix) : "memory");
}
// A tile of one of a stack of matrices, from row or column `origin` on.
template <int extent, bool is_along_k>
struct MatrixBoxes {
  const TensorMap& map;
  Index origin, matrix;
  __device__ void copy(ElementA* tile, Index k, unsigned barrier) const {
    constexpr int kInner = is_along_k ? kTileK : extent, kOuter = is_along_k ? extent : kTileK;
    const Index inner = is_along_k ? k : origin, outer = is_along_k ? origin : k;
#pragma unroll
    for (int i = 0; i < kInner; i += kSwizzled)
      copy_box(tile + i * kOuter, map, inner + i, outer, matrix, barrier);
  }
};
// What of the first stages depends on no kernel before.
template <class A, class B>
__device__ inline void prefetch_tiles(Ring& ring, const A& a, const B& b, Index first, Index end) {
  if (!is_copying_thread() || (!kIsConstantA && !kIsConstantB)) return;
  for (; ring.prefetched < kStages && first + ring.prefetched < end; ++ring.prefetched) {
    ElementA* const to = (ElementA*)(ring.tiles + ring.prefetched * kStageBytes);
    const unsigned is_full = ring.barriers + 16 * ring.prefetched;
    expect(is_full, kStageBytes);
    if (kIsConstantA) a.copy(to, (first + ring.prefetched) * kTileK, is_full);
    if (kIsConstantB) b.copy(to + kSizeA, (first + ring.prefetched) * kTileK, is_full);
  }
}
template <class A, class B>
__device__ inline void copy_tiles(Ring& ring, const A& a, const B& b, Index first, Index end) {
  if (!is_copying_thread()) return;
  for (Index step = first; step < end; ++step) {
    const bool is_prefetched = ring.prefetched > 0;
    if (is_prefetched) {
      --ring.prefetched;
    } else {
      wait(ring.is_empty(), ring.parity ^ 1);
      expect(ring.is_full(), kStageBytes);
    }
    ElementA* const to = (ElementA*)ring.tile_a();
    if (!kIsConstantA || !is_prefetched) a.copy(to, step * kTileK, ring.is_full());
    if (!kIsConstantB || !is_prefetched) b.copy(to + kSizeA, step * kTileK, ring.is_full());
    ring.advance();
  }
}
)";

/// A tensor that lies as the output does and goes into it: its part of a tile takes the stages
/// behind those of the products.
inline constexpr std::string_view kBoxesBehind = R"(
constexpr int kBoxBytes = kTileM * 128, kBoxes = kTileN / kSwizzled;
constexpr int kBoxesOfStage = kStageBytes / kBoxBytes;
constexpr int kStagesBehind = (kBoxes + kBoxesOfStage - 1) / kBoxesOfStage;
static_assert(kStagesBehind < kStages, "others have stages, too");
__device__ inline void copy_boxes_behind(Ring& ring, const TensorMap& map, Index row,
                                         Index column) {
  if (!is_copying_thread()) return;
#pragma unroll
  for (int box = 0; box < kBoxes; box += kBoxesOfStage) {
    const int count = kBoxes - box < kBoxesOfStage ? kBoxes - box : kBoxesOfStage;
    wait(ring.is_empty(), ring.parity ^ 1);
    expect(ring.is_full(), count * kBoxBytes);
#pragma unroll
    for (int i = 0; i < count; ++i)
      copy_box(ring.tile_a() + i * kBoxBytes, map, column + (box + i) * kSwizzled, row, 0,
               ring.is_full());
    ring.advance();
  }
}
struct BoxesBehind {
  Ring& ring;
  const int first;
  __device__ explicit BoxesBehind(Ring& ring) : ring(ring), first(ring.stage) {
#pragma unroll
    for (int box = 0; box < kBoxes; box += kBoxesOfStage) {
      wait(ring.is_full(), ring.parity);
      ring.advance();
    }
  }
  __device__ int stage(int box) const {
    const int stage = first + box / kBoxesOfStage;
    return stage < kStages ? stage : stage - kStages;
  }
  // Neighbours from that place of the tile on, which are copied at once.
  __device__ const ElementA* find(int row, int column) const {
    const int box = column / kSwizzled;
    return (const ElementA*)(ring.tiles + stage(box) * kStageBytes +
                             box % kBoxesOfStage * kBoxBytes) +
           TileLayout<kSwizzled, kTileM>::place(row, column % kSwizzled);
  }
  // By warps that have read all of theirs.
  __device__ void release() const {
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
#pragma unroll
    for (int box = 0; box < kBoxes; box += kBoxesOfStage)
      arrive(ring.barriers + 16 * stage(box) + 8);
  }
};
)";

}  // namespace opwright::gpu
