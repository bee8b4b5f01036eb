#include "backend/gpu/warpgroup_product.h"

#include <algorithm>

#include "backend/gpu/pointwise_math.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

/// Threads of a block that multiply, and that copy: a group of which one lets the copying unit do
/// it, for registers are handed over by groups; else as many as multiply where the sums of an
/// instruction leave the registers for them.
int turns(const ProductTile& tile) { return tile.takes_turns ? 2 : 1; }
int multiplying_threads(const ProductTile& tile) { return kWarp * tile.warps_m * turns(tile); }
int copying_threads(const ProductTile& tile, bool has_boxes) {
  constexpr int kWide = 256, kGroup = 128;
  const bool has_room = tile.n < kWide && multiplying_threads(tile) <= 2 * kGroup;
  return has_boxes || !has_room ? kGroup : multiplying_threads(tile);
}

/// Registers of a thread that copies, and what is left for each that multiplies, in multiples of 8;
/// those of a block are allotted alike at first.
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

/// Columns of 16 rows that a warp adds up and stores at once where the tile's parts are those of a
/// cluster: so few that all of its warps have some.
int columns_of_piece(const ProductTile& tile, int parts, int most, DataType output) {
  int columns = most;
  const int least = std::max(8, 128 / bits(output));
  const auto pieces = [&] { return tile.m / 16 * (tile.n / columns); };
  while (columns > least && pieces() < parts * multiplying_threads(tile) / kWarp) columns /= 2;
  return columns;
}

}  // namespace

WarpGroupMemory::WarpGroupMemory(const ProductTile& tile, DataType type, bool is_packed) {
  // Of its 228 KiB each block takes one for itself.
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
  // Two small blocks take turns at copying, multiplying and storing.
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
    return type == DataType::kHALF   ? ".f16"
           : type == DataType::kBF16 ? ".bf16"
           : type == DataType::kFP8  ? ".e4m3"
           : type == DataType::kINT8 ? ".s8"
                                     : ".u8";
  };
  // Neither a nor b is negated; what lies across k is transposed.
  std::string modes;
  if (is_float) modes += ", 1, 1";
  if (is_short) modes += str(", ", a.is_along_k ? 0 : 1, ", ", b.is_along_k ? 0 : 1);
  return str("template <int adds>\n__device__ inline void multiply_matrices(Sum (&sums)[", count,
             "], unsigned long long a, unsigned long long b) {\n"
             "asm volatile(\"wgmma.mma_async.sync.aligned.m64n",
             n, is_short ? "k16" : "k32", is_float ? ".f32" : ".s32", element(a.type),
             element(b.type), " {", sums, "}, %", count, ", %", count + 1, ", %", count + 2, modes,
             ";\"\n: ", operands, " : \"l\"(a), \"l\"(b), \"n\"(adds));\n}\n");
}

std::string ProductWriter::declare_warp_groups(const ProductOperand& a, const ProductOperand& b) {
  const WarpGroupMemory memory(tile_, a.type, is_packed_);
  const bool has_boxes = copies_boxes(a, b);
  const int columns =
      parts_ > 1 ? columns_of_piece(tile_, parts_, memory.columns, output_) : memory.columns;
  std::string text =
      str("constexpr int kWarpGroups = ", tile_.warps_m / 4, ", kTurns = ", turns(tile_),
          ", kWarpN = ", columns, ", kThreads = ", copying_threads(tile_, has_boxes),
          ";\nconstexpr bool kHasMaps = ", has_boxes ? "true" : "false",
          ", kPromotes = ", a.type == DataType::kFP8 ? "true" : "false", ";\n",
          warp_group_instruction(tile_.n, a, b), include("warpgroup_product.cuh"),
          include(has_boxes ? "box_copies.cuh" : "thread_copies.cuh"));
  if (staged_ >= 0)
    text += str("typedef ", storage_type(args_.inputs[staged_].type.dtype), " Behind;\n",
                include("boxes_behind.cuh"));
  if (is_packed_) text += include("packed_results.cuh");
  if (parts_ > 1)
    text += str("constexpr int kParts = ", parts_, ";\n", include("cluster_sums.cuh"));
  return text;
}

