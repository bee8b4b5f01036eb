#include "backend/gpu/row_product.h"

#include <algorithm>

#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// What the epilogue has in shared memory for 16 columns: rows of sums, with what is behind them.
constexpr int64_t kStoredElements = int64_t{16} * (16 + 4);
/// Behind each row of a warp's sums, in elements.
constexpr int64_t kSumPadding = 4;
/// Elements along k that four lanes read at once.
constexpr int64_t kLaneStep = 32;
/// Rows at most, and bytes of columns at least, of which streamed products are known to be the best
/// in a chain: 16 layers of a decoder take 9 % less.
constexpr int64_t kChainRows = 2, kChainBytes = 4 << 20;
/// Bytes of shared memory of a multiprocessor, and those that each block takes beside its own.
constexpr int64_t kSharedBytes = 228 << 10, kReservedBytes = 1 << 10;
/// Bytes that a block may have on every GPU from 9.0 on.
constexpr int64_t kBlockBytes = 99 << 10;

/// So much that a multiprocessor has two blocks at once: a third one, of the kernel behind, comes
/// to some before others, whose columns then are multiplied last. A chain of 16 layers takes 7 %
/// less.
constexpr int64_t kLeastBytes = kSharedBytes / 3 - kReservedBytes + 128;

/// Places in shared memory of a streamed product, in bytes: the stages come first.
struct StreamMemory {
  int64_t sums = 0, barriers = 0, squares = 0, total = 0;
  int64_t tiles_at_once = 0;  ///< whose sums are there
  StreamMemory(const ProductTile& tile, int64_t rows, int64_t matrices) {
    const int64_t row = tile.n + kSumPadding;
    tiles_at_once = (rows > 2 ? 4 : 8) / matrices;
    sums = int64_t{2} * tile.warps_n * tile.stages * tile.n * (tile.k + kLaneStep);
    barriers = sums + 4 * tiles_at_once * matrices * tile.warps_n * rows * row;
    squares = barriers + int64_t{8} * tile.warps_n * tile.stages;
    total = std::max(squares + rows * 4 * tile.warps_n, kLeastBytes);
  }
  /// Blocks that a multiprocessor has at once; one is enough where the stages of all hold all
  /// elements of b: it finds room beside kernels before.
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

/// Whether the tile can multiply so many rows, of constant columns along k: every warp has whole
/// stages of columns, and, of rows that are normalized, room for all.
bool streams(const ProductTile& tile, const ProductSize& size, int matrices, bool normalizes) {
  const int64_t depth = size.k / tile.warps_n;
  return tile.unit == ProductUnit::kStreamedRows && size.is_fixed && size.batches == 1 &&
         size.m > 0 && size.m <= tile.m && size.n > 0 && size.k > 0 &&
         size.k % (int64_t{tile.k} * tile.warps_n) == 0 &&
         StreamMemory(tile, size.m, matrices).total <= kBlockBytes &&
         (!normalizes || (depth % (kLaneStep * 8) == 0 &&
                          size.m * depth <= int64_t{tile.stages} * tile.n * kLaneStep));
}

/// Alone other tiles are as fast: what streamed ones gain is that they have columns when kernels
/// before end.
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
  // They differ little.
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
    // Across k a lane reads 8 columns at once.
    if (tile.unit == ProductUnit::kRows) return b_along_k || tile.n == 64;
    // Columns that are there before.
    return architecture >= kBulkArchitecture && b_along_k && b_is_constant &&
           streams(tile, size, 1, false);
  };
  const auto is_worth_timing = [&](const ProductTile& tile) {
    const bool fits_rows = tile.m == 8 ? size.m <= 8 : size.m > 8;
    // Warps without a part of k.
    const int64_t depth = int64_t{tile.k} * tile.warps_n;
    const bool is_idle = tile.unit == ProductUnit::kRows && depth >= 2 * size.k && depth > 512;
    return fits_rows && !is_idle;
  };
  std::vector<int64_t> tactics;
  for (const auto& [number, tile] : kRowTiles)
    if (can_compute(tile) && (all || is_worth_timing(tile))) tactics.push_back(number);
  return tactics;
}

