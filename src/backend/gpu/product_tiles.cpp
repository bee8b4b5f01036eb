#include "backend/gpu/product_tiles.h"

#include <algorithm>

#include "backend/gpu/numbered.h"
#include "backend/gpu/row_product.h"
#include "backend/gpu/warpgroup_product.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

/// More blocks than any GPU runs at once.
constexpr int64_t kManyBlocks = 4096;
/// The most parts of a tile, and the most tiles for which parts are worth timing.
constexpr int kMostPartsOfTile = 8;
constexpr int64_t kMostTilesOfParts = 128;
/// The fewest steps along k of a part, and of a part whose block is in a cluster.
constexpr int64_t kPartSteps = 4, kClusterPartSteps = 2;

constexpr Numbered<ProductTile> kTiles[] = {
    {0, {ProductUnit::kTensor, 128, 128, 32, 2, 4, 4}},
    {1, {ProductUnit::kTensor, 128, 256, 32, 2, 4, 3}},
    {2, {ProductUnit::kTensor, 128, 64, 32, 2, 2, 4}},
    {3, {ProductUnit::kTensor, 64, 128, 32, 2, 2, 4}},
    {4, {ProductUnit::kTensor, 64, 64, 64, 2, 2, 4}},
    {5, {ProductUnit::kTensor, 64, 32, 64, 2, 2, 4}},
    {6, {ProductUnit::kTensor, 32, 64, 64, 2, 2, 4}},
    {7, {ProductUnit::kTensor, 32, 32, 64, 2, 2, 5}},
    {8, {ProductUnit::kTensor, 16, 64, 64, 1, 4, 5}},
    {9, {ProductUnit::kTensor, 16, 32, 128, 1, 2, 4}},
    {10, {ProductUnit::kScalar, 128, 128, 16, 4, 2, 3}},
    {11, {ProductUnit::kScalar, 64, 64, 16, 2, 2, 4}},
    {12, {ProductUnit::kScalar, 32, 32, 32, 2, 1, 3}},
    {13, {ProductUnit::kScalar, 16, 64, 32, 1, 2, 3}},
    {14, {ProductUnit::kTensor, 128, 128, 64, 2, 4, 3}},
    {15, {ProductUnit::kTensor, 128, 256, 64, 2, 4, 3}},
    {16, {ProductUnit::kTensor, 256, 128, 64, 4, 2, 3}},
    {17, {ProductUnit::kTensor, 128, 128, 64, 2, 2, 3}},
    {18, {ProductUnit::kWarpGroup, 256, 128, 64, 8, 1, 4}},
    {19, {ProductUnit::kWarpGroup, 128, 256, 64, 8, 1, 4}},
    {20, {ProductUnit::kWarpGroup, 128, 192, 64, 8, 1, 5}},
    {21, {ProductUnit::kWarpGroup, 128, 128, 64, 8, 1, 6}},
    {22, {ProductUnit::kWarpGroup, 128, 128, 64, 4, 1, 3}},
    {23, {ProductUnit::kWarpGroup, 128, 64, 64, 8, 1, 8}},
    {24, {ProductUnit::kWarpGroup, 128, 64, 64, 4, 1, 4}},
    {25, {ProductUnit::kWarpGroup, 64, 128, 64, 4, 1, 4}},
    {26, {ProductUnit::kWarpGroup, 64, 64, 64, 4, 1, 5}},
    {27, {ProductUnit::kWarpGroup, 64, 64, 128, 4, 1, 6}},
    {28, {ProductUnit::kWarpGroup, 256, 128, 64, 8, 1, 4, true}},
    {29, {ProductUnit::kWarpGroup, 128, 192, 64, 8, 1, 5, true}},
    {30, {ProductUnit::kWarpGroup, 128, 128, 64, 8, 1, 6, true}},
    {31, {ProductUnit::kWarpGroup, 128, 128, 64, 4, 1, 6, true, true}},
    {32, {ProductUnit::kWarpGroup, 128, 64, 64, 4, 1, 8, true, true}},
    {33, {ProductUnit::kWarpGroup, 64, 256, 64, 4, 1, 4, true, true}},
    {34, {ProductUnit::kWarpGroup, 128, 192, 64, 4, 1, 5, true, true}},
    {35, {ProductUnit::kWarpGroup, 256, 128, 128, 8, 1, 4}},
    {36, {ProductUnit::kWarpGroup, 128, 256, 128, 8, 1, 4}},
    {37, {ProductUnit::kWarpGroup, 128, 192, 128, 8, 1, 5}},
    {38, {ProductUnit::kWarpGroup, 128, 128, 128, 8, 1, 6}},
    {39, {ProductUnit::kWarpGroup, 128, 128, 128, 4, 1, 3}},
    {40, {ProductUnit::kWarpGroup, 128, 64, 128, 8, 1, 8}},
    {41, {ProductUnit::kWarpGroup, 64, 128, 128, 4, 1, 4}},
    {42, {ProductUnit::kWarpGroup, 256, 128, 128, 8, 1, 4, true}},
    {43, {ProductUnit::kWarpGroup, 128, 192, 128, 8, 1, 5, true}},
    {44, {ProductUnit::kWarpGroup, 128, 128, 128, 8, 1, 6, true}},
    {45, {ProductUnit::kWarpGroup, 128, 128, 128, 4, 1, 6, true, true}},
    {46, {ProductUnit::kWarpGroup, 64, 256, 128, 4, 1, 4, true, true}},
    {47, {ProductUnit::kWarpGroup, 64, 192, 128, 4, 1, 5, true, true}},
    {48, {ProductUnit::kWarpGroup, 64, 128, 128, 4, 1, 7, true, true}},
    {49, {ProductUnit::kWarpGroup, 192, 192, 64, 12, 1, 4}},
    {50, {ProductUnit::kWarpGroup, 192, 192, 64, 12, 1, 4, true}},
    {51, {ProductUnit::kWarpGroup, 256, 128, 32, 8, 1, 4}},
    {52, {ProductUnit::kWarpGroup, 128, 256, 32, 8, 1, 4}},
    {53, {ProductUnit::kWarpGroup, 128, 128, 32, 8, 1, 6}},
    {54, {ProductUnit::kWarpGroup, 128, 128, 32, 4, 1, 3}},
    {55, {ProductUnit::kWarpGroup, 128, 64, 32, 8, 1, 8}},
    {56, {ProductUnit::kWarpGroup, 64, 128, 32, 4, 1, 4}},
    {57, {ProductUnit::kWarpGroup, 64, 64, 32, 4, 1, 5}},
    {58, {ProductUnit::kWarpGroup, 128, 128, 32, 4, 1, 6, true, true}},
    {59, {ProductUnit::kWarpGroup, 128, 64, 32, 4, 1, 8, true, true}},
};