PackedResults ProductWriter::write_own_parts(const ProductEpilogue& epilogue,
                                             const ProductTasks& tasks) {
  const bool is_staged = staged_ >= 0;
  PackedResults results;
  if (is_packed_)
    results = write_packed_results(
        args_, epilogue, staged_,
        str("[&](int i) { const Index row = first_row + warp_m + i; return row < rows ? out0 + "
            "(first + row * ",
            source_.value(tasks.row_stride), ") : nullptr; }"));
  else
    results.text =
        str("const ProductPart of_warp{product, block, warp_n};\n{\n"
            "const ProductPart& product = of_warp;\n",
            write_epilogue(epilogue, tasks.row_stride), "}\n");
  results.text =
      str(is_staged ? "const BoxesBehind behind(ring);\n" : "",
          tile_.takes_turns ? "ring.end_turn(turn);\n" : "",
          "end_products(last_stage);\n"
          "#pragma unroll\nfor (int block = 0; block < Product::kBlocks; ++block)\n"
          "#pragma unroll\nfor (int warp_n = 0; warp_n < kTileN; warp_n += kWarpN) {\n"
          "const int warp_m = (warp / 4 % kWarpGroups * Product::kBlocks + block) * 64 + warp % "
          "4 * 16;\n",
          results.text, "}\n", is_staged ? "behind.release();\n" : "");
  return results;
}

bool ProductWriter::keeps_registers(const ProductEpilogue& epilogue) const {
  if (tile_.unit != ProductUnit::kWarpGroup || parts_ > 1 || bits(output_) > 16 ||
      output_ == DataType::kBOOL)
    return false;
  // Elements that lie as the output does are read from stages alone.
  if (epilogue.residual != staged_ && epilogue.residual >= 0) return false;
  const FusedProgram& program = epilogue.program;
  const int first = static_cast<int>(args_.inputs.size()) - program.inputs();
  for (int i = 0; i < program.inputs(); ++i) {
    const auto place = static_cast<FusedPlace>(program.places[i]);
    if (place == FusedPlace::kRepeated || (place == FusedPlace::kElement && first + i != staged_))
      return false;
  }
  return true;
}

