// Attention: the parts that all of its kernels share.
//
// A query's result is the sum of all values, weighted by the softmax of its scores with their keys.
// The scores are never stored in global memory. A block walks along the keys, one tile after the
// other. For each query it keeps the largest score so far and the sums relative to that score
// (online softmax).
//
// kGroup heads of queries share a head of keys and values. Their queries are the rows of that head:
// row r is query r % queries of the group's head r / queries. A task of a block is kTileM rows and
// one of kParts parts of their keys.
//
// Each kernel is a template over a struct that the host generates:
//   Element, Output      stored types of queries, keys and values; of the result
//   Allowed, Bias        stored types of the masks; void without the mask
//   kTileM, kTileN       rows and keys of a tile
//   kWarpsM, kWarpsN     number of warps along the rows and along the keys of a tile
//   kStages              tiles of keys and values that are in shared memory or on their way
//   kParts               blocks that share the keys of a row
//   kHeadSize, kHeadValueSize   elements of a head of queries and keys; of values
//   kSharedHeads, kGroup        heads of keys and values; heads of queries for each of them
//   kCausal              CausalMask
//   kScale, kCap         factor of the products; limit of the scores by tanh, or 0
//   kWritten             bit i: earlier kernels may write input i
//   masked_score()       the score of a key that is not allowed, times log2(e)
//   kMaskExcludes        whether masked_score() is -infinity
//   make_result(y)       the epilogue: converts a result from FP32 to its stored form
// Expects prelude.cuh.
#pragma once

#include "approximations.cuh"
#include "copies.cuh"

constexpr float kLog2e = 1.44269504f;

// Whether the mask with this type of elements is present.
template <class T>
constexpr bool is_present = true;
template <>
constexpr bool is_present<void> = false;

enum class CausalMask {
  kNone,
  kUpperLeft,   // query i attends to keys 0 to i
  kLowerRight,  // the last query attends to all keys
};

// An operand or the result. Distances are in elements; the elements of a head are contiguous.
template <class T>
struct AttentionOperand {
  T* data;
  Index offset, batch_step, head_step, row_step;
  __device__ T* head(Index batch, Index head) const {
    return data + offset + batch * batch_step + head * head_step;
  }
  __device__ T* row(Index batch, Index head, Index row) const {
    return data + offset + batch * batch_step + head * head_step + row * row_step;
  }
  __device__ Index place(Index batch, Index head, Index row) const {
    return offset + batch * batch_step + head * head_step + row * row_step;
  }
  // Whether each row of a head begins at a multiple of n elements.
  template <int n>
  __device__ bool is_aligned_to() const {
    return is_aligned<T, n>(data) && batch_step % n == 0 && head_step % n == 0 &&
           row_step % n == 0 && offset % n == 0;
  }
};

// A mask over [batch, heads, queries, keys]. The step is 0 along axes on which it is broadcast.
template <class T>
struct AttentionMask {
  const T* data;
  Index batch_step, head_step, query_step, key_step;
};

template <class Config>
struct AttentionArguments {
  AttentionOperand<const typename Config::Element> query, key, value;
  AttentionMask<typename Config::Allowed> allowed;
  AttentionMask<typename Config::Bias> bias;
  AttentionOperand<typename Config::Output> output;
  Index queries, keys;  // of one head
  Index rows;           // kGroup * queries
  Index tiles;          // tiles of rows, per head of keys
  Index heads;          // heads of keys and values in the whole batch
  Index tasks;

  // Waits until earlier kernels are done. Later loads see what those kernels have written.
  __device__ void wait() {
    wait_for_kernels();
    read_anew_if_written<0>(query.data), read_anew_if_written<1>(key.data);
    read_anew_if_written<2>(value.data), read_anew_if_written<3>(allowed.data);
    read_anew_if_written<4>(bias.data);
  }
  template <int input, class T>
  __device__ static void read_anew_if_written(const T*& data) {
    if constexpr ((Config::kWritten >> input & 1) != 0) data = read_anew(data);
  }
};

