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
      str("extern __shared__ uint4 shared[];\n",
          // Whoever writes into another block's memory knows by it that this one runs.
          tactic_.parts > 1 ? "arrive_in_cluster();\n" : "",
          "const int warp = (int)threadIdx.x / 32;\n"
          "const int warp_m = warp % kWarpsM * 16;\n",
          write_sizes(), write_direct_fetch(count),
          // Not before: what the next kernel reads would delay the keys and values.
          KernelSource::kBeginNext, source_.wait(), "for (Index number = blockIdx.x; number < ",
          count, "; number += gridDim.x) {\n", write_task(),
          "const RowReader key_rows = ", reader(1), ", value_rows = ", reader(2), ";\n",
          write_limits(), write_direct_loop(), write_direct_output(), "__syncthreads();\n}\n");
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
      "reads_ahead = __any_sync(0xffffffffu, is_met);\n"
      "if (!reads_ahead) continue;\n");
}

// Keys and values come beside what says whether they are met, but where those before were not.
std::string AttentionWriter::write_direct_loop() {
  const std::string skip = write_direct_skip(),
                    read =
                        "if (has_vectors)\nunit.read<true>(key_rows, value_rows, tile * kTileN);\n"
                        "else\nunit.read<false>(key_rows, value_rows, tile * kTileN);\n";
  return str(
      "State state;\n"
      // Reads alone are there twice: with two loops registers are spilled.
      "const bool has_vectors = key_rows.is_aligned && value_rows.is_aligned && ",
      alignment(0),
      ";\nUnit unit;\n"
      "#pragma unroll\n"
      "for (int i = 0; i < Unit::kRows; ++i) {\n"
      "const Index row = first_row + Unit::row(i);\n"
      "const Element* const query = in0 + (row < rows ? ",
      place(0, "batch", "head_of(row)", "(row % queries)"),
      " : 0);\n"
      "if (has_vectors)\nunit.read_query<true>(i, query, row < rows);\n"
      "else\nunit.read_query<false>(i, query, row < rows);\n}\n"
      "bool reads_ahead = true;\n"
      "for (Index tile = first_tile + warp; tile < end_tile; tile += kWarpsN) {\n"
      "const bool has_read = reads_ahead;\n"
      "if (has_read) {\n",
      read, "}\n", skip, skip.empty() ? std::string() : str("if (!has_read) {\n", read, "}\n"),
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
      "}\n"
      "state.add_lanes();\n");
}

std::string AttentionWriter::write_direct_output() {
  const int parts = tactic_.parts;
  const std::string store = str("out0[", place(3, "batch", "head_of(row)", "(row % queries)"),
                                " + column] = make_result(merged.result());\n");
  std::string text =
      "const int own_rows = rows - first_row < kTileM ? (int)(rows - first_row) : kTileM;\n"
      "float* const saved = (float*)shared;\n"
      "save_state(state, saved + warp * kSaved, own_rows);\n"
      "__syncthreads();\n";
  if (parts > 1)
    // Every block has merged what it got for the task before.
    text += str("float* const sent = saved + kWarpsN * kSaved;\nwait_for_cluster();\n");
  text +=
      "for (int at = (int)threadIdx.x; at < own_rows * kValueSize; at += kThreads) {\n"
      "const int line = at / kValueSize, column = at % kValueSize;\n";
  if (parts == 1)
    return str(text,
               "if (column >= kGivenValueSize) continue;\n"
               "const Merged merged = merge_warps(saved, line, column);\n"
               "const Index row = first_row + line;\n",
               store, "}\n");
  return str(text, "send_to_block<", parts,
             ">(merge_warps(saved, line, column), sent, (int)part, line, column);\n"
             "}\n"
             "sync_cluster();\n"
             "constexpr int kShare = kValueSize / ",
             parts,
             ";\n"
             "for (int at = (int)threadIdx.x; at < own_rows * kShare; at += kThreads) {\n"
             "const int line = at / kShare, column = (int)part * kShare + at % kShare;\n"
             "if (column >= kGivenValueSize) continue;\n"
             "const Merged merged = merge_blocks<",
             parts,
             ">(sent, line, at % kShare);\n"
             "const Index row = first_row + line;\n",
             store,
             "}\n"
             "if (number + gridDim.x < ",
             source_.value(batch_ * Expr(params_.shared_heads) * tiles_ * Expr(parts)),
             ") arrive_in_cluster();\n");
}

}  // namespace opwright::gpu::attention