PackedResults write_packed_results(const KernelArgs& args, const ProductEpilogue& epilogue,
                                   int staged, std::string_view find_row) {
  std::string of_tile, of_pair, of_row, of_columns;
  // Reads an input that has a value for each row, or column, as `name`. Gives an expression of it.
  const auto read = [&](const std::string& name, int input, const std::string& place) {
    const std::string value = str("load(in", input, "[", place, "])");
    if (!place.ends_with("column")) {
      of_row += str("const auto ", name, " = ", value, ";\n");
      return name;
    }
    of_tile += str("const ColumnValues<", register_type(args.inputs[input].type.dtype), "> all_",
                   name, "([&](Index column) { return ", value, "; }, first_column, columns);\n");
    of_pair += str("const auto ", name, "_0 = all_", name, ".at(warp_n, pair, 0), ", name,
                   "_1 = all_", name, ".at(warp_n, pair, 1);\n");
    return str("(i == 0 ? ", name, "_0 : ", name, "_1)");
  };
  if (staged >= 0) {
    const DataType type = args.inputs[staged].type.dtype;
    const std::string pack = str("Pack<", storage_type(type), ", 2>");
    const bool by_matrices = bits(type) == 16;
    if (by_matrices)
      of_columns =
          "if (first_pair % 8 == 0) behind.load(of_columns, warp_m, warp_n + 2 * first_pair);\n";
    of_row += str("const ", pack, " staged = *(const ", pack,
                  by_matrices ? "*)&of_columns[first_pair / 4 % 2][half / 8];\n"
                              : "*)behind.find(tile_row, warp_n + 2 * pair);\n");
  }
  const std::string_view sum = register_type(type_of_product(args.inputs[0].type.dtype));
  std::string element =
      str("auto y = (", sum, ")product.sums[block][warp_n / 2 + first_pair + half / 4 + i];\n");
  if (epilogue.bias >= 0)
    element += str("y += ", read("bias", epilogue.bias, epilogue.bias_element), ";\n");
  if (epilogue.residual >= 0) element += "y += load(staged.at[i]);\n";
  element += fused_activation(epilogue.activation);
  const FusedProgram& program = epilogue.program;
  const int first = static_cast<int>(args.inputs.size()) - program.inputs();
  for (int i = 0; i < program.inputs(); ++i) {
    const auto place = static_cast<FusedPlace>(program.places[i]);
    element += str("const auto x", i + 1, " = ",
                   place == FusedPlace::kElement ? std::string("load(staged.at[i])")
                   : place == FusedPlace::kChannel
                       ? read(str("fused", i + 1), first + i, epilogue.channel_element)
                       : str("load(in", first + i, "[0])"),
                   ";\n");
  }
  if (program.present()) element += fused_program(program, args.outputs[0].type.dtype);
  return {of_tile,
          str("Output* const results = (Output*)shared + warp * 16 * kResultRow;\n",
              !of_columns.empty() ? "unsigned of_columns[2][2];\n" : "",
              "#pragma unroll\n"
              "for (int first_pair = 0; first_pair < kWarpN / 2; first_pair += 4) {\n"
              "const int pair = first_pair + lane % 4;\n",
              of_columns, of_pair,
              "#pragma unroll\n"
              "for (int half = 0; half < 16; half += 8) {\n"
              "const int tile_row = warp_m + half + lane / 4;\n"
              "const Index row = first_row + tile_row < rows ? first_row + tile_row : rows - 1;\n"
              "(void)row;\n",
              of_row, register_type(args.outputs[0].type.dtype),
              " values[2];\n"
              "#pragma unroll\n"
              "for (int i = 0; i < 2; ++i) {\n",
              element, "values[i] = ", program.present() ? "z" : "y",
              ";\n}\n"
              "put_results(results + (half + lane / 4) * kResultRow + 2 * pair, values[0], "
              "values[1]);\n}\n}\n__syncwarp();\n"
              "store_results(results, ",
              find_row, ", first_column + warp_n, columns, stores_packs);\n__syncwarp();\n")};
}

PackedResults ProductWriter::write_cluster_parts(const ProductEpilogue& epilogue,
                                                 const ProductTasks& tasks) {
  constexpr int kMostEarly = 2;
  const WarpGroupMemory memory(tile_, args_.inputs[0].type.dtype, is_packed_);
  const int columns = columns_of_piece(tile_, parts_, memory.columns, output_);
  const int pieces = tile_.m / 16 * (tile_.n / columns);
  const int warps = multiplying_threads(tile_) / kWarp;
  const bool is_early =
      pieces <= parts_ * warps && 16 * columns * bits(output_) <= kMostEarly * kWarp * 128;
  const std::string piece =
      "const int warp_m = piece / (kTileN / kWarpN) * 16, warp_n = piece % (kTileN / kWarpN) * "
      "kWarpN;\n";
  const std::string product =
      "const ClusterPart product{shared_address(tiles) + (warp_m * kSumRow + warp_n) * 4};\n";
  // All have read the tiles.
  const std::string sums =
      "end_products(last_stage);\nsync_multipliers();\nproduct.put_all((Sum*)tiles, "
      "kSumRow);\nsync_cluster();\n";
  if (!is_early)
    return {{},
            str(sums,
                "for (int piece = (int)part * (kMultipliers / 32) + warp; piece < kTileM / 16 * "
                "(kTileN / kWarpN); piece += kParts * (kMultipliers / 32)) {\n",
                piece, product, write_epilogue(epilogue, tasks.row_stride),
                // Others may still read this block's sums.
                "}\nsync_cluster();\n")};
  // A warp has one piece, or none.
  EarlyReads early{"arrive_in_cluster();\n"};
  const std::string text = write_epilogue(epilogue, tasks.row_stride, {}, &early);
  return {str("const int piece = (int)part * (kMultipliers / 32) + warp;\n", piece,
              "const bool has_piece = piece < kTileM / 16 * (kTileN / kWarpN);\n",
              early.declarations, "if (has_piece) {\n", early.statements, "}\n"),
          str(sums, "if (has_piece) {\n", product, text,
              "} else {\narrive_in_cluster();\n}\nwait_for_cluster();\n")};
}

