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
};

/// The most elements of a head that lanes can keep in registers.
constexpr int64_t kMaxDirectSize = 128, kMaxGroupSize = 128;
// Plans and timing caches refer to tactics by number, so new tiles are appended at the end.
static_assert(are_numbered(kTilesOfAttention));
static_assert(std::size(kTilesOfAttention) <= TileInParts::kUnit);
/// The most parts of the keys, and the most blocks whose keys are divided into parts.
constexpr int kMostParts = 8;
constexpr int64_t kMostTasksOfParts = 256;
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

}  // namespace

std::string AttentionTile::name() const {
  if (is_group())
    return str("warpgroup ", m, "x", n, ", ", warps_m, " warps", takes_turns ? ", in turns" : "");
  if (is_direct()) return str("direct ", m, "x", n, ", ", warps_n, " warps");
  return str(is_tensor() ? "tensor " : "scalar ", m, "x", n, ", ", warps_m * warps_n, " warps, ",
             stages, " stages");
}

int64_t state_size(const AttentionTile& tile, const FusedAttentionParams& params) {
  const int64_t lane_rows = tile.is_tensor() ? 2 : 4,
                outputs = rounded(params.value_size, 16) / (tile.is_tensor() ? 4 : 8);
  return int64_t{32} * tile.warps_m * lane_rows * (2 + outputs) * 4;
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
    case kDirect: {
      // The memory holds each warp's results, and the results that the blocks of a cluster send.
      const int64_t size = rounded(params.value_size, 64), row = size + 4;
      return int64_t{4} * tile.m * (tile.warps_n * row + size + int64_t{2} * kMostParts);
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
  require(number >= 0 && tile < std::ssize(kTilesOfAttention) && parts <= kMostParts,
          "there is no tile of attention of number ", number);
  return {kTilesOfAttention[tile].entry, static_cast<int>(parts)};
}

std::vector<std::string> tactic_names() {
  std::vector<std::string> names;
  for (const auto& [number, tile] : kTilesOfAttention) {
    names.push_back(tile.name());
    if (!tile.is_group()) names.push_back(str(tile.name(), ", in parts"));
  }
  return names;
}

namespace {

/// Lists the tactics of an attention.
class TacticLister {
 public:
  TacticLister(const FusedAttentionParams& params, DataType type, const CandidateQuery& query)
      : params_(params),
        type_(type),
        all_(query.all_tactics),
        architecture_(target_architecture(query)),
        is_fixed_(query.inputs[0].min == query.inputs[0].max) {
    const auto axis_of = [&](int operand, bool batch) {
      return batch ? attention_batch_axis(params.layout(operand))
                   : attention_length_axis(params.layout(operand));
    };
    const PortDesc &queries = query.inputs[0], &keys = query.inputs[1];
    rows_ = params.group() * queries.opt[axis_of(0, false)];
    keys_ = keys.opt[axis_of(1, false)];
    heads_ = queries.opt[axis_of(0, true)] * params.shared_heads;
    const double most_products =
        static_cast<double>(queries.max[axis_of(0, true)]) *
        static_cast<double>(queries.max[axis_of(0, false)]) *
        static_cast<double>(keys.max[axis_of(1, false)]) *
        static_cast<double>(params.heads * (params.size + params.value_size));
    has_tensor_ = (type == DataType::kHALF || type == DataType::kBF16) &&
                  architecture_ >= kTensorArchitecture;
    is_tensor_ = has_tensor_ && most_products > kFewMultiplications;
  }

  std::vector<int64_t> list() {
    // A tile that can be divided into two parts can be divided into more.
    constexpr int64_t kFewParts = 2;
    for (const auto& [number, tile] : kTilesOfAttention) {
      if (!can_compute(tile)) continue;
      const int64_t tasks = heads_ * ((rows_ + tile.m - 1) / tile.m);
      bool is_whole_worth = false;
      for (int64_t parts = 1; parts <= kMostParts; parts *= 2) {
        const bool is_worth = is_worth_timing(tile, tasks, parts);
        if (parts == 1) is_whole_worth = is_worth;
        const bool is_asked = all_ ? parts <= kFewParts || is_worth
                                   : is_worth && (parts == 1 || is_whole_worth || tile.is_direct());
        if (is_asked && can_divide(tile, tasks, parts))
          found_.push_back(TileInParts{number, parts}.tactic());
      }
    }
    return std::move(found_);
  }

 private:
  /// Whether the tile can compute the attention.
  bool can_compute(const AttentionTile& tile) const {
    const int64_t most_size = tile.is_group()    ? kMaxGroupSize
                              : tile.is_direct() ? kMaxDirectSize
                                                 : kMaxSize;
    return (!tile.is_tensor() || has_tensor_) &&
           (!tile.is_group() || architecture_ == kWarpGroupArchitecture) &&
           params_.size <= most_size && params_.value_size <= most_size &&
           shared_memory(tile, params_, type_) <= most_shared_memory(architecture_);
  }
  /// Whether the tile's keys can be divided into `parts` parts: among the blocks of a cluster, or
  /// among other blocks if the number of tasks is fixed.
  bool can_divide(const AttentionTile& tile, int64_t tasks, int64_t parts) const {
    return parts == 1 || (tile.is_direct()  ? architecture_ >= kClusterArchitecture
                          : tile.is_group() ? false
                                            : is_fixed_ && tasks > 0);
  }
  bool fits(const AttentionTile& tile) const {
    return tile.is_tensor() == is_tensor_ && can_compute(tile);
  }
  bool may_divide(const AttentionTile& tile, int64_t tasks, int64_t parts) const {
    return can_divide(tile, tasks, parts) &&
           (parts == 1 ||
            (tasks * parts <= 4 * kFewBlocks && 2 * keys_ >= parts * tile.n * tile.warps_n));
  }
  /// Where each block has a multiprocessor to itself, direct tiles with one tile of keys per warp
  /// are faster in a chain of kernels than tiles with more. Timed on their own they are hardly
  /// faster: a decoder of 16 layers takes 3 % less with 8 parts of the keys than with 4.
  bool has_quicker(const AttentionTile& tile, int64_t tasks, int64_t parts) const {
    if (turns(tile, keys_, parts) == 1) return false;
    for (int64_t more = parts; more <= kMostParts && tasks * more <= kFewBlocks; more *= 2)
      for (const auto& [number, other] : kTilesOfAttention)
        if (other.is_direct() && fits(other) && may_divide(other, tasks, more) &&
            turns(other, keys_, more) == 1)
          return true;
    return false;
  }

  bool is_worth_timing(const AttentionTile& tile, int64_t tasks, int64_t parts) const {
    if (!fits(tile)) return false;
    if (tile.is_group()) return is_group_worth_timing(tile);
    if (tile.is_direct())
      return rows_ <= tile.m && may_divide(tile, tasks, parts) && !has_quicker(tile, tasks, parts);
    // A tile twice as large as the queries or keys computes mostly zeros. With many queries, small
    // tiles read the keys more often.
    const bool wastes =
        (tile.m > 16 && tile.m >= 2 * rows_) || (tile.n > 64 && tile.n >= 2 * keys_);
    const bool is_small = tile.m == 16 && rows_ > 256;
    // With long heads, the sums leave few registers for scores.
    const bool spills = is_tensor_ && tile.n / tile.warps_n > 64 && params_.value_size > 64;
    const bool is_long = params_.value_size > 128 && tile.n / tile.warps_n > 32;
    if (wastes || spills || is_long || (is_small && !found_.empty())) return false;
    return parts == 1 || (tasks <= kMostTasksOfParts && tasks * parts <= 4 * kFewBlocks &&
                          2 * tasks < 3 * kFewBlocks && keys_ >= parts * kPartTiles * tile.n);
  }
  bool is_group_worth_timing(const AttentionTile& tile) const {
    const bool is_large = rows_ > tile.m / 2 && keys_ >= 64 && (tile.m <= 128 || rows_ >= 1024);
    // With long heads, the sums of three warpgroups leave no registers for scores.
    const bool spills = (tile.m > 128 || tile.n > kLongTile) && params_.value_size > 64;
    // A long tile pays only where it has less padding of keys than tiles of 128 keys.
    const bool wastes = tile.n > kLongTile && rounded(keys_, tile.n) >= rounded(keys_, 128);
    return is_large && !spills && !wastes;
  }

  const FusedAttentionParams& params_;
  const DataType type_;
  const bool all_;
  const int architecture_;
  const bool is_fixed_;          ///< whether the queries' extents are
  int64_t rows_ = 0, keys_ = 0;  ///< of a head that keys are shared by
  int64_t heads_ = 0;            ///< of all images, with keys of their own
  bool has_tensor_ = false;      ///< whether tensor cores can multiply
  bool is_tensor_ = false;       ///< whether they are to
  std::vector<int64_t> found_;
};

}  // namespace

std::vector<int64_t> tactics(const FusedAttentionParams& params, DataType type,
                             const CandidateQuery& query) {
  return TacticLister(params, type, query).list();
}

}  // namespace opwright::gpu::attention