// Plans and timing caches refer to tactics by number, so new tiles are added at the end.
static_assert(are_numbered(kTiles));
static_assert(std::size(kTiles) <= kFirstRowTactic && kRowTacticsEnd <= TileInParts::kUnit,
              "tiles of rows follow the others");
static_assert((kMostPartsOfTile + 1) * TileInParts::kUnit <= kProductTacticsEnd);

/// Whether the tile is meant for elements of that type.
bool takes_type(const ProductTile& tile, DataType type) {
  // In a warpgroup's tile, a row along k is one row of the swizzle. In a small tile it may be two.
  constexpr int kPatternBytes = 128, kSmall = 64 * 64;
  const int row_bytes = tile.k * bits(type) / 8;
  if (tile.unit == ProductUnit::kWarpGroup && row_bytes != kPatternBytes &&
      (row_bytes != 2 * kPatternBytes || tile.m * tile.n > kSmall))
    return false;
  // Threads have two sets of sums for FP8.
  constexpr int kMostSums = 96, kMostSumsOfWarp = 64;
  const int sums = tile.m * tile.n / (32 * tile.warps_m * tile.warps_n);
  return type != DataType::kFP8 || tile.unit == ProductUnit::kScalar ||
         sums <= (tile.unit == ProductUnit::kWarpGroup ? kMostSums : kMostSumsOfWarp);
}

/// Whether the tile can multiply operands of that type, of any size and layout.
bool fits_type(const ProductTile& tile, DataType type, int64_t most_shared) {
  return takes_type(tile, type) && shared_bytes(tile, type, true, true) <= most_shared &&
         shared_bytes(tile, type, false, false) <= most_shared;
}

/// Whether several blocks can share such a tile. Tall tiles of a warpgroup cannot: the compiler
/// serializes their products in clusters.
bool has_parts(const ProductTile& tile) {
  const bool is_tall = tile.unit == ProductUnit::kWarpGroup && tile.m > 16 * tile.warps_m;
  return !tile.is_persistent && !is_tall;
}

}  // namespace

int vector_of(DataType type) { return 128 / bits(type); }

DataType sum_type(DataType type) {
  return is_floating(type) ? DataType::kFLOAT : type_of_product(type);
}

int64_t shared_bytes(const ProductTile& tile, DataType type, bool a_along_k, bool b_along_k) {
  if (tile.unit == ProductUnit::kWarpGroup) return WarpGroupMemory(tile, type).total;
  const int vector = vector_of(type);
  const auto size = [&](int extent, bool along_k) {
    return along_k ? extent * (tile.k + vector) : tile.k * (extent + vector);
  };
  const int64_t operands =
      int64_t{tile.stages} * (size(tile.m, a_along_k) + size(tile.n, b_along_k)) * bits(type) / 8;
  // Each warp's SumRows of device/product_epilogue.cuh.
  constexpr int kRows = 16, kPadding = 4;
  const int64_t parts =
      int64_t{4} * tile.warps_m * tile.warps_n * kRows * (tile.n / tile.warps_n + kPadding);
  return std::max(operands, parts);
}