GeneratedKernel ProductWriter::write_warp_groups(ProductOperand a, ProductOperand b,
                                                 const ProductEpilogue& epilogue,
                                                 const ProductTasks& tasks) {
  const WarpGroupMemory memory(tile_, a.type, is_packed_);
  const bool has_boxes = copies_boxes(a, b), takes_turns = tile_.takes_turns;
  if (has_boxes) {
    a.reader = a.box_reader, a.make = a.make_boxes;
    b.reader = b.box_reader, b.make = b.make_boxes;
  }
  const Registers registers(tile_, memory.blocks, has_boxes);
  const auto set_registers = [&](std::string_view way, int count) {
    // A single small block has so few threads that all may keep what they have.
    return multiplying_threads(tile_) == 4 * kWarp && memory.blocks == 1
               ? std::string()
               : str("asm volatile(\"setmaxnreg.", way, ".sync.aligned.u32 ", count, ";\");\n");
  };
  const PackedResults results =
      parts_ > 1 ? write_cluster_parts(epilogue, tasks) : write_own_parts(epilogue, tasks);
  std::string text = str(
      "extern __shared__ uint4 memory[];\n"
      // Tiles' patterns follow the address.
      "char* const tiles = (char*)memory + (0u - shared_address(memory)) % ",
      kBoxPattern, ";\nuint4* const shared = (uint4*)(tiles + ", memory.stages,
      ");\nRing ring(tiles, (char*)shared + ", memory.stored,
      ");\nif (threadIdx.x == 0) ring.init();\n",
      has_boxes ? str("if (threadIdx.x == 32) {\nprefetch_map(a_map);\nprefetch_map(b_map);\n",
                      staged_ >= 0 ? "prefetch_map(behind_map);\n" : "", "}\n")
                : std::string(),
      "__syncthreads();\n"
      "const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;\n",
      tasks.constants, "if (warp >= kTurns * kMultipliers / 32) {\n",
      set_registers("dec", registers.copying), tasks.loop, write_prefetch("ring", a, b, epilogue),
      write_readers(a, b), "copy_tiles(ring, a, b, first_step, end_step);\n",
      staged_ >= 0 ? "copy_boxes_behind(ring, behind_map, first_row, first_column);\n" : "",
      KernelSource::kBeginNext,
      // As often as those that multiply.
      parts_ > 1 ? "sync_cluster();\nsync_cluster();\n" : "", "}\n} else {\n",
      set_registers("inc", registers.multiplying), source_.wait(),
      takes_turns
          ? "int tiles_before = 0;\nconst int own_turn = __shfl_sync(0xffffffffu, warp / 4, 0);\n"
          : "",
      tasks.loop,
      takes_turns
          ? str("const int turn = tiles_before++;\nif (turn % 2 != own_turn) {\n"
                "ring.skip(end_step - first_step + ",
                staged_ >= 0 ? "kStagesBehind" : "0", ");\ncontinue;\n}\nring.begin_turn(turn);\n")
          : std::string(),
      "const Index first = ", tasks.first, ";\n", results.columns,
      "Product product;\n"
      "const unsigned last_stage = multiply_tiles(product, ring, first_step, end_step);\n",
      results.text, "}\n}\n");
  Expr blocks = tasks.count * Expr(parts_);
  if (tile_.is_persistent) blocks = min(blocks, Expr(kFewBlocks * memory.blocks));
  GeneratedKernel kernel =
      source_.finish(text, blocks, multiplying_threads(tile_) + copying_threads(tile_, has_boxes),
                     memory.blocks, parts_);
  kernel.launch.shared_memory = memory.total;
  kernel.is_for_one_architecture = true;
  return kernel;
}

}  // namespace opwright::gpu
