#include "backend/gpu/warpgroup_product.h"

#include <algorithm>

#include "backend/gpu/pointwise_math.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

/// Threads of a block that multiply, and threads that copy. With TMA one thread copies, but it has
/// a whole warpgroup, because registers are handed over by warpgroups. Without TMA as many threads
/// copy as multiply, if the sums of an instruction leave enough registers for them.
int turns(const ProductTile& tile) { return tile.takes_turns ? 2 : 1; }
int multiplying_threads(const ProductTile& tile) { return kWarp * tile.warps_m * turns(tile); }
int copying_threads(const ProductTile& tile, bool has_boxes) {
  constexpr int kWide = 256, kGroup = 128;
  const bool has_room = tile.n < kWide && multiplying_threads(tile) <= 2 * kGroup;
  return has_boxes || !has_room ? kGroup : multiplying_threads(tile);
}

/// Registers of a copying thread, and of a multiplying thread, which gets the rest. At first all
/// threads of a block have the same number. Numbers are multiples of 8.
struct Registers {
  int copying = 0, multiplying = 0;

  Registers(const ProductTile& tile, int blocks, bool has_boxes) {
    constexpr int kAll = 65536, kUnit = 8, kFewest = 40, kFew = 64, kMore = 72, kMost = 240;
    const int copy = copying_threads(tile, has_boxes), multiply = multiplying_threads(tile);
    const int first = kAll / blocks / (copy + multiply) / kUnit * kUnit;
    copying = has_boxes ? kFewest : copy == multiply && multiply > 128 ? kFew : kMore;
    multiplying =
        std::min((first * (copy + multiply) - copying * copy) / multiply / kUnit * kUnit, kMost);
  }
};

/// Columns of a piece of 16 rows that a warp adds up and stores at once, if the blocks of a cluster
/// share a tile. Pieces are so narrow that all warps of the cluster have one, if possible.
int columns_of_piece(const ProductTile& tile, int parts, int most, DataType output) {
  int columns = most;
  const int least = std::max(8, 128 / bits(output));
  const auto pieces = [&] { return tile.m / 16 * (tile.n / columns); };
  while (columns > least && pieces() < parts * multiplying_threads(tile) / kWarp) columns /= 2;
  return columns;
}

}  // namespace

WarpGroupMemory::WarpGroupMemory(const ProductTile& tile, DataType type, bool is_packed) {
  // A multiprocessor has 228 KiB. It reserves 1 KiB for each block.
  constexpr int64_t kAll = 228 << 10, kReserved = 1 << 10;
  constexpr int kRows = 16, kPadding = 16, kBarrierBytes = 8;
  const int bytes = is_packed ? 2 : 4;
  const int warps = multiplying_threads(tile) / kWarp;
  stages = int64_t{tile.stages} * (tile.m + tile.n) * tile.k * bits(type) / 8;
  const int64_t barriers = int64_t{2} * kBarrierBytes * (tile.stages + turns(tile) - 1);
  const auto fits = [&](int wanted_blocks, int wanted_columns) {
    blocks = wanted_blocks, columns = wanted_columns;
    stored = int64_t{warps} * kRows * (columns * bytes + kPadding);
    total = kBoxPattern + stages + stored + barriers;
    return blocks * (total + kReserved) <= kAll;
  };
  // Two small blocks overlap: one multiplies while the other copies or stores.
  if (warps == 4 && (fits(2, 64) || (!is_packed && fits(2, 32)))) return;
  if (!fits(1, 64) && !is_packed) fits(1, 32);
}

