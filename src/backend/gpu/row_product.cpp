#include "backend/gpu/row_product.h"

#include <algorithm>

#include "backend/gpu/pointwise_math.h"
#include "backend/gpu/product.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Elements of the epilogue's rows of sums for 16 columns, with their padding.
constexpr int64_t kStoredElements = int64_t{16} * (16 + 4);
/// Padding of each row of a warp's sums, in elements.
constexpr int64_t kSumPadding = 4;
/// Elements along k that four lanes read at once.
constexpr int64_t kLaneStep = 32;
/// The most rows, and the fewest bytes of columns, for which streamed products are known to be the
/// best in a chain of kernels: 16 layers of a decoder take 9 % less time.
constexpr int64_t kChainRows = 2, kChainBytes = 4 << 20;
/// Bytes of shared memory of a multiprocessor, and bytes that it reserves for each block.
constexpr int64_t kSharedBytes = 228 << 10, kReservedBytes = 1 << 10;
/// Bytes of shared memory that a block may have on every GPU from compute capability 9.0 on.
constexpr int64_t kBlockBytes = 99 << 10;

/// The least shared memory of a block, with which a multiprocessor has room for only two blocks. A
/// third block, of the next kernel, would begin early on some multiprocessors only, and the columns
/// of the other blocks would be multiplied last. A chain of 16 layers takes 7 % less time.
constexpr int64_t kLeastBytes = kSharedBytes / 3 - kReservedBytes + 128;

/// Byte offsets in the shared memory of a streamed product, which begins with the stages.
struct StreamMemory {
  int64_t sums = 0, barriers = 0, squares = 0, total = 0;
  int64_t tiles_at_once = 0;  ///< tiles whose sums are in shared memory at once
  StreamMemory(const ProductTile& tile, int64_t rows, int64_t matrices) {
    const int64_t row = tile.n + kSumPadding;
    tiles_at_once = (rows > 2 ? 4 : 8) / matrices;
    sums = int64_t{2} * tile.warps_n * tile.stages * tile.n * (tile.k + kLaneStep);
    barriers = sums + 4 * tiles_at_once * matrices * tile.warps_n * rows * row;
    squares = barriers + int64_t{8} * tile.warps_n * tile.stages;
    total = std::max(squares + rows * 4 * tile.warps_n, kLeastBytes);
  }
  /// Blocks that a multiprocessor has at once. One is enough if the stages of all blocks hold all
  /// elements of b. It finds room beside the blocks of earlier kernels.
  int64_t blocks(const ProductTile& tile, int64_t elements) const {
    const bool holds_all = elements <= kFewBlocks * tile.stages * tile.n * tile.k * tile.warps_n;
    return !holds_all && kSharedBytes / (total + kReservedBytes) > 1 ? 2 : 1;
  }
};

constexpr Numbered<ProductTile> kRowTiles[] = {
    {60, {ProductUnit::kRows, 8, 16, 128, 1, 4, 1}},
    {61, {ProductUnit::kRows, 8, 16, 128, 1, 8, 1}},
    {62, {ProductUnit::kRows, 8, 16, 128, 1, 16, 1}},
    {63, {ProductUnit::kRows, 8, 16, 64, 1, 8, 2}},
    {64, {ProductUnit::kRows, 8, 16, 64, 1, 16, 2}},
    {65, {ProductUnit::kRows, 8, 16, 256, 1, 8, 1}},
    {66, {ProductUnit::kRows, 8, 32, 64, 1, 8, 1}},
    {67, {ProductUnit::kRows, 8, 32, 64, 1, 16, 1}},
    {68, {ProductUnit::kRows, 8, 64, 32, 1, 4, 1}},
    {69, {ProductUnit::kRows, 8, 64, 32, 1, 8, 1}},
    {70, {ProductUnit::kRows, 8, 64, 32, 1, 16, 1}},
    {71, {ProductUnit::kRows, 16, 16, 128, 1, 4, 1}},
    {72, {ProductUnit::kRows, 16, 16, 128, 1, 8, 1}},
    {73, {ProductUnit::kRows, 16, 16, 128, 1, 16, 1}},
    {74, {ProductUnit::kRows, 16, 16, 64, 1, 8, 2}},
    {75, {ProductUnit::kRows, 16, 16, 64, 1, 16, 2}},
    {76, {ProductUnit::kRows, 16, 16, 256, 1, 8, 1}},
    {77, {ProductUnit::kRows, 16, 32, 64, 1, 8, 1}},
    {78, {ProductUnit::kRows, 16, 32, 64, 1, 16, 1}},
    {79, {ProductUnit::kRows, 16, 64, 32, 1, 4, 1}},
    {80, {ProductUnit::kRows, 16, 64, 32, 1, 8, 1}},
    {81, {ProductUnit::kRows, 16, 64, 32, 1, 16, 1}},
    {82, {ProductUnit::kStreamedRows, 8, 8, 256, 1, 8, 2, true}},
    {83, {ProductUnit::kStreamedRows, 8, 8, 128, 1, 8, 4, true}},
    {84, {ProductUnit::kStreamedRows, 8, 8, 128, 1, 4, 6, true}},
    {85, {ProductUnit::kStreamedRows, 8, 16, 256, 1, 4, 2, true}},
    {86, {ProductUnit::kStreamedRows, 8, 16, 128, 1, 8, 2, true}},
};

}  // namespace

static_assert(are_numbered(kRowTiles, kFirstRowTactic));
static_assert(kFirstRowTactic + std::size(kRowTiles) <= kRowTacticsEnd);

std::span<const Numbered<ProductTile>> row_tiles() { return kRowTiles; }

