#include <algorithm>
#include <numbers>

#include "backend/gpu/attention_writer.h"

namespace opwright::gpu::attention {
namespace {

/// Threads that copy: a warpgroup, of which one lets the copying unit do it.
constexpr int kCopiers = 128;

/// Registers of a thread that copies and of one that multiplies, in multiples of 8; those of a
/// block are allotted alike at first.
struct Registers {
  int copying = 0, multiplying = 0;
  Registers(int groups, int blocks, bool has_maps) {
    constexpr int kAll = 65536, kUnit = 8, kFewest = 24, kMore = 56, kMost = 240;
    copying = has_maps ? kFewest : kMore;
    const int left = kAll / blocks - copying * kCopiers;
    multiplying = std::min(left / (groups * 128) / kUnit * kUnit, kMost);
  }
};

std::string set_registers(std::string_view way, int count) {
  return str("asm volatile(\"setmaxnreg.", way, ".sync.aligned.u32 ", count, ";\");\n");
}

}  // namespace

bool AttentionWriter::is_plain() const {
  return params_.cap == 0 && params_.scale > 0 && !has(FusedAttention::kAllowed) &&
         !has(FusedAttention::kBias);
}

float AttentionWriter::group_score_factor() const {
  return is_plain() ? params_.scale * static_cast<float>(std::numbers::log2e) : 1.0f;
}

std::string AttentionWriter::group_instructions() const {
  const auto write = [&](std::string_view name, int n, bool adds, bool is_weight) {
    const int count = n / 2;
    std::string sums, operands;
    for (int i = 0; i < count; ++i) {
      sums += str(i == 0 ? "%" : ", %", i);
      operands += str(i == 0 ? "" : ", ", adds ? "\"+f\"(to[" : "\"=f\"(to[", i / 2 % 2, "][",
                      i / 4 * 2 + i % 2, "])");
    }
    const std::string_view element = type_ == DataType::kHALF ? "f16" : "bf16";
    const std::string first =
        is_weight ? str("{%", count, ", %", count + 1, ", %", count + 2, ", %", count + 3, "}")
                  : str("%", count);
    const std::string_view given =
        is_weight ? "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])" : "\"l\"(a)";
    return str("__device__ inline void ", name, "(float (&to)[2][", n / 4, "], ",
               is_weight ? "const unsigned (&a)[4]" : "unsigned long long a",
               ", unsigned long long b) {\nasm volatile(\"wgmma.mma_async.sync.aligned.m64n", n,
               "k16.f32.", element, ".", element, " {", sums, "}, ", first, ", %",
               count + (is_weight ? 4 : 1), ", ", adds ? 1 : 0, ", 1, 1, ",
               // Keys lie along the sum, values across it.
               is_weight ? "1" : "0, 0", ";\"\n: ", operands, " : ", given, ", \"l\"(b));\n}\n");
  };
  return write("begin_scores", tile_.n, false, false) + write("add_scores", tile_.n, true, false) +
         write("add_values", rounded(params_.value_size, 64), true, true);
}

void AttentionWriter::add_maps() {
  const int vector = vector_of(type_);
  const auto is_aligned = [&](const Expr& number) {
    return number.is_constant() && number.constant() % vector == 0;
  };
  // Of heads that lie side by side a box has nothing of the next one.
  const auto fits = [&](int input) {
    const AttentionStrides<Expr>& s = strides_[input];
    const bool is_alone = params_.layout(input) == AttentionLayout::kHEADS_FIRST;
    return is_alone ? params_.size_of(input) % vector == 0
                    : params_.size_of(input) % 64 == 0 && s.offset % vector == 0 &&
                          is_aligned(s.head) && is_aligned(s.length) && is_aligned(s.batch);
  };
  // A tensor without elements has no map.
  const Shape& least = args_.inputs[1].min;
  has_maps_ = fits(1) && fits(2) && least[attention_length_axis(params_.layout(1))] > 0;
  for (const int input : {1, 2}) {
    if (!has_maps_) return;
    const AttentionStrides<Expr>& s = strides_[input];
    const bool is_alone = params_.layout(input) == AttentionLayout::kHEADS_FIRST;
    KernelTensorMap map;
    map.input = input, map.type = type_;
    // Rows of heads end with the last one that is there.
    const Expr inner = is_alone ? Expr(params_.size_of(input))
                                : Expr(s.offset + params_.size_of(input)) +
                                      Expr(params_.shared_heads - 1) * s.head;
    map.extents = {inner, keys_, is_alone ? batch_ * Expr(params_.shared_heads) : batch_};
    map.strides = {s.length, is_alone ? s.head : s.batch};
    map.box = {64, tile_.n, 1};
    map.steps = {1, 1, 1};
    source_.add_map(input == 1 ? "key_map" : "value_map", std::move(map));
  }
}

std::string AttentionWriter::write_group_declarations() {
  add_maps();
  return str("constexpr float kScoreFactor = ", float_literal(group_score_factor()),
             ";\nconstexpr int kCopiers = ", kCopiers,
             ";\nconstexpr bool kHasMaps = ", has_maps_ ? "true" : "false", ";\n",
             group_instructions(), include("attention_group.cuh"));
}

std::string AttentionWriter::write_group_copy(int input) {
  const bool is_key = input == 1;
  const std::string_view name = is_key ? "key" : "value", size = is_key ? "kSize" : "kValueSize";
  std::string text = str(name, "s_ring.wait_empty();\n");
  if (!has_maps_)
    return str(text, "copy_rows<kTileN, ", size, ">(", name, "_tile(", name, "s_ring.stage), ",
               name, "_rows, tile * kTileN);\narrive_behind_copies(", name, "s_ring.is_full());\n",
               name, "s_ring.advance();\n");
  const AttentionStrides<Expr>& s = strides_[input];
  const bool is_alone = params_.layout(input) == AttentionLayout::kHEADS_FIRST;
  return str(text, "expect(", name, "s_ring.is_full(), kTileN * ", size,
             " * 2);\n"
             "#pragma unroll\n"
             "for (int i = 0; i < ",
             size, "; i += kSwizzled)\ncopy_box(", name, "_tile(", name,
             "s_ring.stage) + i * kTileN, ", name, "_map, ",
             is_alone ? std::string("i")
                      : str(s.offset, " + shared_head * ", source_.value(s.head), " + i"),
             ", tile * kTileN, ", is_alone ? "head_number" : "batch", ", ", name,
             "s_ring.is_full());\n", name, "s_ring.advance();\n");
}

std::string AttentionWriter::write_group_scores() const {
  std::string text =
      "const auto judge = [&](Index tile) {\n"
      "const bool is_whole = (tile + 1) * kTileN <= limits[0] && (tile + 1) * kTileN <= "
      "limits[1];\n";
  if (is_plain()) text += "if (is_whole) return;\n";
  text +=
      str("#pragma unroll\n"
          "for (int i = 0; i < Unit::kRows; ++i)\n"
          "#pragma unroll\n"
          "for (int j = 0; j < Unit::kColumns; ++j) {\n"
          "const Index key = tile * kTileN + Unit::column(j);\n"
          "const bool is_there = is_whole || key < limits[i];\n"
          "float x = scores[i][j];\n",
          is_plain() ? std::string() : write_score(),
          "scores[i][j] = is_there ? x : nothing();\n}\n};\n");
  return text;
}

// Products of one tile's weights with its values run beside those of the next tile's keys, and
// while that one's scores are weighed.
std::string AttentionWriter::write_group_loop() const {
  const std::string_view begin_turn = tile_.takes_turns ? "turns.begin();\n" : "",
                         end_turn = tile_.takes_turns ? "turns.end();\n" : "";
  return str(
      "State state;\n"
      "Index next;\n"
      "const auto copy_next = [&] {\n"
      "next = others.hear();\n"
      "sync_group(warp / 4);\n"
      "copy_queries(next);\n};\n"
      "if (first_tile >= end_tile) copy_next();\n"
      "if (first_tile < end_tile) {\n"
      "keys_ring.wait_full();\n",
      begin_turn,
      "begin_products();\n"
      "multiply_keys(scores, query_tile, key_tile(keys_ring.stage));\n"
      "end_products();\n",
      end_turn,
      "wait_for_products<0>();\n"
      "keep(scores);\n"
      "keys_ring.release();\n"
      "judge(first_tile);\n"
      "state.weigh(scores, factors);\n"
      "state.pack(scores);\n"
      "for (Index tile = first_tile + 1; tile < end_tile; ++tile) {\n"
      "keys_ring.wait_full();\n"
      "values_ring.wait_full();\n",
      begin_turn,
      "keep(scores);\n"
      "keep(state.sums);\n"
      "begin_products();\n"
      "multiply_keys(scores, query_tile, key_tile(keys_ring.stage));\n"
      "end_products();\n"
      "state.multiply_values(value_tile(values_ring.stage));\n"
      "end_products();\n",
      end_turn,
      "wait_for_products<1>();\n"
      "keep(scores);\n"
      "keys_ring.release();\n"
      "judge(tile);\n"
      "state.weigh(scores, factors);\n"
      "wait_for_products<0>();\n"
      "keep(state.sums);\n"
      "values_ring.release();\n"
      "state.rescale(factors);\n"
      "state.pack(scores);\n"
      "}\n"
      "copy_next();\n"
      "values_ring.wait_full();\n"
      "keep(state.sums);\n"
      "begin_products();\n"
      "state.multiply_values(value_tile(values_ring.stage));\n"
      "end_products();\n"
      "wait_for_products<0>();\n"
      "keep(state.sums);\n"
      "values_ring.release();\n"
      "}\n"
      "state.add_lanes();\n");
}

// The next task's queries are copied behind this one's products with keys.
std::string AttentionWriter::write_group_queries() {
  return str("const auto copy_queries = [&](Index number) {\nif (number >= tasks) return;\n",
             write_task(),
             write_query_copies(64, 128, "(int)threadIdx.x % 128", "warp / 4 * 64 + "), "};\n");
}

// Neighbours of a vector where they lie at multiples of that, else as others store them.
std::string AttentionWriter::write_group_output() {
  const AttentionStrides<Expr>& s = strides_[3];
  std::string vectors = "is_aligned<Output, kVector>(out0)";
  for (const Expr& stride : {s.batch, s.head, s.length})
    if (!stride.is_constant() || stride.constant() % vector_of(type_) != 0)
      vectors += str(" && ", source_.value(stride), " % kVector == 0");
  return str(
      "if (", vectors,
      ") {\n"
      "#pragma unroll\n"
      "for (int i = 0; i < Unit::kRows; ++i) {\n"
      "const Index row = first_row + warp_m + Unit::row(i);\n"
      "Output* const to = out0 + ",
      place(3, "batch", "head_of(row)", "(row % queries)"),
      ";\n"
      "const float factor = state.sum[i] == 0.0f ? 0.0f : 1.0f / state.sum[i];\n"
      "#pragma unroll\n"
      "for (int j = 0; j < Unit::kOutputs; j += 8) {\n"
      "unsigned pairs[4];\n"
      "#pragma unroll\n"
      "for (int e = 0; e < 4; ++e)\n"
      "pairs[e] = pair<Element>(state.sums[i][j + 2 * e] * factor, state.sums[i][j + 2 * e + 1] * "
      "factor);\n"
      "gather_row(pairs);\n"
      "const int column = 4 * j + (int)threadIdx.x % 4 * 8;\n"
      "if (row < rows && column < ",
      params_.value_size, ") {\n",
      params_.fused.present()
          ? "const Pack<Element, kVector> own = *(const Pack<Element, kVector>*)pairs;\n"
            "Pack<Output, kVector> results;\n"
            "#pragma unroll\n"
            "for (int e = 0; e < kVector; ++e)\n"
            "results.at[e] = make_result(load(own.at[e]));\n"
            "*(Pack<Output, kVector>*)(to + column) = results;\n"
          : "*(uint4*)(to + column) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);\n",
      "}\n}\n}\n} else {\n", write_output(), "}\n");
}

GeneratedKernel AttentionWriter::write_groups(const Expr& tasks) {
  // Two blocks of a single warpgroup take turns by themselves where their tiles fit.
  constexpr int64_t kShared = 228 << 10, kReserved = 1 << 10;
  const SharedMemory memory(tile_, params_, type_);
  const int blocks = groups() == 1 && 2 * (memory.total + kReserved) <= kShared ? 2 : 1;
  const Registers registers(groups(), blocks, has_maps_);
  source_.add_counters(2);
  const std::string begin =
      "Ring keys_ring(barriers), values_ring(barriers + 16);\nTasks others(numbers);\n"
      "Index number = blockIdx.x;\n";
  const std::string copying = str(
      has_maps_ ? "if (threadIdx.x == kThreads) {\n" : "{\n", begin,
      "while (number < tasks) {\n"
      "Index next = tasks;\nif (threadIdx.x == kThreads) next = next_task(tasks, counter0);\n",
      write_task(),
      has_maps_
          ? std::string()
          : str("const RowReader key_rows = ", reader(1), ", value_rows = ", reader(2), ";\n"),
      write_limits(), "for (Index tile = first_tile; tile < end_tile; ++tile) {\n",
      write_group_copy(1), write_group_copy(2), "}\n",
      has_maps_ ? "others.tell(next);\n"
                // A place is free again when this warp has heard, too.
                : "Tasks own = others;\nif (threadIdx.x == kThreads) own.tell(next);\n"
                  "__syncwarp();\nnext = others.hear();\n",
      "number = next;\n}\nif (threadIdx.x == kThreads) end_tasks(tasks, counter0, counter1);\n}\n",
      KernelSource::kBeginNext);
  const std::string multiplying =
      str(begin, tile_.takes_turns ? "Turns turns(barriers + 32 * kStages, warp / 4);\n" : "",
          write_group_queries(), "copy_queries(number);\nwhile (number < tasks) {\n", write_task(),
          write_limits(),
          "wait_for_copies<0>();\nfence_copies();\nsync_group(warp / 4);\n"
          "float scores[2][Unit::kColumns], factors[2];\n",
          write_group_scores(), write_group_loop(), write_group_output(), "number = next;\n}\n");
  const std::string text = str(
      "extern __shared__ uint4 shared[];\n"
      // Tiles' patterns follow the address.
      "Element* const query_tile = (Element*)((char*)shared + (0u - shared_address(shared)) % ",
      kBoxPattern,
      ");\n"
      "const auto key_tile = [&](int stage) {\n"
      "  return query_tile + kTileM * kSize + stage * (kTileN * kSize);\n};\n"
      "const auto value_tile = [&](int stage) {\n"
      "  return query_tile + (kTileM + kStages * kTileN) * kSize + stage * (kTileN * "
      "kValueSize);\n};\n"
      "const unsigned barriers = shared_address((char*)shared + ",
      memory.stages, ");\nIndex* const numbers = (Index*)((char*)shared + ", memory.total - 48,
      ");\nif (threadIdx.x == 0) init_rings(barriers, shared_address(numbers + 2));\n"
      "__syncthreads();\n"
      "const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0), warp_m = warp * 16;\n",
      write_sizes(), "const Index tasks = ", source_.value(tasks), ";\nif (warp >= kWarpsM) {\n",
      set_registers("dec", registers.copying), source_.wait(), copying, "} else {\n",
      set_registers("inc", registers.multiplying), source_.wait(), multiplying, "}\n");
  GeneratedKernel kernel = source_.finish(text, min(tasks, Expr(kFewBlocks * blocks)),
                                          128 * groups() + kCopiers, blocks);
  kernel.launch.shared_memory = memory.total;
  kernel.is_for_one_architecture = true;
  return kernel;
}

}  // namespace opwright::gpu::attention