// Constants derived from the host's struct. Sizes of heads are rounded up to the size that
// instructions multiply.
template <class Config, int size_unit, int value_size_unit>
struct AttentionConfig : Config {
  typedef AttentionArguments<Config> Arguments;
  typedef typename Config::Element Element;
  static constexpr int kThreads = 32 * Config::kWarpsM * Config::kWarpsN;  // threads that multiply
  static constexpr int kVector = 16 / sizeof(Element);             // elements per 16-byte copy
  static constexpr int kWarpN = Config::kTileN / Config::kWarpsN;  // keys of a tile for one warp
  static constexpr int kSize = (Config::kHeadSize + size_unit - 1) / size_unit * size_unit;
  static constexpr int kValueSize =
      (Config::kHeadValueSize + value_size_unit - 1) / value_size_unit * value_size_unit;
  static constexpr bool kTakesLongestFirst = false;
  static constexpr bool kHasAllowed = is_present<typename Config::Allowed>;
  static constexpr bool kHasBias = is_present<typename Config::Bias>;
  // Whether scores are only scaled. Then the scaling is fused into the exponential.
  static constexpr bool kIsPlain =
      Config::kCap == 0.0f && Config::kScale > 0.0f && !kHasAllowed && !kHasBias;
};

// Copies the first `count` of kVector elements and sets the others to 0.
template <class C>
__device__ inline void copy_vector(typename C::Element* to, const typename C::Element* from,
                                   int count, bool is_aligned) {
  typedef typename C::Element Element;
  if (is_aligned) {
    const int bytes = count <= 0 ? 0 : count >= C::kVector ? 16 : count * (int)sizeof(Element);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
    return;
  }
  Pack<Element, C::kVector> pack;
#pragma unroll
  for (int i = 0; i < C::kVector; ++i) pack.at[i] = i < count ? from[i] : Element{};
  *(Pack<Element, C::kVector>*)to = pack;
}

// Keys or values of one head: `count` rows of `size` elements.
template <class C>
struct RowReader {
  const typename C::Element* rows;
  Index stride, count;
  int size;
  bool is_aligned;
};

// The work of a block, or of the blocks of all parts, on one tile of rows.
template <class C>
struct AttentionTask {
  Index queries;
  Index number, part;  // number of the blocks that share the keys; this block's part of the keys
  Index head_number, batch, shared_head;
  Index first_row;

  __device__ AttentionTask(const typename C::Arguments& all, Index block)
      : queries(all.queries), number(block / C::kParts), part(block % C::kParts) {
    if constexpr (C::kTakesLongestFirst) {
      start_with_longest(all);
    } else {
      head_number = number / all.tiles;
      first_row = (all.tiles - 1 - number % all.tiles) * C::kTileM;
    }
    batch = head_number / C::kSharedHeads, shared_head = head_number % C::kSharedHeads;
  }
  __device__ Index head(Index row) const { return shared_head * C::kGroup + row / queries; }
  __device__ Index query(Index row) const { return row % queries; }
  __device__ RowReader<C> keys(const typename C::Arguments& all) const {
    return {all.key.head(batch, shared_head), all.key.row_step, all.keys, C::kHeadSize,
            all.key.template is_aligned_to<C::kVector>()};
  }
  __device__ RowReader<C> values(const typename C::Arguments& all) const {
    return {all.value.head(batch, shared_head), all.value.row_step, all.keys, C::kHeadValueSize,
            all.value.template is_aligned_to<C::kVector>()};
  }