std::string ProductWriter::declare_rows() {
  return str("constexpr int kMatrices = 1, kSumRow = kTileN + ", kSumPadding,
             ", kSumSize = kTileM * kSumRow;\n", include("row_product.cuh"));
}

int ProductWriter::second_matrix(const ProductEpilogue& epilogue) const {
  const FusedProgram& program = epilogue.program;
  const auto found = std::ranges::find(program.places, static_cast<int64_t>(FusedPlace::kProduct));
  if (found == program.places.end()) return -1;
  return static_cast<int>(args_.inputs.size()) - program.inputs() +
         static_cast<int>(found - program.places.begin());
}

std::string ProductWriter::declare_row_stream(const Expr& m, const Expr& k,
                                              const ProductEpilogue& epilogue) {
  return str("constexpr Index kDepth = ", source_.value(k),
             ";\nconstexpr int kMatrices = ", second_matrix(epilogue) < 0 ? 1 : 2,
             ", kSumRows = ", source_.value(m), ", kSumRow = kTileN + ", kSumPadding,
             ", kSumSize = kSumRows * kSumRow;\nconstexpr bool kNormalizes = ",
             scale_ < 0 ? "false" : "true",
             ";\nconstexpr float kEpsilon = ", float_literal(epsilon_), ";\n",
             include("row_stream.cuh"));
}

GeneratedKernel ProductWriter::write_row_stream(const ProductOperand& a, const ProductOperand& b,
                                                const ProductEpilogue& epilogue,
                                                const ProductTasks& tasks, const Expr& m) {
  const int second = second_matrix(epilogue), matrices = second < 0 ? 1 : 2;
  const StreamMemory memory(tile_, m.constant(), matrices);
  const int64_t blocks = memory.blocks(tile_, matrices * args_.inputs[1].opt.numel());
  const std::string tiles = str(memory.tiles_at_once);
  const std::string second_start = second < 0 ? "b.matrix" : str("in", second),
                    is_aligned = second < 0 ? std::string("b.is_aligned")
                                            : str("b.is_aligned && ", alignment(second, {}));
  const std::string scale = scale_ < 0
                                ? std::string()
                                : str("stream.read_scale(MatrixReader<ElementA, 1, true>{in",
                                      scale_, ", 0, 1, kDepth, ", alignment(scale_, {}), "});\n");
  const std::string text = str(
      "extern __shared__ uint4 shared[];\n"
      "float* const all_sums = (float*)((char*)shared + ",
      memory.sums, ");\nconst int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;\n",
      tasks.constants,
      "(void)steps, (void)tiles_m, (void)tiles_n;\n"
      "const Index batch = 0, first_row = 0, all_rows = rows, first = ",
      tasks.first, ";\n(void)batch;\nColumnStream<", a.reader,
      "> stream = [&] {\nconst Index first_column = 0;\nconst ", b.reader, " b = ", b.make,
      ";\nreturn ColumnStream<", a.reader, ">(b.matrix, ", second_start, ", columns, ", is_aligned,
      ", shared, (char*)shared + ", memory.barriers, ");\n}();\n", KernelSource::kBeginNext, scale,
      source_.wait(), "const ", a.reader, " a = ", a.make,
      ";\nstream.keep_rows(a, (float*)((char*)shared + ", memory.squares,
      "));\n"
      "for (Index done = 0; done < stream.tiles; done += ",
      tiles, ") {\nconst int now = stream.tiles - done < ", tiles,
      " ? (int)(stream.tiles - done) : ", tiles,
      ";\nfor (int tile = 0; tile < now * kMatrices; ++tile) {\n"
      "Product sums;\nstream.multiply(sums, a);\n"
      "sums.save(all_sums + (tile * kWarps + warp) * kSumSize);\n}\n__syncthreads();\n"
      "for (int piece = warp; piece < now; piece += kWarps) {\n"
      "const Index first_column = ((Index)blockIdx.x + (done + piece) * (Index)gridDim.x) * "
      "kTileN;\n"
      "const int warp_m = 0, warp_n = 0;\n"
      "const int own_rows = (int)all_rows;\n"
      "const Index rows = all_rows;\n"
      "float* const own_sums = all_sums + piece * (kMatrices * kMatrixSums);\n"
      "const WarpSums product{own_sums, 0, own_rows};\n",
      // They are added where those of the first warp are.
      write_epilogue(epilogue, tasks.row_stride, "own_sums"), "}\nif (done + ", tiles,
      " < stream.tiles) __syncthreads();\n}\n");
  GeneratedKernel kernel =
      source_.finish(text, min(tasks.count, Expr(kFewBlocks * blocks)), 32 * tile_.warps_n);
  kernel.launch.shared_memory = memory.total;
  return kernel;
}