std::vector<DataType> product_types(const CandidateQuery& query) {
  const DataType type = query.inputs[0].type.dtype;
  if (bits(type) % 8 != 0 || type == DataType::kBOOL) return {};
  std::vector<DataType> types = {type};
  if (query.strongly_typed || type != DataType::kFLOAT) return types;
  if (query.fp16) types.push_back(DataType::kHALF);
  if (query.bf16) types.push_back(DataType::kBF16);
  return types;
}

bool set_fused_types(Candidate& candidate, const FusedProgram& program, const CandidateQuery& query,
                     DataType type, TensorFormat format) {
  if (!program.present()) return true;
  // Floating tensors get the type of the multiplied elements. If those are quantized, tensors keep
  // the network's type.
  const auto type_of = [&](DataType asked) {
    const bool follows = is_floating(asked) && !is_quantized(asked);
    return follows && is_floating(type) && !is_quantized(type) ? type : asked;
  };
  candidate.outputs = {{type_of(program.result), format}};
  const size_t first = query.inputs.size() - program.inputs();
  bool fits = true;
  for (size_t i = first; i < query.inputs.size(); ++i) {
    const PortDesc& port = query.inputs[i];
    candidate.inputs[i] = {port.is_constant ? port.type.dtype : type_of(port.type.dtype)};
    if (program.places[i - first] < static_cast<int64_t>(FusedPlace::kElement)) continue;
    candidate.inputs[i] = {type_of(port.type.dtype), format};
    fits =
        fits && (format == TensorFormat::kLINEAR || port.opt.rank() == query.outputs[0].opt.rank());
  }
  return fits;
}

std::string ProductTile::name() const {
  const std::string_view kind = unit == ProductUnit::kScalar         ? "scalar "
                                : unit == ProductUnit::kTensor       ? "tensor "
                                : unit == ProductUnit::kRows         ? "rows "
                                : unit == ProductUnit::kStreamedRows ? "streamed rows "
                                                                     : "warpgroup ";
  return str(kind, m, "x", n, "x", k, ", ", warps_m * warps_n, " warps, ", stages, " stages",
             takes_turns ? ", in turns" : "", is_persistent ? ", persistent" : "");
}

std::vector<ProductUnit> product_units(DataType a, DataType b, const CandidateQuery& query) {
  if (target_architecture(query) < kTensorArchitecture) return {ProductUnit::kScalar};
  const bool is_short = a == DataType::kHALF || a == DataType::kBF16 || a == DataType::kFP8;
  if ((is_short && a == b) || (is_byte(a) && is_byte(b))) return {ProductUnit::kTensor};
  if (a == DataType::kFLOAT && a == b && query.tf32)
    return {ProductUnit::kTensor, ProductUnit::kScalar};
  return {ProductUnit::kScalar};
}

std::string ProductTactic::name(DataType type) const {
  const bool is_tf32 = type == DataType::kFLOAT && tile.unit != ProductUnit::kScalar;
  return str(is_tf32 ? "TF32 " : "", tile.name(),
             parts > 1 ? str(", in ", parts, " parts") : std::string());
}

ProductTactic product_tactic(int64_t number) {
  const auto [tile, parts] = TileInParts::of(number);
  const int64_t of_rows = number - kFirstRowTactic;
  if (of_rows >= 0 && of_rows < std::ssize(row_tiles())) return {row_tiles()[of_rows].entry};
  require(number >= 0 && tile < std::ssize(kTiles) && parts <= kMostPartsOfTile,
          "there is no tile of number ", number);
  return {kTiles[tile].entry, static_cast<int>(parts)};
}

std::vector<std::string> product_tactic_names(std::initializer_list<ProductUnit> units,
                                              std::initializer_list<DataType> types) {
  std::vector<std::string> names;
  const int64_t most = most_shared_memory(kWarpGroupArchitecture);
  const auto is_asked = [&](const ProductTile& tile) {
    return std::ranges::find(units, tile.unit) != units.end();
  };
  for (const auto& [number, tile] : kTiles) {
    if (!is_asked(tile)) continue;
    for (const std::string_view prefix : {"", "TF32 "}) {
      const bool is_tf32 = !prefix.empty(), is_scalar = tile.unit == ProductUnit::kScalar;
      const bool is_used = std::ranges::any_of(types, [&, &each = tile](DataType type) {
        return (type == DataType::kFLOAT) == (is_tf32 || is_scalar) && fits_type(each, type, most);
      });
      if (!is_used || (is_tf32 && is_scalar)) continue;
      names.push_back(str(prefix, tile.name()));
      if (has_parts(tile)) names.push_back(str(prefix, tile.name(), ", in parts"));
    }
  }
  for (const auto& [number, tile] : row_tiles())
    if (is_asked(tile)) names.push_back(tile.name());
  return names;
}