  // Puts the last tiles of queries first: with a causal mask they attend to most keys. The order
  // covers as many heads at a time as have their keys and values in the L2 cache.
  __device__ void start_with_longest(const typename C::Arguments& all) {
    constexpr int kCachedBytes = 16 << 20;
    const Index heads = all.heads;
    const Index many = kCachedBytes / (all.keys * ((C::kSize + C::kValueSize) * 2) + 1) + 1;
    const Index chunk = many < heads ? many : heads;
    const Index first_head = number / (chunk * all.tiles) * chunk;
    const Index width = chunk < heads - first_head ? chunk : heads - first_head;
    const Index place = number - first_head * all.tiles, turn = place / width;
    head_number = first_head + place % width;
    const Index tiles_of_head = queries % C::kTileM == 0 ? queries / C::kTileM : all.tiles;
    const Index heads_of_tiles = all.tiles / tiles_of_head;
    first_row =
        (turn % heads_of_tiles * tiles_of_head + tiles_of_head - 1 - turn / heads_of_tiles) *
        C::kTileM;
  }
};

// The number of keys that a query attends to. They are the first ones.
template <class C>
__device__ inline Index count_keys(const typename C::Arguments& all, Index query) {
  if constexpr (C::kCausal == CausalMask::kNone) {
    return all.keys;
  } else {
    const Index shift = C::kCausal == CausalMask::kLowerRight ? all.keys - all.queries : 0;
    const Index count = query + shift + 1;
    return count < 0 ? (Index)0 : count < all.keys ? count : all.keys;
  }
}

__device__ inline float nothing() { return __uint_as_float(0xff800000u); }  // -infinity

// Multiplies a score by log2(e), so that its exponential is a power of 2. Infinities stay, and the
// lowest finite score stays finite.
__device__ inline float in_powers_of_two(float score) {
  constexpr float kMost = 3.402823466e+38f;
  return fabsf(score) <= kMost ? fminf(fmaxf(score * kLog2e, -kMost), kMost) : score;
}

// The most keys that a query of a task attends to.
template <class C>
__device__ inline Index count_most_keys(const typename C::Arguments& all,
                                        const AttentionTask<C>& task) {
  const Index end_row = task.first_row + C::kTileM;
  const Index last_row = (end_row < all.rows ? end_row : all.rows) - 1;
  const bool is_one_head = task.first_row / all.queries == last_row / all.queries;
  return count_keys<C>(all, is_one_head ? task.query(last_row) : all.queries - 1);
}

// The range of key tiles that a task attends to.
template <class C>
struct TileRange {
  Index first, end;
  __device__ TileRange(const typename C::Arguments& all, const AttentionTask<C>& task) {
    const Index tiles = (count_most_keys<C>(all, task) + C::kTileN - 1) / C::kTileN;
    const Index length = (tiles + C::kParts - 1) / C::kParts;
    first = task.part * length;
    end = first + length < tiles ? first + length : tiles;
  }
};

// For each row of a lane, the number of keys and the row's place in the masks. `Unit` defines the
// lane's rows, relative to row `warp_m` of the task. This struct is separate from TileRange because
// the compiler moves structs with arrays to registers later.
template <class C, class Unit>
struct RowLimits {
  Index counts[Unit::kRows], allowed[Unit::kRows], bias[Unit::kRows];