std::string warp_group_instruction(int n, const ProductOperand& a, const ProductOperand& b) {
  const int count = n / 2;
  const bool is_float = is_floating(a.type), is_short = bits(a.type) == 16;
  std::string sums, operands;
  for (int i = 0; i < count; ++i) {
    sums += str(i == 0 ? "%" : ", %", i);
    operands += str(i == 0 ? "" : ", ", is_float ? "\"+f\"(sums[" : "\"+r\"(sums[", i, "])");
  }
  const auto element = [](DataType type) {
    return type == DataType::kHALF    ? ".f16"
           : type == DataType::kBF16  ? ".bf16"
           : type == DataType::kFLOAT ? ".tf32"
           : type == DataType::kFP8   ? ".e4m3"
           : type == DataType::kINT8  ? ".s8"
                                      : ".u8";
  };
  // Modifiers of the instruction: a and b are not negated; an operand that lies across k is
  // transposed.
  std::string modes;
  if (is_float) modes += ", 1, 1";
  if (is_short) modes += str(", ", a.is_along_k ? 0 : 1, ", ", b.is_along_k ? 0 : 1);
  return str("template <int adds>\n__device__ static inline void multiply_matrices(Sum (&sums)[",
             count,
             "], unsigned long long a, unsigned long long b) {\n"
             "asm volatile(\"wgmma.mma_async.sync.aligned.m64n",
             n, "k", 256 / bits(a.type), is_float ? ".f32" : ".s32", element(a.type),
             element(b.type), " {", sums, "}, %", count, ", %", count + 1, ", %", count + 2, modes,
             ";\"\n: ", operands, " : \"l\"(a), \"l\"(b), \"n\"(adds));\n}\n");
}

bool ProductWriter::keeps_registers(const ProductEpilogue& epilogue) const {
  if (tile_.unit != ProductUnit::kWarpGroup || parts_ > 1 || bits(output_) > 16 ||
      output_ == DataType::kBOOL)
    return false;
  // Results in registers read a tensor with the output's layout only from stages.
  if (epilogue.residual != staged_ && epilogue.residual >= 0) return false;
  const FusedProgram& program = epilogue.program;
  const int first = first_program_input(args_, program);
  for (int i = 0; i < program.inputs(); ++i) {
    const auto place = static_cast<FusedPlace>(program.places[i]);
    if (place == FusedPlace::kRepeated || (place == FusedPlace::kElement && first + i != staged_))
      return false;
  }
  return true;
}

ProductWriter::DeviceKernel ProductWriter::warp_groups(const ProductOperand& a,
                                                       const ProductOperand& b, const Expr& tasks) {
  constexpr int kMostEarly = 2;  // the most packs of a lane whose inputs are read early
  const WarpGroupMemory memory(tile_, a.type, is_packed_);
  const bool has_boxes = copies_boxes(a, b);
  const Registers registers(tile_, memory.blocks, has_boxes);
  // A single small block has so few threads that all may keep their registers.
  const bool sets_registers = multiplying_threads(tile_) != 4 * kWarp || memory.blocks != 1;
  const int columns =
      parts_ > 1 ? columns_of_piece(tile_, parts_, memory.columns, output_) : memory.columns;
  const int pieces = tile_.m / 16 * (tile_.n / columns);
  config_.type("Behind", staged_ < 0 ? "void" : storage_type(args_.inputs[staged_].type.dtype));
  config_.number("kWarpGroups", tile_.warps_m / 4), config_.number("kTurns", turns(tile_));
  config_.number("kCopiers", copying_threads(tile_, has_boxes)), config_.number("kWarpN", columns);
  config_.number("kCopyingRegisters", sets_registers ? registers.copying : 0);
  config_.number("kMultiplyingRegisters", sets_registers ? registers.multiplying : 0);
  config_.number("kStoredBytes", memory.stored);
  config_.flag("kHasMaps", has_boxes), config_.flag("kIsPacked", is_packed_);
  config_.flag("kReadsEarly", pieces <= parts_ * multiplying_threads(tile_) / kWarp &&
                                  16 * columns * bits(output_) <= kMostEarly * kWarp * 128);
  config_.flag("kPromotes", a.type == DataType::kFP8);
  config_.member(warp_group_instruction(tile_.n, a, b));
  const std::string_view behind = staged_ >= 0 ? "&behind_map" : "nullptr";
  return {"warpgroup_product.cuh",
          "GroupConfig",
          str("const GroupMaps maps = {",
              has_boxes ? str("&a_map, &b_map, ", behind) : "nullptr, nullptr, nullptr",
              "};\nmultiply_by_groups<Config>(all, program, maps);\n"),
          tile_.is_persistent ? min(tasks, Expr(kFewBlocks * memory.blocks)) : tasks,
          multiplying_threads(tile_) + copying_threads(tile_, has_boxes),
          memory.total,
          memory.blocks,
          parts_};
}

}  // namespace opwright::gpu
