#include <cmath>

#include "backend/gpu/attention_writer.h"

namespace opwright::gpu::attention {

// A warp's keys and values, and what says which are met, come into the second cache while the
// kernels before end: what these change there is seen.
std::string AttentionWriter::write_direct_fetch(const std::string& tasks) {
  // Of a long cache that is hardly filled not all.
  constexpr int kMostTiles = 4;
  constexpr int kAllowed = FusedAttention::kAllowed;
  const std::string mask =
      has(kAllowed) ? str("if (threadIdx.x % 32 == 0) fetch_line(in", kAllowed, " + mask", kAllowed,
                          "[0] + tile * kTileN * mask", kAllowed, "_step);\n")
                    : std::string();
  return str(
      "if (blockIdx.x < ", tasks, ") {\nconst Index number = blockIdx.x;\n", write_task(),
      "const RowReader key_rows = ", reader(1), ", value_rows = ", reader(2), ";\n", write_limits(),
      "const Index last = first_tile + ", kMostTiles, " * kWarpsN;\n",
      "for (Index tile = first_tile + warp; tile < end_tile && tile < last; tile += kWarpsN) "
      "{\n",
      mask, "fetch_rows(key_rows, value_rows, tile * kTileN);\n}\n}\n");
}

GeneratedKernel AttentionWriter::write_direct(const Expr& tasks) {
  const std::string count = source_.value(tasks);
  const std::string text =
      str("extern __shared__ uint4 shared[];\n"
          "const int warp = (int)threadIdx.x / 32;\n"
          "const int warp_m = warp % kWarpsM * 16;\n",
          write_sizes(), write_direct_fetch(count), source_.wait(),
          "for (Index number = blockIdx.x; number < ", count, "; number += gridDim.x) {\n",
          write_task(), "const RowReader key_rows = ", reader(1), ", value_rows = ", reader(2),
          ";\n", write_limits(), write_direct_loops(),
          // Not before: what the next kernel reads would delay the keys and values.
          KernelSource::kBeginNext, write_direct_output(), "__syncthreads();\n}\n");
  GeneratedKernel kernel =
      source_.finish(text, tasks, 32 * tile_.warps_m * tile_.warps_n, 0, tactic_.parts);
  kernel.launch.shared_memory = SharedMemory(tile_, params_, type_).total;
  kernel.is_for_one_architecture = tactic_.parts > 1;
  return kernel;
}

std::string AttentionWriter::write_direct_skip() const {
  constexpr int kAllowed = FusedAttention::kAllowed;
  if (!has(kAllowed) || !std::isinf(params_.masked_score)) return {};
  return str(
      "bool is_met = false;\n"
      "#pragma unroll\n"
      "for (int i = 0; i < Unit::kRows; ++i)\n"
      "#pragma unroll\n"
      "for (int j = 0; j < Unit::kColumns; ++j) {\n"
      "const Index key = tile * kTileN + Unit::key(j);\n"
      "if (key < limits[i]) is_met |= load(in",
      kAllowed, "[mask", kAllowed, "[i] + key * mask", kAllowed,
      "_step]) != 0;\n}\n"
      "if (!__any_sync(0xffffffffu, is_met)) continue;\n");
}

std::string AttentionWriter::write_direct_loop(bool vectors) {
  const std::string_view flag = vectors ? "true" : "false";
  return str(
      "Unit unit;\n"
      "#pragma unroll\n"
      "for (int i = 0; i < Unit::kRows; ++i) {\n"
      "const Index row = first_row + Unit::row(i);\n"
      "unit.read_query<",
      flag, ">(i, in0 + (row < rows ? ", place(0, "batch", "head_of(row)", "(row % queries)"),
      " : 0), row < rows);\n}\n"
      "for (Index tile = first_tile + warp; tile < end_tile; tile += kWarpsN) {\n",
      write_direct_skip(), "unit.read<", flag,
      ">(key_rows, value_rows, tile * kTileN);\n"
      "float scores[Unit::kRows][Unit::kColumns];\n"
      "#pragma unroll\n"
      "for (int i = 0; i < Unit::kRows; ++i)\n"
      "#pragma unroll\n"
      "for (int j = 0; j < Unit::kColumns; ++j) scores[i][j] = 0.0f;\n"
      "unit.multiply_keys(scores);\n"
      "#pragma unroll\n"
      "for (int i = 0; i < Unit::kRows; ++i)\n"
      "#pragma unroll\n"
      "for (int j = 0; j < Unit::kColumns; ++j) {\n"
      "const Index key = tile * kTileN + Unit::key(j);\n"
      "const bool is_there = key < limits[i];\n"
      "float x = scores[i][j];\n",
      write_score(),
      "scores[i][j] = is_there ? x : nothing();\n"
      "}\n"
      "state.add(scores, unit, nullptr);\n"
      "}\n");
}

std::string AttentionWriter::write_direct_loops() {
  return str("State state;\nif (key_rows.is_aligned && value_rows.is_aligned && ", alignment(0),
             ") {\n", write_direct_loop(true), "} else {\n", write_direct_loop(false),
             "}\nstate.add_lanes();\n");
}

std::string AttentionWriter::write_direct_output() {
  const int parts = tactic_.parts;
  const std::string store = str("const Index row = first_row + line;\nout0[",
                                place(3, "batch", "head_of(row)", "(row % queries)"),
                                " + column] = store<Element>(merged.result());\n");
  std::string text =
      str("float* const saved = (float*)shared;\n"
          "save_state(state, saved + warp * kSaved);\n"
          "__syncthreads();\n"
          "const int own_rows = rows - first_row < kTileM ? (int)(rows - first_row) : kTileM;\n"
          "for (int at = (int)threadIdx.x; at < own_rows * kValueSize; at += kThreads) {\n"
          "const int line = at / kValueSize, column = at % kValueSize;\n"
          "if (column >= kGivenValueSize) continue;\n"
          "Merged merged = merge_warps(saved, line, column);\n");
  if (parts == 1) return text + store + "}\n";
  text += str(
      "float* const to = saved + kWarpsN * kSaved + line * kSavedRow;\n"
      "to[column] = merged.value;\n"
      "if (column == 0) to[kValueSize] = merged.most, to[kValueSize + 1] = merged.sum;\n"
      "}\n"
      "sync_cluster();\n"
      "for (int at = (int)threadIdx.x + (int)part * kThreads; at < own_rows * kValueSize; at += ",
      parts,
      " * kThreads) {\n"
      "const int line = at / kValueSize, column = at % kValueSize;\n"
      "if (column >= kGivenValueSize) continue;\n"
      "const Merged merged = merge_blocks<",
      parts, ">(saved + kWarpsN * kSaved, line, column);\n", store,
      "}\n"
      // Others may still read what this block has found.
      "sync_cluster();\n");
  return text;
}

}  // namespace opwright::gpu::attention