  __device__ RowLimits(const typename C::Arguments& all, const AttentionTask<C>& task, int warp_m) {
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i) {
      const Index row = task.first_row + warp_m + Unit::row(i);
      counts[i] = row < all.rows ? count_keys<C>(all, task.query(row)) : 0;
    }
    if constexpr (C::kHasAllowed) find_rows(allowed, all.allowed, all, task, warp_m);
    if constexpr (C::kHasBias) find_rows(bias, all.bias, all, task, warp_m);
  }
  template <class T>
  __device__ static void find_rows(Index (&places)[Unit::kRows], const AttentionMask<T>& mask,
                                   const typename C::Arguments& all, const AttentionTask<C>& task,
                                   int warp_m) {
#pragma unroll
    for (int i = 0; i < Unit::kRows; ++i) {
      const Index row = task.first_row + warp_m + Unit::row(i);
      places[i] = row < all.rows ? task.batch * mask.batch_step + task.head(row) * mask.head_step +
                                       task.query(row) * mask.query_step
                                 : 0;
    }
  }
  // The mask element that says whether row i may attend to a key.
  __device__ const typename C::Allowed* allowed_place(const typename C::Arguments& all, int i,
                                                      Index key) const {
    return all.allowed.data + (allowed[i] + key * all.allowed.key_step);
  }
  // What the masks say about row i and a key. Beyond the keys, nothing is read.
  struct Terms {
    bool is_allowed = true;
    float bias = 0.0f;
  };
  __device__ Terms terms(const typename C::Arguments& all, int i, Index key, bool is_there) const {
    Terms found;
    if constexpr (C::kHasAllowed)
      if (is_there) found.is_allowed = load(*allowed_place(all, i, key));
    if constexpr (C::kHasBias)
      if (is_there) found.bias = load(all.bias.data[bias[i] + key * all.bias.key_step]);
    return found;
  }
  // The score, times log2(e), for the product `x` of a row with a key.
  __device__ static float score(const Terms& terms, bool is_there, float x) {
    if constexpr (C::kCap == 0.0f && !C::kHasBias) {
      x *= C::kScale * kLog2e;
    } else {
      x *= C::kScale;
      if constexpr (C::kCap != 0.0f) x = C::kCap * tanhf(x * (1 / C::kCap));
      if constexpr (C::kHasBias)
        x = in_powers_of_two(x + terms.bias);
      else
        x *= kLog2e;
    }
    if (!terms.is_allowed) x = C::masked_score();
    return is_there ? x : nothing();
  }
  __device__ float score(const typename C::Arguments& all, int i, Index key, bool is_there,
                         float x) const {
    return score(terms(all, i, key, is_there), is_there, x);
  }
};

// Copies `lines` rows of queries, from line `first` of the task on, with `threads` threads.
// `thread` is this thread's number among them. `place(line, element)` is an element's offset in the
// tile.
template <class C, int lines, int threads, class Place>
__device__ inline void copy_queries(const typename C::Arguments& all, const AttentionTask<C>& task,
                                    typename C::Element* tile, int first, int thread,
                                    const Place& place) {
  const bool is_aligned = all.query.template is_aligned_to<C::kVector>();
  constexpr int kVectors = C::kSize / C::kVector;
  for (int at = thread; at < lines * kVectors; at += threads) {
    const int line = first + at / kVectors, inner = at % kVectors * C::kVector;
    const Index row = task.first_row + line;
    copy_vector<C>(tile + place(line, inner),
                   all.query.row(task.batch, task.head(row), task.query(row)) + inner,
                   row < all.rows ? C::kHeadSize - inner : 0, is_aligned);
  }
  end_copies();
}

// Stores the rows of the result that a warp computed.
template <class C, class Unit, class State>
__device__ inline void store_rows(const typename C::Arguments& all, const AttentionTask<C>& task,
                                  const State& state, int warp_m) {
  typedef typename C::Output Output;
  constexpr int kNeighbours = Unit::kNeighbours;
  const bool stores_packs = all.output.template is_aligned_to<kNeighbours>();
#pragma unroll
  for (int i = 0; i < Unit::kRows; ++i) {
    const Index row = task.first_row + warp_m + Unit::row(i);
    if (row >= all.rows) continue;
    Output* const to = all.output.row(task.batch, task.head(row), task.query(row));
    const float factor = state.sum[i] == 0.0f ? 0.0f : 1.0f / state.sum[i];
#pragma unroll
    for (int j = 0; j < Unit::kOutputs; j += kNeighbours) {
      const int column = Unit::column(j);
      Pack<Output, kNeighbours> result;
#pragma unroll
      for (int e = 0; e < kNeighbours; ++e)
        result.at[e] = C::make_result(state.sums[i][j + e] * factor);
      if (stores_packs && column + kNeighbours <= C::kHeadValueSize) {
        *(Pack<Output, kNeighbours>*)(to + column) = result;
      } else {
#pragma unroll
        for (int e = 0; e < kNeighbours; ++e)
          if (column + e < C::kHeadValueSize) to[column + e] = result.at[e];
      }
    }
  }
}
