#include "backend/gpu/attention_writer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "backend/gpu/part_counters.h"
#include "backend/gpu/pointwise_math.h"

namespace opwright::gpu::attention {
namespace {

/// Of keys and values that a GPU's second cache keeps while other queries meet them.
constexpr int kCachedBytes = 16 << 20;

}  // namespace

AttentionWriter::AttentionWriter(const FusedAttentionParams& params, const KernelArgs& args)
    : params_(params),
      args_(args),
      source_("fused_attention", args),
      tactic_(tactic_of(args.candidate->tactic)),
      tile_(tactic_.tile),
      type_(args.inputs[0].type.dtype) {
  for (int i = 0; i < 3; ++i) strides_[i] = attention_strides<Expr>(params, i, source_.dims(i));
  const SymShape &query = source_.dims(0), &key = source_.dims(1), &value = source_.dims(2);
  batch_ = query[at(attention_batch_axis(params.layout(0)))];
  queries_ = query[at(attention_length_axis(params.layout(0)))];
  keys_ = key[at(attention_length_axis(params.layout(1)))];
  source_.check_equal(key[at(attention_batch_axis(params.layout(1)))], batch_,
                      "queries and keys must have one batch");
  source_.check_equal(value[at(attention_batch_axis(params.layout(2)))], batch_,
                      "queries and values must have one batch");
  source_.check_equal(value[at(attention_length_axis(params.layout(2)))], keys_,
                      "there must be as many values as keys");
  const Expr row(params.heads * params.value_size);
  const SymShape output = params.layout(3) == AttentionLayout::kHEADS_FIRST
                              ? SymShape{batch_, Expr(params.heads), queries_, params.value_size}
                          : params.layout(3) == AttentionLayout::kBATCH_FIRST
                              ? SymShape{batch_, queries_, row}
                              : SymShape{queries_, batch_, row};
  strides_[3] = attention_strides<Expr>(params, 3, output);
  tiles_ = ceil_div(Expr(params_.group()) * queries_, Expr(tile_.m));
}

GeneratedKernel AttentionWriter::write() {
  write_declarations();
  const Expr tasks = batch_ * Expr(params_.shared_heads) * tiles_ * Expr(tactic_.parts);
  return tile_.is_group    ? write_groups(tasks)
         : tile_.is_direct ? write_direct(tasks)
                           : write_tiles(tasks);
}

std::string AttentionWriter::write_sizes() {
  return str("const Index queries = ", source_.value(queries_), ", keys = ", source_.value(keys_),
             ", rows = ", source_.value(Expr(params_.group()) * queries_),
             ", tiles = ", source_.value(tiles_), ";\nconst Index shift = ",
             params_.causal_kind == CausalMaskKind::kLOWER_RIGHT ? "keys - queries" : "0", ";\n");
}

std::string AttentionWriter::write_task() {
  const int parts = tactic_.parts;
  const std::string shared_heads = source_.value(Expr(params_.shared_heads));
  const std::string group = source_.value(Expr(params_.group()));
  std::string text = str("const Index task = number / ", parts, ", part = number % ", parts, ";\n");
  if (tile_.is_group && params_.causal_kind != CausalMaskKind::kNONE)
    // The last queries of a causal mask meet most keys and come first, of as many heads as the
    // cache has keys and values of.
    text += str(
        "const Index heads = ", source_.value(batch_ * Expr(params_.shared_heads)),
        ", many = ", kCachedBytes, " / (keys * ((kSize + kValueSize) * 2) + 1) + 1;\n",
        "const Index chunk = many < heads ? many : heads, first_head = task / (chunk * tiles) * "
        "chunk;\n"
        "const Index width = chunk < heads - first_head ? chunk : heads - first_head;\n"
        "const Index place = task - first_head * tiles, turn = place / width;\n"
        "const Index head_number = first_head + place % width;\n"
        "const Index tiles_of_head = queries % kTileM == 0 ? queries / kTileM : tiles;\n"
        "const Index heads_of_tiles = tiles / tiles_of_head;\n"
        "const Index first_row = (turn % heads_of_tiles * tiles_of_head + tiles_of_head - 1 - "
        "turn / heads_of_tiles) * kTileM;\n");
  else
    text +=
        "const Index head_number = task / tiles, first_row = (tiles - 1 - task % tiles) * "
        "kTileM;\n";
  return str(text, "const Index batch = head_number / ", shared_heads,
             ", shared_head = head_number % ", shared_heads,
             ";\n"
             "const auto head_of = [&](Index row) { return shared_head * ",
             group, " + row / queries; };\n");
}

void AttentionWriter::write_declarations() {
  const auto constant = [](std::string_view name, int64_t value) {
    return str("constexpr int ", name, " = ", value, ";\n");
  };
  std::string text =
      str("typedef ", storage_type(type_), " Element;\ntypedef ",
          storage_type(args_.outputs[0].type.dtype), " Output;\n", constant("kTileM", tile_.m),
          constant("kTileN", tile_.n), constant("kWarpsM", tile_.warps_m),
          constant("kWarpsN", tile_.warps_n), constant("kStages", tile_.stages),
          constant("kSize", rounded(params_.size, tile_.is_direct  ? 32
                                                  : tile_.is_group ? 64
                                                                   : 16)),
          constant("kValueSize", rounded(params_.value_size, is_wide() ? 64 : 16)),
          params_.fused.present() ? pointwise_functions(true) : std::string(),
          include("attention_tiles.cuh"), write_result());
  if (tile_.is_direct)
    text += str(constant("kGivenSize", params_.size),
                constant("kGivenValueSize", params_.value_size), include("attention_direct.cuh"));
  else if (tile_.is_group)
    text += write_group_declarations();
  else
    text += include(tile_.is_tensor ? "attention_tensor.cuh" : "attention_scalar.cuh");
  if (!tile_.is_group) text += include("attention_state.cuh");
  if (tile_.is_direct) text += include("attention_merging.cuh");
  source_.add_declarations(text);
}

std::string AttentionWriter::write_result() const {
  std::string text = "__device__ inline Output make_result(float y) {\n";
  if (!params_.fused.present()) return text + "return store<Output>(y);\n}\n";
  return str(text, "y = load(store<Element>(y));\n",
             fused_program(params_.fused, args_.outputs[0].type.dtype),
             "return store<Output>(z);\n}\n");
}

std::string AttentionWriter::alignment(int input) {
  const AttentionStrides<Expr>& s = strides_[input];
  const int vector = vector_of(type_);
  std::string test = str("is_aligned<Element, kVector>(in", input, ")");
  for (const Expr& stride : {s.batch, s.head, s.length, Expr(s.offset)})
    if (!stride.is_constant() || stride.constant() % vector != 0)
      test += str(" && ", source_.value(stride), " % kVector == 0");
  return test;
}

std::string AttentionWriter::place(int operand, std::string_view batch, std::string_view head,
                                   std::string_view position) {
  const AttentionStrides<Expr>& s = strides_[operand];
  return str(source_.value(Expr(s.offset)), " + ", batch, " * ", source_.value(s.batch), " + ",
             head, " * ", source_.value(s.head), " + ", position, " * ", source_.value(s.length));
}

std::string AttentionWriter::reader(int input) {
  return str("{in", input, " + ", place(input, "batch", "shared_head", "0"), ", ",
             source_.value(strides_[input].length), ", keys, ", params_.size_of(input), ", ",
             alignment(input), "}");
}

std::string AttentionWriter::write_limits() {
  const bool is_causal = params_.causal_kind != CausalMaskKind::kNONE;
  std::string text =
      "const auto limit_of = [&](Index query) {\n"
      "  (void)query, (void)shift;\n";
  text += is_causal ? "  const Index limit = query + shift + 1;\n"
                      "  return limit < 0 ? (Index)0 : limit < keys ? limit : keys;\n"
                    : "  return keys;\n";
  text +=
      "};\n"
      "const Index last_row = (first_row + kTileM < rows ? first_row + kTileM : rows) - 1;\n"
      "const bool is_one_head = first_row / queries == last_row / queries;\n"
      "const Index most_keys = limit_of(is_one_head ? last_row % queries : queries - 1);\n"
      "const Index all_tiles = (most_keys + kTileN - 1) / kTileN;\n";
  text += str("const Index length = (all_tiles + ", tactic_.parts - 1, ") / ", tactic_.parts,
              ", first_tile = part * length;\n"
              "const Index end_tile = first_tile + length < all_tiles ? first_tile + length : "
              "all_tiles;\n"
              "Index limits[Unit::kRows];\n"
              "#pragma unroll\n"
              "for (int i = 0; i < Unit::kRows; ++i) {\n"
              "const Index row = first_row + warp_m + Unit::row(i);\n"
              "limits[i] = row < rows ? limit_of(row % queries) : 0;\n}\n");
  for (const int input : {FusedAttention::kAllowed, FusedAttention::kBias})
    if (has(input)) text += write_mask_places(input);
  return text;
}

std::string AttentionWriter::write_mask_places(int input) {
  SymShape dims = source_.dims(input);
  dims.insert(dims.begin(), 4 - dims.size(), Expr(1));
  const SymShape scores = {batch_, Expr(params_.heads), queries_, keys_};
  SymShape strides(4);
  Expr stride = 1;
  for (size_t i = 4; i-- > 0;) {
    source_.check_equal((dims[i] - Expr(1)) * (dims[i] - scores[i]), Expr(0),
                        "a mask must broadcast to the scores");
    strides[i] = Expr::select(Expr::make(ExprOp::kEqual, dims[i], Expr(1)), Expr(0), stride);
    stride = stride * dims[i];
  }
  const std::string name = str("mask", input);
  const std::vector<std::string> places = {"batch", "head_of(row)", "(row % queries)"};
  const std::vector<Expr> outer(strides.begin(), strides.end() - 1);
  return str("const Index ", name, "_step = ", source_.value(strides[3]), ";\nIndex ", name,
             "[Unit::kRows];\n"
             "#pragma unroll\n"
             "for (int i = 0; i < Unit::kRows; ++i) {\n"
             "const Index row = first_row + warp_m + Unit::row(i);\n",
             name, "[i] = row < rows ? ", source_.offset(places, outer), " : 0;\n}\n");
}

std::string AttentionWriter::write_query_copies(int count, int threads, std::string_view thread,
                                                std::string_view first) {
  return str("const bool query_is_aligned = ", alignment(0), ";\nfor (int at = ", thread, "; at < ",
             count, " * (kSize / kVector); at += ", threads,
             ") {\n"
             "const int line = ",
             first,
             "at / (kSize / kVector), inner = at % (kSize / kVector) * kVector;\n"
             "const Index row = first_row + line;\n"
             "copy_vector(query_tile + ",
             tile_.is_group ? "swizzled_place<kTileM>(line, inner)" : "line * kKeyRow + inner",
             ", in0 + ", place(0, "batch", "head_of(row)", "(row % queries)"),
             " + inner, row < rows ? ", params_.size,
             " - inner : 0, query_is_aligned);\n}\n"
             "end_copies();\n");
}

std::string AttentionWriter::write_score() const {
  const auto log2e = static_cast<float>(std::numbers::log2e);
  const bool has_bias = has(FusedAttention::kBias);
  constexpr float kMost = std::numeric_limits<float>::max();
  const float masked = std::isinf(params_.masked_score)
                           ? params_.masked_score
                           : std::clamp(params_.masked_score * log2e, -kMost, kMost);
  const std::string most_finite = float_literal(kMost);
  std::string text;
  if (params_.cap == 0 && !has_bias) {
    text = str("x *= ", float_literal(params_.scale * log2e), ";\n");
  } else {
    text = str("x *= ", float_literal(params_.scale), ";\n");
    if (params_.cap != 0)
      text += str("x = ", float_literal(params_.cap), " * tanhf(x * ",
                  float_literal(1 / params_.cap), ");\n");
    if (has_bias)
      text += str("if (is_there) x += load(in", FusedAttention::kBias, "[mask",
                  FusedAttention::kBias, "[i] + key * mask", FusedAttention::kBias, "_step]);\n");
    // The lowest finite score is one still.
    if (has_bias)
      text += str("x = fabsf(x) <= ", most_finite, " ? fminf(fmaxf(x * ", float_literal(log2e),
                  ", -", most_finite, "), ", most_finite, ") : x;\n");
    else
      text += str("x *= ", float_literal(log2e), ";\n");
  }
  if (has(FusedAttention::kAllowed))
    text += str("if (is_there && !load(in", FusedAttention::kAllowed, "[mask",
                FusedAttention::kAllowed, "[i] + key * mask", FusedAttention::kAllowed,
                "_step])) x = ", float_literal(masked), ";\n");
  return text;
}

std::string AttentionWriter::write_output() {
  const AttentionStrides<Expr>& s = strides_[3];
  std::string pairs = "is_aligned<Output, Unit::kNeighbours>(out0)";
  for (const Expr& stride : {s.batch, s.head, s.length})
    if (!stride.is_constant() || stride.constant() % 2 != 0)
      pairs += str(" && ", source_.value(stride), " % Unit::kNeighbours == 0");
  return str(
      "if (warp / kWarpsM == 0) {\n"
      "const bool stores_packs = ",
      pairs,
      ";\n"
      "#pragma unroll\n"
      "for (int i = 0; i < Unit::kRows; ++i) {\n"
      "const Index row = first_row + warp_m + Unit::row(i);\n"
      "if (row >= rows) continue;\n"
      "Output* const to = out0 + ",
      place(3, "batch", "head_of(row)", "(row % queries)"),
      ";\n"
      "const float factor = state.sum[i] == 0.0f ? 0.0f : 1.0f / state.sum[i];\n"
      "#pragma unroll\n"
      "for (int j = 0; j < Unit::kOutputs; j += Unit::kNeighbours) {\n"
      "const int column = Unit::column(j);\n"
      "Pack<Output, Unit::kNeighbours> result;\n"
      "#pragma unroll\n"
      "for (int e = 0; e < Unit::kNeighbours; ++e)\n"
      "result.at[e] = make_result(state.sums[i][j + e] * factor);\n"
      "if (stores_packs && column + Unit::kNeighbours <= ",
      params_.value_size,
      ") {\n"
      "*(Pack<Output, Unit::kNeighbours>*)(to + column) = result;\n"
      "} else {\n"
      "#pragma unroll\n"
      "for (int e = 0; e < Unit::kNeighbours; ++e)\n"
      "if (column + e < ",
      params_.value_size, ") to[column + e] = result.at[e];\n}\n}\n}\n}\n");
}

GeneratedKernel AttentionWriter::write_tiles(const Expr& tasks) {
  std::string text =
      str("extern __shared__ uint4 shared[];\n"
          "Element* const query_tile = (Element*)shared;\n"
          "const auto key_tile = [&](int stage) {\n"
          "  return query_tile + kQueryElements + stage * kStageElements;\n};\n"
          "const int warp = (int)threadIdx.x / 32;\n"
          "const int warp_m = warp % kWarpsM * 16, warp_n = warp / kWarpsM * kWarpN;\n",
          write_sizes(), "for (Index number = blockIdx.x; number < ", source_.value(tasks),
          "; number += gridDim.x) {\n", write_task(), "const RowReader key_rows = ", reader(1),
          ", value_rows = ", reader(2), ";\n", write_limits(),
          write_query_copies(tile_.m, 32 * tile_.warps_m * tile_.warps_n, "(int)threadIdx.x", ""),
          write_loop());
  if (tile_.warps_n > 1) text += write_warp_merging();
  if (tactic_.parts > 1) text += write_part_merging(batch_ * Expr(params_.shared_heads) * tiles_);
  text += write_output() + "__syncthreads();\n}\n";
  GeneratedKernel kernel = source_.finish(text, tasks, 32 * tile_.warps_m * tile_.warps_n);
  kernel.launch.shared_memory = SharedMemory(tile_, params_, type_).total;
  return kernel;
}

std::string AttentionWriter::write_loop() const {
  return str(
      "const auto copy_tiles = [&](int stage, Index tile) {\n"
      "Element* const to = key_tile(stage);\n"
      "if (tile < end_tile) key_rows.copy<kSize>(to, tile * kTileN);\n"
      "end_copies();\n"
      "if (tile < end_tile) value_rows.copy<kValueSize>(to + kKeyElements, tile * kTileN);\n"
      "end_copies();\n};\n"
      "#pragma unroll\n"
      "for (int stage = 0; stage < kStages - 1; ++stage) copy_tiles(stage, first_tile + stage);\n"
      "wait_for_copies<2 * (kStages - 1)>();\n"
      "__syncthreads();\n"
      "Unit unit(query_tile + warp_m * kKeyRow, (float*)key_tile(kStages) + warp * 16 * "
      "kWarpN);\n"
      "unit.load_queries();\n"
      "State state;\n"
      "int stage = 0;\n"
      "for (Index tile = first_tile; tile < end_tile; ++tile) {\n"
      "wait_for_copies<2 * (kStages - 1) - 1>();\n"
      "__syncthreads();\n"
      "copy_tiles(stage == 0 ? kStages - 1 : stage - 1, tile + kStages - 1);\n"
      "float scores[Unit::kRows][Unit::kColumns];\n"
      "#pragma unroll\n"
      "for (int i = 0; i < Unit::kRows; ++i)\n"
      "#pragma unroll\n"
      "for (int j = 0; j < Unit::kColumns; ++j) scores[i][j] = 0.0f;\n"
      "unit.multiply_keys(scores, key_tile(stage) + warp_n * kKeyRow);\n"
      "#pragma unroll\n"
      "for (int i = 0; i < Unit::kRows; ++i) {\n"
      "const bool is_whole = (tile + 1) * kTileN <= limits[i];\n"
      "#pragma unroll\n"
      "for (int j = 0; j < Unit::kColumns; ++j) {\n"
      "const Index key = tile * kTileN + warp_n + Unit::column(j);\n"
      "const bool is_there = is_whole || key < limits[i];\n"
      "float x = scores[i][j];\n",
      write_score(),
      "scores[i][j] = is_there ? x : nothing();\n"
      "}\n}\n"
      "wait_for_copies<2 * (kStages - 1)>();\n"
      "__syncthreads();\n"
      "state.add(scores, unit, key_tile(stage) + kKeyElements + warp_n * kValueRow);\n"
      "stage = stage + 1 == kStages ? 0 : stage + 1;\n"
      "}\n"
      "state.add_lanes();\n"
      "wait_for_copies<0>();\n"
      "__syncthreads();\n");
}

std::string AttentionWriter::write_warp_merging() {
  return "float* const found = (float*)shared + warp % kWarpsM * (32 * kStateSize) + threadIdx.x "
         "% 32;\n"
         "#pragma unroll\n"
         "for (int other = 1; other < kWarpsN; ++other) {\n"
         "if (warp / kWarpsM == other) state.save(found, 32);\n"
         "__syncthreads();\n"
         "if (warp / kWarpsM == 0) state.add_saved<false>(found, 32);\n"
         "__syncthreads();\n}\n";
}

std::string AttentionWriter::write_part_merging(const Expr& tasks) {
  const int parts = tactic_.parts, threads = 32 * tile_.warps_m;
  const int64_t count = tasks.constant();
  const int64_t lane_rows = tile_.is_tensor ? 2 : 4,
                outputs = rounded_size(params_.value_size) / (tile_.is_tensor ? 4 : 8);
  source_.add_scratch("float", count * parts * threads * lane_rows * (2 + outputs) * 4);
  return str("constexpr int kPartSize = ", threads,
             " * kStateSize;\n"
             "float* const parts = scratch + task * ",
             parts,
             " * kPartSize;\n"
             "if (warp / kWarpsM == 0) state.save(parts + part * kPartSize + threadIdx.x, ",
             threads, ");\n", continue_unless_last_part(source_, count, parts),
             "if (warp / kWarpsM == 0) {\n"
             "state = State();\n"
             "for (int i = 0; i < ",
             parts, "; ++i) state.add_saved<true>(parts + i * kPartSize + threadIdx.x, ", threads,
             ");\n}\n");
}

}  // namespace opwright::gpu::attention
