#include "backend/gpu/row_product.h"

#include "backend/gpu/row_product_text.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// The first architecture whose tensor cores multiply FP16 and BF16 by m16n8k16.
constexpr int kFirstRowArchitecture = 80;
/// What the epilogue has in shared memory for 16 columns: rows of sums, with what is behind them.
constexpr int64_t kStoredElements = 16 * (16 + 4);
/// Behind each row of a warp's sums, in elements.
constexpr int64_t kSumPadding = 4;

constexpr ProductTile kRowTiles[] = {
    {ProductUnit::kRows, 8, 16, 128, 1, 4, 1},  {ProductUnit::kRows, 8, 16, 128, 1, 8, 1},
    {ProductUnit::kRows, 8, 16, 128, 1, 16, 1}, {ProductUnit::kRows, 8, 16, 64, 1, 8, 2},
    {ProductUnit::kRows, 8, 16, 64, 1, 16, 2},  {ProductUnit::kRows, 8, 16, 256, 1, 8, 1},
    {ProductUnit::kRows, 8, 32, 64, 1, 8, 1},   {ProductUnit::kRows, 8, 32, 64, 1, 16, 1},
    {ProductUnit::kRows, 8, 64, 32, 1, 4, 1},   {ProductUnit::kRows, 8, 64, 32, 1, 8, 1},
    {ProductUnit::kRows, 8, 64, 32, 1, 16, 1},  {ProductUnit::kRows, 16, 16, 128, 1, 4, 1},
    {ProductUnit::kRows, 16, 16, 128, 1, 8, 1}, {ProductUnit::kRows, 16, 16, 128, 1, 16, 1},
    {ProductUnit::kRows, 16, 16, 64, 1, 8, 2},  {ProductUnit::kRows, 16, 16, 64, 1, 16, 2},
    {ProductUnit::kRows, 16, 16, 256, 1, 8, 1}, {ProductUnit::kRows, 16, 32, 64, 1, 8, 1},
    {ProductUnit::kRows, 16, 32, 64, 1, 16, 1}, {ProductUnit::kRows, 16, 64, 32, 1, 4, 1},
    {ProductUnit::kRows, 16, 64, 32, 1, 8, 1},  {ProductUnit::kRows, 16, 64, 32, 1, 16, 1},
};

}  // namespace

std::span<const ProductTile> row_tiles() { return kRowTiles; }

std::vector<int64_t> row_product_tactics(DataType a, DataType b, const ProductSize& size,
                                         bool a_along_k, bool b_along_k, int architecture) {
  const bool is_short = (a == DataType::kHALF || a == DataType::kBF16) && a == b;
  if (!is_short || !a_along_k || size.m > kMostRows || size.m == 0 ||
      architecture < kFirstRowArchitecture)
    return {};
  std::vector<int64_t> tactics;
  for (int64_t i = 0; i < std::ssize(kRowTiles); ++i) {
    const ProductTile& tile = kRowTiles[i];
    const bool fits_rows = tile.m == 8 ? size.m <= 8 : size.m > 8;
    // Across k a lane reads 8 columns at once.
    const bool fits_columns = b_along_k || tile.n == 64;
    // Warps without a part of k.
    const bool is_idle = tile.k * tile.warps_n >= 2 * size.k && tile.k * tile.warps_n > 512;
    if (fits_rows && fits_columns && !is_idle) tactics.push_back(kFirstRowTactic + i);
  }
  return tactics;
}

std::string ProductWriter::declare_rows(DataType type) {
  std::string unit(kRowProduct);
  constexpr std::string_view kName = "PRODUCT_TYPE";
  for (size_t at = 0; (at = unit.find(kName, at)) != std::string::npos;)
    unit.replace(at, kName.size(), type == DataType::kHALF ? "f16" : "bf16");
  return str(kRowReaders, unit, kRowLoop);
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
