#include "backend/gpu/warpgroup_product.h"

#include <algorithm>

#include "backend/gpu/product_text.h"
#include "backend/gpu/shared_memory_text.h"
#include "backend/gpu/warpgroup_text.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// The unit in which patterns of tiles repeat, so that their beginnings are multiples of it.
constexpr int64_t kPattern = 1024;
/// Threads of a block that multiply, and that copy: as many where the sums of an instruction leave
/// the registers for them.
int multiplying_threads(const ProductTile& tile) { return 32 * tile.warps_m; }
int copying_threads(const ProductTile& tile) {
  constexpr int kWide = 256, kGroup = 128;
  return tile.n == kWide ? kGroup : multiplying_threads(tile);
}

/// Registers of a thread that copies, and what is left for each that multiplies, in multiples of 8;
/// those of a block are allotted alike at first.
struct Registers {
  int copying = 0, multiplying = 0;

  Registers(const ProductTile& tile, int blocks) {
    constexpr int kAll = 65536, kUnit = 8, kFew = 64, kMore = 72, kMost = 240;
    const int copy = copying_threads(tile), multiply = multiplying_threads(tile);
    const int first = kAll / blocks / (copy + multiply) / kUnit * kUnit;
    copying = copy == multiply && multiply > 128 ? kFew : kMore;
    multiplying =
        std::min((first * (copy + multiply) - copying * copy) / multiply / kUnit * kUnit, kMost);
  }
};

}  // namespace

WarpGroupMemory::WarpGroupMemory(const ProductTile& tile, DataType type) {
  // Of its 228 KiB each block takes one for itself.
  constexpr int64_t kAll = 228 << 10, kReserved = 1 << 10;
  constexpr int kRows = 16, kPadding = 4, kSumBytes = 4, kBarrierBytes = 8;
  const int warps = tile.warps_m * tile.warps_n;
  stages = int64_t{tile.stages} * (tile.m + tile.n) * tile.k * bits(type) / 8;
  const int64_t barriers = int64_t{2} * kBarrierBytes * tile.stages;
  const auto fits = [&](int wanted_blocks, int wanted_columns) {
    blocks = wanted_blocks, columns = wanted_columns;
    stored = int64_t{warps} * kRows * (columns + kPadding) * kSumBytes;
    total = kPattern + stages + stored + barriers;
    return blocks * (total + kReserved) <= kAll;
  };
  // Two small blocks take turns at copying, multiplying and storing.
  if (tile.warps_m == 4 && (fits(2, 64) || fits(2, 32))) return;
  if (!fits(1, 64)) fits(1, 32);
}

std::string warp_group_instruction(int n, DataType type, bool a_along_k, bool b_along_k) {
  const int count = n / 2;
  std::string sums, operands;
  for (int i = 0; i < count; ++i) {
    sums += str(i == 0 ? "%" : ", %", i);
    operands += str(i == 0 ? "" : ", ", "\"+f\"(sums[", i, "])");
  }
  const std::string_view element = type == DataType::kHALF ? "f16" : "bf16";
  return str("__device__ inline void multiply_matrices(float (&sums)[", count,
             "], unsigned long long a, unsigned long long b) {\n"
             "asm volatile(\"wgmma.mma_async.sync.aligned.m64n",
             n, "k16.f32.", element, ".", element, " {", sums, "}, %", count, ", %", count + 1,
             // Added to the sums, neither a nor b being negated.
             ", 1, 1, 1, ", a_along_k ? 0 : 1, ", ", b_along_k ? 0 : 1, ";\"\n: ", operands,
             " : \"l\"(a), \"l\"(b));\n}\n");
}

std::string ProductWriter::declare_warp_groups(const ProductOperand& a, const ProductOperand& b) {
  const WarpGroupMemory memory(tile_, a.type);
  return str(
      "constexpr int kWarpGroups = ", tile_.warps_m / 4, ", kWarpN = ", memory.columns,
      ", kThreads = ", copying_threads(tile_), ";\n", kSwizzledTiles, kCopyGroups, kTileCopies,
      warp_group_instruction(tile_.n, a.type, a.is_along_k, b.is_along_k), kWarpGroupProduct,
      kWarpGroupLoop,
      parts_ > 1 ? str("constexpr int kParts = ", parts_, ";\n", kClusterSums) : std::string());
}