GeneratedKernel ProductWriter::write_rows(const ProductOperand& a, const ProductOperand& b,
                                          const ProductEpilogue& epilogue,
                                          const ProductTasks& tasks) {
  const int64_t pieces = tile_.n / 16, warps = tile_.warps_n;
  // The columns that come first are on their way while the kernels before end.
  const std::string wait = source_.wait();
  // What goes into the results comes beside the rows.
  std::string fetch;
  const auto add_fetch = [&](int input) {
    fetch += str("if ((Index)threadIdx.x < rows_left && threadIdx.x < kTileM)\nfetch_line(in",
                 input, " + first + (first_row + threadIdx.x) * ", source_.value(tasks.row_stride),
                 " + first_column);\n");
  };
  if (epilogue.residual >= 0) add_fetch(epilogue.residual);
  const FusedProgram& program = epilogue.program;
  for (int i = 0; i < program.inputs(); ++i)
    if (static_cast<FusedPlace>(program.places[i]) == FusedPlace::kElement)
      add_fetch(static_cast<int>(args_.inputs.size()) - program.inputs() + i);
  const std::string text = str(
      KernelSource::kBeginNext,
      "extern __shared__ uint4 shared[];\nfloat* const all_sums = (float*)shared + ",
      pieces * kStoredElements,
      ";\nconst int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;\n", tasks.constants,
      b.is_constant ? std::string() : wait, tasks.loop, "const Index first = ", tasks.first,
      ";\nconst Index all_rows = rows, rows_left = all_rows - first_row;\n"
      "const auto read_a = [&] {\n",
      b.is_constant ? wait : std::string(), fetch, "return ", a.reader, a.make, ";\n};\nconst ",
      b.reader, " b = ", b.make,
      ";\n{\n"
      "Product sums;\nif (",
      a.reader, a.make,
      ".is_aligned && b.is_aligned)\nmultiply_rows<true>(sums, read_a, b);\n"
      "else\nmultiply_rows<false>(sums, read_a, b);\n"
      "sums.save(all_sums + warp * (kTileM * kSumRow));\n}\n__syncthreads();\n"
      "for (int piece = warp; piece < kTileN / 16; piece += kWarps) {\n"
      "const int warp_m = 0, warp_n = piece * 16;\n"
      "const int own_rows = rows_left < kTileM ? (int)rows_left : kTileM;\n"
      "const Index rows = first_row + own_rows;\n"
      "const WarpSums product{all_sums, warp_n, own_rows};\n",
      write_epilogue(epilogue, tasks.row_stride), "}\n__syncthreads();\n}\n");
  GeneratedKernel kernel = source_.finish(text, tasks.count, static_cast<int>(32 * warps));
  kernel.launch.shared_memory =
      4 * (pieces * kStoredElements + warps * tile_.m * (tile_.n + kSumPadding));
  return kernel;
}

}  // namespace opwright::gpu
