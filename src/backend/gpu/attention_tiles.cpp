#include "backend/gpu/attention_tiles.h"

#include <algorithm>

#include "backend/gpu/numbered.h"
#include "backend/gpu/source.h"
#include "base/error.h"

namespace opwright::gpu::attention {
namespace {

constexpr Numbered<AttentionTile> kTilesOfAttention[] = {
    {0, {true, 64, 64, 4, 1, 2}},
    {1, {true, 128, 64, 8, 1, 2}},
    {2, {true, 64, 128, 4, 1, 2}},
    {3, {true, 64, 32, 4, 1, 2}},
    {4, {true, 32, 64, 2, 2, 2}},
    {5, {true, 16, 64, 1, 4, 3}},
    {6, {true, 16, 128, 1, 4, 2}},
    {7, {false, 64, 32, 4, 1, 2}},
    {8, {false, 32, 32, 2, 2, 2}},
    {9, {false, 16, 32, 1, 4, 3}},
    {10, {false, 16, 16, 1, 2, 2}},
    {11, {true, 16, 16, 1, 4, 1, true}},
    {12, {true, 16, 16, 1, 8, 1, true}},
    {13, {true, 64, 128, 4, 1, 2, false, true}},
    {14, {true, 128, 128, 8, 1, 2, false, true}},
    {15, {true, 64, 64, 4, 1, 3, false, true}},
    {16, {true, 128, 64, 8, 1, 3, false, true}},
    {17, {true, 192, 128, 12, 1, 2, false, true}},
    {18, {true, 128, 128, 8, 1, 2, false, true, true}},
    {19, {true, 192, 128, 12, 1, 2, false, true, true}},
    {20, {true, 128, 176, 8, 1, 2, false, true, true}},
    {21, {true, 16, 16, 1, 16, 1, true}},
    {22, {true, 128, 208, 8, 1, 2, false, true}},
    {23, {true, 64, 208, 4, 1, 2, false, true}},
};

/// Elements of a head that lanes keep in registers.
constexpr int64_t kMaxDirectSize = 128, kMaxGroupSize = 128;
// Plans and timing caches have tactics by their numbers: tiles are added at the end.
static_assert(are_numbered(kTilesOfAttention));
static_assert(std::size(kTilesOfAttention) <= TileInParts::kUnit);
/// Parts of the keys at most, and blocks whose keys have parts.
constexpr int kMostParts = 8;
constexpr int64_t kMostTasksOfParts = 256;
/// Keys of a tile of warpgroups that a few hundred of them seldom fill.
constexpr int kLongTile = 176;
/// Tiles of keys of a part at least.
constexpr int64_t kPartTiles = 2;
/// Multiply-adds of an attention up to which launching it is all that counts: weights are not
/// rounded for tensor cores then.
constexpr int64_t kFewMultiplications = 1 << 14;

/// Tiles of keys that a warp of a direct tile has, one after another.
int64_t turns(const AttentionTile& tile, int64_t keys, int64_t parts) {
  const auto divided = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  return divided(divided(divided(keys, tile.n), parts), tile.warps_n);
}

}  // namespace

std::string AttentionTile::name() const {
  if (is_group)
    return str("warpgroup ", m, "x", n, ", ", warps_m, " warps", takes_turns ? ", in turns" : "");
  if (is_direct) return str("direct ", m, "x", n, ", ", warps_n, " warps");
  return str(is_tensor ? "tensor " : "scalar ", m, "x", n, ", ", warps_m * warps_n, " warps, ",
             stages, " stages");
}

SharedMemory::SharedMemory(const AttentionTile& tile, const FusedAttentionParams& params,
                           DataType type) {
  if (tile.is_group) {
    // Patterns repeat after 1024 bytes, of which the first begins at a multiple.
    const int64_t size = rounded(params.size, 64), value_size = rounded(params.value_size, 64);
    total = 1024 + 2 * (tile.m * size + tile.stages * tile.n * (size + value_size));
    // Behind the tiles, the barriers: four of a stage, and one for each warpgroup's turn. Behind
    // them the numbers of two tasks, with two barriers each.
    stages = total;
    total += int64_t{32} * tile.stages + int64_t{8} * rounded(tile.warps_m / 4, 2) + 48;
    return;
  }
  if (tile.is_direct) {
    // What each warp has found, and what the blocks of a cluster send.
    const int64_t size = rounded(params.value_size, 64), row = size + 4;
    total = int64_t{4} * tile.m * (tile.warps_n * row + size + 2 * kMostParts);
    return;
  }
  const int64_t element = bits(type) / 8, vector = vector_of(type);
  const int64_t key_row = rounded_size(params.size) + vector,
                value_row = rounded_size(params.value_size) + vector;
  stages = tile.m * key_row * element;
  weights = stages + tile.stages * tile.n * (key_row + value_row) * element;
  total = weights;
  if (!tile.is_tensor)
    total += int64_t{tile.warps_m} * tile.warps_n * kWarpRows * (tile.n / tile.warps_n) * 4;
  // What warps with other keys have found.
  const int64_t lane_rows = tile.is_tensor ? 2 : 4,
                outputs = rounded_size(params.value_size) / (tile.is_tensor ? 4 : 8);
  const int64_t merged = tile.warps_n > 1 ? tile.warps_m * 32 * lane_rows * (2 + outputs) * 4 : 0;
  total = std::max(total, merged);
}

std::string Tactic::name() const {
  return parts > 1 ? str(tile.name(), ", in ", parts, " parts") : tile.name();
}

Tactic tactic_of(int64_t number) {
  const auto [tile, parts] = TileInParts::of(number);
  require(number >= 0 && tile < std::ssize(kTilesOfAttention) && parts <= kMostParts,
          "there is no tile of attention of number ", number);
  return {kTilesOfAttention[tile].entry, static_cast<int>(parts)};
}

std::vector<std::string> tactic_names() {
  std::vector<std::string> names;
  for (const auto& [number, tile] : kTilesOfAttention) {
    names.push_back(tile.name());
    if (!tile.is_group) names.push_back(str(tile.name(), ", in parts"));
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
    const int64_t most_size = tile.is_group    ? kMaxGroupSize
                              : tile.is_direct ? kMaxDirectSize
                                               : kMaxSize;
    return (!tile.is_tensor || has_tensor) &&
           (!tile.is_group || architecture == kWarpGroupArchitecture) && params.size <= most_size &&
           params.value_size <= most_size &&
           SharedMemory(tile, params, type).total <= most_shared_memory(architecture);
  };
  // Whether so many blocks can have parts of a tile's keys: those of a cluster, or of a number that
  // is known.
  const auto can_divide = [&](const AttentionTile& tile, int64_t tasks, int64_t parts) {
    return parts == 1 || (tile.is_direct  ? architecture >= kClusterArchitecture
                          : tile.is_group ? false
                                          : is_fixed && tasks > 0);
  };
  const auto fits = [&](const AttentionTile& tile) {
    return tile.is_tensor == is_tensor && can_compute(tile);
  };
  const auto may_divide = [&](const AttentionTile& tile, int64_t tasks, int64_t parts) {
    return can_divide(tile, tasks, parts) &&
           (parts == 1 ||
            (tasks * parts <= 4 * kFewBlocks && 2 * keys >= parts * tile.n * tile.warps_n));
  };
  // Of blocks that are alone on their multiprocessor those whose warps have one tile each are
  // faster in a chain of kernels than those with more, which alone they hardly are: a decoder of 16
  // layers takes 3 % less with 8 parts of the keys than with 4.
  const auto has_quicker = [&](const AttentionTile& tile, int64_t tasks, int64_t parts) {
    if (turns(tile, keys, parts) == 1) return false;
    for (int64_t more = parts; more <= kMostParts && tasks * more <= kFewBlocks; more *= 2)
      for (const auto& [number, other] : kTilesOfAttention)
        if (other.is_direct && fits(other) && may_divide(other, tasks, more) &&
            turns(other, keys, more) == 1)
          return true;
    return false;
  };
  std::vector<int64_t> found;
  const auto is_worth_timing = [&](const AttentionTile& tile, int64_t tasks, int64_t parts) {
    if (!fits(tile)) return false;
    if (tile.is_group) {
      const bool is_large = rows > tile.m / 2 && keys >= 64 && (tile.m <= 128 || rows >= 1024);
      // The sums of three warpgroups' long heads leave no registers for scores.
      const bool spills = (tile.m > 128 || tile.n > kLongTile) && params.value_size > 64;
      // Fewer keys that are not there are what many at once are for.
      const bool wastes = tile.n > kLongTile && rounded(keys, tile.n) >= rounded(keys, 128);
      return is_large && !spills && !wastes;
    }
    if (tile.is_direct)
      return rows <= tile.m && may_divide(tile, tasks, parts) && !has_quicker(tile, tasks, parts);
    // A tile that is twice as large as what there is computes mostly zeros; small ones read the
    // keys of many queries more often.
    const bool wastes = (tile.m > 16 && tile.m >= 2 * rows) || (tile.n > 64 && tile.n >= 2 * keys);
    const bool is_small = tile.m == 16 && rows > 256;
    // Sums of long heads leave few registers for scores.
    const bool spills = is_tensor && tile.n / tile.warps_n > 64 && params.value_size > 64;
    const bool is_long = params.value_size > 128 && tile.n / tile.warps_n > 32;
    if (wastes || spills || is_long || (is_small && !found.empty())) return false;
    return parts == 1 || (tasks <= kMostTasksOfParts && tasks * parts <= 4 * kFewBlocks &&
                          2 * tasks < 3 * kFewBlocks && keys >= parts * kPartTiles * tile.n);
  };
  for (const auto& [number, tile] : kTilesOfAttention) {
    if (!can_compute(tile)) continue;
    const int64_t tasks = heads * ((rows + tile.m - 1) / tile.m);
    // What two parts can, more can.
    constexpr int64_t kFewParts = 2;
    bool is_whole_worth = false;
    for (int64_t parts = 1; parts <= kMostParts; parts *= 2) {
      const bool is_worth = is_worth_timing(tile, tasks, parts);
      if (parts == 1) is_whole_worth = is_worth;
      const bool is_asked = query.all_tactics
                                ? parts <= kFewParts || is_worth
                                : is_worth && (parts == 1 || is_whole_worth || tile.is_direct);
      if (is_asked && can_divide(tile, tasks, parts))
        found.push_back(TileInParts{number, parts}.tactic());
    }
  }
  return found;
}

}  // namespace opwright::gpu::attention