bool has_fixed_shapes(const CandidateQuery& query) {
  return std::all_of(query.inputs.begin(), query.inputs.end(),
                     [](const PortDesc& port) { return !port.present || port.min == port.max; });
}

std::vector<int64_t> product_tactics(DataType type, ProductUnit unit, const ProductSize& size,
                                     int architecture, bool all) {
  const int64_t m = size.m, n = size.n, k = size.k, batches = size.batches;
  const bool is_fixed = size.is_fixed, is_along_k = size.is_along_k;
  // With so small a k, half of a warpgroup's rows of bytes would be zeros.
  constexpr int64_t kShort = 64;
  const bool can_group = unit == ProductUnit::kTensor && (bits(type) == 16 || is_along_k) &&
                         architecture == kWarpGroupArchitecture;
  const bool has_warp_groups = can_group && (!is_quantized(type) || k > kShort);
  const int64_t most = most_shared_memory(architecture);
  // Whether the tile can multiply operands of any size.
  const auto can_compute = [&](const ProductTile& tile) {
    return (tile.unit == unit || (tile.unit == ProductUnit::kWarpGroup && can_group)) &&
           fits_type(tile, type, most);
  };
  // Whether several blocks can share a tile. The number of tiles must be fixed.
  const auto can_divide = [&](const ProductTile& tile, int64_t blocks) {
    return is_fixed && blocks > 0 && has_parts(tile);
  };
  const auto is_worth_timing = [&](const ProductTile& tile, int64_t blocks) {
    // If warpgroups can multiply, only they get large tiles: they are several times as fast.
    const bool is_group = tile.unit == ProductUnit::kWarpGroup;
    if (has_warp_groups ? !is_group && tile.m * tile.n > 64 * 64 : is_group) return false;
    // A tile twice as large as the product computes mostly zeros. The narrowest one of a warpgroup
    // still multiplies 32 columns faster than others do. Zeros along a short k cost little beside
    // the results, for which large tiles are best.
    const bool wastes = (tile.m > 16 && tile.m >= 2 * m) ||
                        (tile.n > (is_group ? 64 : 32) && tile.n >= 2 * n) ||
                        (tile.k > 64 && tile.k >= 2 * k);
    // Small tiles of a large product read each operand more often. A narrow product has no others.
    const bool is_small = tile.m * tile.n <= 64 * 32 && std::min(m, n) > 32;
    return !wastes && !(is_small && blocks > kManyBlocks) &&
           !(tile.is_persistent && blocks <= kFewBlocks);
  };
  const auto are_parts_worth_timing = [&](const ProductTile& tile, int64_t blocks, int64_t parts) {
    // For bytes, clusters of warpgroups share tiles better, unless their tiles are mostly zeros.
    constexpr int64_t kLeastOfGroup = 64;
    const bool is_beside = has_warp_groups && is_quantized(type) &&
                           tile.unit != ProductUnit::kWarpGroup && 2 * m > kLeastOfGroup &&
                           2 * n > kLeastOfGroup;
    // A step of bytes has twice as many elements.
    const int64_t part_steps = tile.unit != ProductUnit::kWarpGroup ? kPartSteps
                               : is_quantized(type)                 ? kClusterPartSteps / 2
                                                                    : kClusterPartSteps;
    // A few tiles over a long k leave multiprocessors idle, unless several share a tile.
    return !is_beside && blocks <= kMostTilesOfParts && blocks * parts <= 2 * kFewBlocks &&
           4 * blocks * parts >= kFewBlocks && k >= parts * part_steps * tile.k;
  };
  std::vector<int64_t> tactics;
  int64_t smallest = 0;
  for (const auto& [number, tile] : kTiles) {
    if (!can_compute(tile)) continue;
    if (tile.m == 32 && tile.n == 32) smallest = number;
    const int64_t blocks = ((m + tile.m - 1) / tile.m) * ((n + tile.n - 1) / tile.n) * batches;
    const bool is_worth = is_worth_timing(tile, blocks);
    if (!is_worth && !all) continue;
    tactics.push_back(number);
    if (!can_divide(tile, blocks)) continue;
    // Among all tactics, two parts stand for more parts.
    for (int64_t parts = 2; parts <= kMostPartsOfTile; parts *= 2)
      if ((is_worth && are_parts_worth_timing(tile, blocks, parts)) || (all && parts == 2))
        tactics.push_back(TileInParts{number, parts}.tactic());
  }
  if (tactics.empty()) tactics.push_back(smallest);
  return tactics;
}

}  // namespace opwright::gpu
