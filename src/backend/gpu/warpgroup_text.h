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
/// warp_group_instruction writes; it adds to the sums or replaces them. kPromotes: tensor cores
/// keep some 14 bits of a sum of FP8 (DeepSeek-V3, 2024, section 3.3.2), so that those of a tile
/// are added up in FP32.
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
// The sum is not read before what comes before this.
__device__ inline void keep_behind(float& sum) { asm volatile("" : "+f"(sum) :: "memory"); }
__device__ inline void keep_behind(int&) {}
struct Product {
  static constexpr int kBlocks = kTileM / (64 * kWarpGroups);
  // Of 64 rows, in the same units.
  static constexpr int kBlock = (kAlongKA ? 64 : kTileK) * 128 / 16;
  // Elements along k of an instruction.
  static constexpr int kStep = 32 / sizeof(ElementA);
  Sum sums[kBlocks][kTileN / 2];
  Sum of_tile[kBlocks][kTileN / 2];  // where they are promoted
  __device__ Product() {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kTileN / 2; ++j) sums[i][j] = 0;
  }
  // Starts products of the tiles at these addresses in shared memory.
  __device__ void add(unsigned a, unsigned b) {
    const int group = (int)threadIdx.x / 128 % kWarpGroups;
    const unsigned long long rows = describe_matrix<kAlongKA>(a) + group * (kBlocks * kBlock);
    const unsigned long long columns = describe_matrix<kAlongKB>(b);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < kTileK; k += kStep)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        const unsigned long long row = rows + (place_along_k<kAlongKA, kTileM>(k) + i * kBlock);
        const unsigned long long column = columns + place_along_k<kAlongKB, kTileN>(k);
        if constexpr (!kPromotes)
          multiply_matrices<1>(sums[i], row, column);
        else if (k == 0)
          multiply_matrices<0>(of_tile[i], row, column);
        else
          multiply_matrices<1>(of_tile[i], row, column);
      }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  // Behind the wait for the products.
  __device__ void promote() {
    if constexpr (kPromotes)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int j = 0; j < kTileN / 2; ++j) {
          keep_behind(of_tile[i][j]);
          sums[i][j] += of_tile[i][j];
        }
  }
  // Puts the sums into a tile of rows of that length.
  __device__ void put_all(Sum* to, int row_length) const {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kTileN / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          const int row = (warp / 4 * kBlocks + i) * 64 + warp % 4 * 16 + lane / 4 + 4 * e;
          *(Pack<Sum, 2>*)(to + row * row_length + 8 * j + lane % 4 * 2) = {
              sums[i][4 * j + e], sums[i][4 * j + e + 1]};
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
  __device__ void put(Sum* to, int row_length, int) const {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < Product::kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kTileN / 8; ++j)
        if (i == block && j >= first / 8 && j < (first + kWarpN) / 8)
#pragma unroll
          for (int e = 0; e < 4; e += 2)
            *(Pack<Sum, 2>*)(to + (lane / 4 + 4 * e) * row_length + 8 * j - first + lane % 4 * 2) =
                {product.sums[i][4 * j + e], product.sums[i][4 * j + e + 1]};
  }
};
)";

/// How the blocks of a cluster, each of which has the sums of a part of k, add them up. Behind
/// kClusters.
inline constexpr std::string_view kClusterSums = R"(
constexpr int kSumRow = kTileN + 8;  // neighbouring rows begin in different banks
static_assert(kTileM * kSumRow * 4 <= kStages * kStageBytes, "sums take the place of the stages");
__device__ inline void add_word(float& sum, unsigned word) { sum += __uint_as_float(word); }
__device__ inline void add_word(int& sum, unsigned word) { sum = (int)((unsigned)sum + word); }
// 16 rows and kWarpN columns of the tile, which begin at `sums` in the memory of each block.
struct ClusterPart {
  unsigned sums;
  __device__ void put(Sum* to, int row_length, int) const {
    for (int at = (int)threadIdx.x % 32 * 4; at < 16 * kWarpN; at += 32 * 4) {
      const unsigned place = sums + (at / kWarpN * kSumRow + at % kWarpN) * 4;
      Pack<Sum, 4> sum = {};
#pragma unroll
      for (int rank = 0; rank < kParts; ++rank) {
        unsigned part[4];
        asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                     : "r"(place_in_block(place, rank)) : "memory");
#pragma unroll
        for (int i = 0; i < 4; ++i) add_word(sum.at[i], part[i]);
      }
      *(Pack<Sum, 4>*)(to + at / kWarpN * row_length + at % kWarpN) = sum;
    }
  }
};
)";

/// The stages, and the loop over tiles along k of those that multiply.
inline constexpr std::string_view kWarpGroupLoop = R"(
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
      init_barrier(barriers + 16 * i, kCopies);
      init_barrier(barriers + 16 * i + 8, kProducts);
    }