std::string ProductWriter::write_own_parts(const ProductEpilogue& epilogue,
                                           const ProductTasks& tasks) {
  return str(
      "#pragma unroll\nfor (int block = 0; block < Product::kBlocks; ++block)\n"
      "#pragma unroll\nfor (int warp_n = 0; warp_n < kTileN; warp_n += kWarpN) {\n"
      "const int warp_m = (warp / 4 * Product::kBlocks + block) * 64 + warp % 4 * 16;\n"
      "const ProductPart of_warp{product, block, warp_n};\n{\nconst ProductPart& product = "
      "of_warp;\n",
      write_epilogue(epilogue, tasks.row_stride), "}\n}\n");
}

std::string ProductWriter::write_cluster_parts(const ProductEpilogue& epilogue,
                                               const ProductTasks& tasks) {
  return str(
      // All have read the tiles.
      "sync_multipliers();\nproduct.put_all((float*)tiles, kSumRow);\nsync_cluster();\n"
      "for (int piece = (int)part * (kMultipliers / 32) + warp; piece < kTileM / 16 * (kTileN / "
      "kWarpN); piece += kParts * (kMultipliers / 32)) {\n"
      "const int warp_m = piece / (kTileN / kWarpN) * 16, warp_n = piece % (kTileN / kWarpN) * "
      "kWarpN;\n"
      "const ClusterPart product{shared_address(tiles) + (warp_m * kSumRow + warp_n) * 4};\n",
      write_epilogue(epilogue, tasks.row_stride),
      // Others may still read this block's sums.
      "}\nsync_cluster();\n");
}

GeneratedKernel ProductWriter::write_warp_groups(const ProductOperand& a, const ProductOperand& b,
                                                 const ProductEpilogue& epilogue,
                                                 const ProductTasks& tasks) {
  const WarpGroupMemory memory(tile_, a.type);
  const Registers registers(tile_, memory.blocks);
  const auto set_registers = [&](std::string_view way, int count) {
    // A single small block has so few threads that all may keep what they have.
    return tile_.warps_m == 4 && memory.blocks == 1
               ? std::string()
               : str("asm volatile(\"setmaxnreg.", way, ".sync.aligned.u32 ", count, ";\");\n");
  };
  std::string text =
      str("extern __shared__ uint4 memory[];\n"
          // Tiles' patterns follow the address.
          "char* const tiles = (char*)memory + (0u - shared_address(memory)) % ",
          kPattern, ";\nuint4* const shared = (uint4*)(tiles + ", memory.stages,
          ");\nRing ring(tiles, (char*)shared + ", memory.stored,
          ");\nif (threadIdx.x == 0) ring.init();\n__syncthreads();\n"
          "const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;\n",
          tasks.constants, "if (warp >= kMultipliers / 32) {\n",
          set_registers("dec", registers.copying), tasks.loop, write_prefetch("ring", a, b),
          write_readers(a, b), "copy_tiles(ring, a, b, first_step, end_step);\n",
          KernelSource::kBeginNext,
          // As often as those that multiply.
          parts_ > 1 ? "sync_cluster();\nsync_cluster();\n" : "", "}\n} else {\n",
          set_registers("inc", registers.multiplying), source_.wait(), tasks.loop,
          "const Index first = ", tasks.first,
          ";\nProduct product;\nmultiply_tiles(product, ring, first_step, end_step);\n");
  text += parts_ > 1 ? write_cluster_parts(epilogue, tasks) : write_own_parts(epilogue, tasks);
  text += "}\n}\n";
  Expr blocks = tasks.count * Expr(parts_);
  if (tile_.is_persistent) blocks = min(blocks, Expr(kFewBlocks * memory.blocks));
  GeneratedKernel kernel = source_.finish(
      text, blocks, multiplying_threads(tile_) + copying_threads(tile_), memory.blocks, parts_);
  kernel.launch.shared_memory = memory.total;
  kernel.is_for_one_architecture = true;
  return kernel;
}

}  // namespace opwright::gpu