namespace {

/// Whether the tile can stream a product of this size. Every warp must have whole stages of
/// columns. If rows are normalized, a warp must have room for its part of all rows.
bool streams(const ProductTile& tile, const ProductSize& size, int matrices, bool normalizes) {
  const int64_t depth = size.k / tile.warps_n;
  return tile.unit == ProductUnit::kStreamedRows && size.is_fixed && size.batches == 1 &&
         size.m > 0 && size.m <= tile.m && size.n > 0 && size.k > 0 &&
         size.k % (int64_t{tile.k} * tile.warps_n) == 0 &&
         StreamMemory(tile, size.m, matrices).total <= kBlockBytes &&
         (!normalizes || (depth % (kLaneStep * 8) == 0 &&
                          size.m * depth <= int64_t{tile.stages} * tile.n * kLaneStep));
}

/// Whether streamed tiles are the best in a chain of kernels: they have columns in shared memory
/// when the earlier kernels end. Without a chain other tiles are as fast.
bool is_of_chain(const ProductSize& size, int matrices) {
  return size.m <= kChainRows && size.n * size.k * 2 * matrices >= kChainBytes;
}

}  // namespace

std::vector<int64_t> chain_tactics(DataType type, const ProductSize& size, int matrices,
                                   bool normalizes, int architecture, bool all) {
  const bool is_short = type == DataType::kHALF || type == DataType::kBF16;
  if (!is_short || architecture < kBulkArchitecture || (!all && !is_of_chain(size, matrices)))
    return {};
  std::vector<int64_t> tactics;
  for (const auto& [number, tile] : kRowTiles)
    if (streams(tile, size, matrices, normalizes)) tactics.push_back(number);
  // The tiles differ little in time.
  if (!all && tactics.size() > 1) tactics.resize(1);
  return tactics;
}

std::vector<int64_t> row_product_tactics(DataType a, DataType b, const ProductSize& size,
                                         bool a_along_k, bool b_along_k, bool b_is_constant,
                                         int architecture, bool all) {
  const bool is_short = (a == DataType::kHALF || a == DataType::kBF16) && a == b;
  if (!is_short || !a_along_k || architecture < kTensorArchitecture || size.m == 0 ||
      (!all && size.m > kMostRows))
    return {};
  const auto can_compute = [&](const ProductTile& tile) {
    // If b lies across k, a lane reads 8 columns at once, and 8 lanes read 64.
    if (tile.unit == ProductUnit::kRows) return b_along_k || tile.n == 64;
    // Streamed columns are copied before earlier kernels are done, so b must be constant.
    return architecture >= kBulkArchitecture && b_along_k && b_is_constant &&
           streams(tile, size, 1, false);
  };
  const auto is_worth_timing = [&](const ProductTile& tile) {
    const bool fits_rows = tile.m == 8 ? size.m <= 8 : size.m > 8;
    // In a tile that is too deep for k, half of the warps or more have no part of k.
    const int64_t depth = int64_t{tile.k} * tile.warps_n;
    const bool is_idle = tile.unit == ProductUnit::kRows && depth >= 2 * size.k && depth > 512;
    return fits_rows && !is_idle;
  };
  std::vector<int64_t> tactics;
  for (const auto& [number, tile] : kRowTiles)
    if (can_compute(tile) && (all || is_worth_timing(tile))) tactics.push_back(number);
  return tactics;
}

int ProductWriter::second_matrix(const ProductEpilogue& epilogue) const {
  const FusedProgram& program = epilogue.program;
  const auto found = std::ranges::find(program.places, static_cast<int64_t>(FusedPlace::kProduct));
  if (found == program.places.end()) return -1;
  return first_program_input(args_, program) + static_cast<int>(found - program.places.begin());
}

ProductWriter::DeviceKernel ProductWriter::row_stream(const Expr& m, const Expr& k,
                                                      const ProductEpilogue& epilogue,
                                                      const Expr& tasks) {
  const int second = second_matrix(epilogue), matrices = second < 0 ? 1 : 2;
  const StreamMemory memory(tile_, m.constant(), matrices);
  const int64_t blocks = memory.blocks(tile_, matrices * args_.inputs[1].opt.numel());
  config_.number("kMatrices", matrices), config_.number("kSumRows", source_.value(m));
  config_.value("Index", "kDepth", source_.value(k));
  config_.number("kTilesAtOnce", memory.tiles_at_once);
  config_.flag("kNormalizes", scale_ >= 0), config_.number("kEpsilon", epsilon_);
  const auto pointer = [&](int input) { return input < 0 ? "nullptr" : str("in", input); };
  const auto aligned = [&](int input) { return input < 0 ? "false" : alignment(input, {}); };
  return {"row_stream.cuh",
          "StreamConfig",
          str("const StreamConstants<C> constants = {", pointer(second), ", ", pointer(scale_),
              ", ", aligned(second), ", ", aligned(scale_),
              "};\nmultiply_row_stream<Config>(all, program, constants);\n"),
          min(tasks, Expr(kFewBlocks * blocks)),
          kWarp * tile_.warps_n,
          memory.total};
}

ProductWriter::DeviceKernel ProductWriter::rows(const Expr& tasks) {
  const int64_t pieces = tile_.n / 16, warps = tile_.warps_n;
  config_.number("kMatrices", 1), config_.number("kSumRows", tile_.m);
  return {"row_product.cuh",
          "RowConfig",
          "multiply_few_rows<Config>(all, program);\n",
          tasks,
          kWarp * tile_.warps_n,
          4 * (pieces * kStoredElements + warps * tile_.m * (tile_.n + kSumPadding))};
}

}  // namespace opwright::gpu