#pragma unroll
    for (int i = 0; i < kTurns && kTurns > 1; ++i)
      init_barrier(barriers + 16 * kStages + 8 * i, kProducts);
    end_barriers_init();
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
// Products of one step run while the next one's begin, but where threads add them up: then other
// warpgroups multiply meanwhile. Gives the barrier of the last stage, if its products still run.
__device__ inline unsigned multiply_tiles(Product& product, Ring& ring, Index first, Index end) {
  unsigned before = 0;
  for (Index step = first; step < end; ++step) {
    wait(ring.is_full(), ring.parity);
    // The products read by another way than threads' copies have written.
    if (!kHasMaps) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    product.add(shared_address(ring.tile_a()), shared_address(ring.tile_b()));
    if constexpr (kPromotes) {
      wait_for_products<0>();
      if (threadIdx.x % 32 == 0) arrive(ring.is_empty());
      product.promote();
      ring.advance();
      continue;
    }
    if (step > first) {
      wait_for_products<1>();
      if (threadIdx.x % 32 == 0) arrive(before);
    }
    before = ring.is_empty();
    ring.advance();
  }
  return before;
}
__device__ inline void end_products(unsigned last_stage) {
  wait_for_products<0>();
  if (last_stage != 0 && threadIdx.x % 32 == 0) arrive(last_stage);
}
)";

/// How results of 8 or 16 bits come from registers to memory: a warp's 16 rows of kWarpN columns go
/// through shared memory, so that rows are stored in vectors.
inline constexpr std::string_view kPackedResults = R"(
static_assert(kWarpN <= 64, "a lane has two columns of a bias");
// Neighbouring rows begin in different banks.
constexpr int kResultRow = kWarpN + 16 / sizeof(Output);
PUT_RESULTS// What lies along columns and is the same for all rows: of each kWarpN columns of a tile a lane
// loads two, and hands them to those that need them.
template <class Value>
struct ColumnValues {
  Value values[kTileN / kWarpN][2];
  template <class Read>
  __device__ ColumnValues(Read read, Index first, Index columns) {
#pragma unroll
    for (int part = 0; part < kTileN / kWarpN; ++part)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Index column = first + part * kWarpN + (int)threadIdx.x % 32 * 2 + i;
        values[part][i] = read(column < columns ? column : columns - 1);
      }
  }
  // Of column `part` + 2 `pair` + i of the tile, `part` being a multiple of kWarpN.
  __device__ Value at(int part, int pair, int i) const {
    return (Value)__shfl_sync(0xffffffffu, values[part / kWarpN][i], pair);
  }
};
// Rows of a warp from column `column` on. `find(i)` is where row i begins; null: nowhere.
template <class Find>
__device__ inline void store_results(const Output* from, Find find, Index column, Index columns,
                                     bool stores_packs) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 16 * kWarpN; i += 32 * kPack) {
    const int at = i + lane * kPack, in_row = at % kWarpN;
    Output* const to = find(at / kWarpN);
    const Index first = column + in_row;
    if (to == nullptr || first >= columns) continue;
    const Output* const results = from + at / kWarpN * kResultRow + in_row;
    if (stores_packs && first + kPack <= columns) {
      *(Pack<Output, kPack>*)(to + first) = *(const Pack<Output, kPack>*)results;
    } else {
      for (int e = 0; e < kPack; ++e)
        if (first + e < columns) to[first + e] = results[e];
    }
  }
}
)";

/// What stores two neighbours, of 16 bits or of 8.
inline constexpr std::string_view kPutHalves = R"(
__device__ inline void put_results(Output* to, float first, float second) {
  unsigned pair;
  asm("cvt.rn.OUTPUT_PAIR.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  *(unsigned*)to = pair;
}
)";
inline constexpr std::string_view kPutBytes = R"(
template <class Value>
__device__ inline void put_results(Output* to, Value first, Value second) {
  *(Pack<Output, 2>*)to = {store<Output>(first), store<Output>(second)};
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
    arrive_behind_copies(ring.is_full());
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

/// A tensor of the type Behind that lies as the output does and goes into it: its part of a tile
/// takes the stages behind those of the products.
inline constexpr std::string_view kBoxesBehind = R"(
// Neighbours that are copied at once, and of one row of a column of blocks.
constexpr int kVectorBehind = 16 / sizeof(Behind), kSwizzledBehind = 128 / sizeof(Behind);
constexpr int kBoxBytes = kTileM * 128, kBoxes = kTileN / kSwizzledBehind;
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
      copy_box(ring.tile_a() + i * kBoxBytes, map, column + (box + i) * kSwizzledBehind, row, 0,
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
  // 16 rows of 16 columns from there on: of the lane's two pairs of columns what rows lane / 4 and
  // lane / 4 + 8 have.
  __device__ void load(unsigned (&to)[2][2], int row, int column) const {
    const int lane = (int)threadIdx.x % 32, box = column / kSwizzledBehind;
    const Behind* const from =
        (const Behind*)(ring.tiles + stage(box) * kStageBytes +
                          box % kBoxesOfStage * kBoxBytes) +
        (row + lane % 16) * kSwizzledBehind;
    // The column's vector is one of two neighbours.
    const int vector = (lane / 16 ^ lane % 8) * kVectorBehind ^ column % kSwizzledBehind;
    load_matrices<false>(to[0][0], to[0][1], to[1][0], to[1][1], from + vector);
  }
  // Neighbours from that place of the tile on, which are copied at once.
  __device__ const Behind* find(int row, int column) const {
    const int box = column / kSwizzledBehind, in_row = column % kSwizzledBehind;
    return (const Behind*)(ring.tiles + stage(box) * kStageBytes +
                           box % kBoxesOfStage * kBoxBytes) +
           row * kSwizzledBehind + (in_row / kVectorBehind ^ row) % 8 * kVectorBehind +
           in_row % kVectorBehind;
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
