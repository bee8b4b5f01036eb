#include "backend/gpu/attention_tiles.h"

#include <algorithm>

#include "backend/gpu/numbered.h"
#include "backend/gpu/source.h"
#include "base/error.h"

namespace opwright::gpu::attention {
namespace {

using enum AttentionKind;

constexpr Numbered<AttentionTile> kTilesOfAttention[] = {
    {0, {.kind = kTensor, .m = 64, .n = 64, .warps_m = 4}},
    {1, {.kind = kTensor, .m = 128, .n = 64, .warps_m = 8}},
    {2, {.kind = kTensor, .m = 64, .n = 128, .warps_m = 4}},
    {3, {.kind = kTensor, .m = 64, .n = 32, .warps_m = 4}},
    {4, {.kind = kTensor, .m = 32, .n = 64, .warps_m = 2, .warps_n = 2}},
    {5, {.kind = kTensor, .m = 16, .n = 64, .warps_m = 1, .warps_n = 4, .stages = 3}},
    {6, {.kind = kTensor, .m = 16, .n = 128, .warps_m = 1, .warps_n = 4}},
    {7, {.kind = kScalar, .m = 64, .n = 32, .warps_m = 4}},
    {8, {.kind = kScalar, .m = 32, .n = 32, .warps_m = 2, .warps_n = 2}},
    {9, {.kind = kScalar, .m = 16, .n = 32, .warps_m = 1, .warps_n = 4, .stages = 3}},
    {10, {.kind = kScalar, .m = 16, .n = 16, .warps_m = 1, .warps_n = 2}},
    {11, {.kind = kDirect, .m = 16, .n = 16, .warps_m = 1, .warps_n = 4, .stages = 1}},
    {12, {.kind = kDirect, .m = 16, .n = 16, .warps_m = 1, .warps_n = 8, .stages = 1}},
    {13, {.kind = kWarpgroup, .m = 64, .n = 128, .warps_m = 4}},
    {14, {.kind = kWarpgroup, .m = 128, .n = 128, .warps_m = 8}},
    {15, {.kind = kWarpgroup, .m = 64, .n = 64, .warps_m = 4, .stages = 3}},
    {16, {.kind = kWarpgroup, .m = 128, .n = 64, .warps_m = 8, .stages = 3}},
    {17, {.kind = kWarpgroup, .m = 192, .n = 128, .warps_m = 12}},
    {18, {.kind = kWarpgroup, .m = 128, .n = 128, .warps_m = 8, .takes_turns = true}},
    {19, {.kind = kWarpgroup, .m = 192, .n = 128, .warps_m = 12, .takes_turns = true}},
    {20, {.kind = kWarpgroup, .m = 128, .n = 176, .warps_m = 8, .takes_turns = true}},
    {21, {.kind = kDirect, .m = 16, .n = 16, .warps_m = 1, .warps_n = 16, .stages = 1}},
    {22, {.kind = kWarpgroup, .m = 128, .n = 208, .warps_m = 8}},
    {23, {.kind = kWarpgroup, .m = 64, .n = 208, .warps_m = 4}},
    {24, {.kind = kDirect, .m = 8, .n = 16, .warps_m = 1, .warps_n = 4, .stages = 1}},
    {25, {.kind = kDirect, .m = 8, .n = 16, .warps_m = 1, .warps_n = 8, .stages = 1}},
    {26, {.kind = kDirect, .m = 8, .n = 16, .warps_m = 1, .warps_n = 16, .stages = 1}},
    {27, {.kind = kSplit, .m = 8, .n = 16, .warps_m = 1, .warps_n = 4, .stages = 1}},
    {28, {.kind = kSplit, .m = 8, .n = 16, .warps_m = 1, .warps_n = 8, .stages = 1}},
    {29, {.kind = kSplit, .m = 16, .n = 16, .warps_m = 1, .warps_n = 4, .stages = 1}},
};

/// The most elements of a head that lanes can keep in registers. Direct tiles of eight queries
/// leave room for longer heads.
constexpr int64_t kMaxDirectSize = 128, kMaxGroupSize = 128;
constexpr int kShortTile = 8;
/// The most elements of a head with which 16 warps of a direct tile do not spill registers.
constexpr int64_t kMaxSizeOfManyWarps = 64;
constexpr int kManyWarps = 16;
// Plans and timing caches refer to tactics by number, so new tiles are appended at the end.
static_assert(are_numbered(kTilesOfAttention));
static_assert(std::size(kTilesOfAttention) <= TileInParts::kUnit);
/// The most parts of the keys, and those of a cluster: all GPUs have room for eight blocks of one.
constexpr int kMostParts = 8, kMostClusterParts = 16;
/// The most blocks whose keys are divided into parts.
constexpr int64_t kMostTasksOfParts = 256;
/// The most tasks whose keys a run divides, each with a counter, and the most parts of one. The
/// block that merges reads all parts.
constexpr int64_t kMostSplitTasks = 128, kMostSplitParts = 64;
static_assert(kMostSplitParts < 1 << kSplitCounterBits);
/// The most tiles of queries that read the same keys from the second-level cache.
constexpr int64_t kMostSplitTiles = 4;
/// Warps on each multiprocessor that have enough keys on their way.
constexpr int64_t kSplitWarps = 8;
/// Keys of a warpgroup's tile. A few hundred keys seldom fill a longer one.
constexpr int kLongTile = 176;
/// The fewest tiles of keys in a part.
constexpr int64_t kPartTiles = 2;
/// Multiply-adds of an attention whose time is mostly that of its launch. Up to this number weights
/// are not rounded for tensor cores.
constexpr int64_t kFewMultiplications = 1 << 14;

/// Number of tiles of keys that each warp of a direct tile computes, one after another.
int64_t turns(const AttentionTile& tile, int64_t keys, int64_t parts) {
  const auto divided = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  return divided(divided(divided(keys, tile.n), parts), tile.warps_n);
}

int most_parts(const AttentionTile& tile) {
  return tile.kind == kDirect ? kMostClusterParts : tile.is_split() ? 1 : kMostParts;
}

/// About the number of blocks that are wanted in all.
int64_t split_blocks(const AttentionTile& tile) {
  return kFewBlocks * std::max<int64_t>(1, kSplitWarps / tile.warps_n);
}

int64_t row_of_results(const FusedAttentionParams& params) {
  return rounded(params.value_size, 64) + 4;
}

}  // namespace

int64_t most_tasks(const FusedAttentionParams& params, const AttentionTile& tile,
                   const Shape& queries) {
  const AttentionLayout layout = params.layout(0);
  return queries[attention_batch_axis(layout)] * params.shared_heads *
         divide_up(params.group() * queries[attention_length_axis(layout)], tile.m);
}

Expr split_parts(const AttentionTile& tile, const Expr& keys, const Expr& tasks) {
  const Expr parts = min(ceil_div(keys, Expr(int64_t{tile.n} * tile.warps_n)),
                         ceil_div(Expr(split_blocks(tile)), max(tasks, Expr(1))));
  return max(min(parts, Expr(kMostSplitParts)), Expr(1));
}

int64_t split_scratch(const AttentionTile& tile, const FusedAttentionParams& params,
                      int64_t most_tasks) {
  const int64_t blocks = std::min(most_tasks + split_blocks(tile), most_tasks * kMostSplitParts);
  return std::max<int64_t>(1, blocks) * tile.m * row_of_results(params) * 4;
}

std::string AttentionTile::name() const {
  if (is_group())
    return str("warpgroup ", m, "x", n, ", ", warps_m, " warps", takes_turns ? ", in turns" : "");
  if (is_direct())
    return str(is_split() ? "split " : "direct ", m, "x", n, ", ", warps_n, " warps");
  return str(is_tensor() ? "tensor " : "scalar ", m, "x", n, ", ", warps_m * warps_n, " warps, ",
             stages, " stages");
}

int64_t state_size(const AttentionTile& tile, const FusedAttentionParams& params) {
  const int64_t lane_rows = tile.is_tensor() ? 2 : 4,
                outputs = rounded(params.value_size, 16) / (tile.is_tensor() ? 4 : 8);
  return int64_t{tile.warps_m} * 32 * lane_rows * (2 + outputs) * 4;
}

int64_t shared_memory(const AttentionTile& tile, const FusedAttentionParams& params,
                      DataType type) {
  switch (tile.kind) {
    case kWarpgroup: {
      // The memory is GroupMemory of attention_group.cuh, then the numbers of two tasks and their
      // barriers.
      const int64_t size = rounded(params.size, 64), value_size = rounded(params.value_size, 64);
      return 1024 + 2 * (tile.m * size + int64_t{tile.stages} * tile.n * (size + value_size)) +
             int64_t{32} * tile.stages + int64_t{8} * rounded(tile.groups(), 2) + 48;
    }
    case kSplit:
      return int64_t{4} * tile.m * tile.warps_n * row_of_results(params);  // of each warp
    case kDirect: {
      // The memory holds each warp's results, the results that the blocks of a cluster send, and a
      // barrier.
      const int64_t sent = rounded(params.value_size, 64) + 4 * kMostClusterParts;
      return int64_t{4} * tile.m * (tile.warps_n * row_of_results(params) + sent) + 16;
    }
    case kScalar:
    case kTensor:
      break;
  }
  const int64_t element = bits(type) / 8, vector = vector_of(type);
  const int64_t key_row = rounded(params.size, 16) + vector,
                value_row = rounded(params.value_size, 16) + vector;
  int64_t total =
      (tile.m * key_row + int64_t{tile.stages} * tile.n * (key_row + value_row)) * element;
  if (!tile.is_tensor())  // weights, 16 rows of each warp
    total += int64_t{tile.warps_m} * tile.warps_n * 16 * (tile.n / tile.warps_n) * 4;
  // The same memory later holds the results of warps with other keys.
  return tile.warps_n > 1 ? std::max(total, state_size(tile, params)) : total;
}

std::string Tactic::name() const {
  return parts > 1 ? str(tile.name(), ", in ", parts, " parts") : tile.name();
}

Tactic tactic_of(int64_t number) {
  const auto [tile, parts] = TileInParts::of(number);
  require(number >= 0 && tile < std::ssize(kTilesOfAttention) &&
              parts <= most_parts(kTilesOfAttention[tile].entry),
          "there is no tile of attention of number ", number);
  return {kTilesOfAttention[tile].entry, static_cast<int>(parts)};
}

std::vector<std::string> tactic_names() {
  std::vector<std::string> names;
  for (const auto& [number, tile] : kTilesOfAttention) {
    names.push_back(tile.name());
    if (!tile.is_group() && !tile.is_split()) names.push_back(str(tile.name(), ", in parts"));
  }
  return names;
}

std::vector<int64_t> tactics(const FusedAttentionParams& params, DataType type,
                             const CandidateQuery& query) {
  const int architecture = target_architecture(query);
  const bool is_short = type == DataType::kHALF || type == DataType::kBF16;
  const auto axis_of = [&](int operand, bool batch) {
    return batch ? attention_batch_axis(params.layout(operand))
                 : attention_length_axis(params.layout(operand));
  };
  const PortDesc& queries = query.inputs[0];
  const int64_t rows = params.group() * queries.opt[axis_of(0, false)],
                keys = query.inputs[1].opt[axis_of(1, false)],
                heads = queries.opt[axis_of(0, true)] * params.shared_heads;
  const double most_products =
      static_cast<double>(queries.max[axis_of(0, true)]) *
      static_cast<double>(queries.max[axis_of(0, false)]) *
      static_cast<double>(query.inputs[1].max[axis_of(1, false)]) *
      static_cast<double>(params.heads * (params.size + params.value_size));
  const bool has_tensor = is_short && architecture >= kTensorArchitecture;
  const bool is_tensor = has_tensor && most_products > kFewMultiplications;
  const bool is_fixed = queries.min == queries.max;
  // Whether the tile can compute the attention.
  const auto can_compute = [&](const AttentionTile& tile) {
    const int64_t most_size = tile.is_group()                           ? kMaxGroupSize
                              : tile.is_direct() && tile.m > kShortTile ? kMaxDirectSize
                                                                        : kMaxSize;
    return (!tile.is_tensor() || has_tensor) &&
           (!tile.is_group() || architecture == kWarpGroupArchitecture) &&
           params.size <= most_size && params.value_size <= most_size &&
           (!tile.is_split() || most_tasks(params, tile, queries.max) <= kMostSplitTasks) &&
           shared_memory(tile, params, type) <= most_shared_memory(architecture);
  };
  // Whether the tile's keys can be divided into `parts` parts: among the blocks of a cluster, or
  // among other blocks if the number of tasks is fixed.
  const auto can_divide = [&](const AttentionTile& tile, int64_t tasks, int64_t parts) {
    if (parts == 1) return true;
    if (tile.is_group() || parts > most_parts(tile)) return false;
    if (!tile.is_direct()) return is_fixed && tasks > 0;
    return parts > kMostParts ? architecture == kWarpGroupArchitecture
                              : architecture >= kClusterArchitecture;
  };
  const auto fits = [&](const AttentionTile& tile) {
    return tile.is_tensor() == is_tensor && can_compute(tile);
  };
  const auto may_divide = [&](const AttentionTile& tile, int64_t tasks, int64_t parts) {
    return can_divide(tile, tasks, parts) &&
           (parts == 1 ||
            (tasks * parts <= 4 * kFewBlocks && 2 * keys >= parts * tile.n * tile.warps_n));
  };
  // Whether a direct tile has the size for the rows, and its warps have the registers for a head.
  const auto has_rows = [&](const AttentionTile& tile) {
    const bool spills = tile.warps_n >= kManyWarps &&
                        std::max(params.size, params.value_size) > kMaxSizeOfManyWarps;
    const int64_t most_tiles = tile.is_split() ? kMostSplitTiles : 1;
    return !spills && (tile.m == kShortTile ? rows <= tile.m
                                            : rows > kShortTile && rows <= most_tiles * tile.m);
  };
  // Where each block has a multiprocessor to itself, direct tiles with one tile of keys per warp
  // are faster in a chain of kernels than tiles with more. Timed on their own they are hardly
  // faster: a decoder of 16 layers takes 3 % less with 8 parts of the keys than with 4.
  const auto has_quicker = [&](const AttentionTile& tile, int64_t tasks, int64_t parts) {
    if (turns(tile, keys, parts) == 1) return false;
    // More of the blocks that any cluster may have.
    if (2 * parts <= kMostParts && 2 * parts * tasks <= kFewBlocks &&
        may_divide(tile, tasks, 2 * parts))
      return true;
    for (int64_t more = parts; more <= kMostParts && tasks * more <= kFewBlocks; more *= 2)
      for (const auto& [number, other] : kTilesOfAttention)
        if (other.kind == kDirect && has_rows(other) && fits(other) &&
            may_divide(other, tasks, more) && turns(other, keys, more) == 1)
          return true;
    return false;
  };
  std::vector<int64_t> found;
  const auto is_worth_timing = [&](const AttentionTile& tile, int64_t tasks, int64_t parts) {
    if (!fits(tile)) return false;
    if (tile.is_group()) {
      const bool is_large = rows > tile.m / 2 && keys >= 64 && (tile.m <= 128 || rows >= 1024);
      // With long heads, the sums of three warpgroups leave no registers for scores.
      const bool spills = (tile.m > 128 || tile.n > kLongTile) && params.value_size > 64;
      // A long tile pays only where it has less padding of keys than tiles of 128 keys.
      const bool wastes = tile.n > kLongTile && rounded(keys, tile.n) >= rounded(keys, 128);
      return is_large && !spills && !wastes;
    }
    if (tile.is_split())
      return has_rows(tile) && 2 * tasks <= split_blocks(tile) &&
             keys >= kPartTiles * tile.n * tile.warps_n;
    if (tile.is_direct())
      return has_rows(tile) && may_divide(tile, tasks, parts) && !has_quicker(tile, tasks, parts);
    // A tile twice as large as the queries or keys computes mostly zeros. With many queries, small
    // tiles read the keys more often.
    const bool wastes = (tile.m > 16 && tile.m >= 2 * rows) || (tile.n > 64 && tile.n >= 2 * keys);
    const bool is_small = tile.m == 16 && rows > 256;
    // With long heads, the sums leave few registers for scores.
    const bool spills = is_tensor && tile.n / tile.warps_n > 64 && params.value_size > 64;
    const bool is_long = params.value_size > 128 && tile.n / tile.warps_n > 32;
    if (wastes || spills || is_long || (is_small && !found.empty())) return false;
    return parts == 1 || (tasks <= kMostTasksOfParts && tasks * parts <= 4 * kFewBlocks &&
                          2 * tasks < 3 * kFewBlocks && keys >= parts * kPartTiles * tile.n);
  };
  for (const auto& [number, tile] : kTilesOfAttention) {
    if (!can_compute(tile)) continue;
    const int64_t tasks = heads * ((rows + tile.m - 1) / tile.m);
    // A tile that can be divided into two parts can be divided into more.
    constexpr int64_t kFewParts = 2;
    bool is_whole_worth = false;
    for (int64_t parts = 1; parts <= most_parts(tile); parts *= 2) {
      const bool is_worth = is_worth_timing(tile, tasks, parts);
      if (parts == 1) is_whole_worth = is_worth;
      const bool is_asked = query.all_tactics
                                ? parts <= kFewParts || is_worth
                                : is_worth && (parts == 1 || is_whole_worth || tile.is_direct());
      if (is_asked && can_divide(tile, tasks, parts))
        found.push_back(TileInParts{number, parts}.tactic());
    }
  }
  return found;
}

}  // namespace opwright::gpu::attention
