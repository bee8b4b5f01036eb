#include "operators/fused_attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "backend/candidates.h"
#include "backend/device.h"
#include "backend/gpu/attention_text.h"
#include "backend/gpu/direct_attention_text.h"
#include "backend/gpu/group_attention_text.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/shared_memory_text.h"
#include "backend/gpu/source.h"
#include "base/error.h"
#include "base/types.h"

// A namespace of its own: neighbours have tiles and tactics, too.
namespace opwright::gpu::attention {
namespace {

/// How a block of threads works: on m queries and n keys at a time, of which `stages` tiles are on
/// their way. A warp has 16 of the queries and its share of the keys.
struct AttentionTile {
  bool is_tensor = false;  ///< on tensor cores: FP16 or BF16, summed in FP32
  int m = 0, n = 0, warps_m = 1, warps_n = 1, stages = 2;
  /// Of few queries, on tensor cores: nothing goes through shared memory, a warp has n keys by
  /// itself, and what warps and blocks have found is merged.
  bool is_direct = false;
  /// By warpgroups (wgmma), of which each has 64 of the queries: 9.0 alone.
  bool is_group = false;
  std::string name() const {
    if (is_group) return str("warpgroup ", m, "x", n, ", ", warps_m, " warps");
    if (is_direct) return str("direct ", m, "x", n, ", ", warps_n, " warps");
    return str(is_tensor ? "tensor " : "scalar ", m, "x", n, ", ", warps_m * warps_n, " warps, ",
               stages, " stages");
  }
};

/// Queries of a warp.
constexpr int kWarpRows = 16;

constexpr AttentionTile kTiles[] = {
    {true, 64, 64, 4, 1, 2},
    {true, 128, 64, 8, 1, 2},
    {true, 64, 128, 4, 1, 2},
    {true, 64, 32, 4, 1, 2},
    {true, 32, 64, 2, 2, 2},
    {true, 16, 64, 1, 4, 3},
    {true, 16, 128, 1, 4, 2},
    {false, 64, 32, 4, 1, 2},
    {false, 32, 32, 2, 2, 2},
    {false, 16, 32, 1, 4, 3},
    {false, 16, 16, 1, 2, 2},
    {true, 16, 16, 1, 4, 1, true},
    {true, 16, 16, 1, 8, 1, true},
    {true, 64, 128, 4, 1, 2, false, true},
    {true, 128, 128, 8, 1, 2, false, true},
    {true, 64, 64, 4, 1, 2, false, true},
    {true, 128, 64, 8, 1, 2, false, true},
    {true, 192, 128, 12, 1, 2, false, true},
};

/// The first architecture whose tensor cores multiply by m16n8k16, and that copies to shared memory
/// without registers.
constexpr int kFirstArchitecture = 80;
/// The one from which on blocks of a cluster read each other's shared memory.
constexpr int kClusterArchitecture = 90;
/// Elements of a head that lanes keep in registers.
constexpr int64_t kMaxDirectSize = 128, kMaxGroupSize = 128;
/// The one whose warpgroups multiply.
constexpr int kGroupArchitecture = 90;
/// Elements of a head at most: its sums are in registers.
constexpr int64_t kMaxSize = 256;
/// A tactic's number is that of its tile, and this times the parts where there are several.
constexpr int64_t kPartsUnit = 100;
/// Parts of the keys at most, and blocks whose keys have parts.
constexpr int kMostParts = 8;
constexpr int64_t kMostTasksOfParts = 256;
/// Tiles of keys of a part at least.
constexpr int64_t kPartTiles = 2;
/// Counters of blocks that are done, of so many bits each, in one word.
constexpr int kCounterBits = 4, kCountersOfWord = 64 / kCounterBits;

// Bytes of shared memory that a block has.
int64_t most_shared(int architecture) {
  if (architecture >= 90 && architecture < 120) return 227 << 10;
  return architecture == 80 || architecture == 87 ? 163 << 10 : 99 << 10;
}

int rounded(int64_t size, int64_t to) { return static_cast<int>((size + to - 1) / to * to); }
int rounded_size(int64_t size) { return rounded(size, 16); }
int vector_of(DataType type) { return 128 / bits(type); }

/// Places in shared memory, in bytes.
struct SharedMemory {
  int64_t stages, weights, total;
  SharedMemory(const AttentionTile& tile, const FusedAttentionParams& params, DataType type) {
    if (tile.is_group) {
      // Patterns repeat after 1024 bytes, of which the first begins at a multiple.
      const int64_t size = rounded(params.size, 64), value_size = rounded(params.value_size, 64);
      stages = weights = 0;
      total = 1024 + 2 * (tile.m * size + tile.stages * tile.n * (size + value_size));
      return;
    }
    if (tile.is_direct) {
      // What each warp has found, and the block.
      const int64_t row = rounded(params.value_size, 64) + 4;
      stages = weights = 0, total = (tile.warps_n + 1) * tile.m * row * 4;
      return;
    }
    const int64_t element = bits(type) / 8, vector = vector_of(type);
    const int64_t key_row = rounded_size(params.size) + vector,
                  value_row = rounded_size(params.value_size) + vector;
    stages = tile.m * key_row * element;
    weights = stages + tile.stages * tile.n * (key_row + value_row) * element;
    total = weights;
    if (!tile.is_tensor)
      total += int64_t{tile.warps_m} * tile.warps_n * kWarpRows * (tile.n / tile.warps_n) * 4;
    // What warps with other keys have found.
    const int64_t lane_rows = tile.is_tensor ? 2 : 4,
                  outputs = rounded_size(params.value_size) / (tile.is_tensor ? 4 : 8);
    const int64_t merged = tile.warps_n > 1 ? tile.warps_m * 32 * lane_rows * (2 + outputs) * 4 : 0;
    total = std::max(total, merged);
  }
};

struct Tactic {
  const AttentionTile& tile;
  int parts = 1;
  std::string name() const {
    return parts > 1 ? str(tile.name(), ", in ", parts, " parts") : tile.name();
  }
};
Tactic tactic_of(int64_t number) {
  const int64_t tile = number % kPartsUnit, parts = number / kPartsUnit;
  require(number >= 0 && tile < std::ssize(kTiles) && parts <= kMostParts,
          "there is no tile of attention of number ", number);
  return {kTiles[tile], std::max(1, static_cast<int>(parts))};
}

std::vector<int64_t> tactics(const FusedAttentionParams& params, DataType type,
                             const CandidateQuery& query) {
  const int architecture = target_architecture(query);
  const bool is_short = type == DataType::kHALF || type == DataType::kBF16;
  const bool is_tensor = is_short && architecture >= kFirstArchitecture;
  const auto axis_of = [&](int operand, bool batch) {
    return batch ? attention_batch_axis(params.layout(operand))
                 : attention_length_axis(params.layout(operand));
  };
  const PortDesc& queries = query.inputs[0];
  const int64_t rows = params.group() * queries.opt[axis_of(0, false)],
                keys = query.inputs[1].opt[axis_of(1, false)],
                heads = queries.opt[axis_of(0, true)] * params.shared_heads;
  std::vector<int64_t> found;
  for (int64_t i = 0; i < std::ssize(kTiles); ++i) {
    const AttentionTile& tile = kTiles[i];
    if (tile.is_tensor != is_tensor ||
        SharedMemory(tile, params, type).total > most_shared(architecture))
      continue;
    const int64_t tasks = heads * ((rows + tile.m - 1) / tile.m);
    if (tile.is_group) {
      const bool is_large = rows > tile.m / 2 && keys >= 64 && (tile.m <= 128 || rows >= 1024);
      if (architecture == kGroupArchitecture && is_large && params.size <= kMaxGroupSize &&
          params.value_size <= kMaxGroupSize)
        found.push_back(i);
      continue;
    }
    if (tile.is_direct) {
      if (rows > tile.m || params.size > kMaxDirectSize || params.value_size > kMaxDirectSize)
        continue;
      found.push_back(i);
      for (int64_t parts = 2; parts <= kMostParts && architecture >= kClusterArchitecture;
           parts *= 2)
        if (tasks * parts <= 4 * kFewBlocks && keys >= parts * tile.n * tile.warps_n)
          found.push_back(parts * kPartsUnit + i);
      continue;
    }
    // A tile that is twice as large as what there is computes mostly zeros; small ones read the
    // keys of many queries more often.
    const bool wastes = (tile.m > 16 && tile.m >= 2 * rows) || (tile.n > 64 && tile.n >= 2 * keys);
    const bool is_small = tile.m == 16 && rows > 256;
    // Sums of long heads leave few registers for scores.
    const bool spills = is_tensor && tile.n / tile.warps_n > 64 && params.value_size > 64;
    const bool is_long = params.value_size > 128 && tile.n / tile.warps_n > 32;
    if (wastes || spills || is_long || (is_small && !found.empty())) continue;
    found.push_back(i);
    if (queries.min != queries.max || tasks == 0 || tasks > kMostTasksOfParts) continue;
    for (int64_t parts = 2; parts <= kMostParts; parts *= 2)
      if (tasks * parts <= 4 * kFewBlocks && 2 * tasks < 3 * kFewBlocks &&
          keys >= parts * kPartTiles * tile.n)
        found.push_back(parts * kPartsUnit + i);
  }
  return found;
}

/// Writes the kernel of one attention.
class AttentionWriter {
 public:
  AttentionWriter(const FusedAttentionParams& params, const KernelArgs& args)
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
  }

  GeneratedKernel write() {
    write_declarations();
    const Expr rows = Expr(params_.group()) * queries_;
    const Expr tiles = ceil_div(rows, Expr(tile_.m));
    const Expr tasks = batch_ * Expr(params_.shared_heads) * tiles;
    const int parts = tactic_.parts;
    const std::string shared_heads = source_.value(Expr(params_.shared_heads));
    std::string text = str(
        "extern __shared__ uint4 shared[];\n",
        tile_.is_direct ? ""
        : tile_.is_group
            ? "Element* const query_tile = (Element*)((char*)shared + (0u - "
              "shared_address(shared)) % 1024);\n"
              "const auto key_tile = [&](Index tile) {\n"
              "  return query_tile + kTileM * kSize + (int)(tile % 2) * (kTileN * kSize);\n};\n"
              "const auto value_tile = [&](Index tile) {\n"
              "  return query_tile + (kTileM + 2 * kTileN) * kSize + (int)(tile % 2) * (kTileN * "
              "kValueSize);\n};\n"
            : "Element* const query_tile = (Element*)shared;\n"
              "const auto key_tile = [&](int stage) {\n"
              "  return query_tile + kQueryElements + stage * kStageElements;\n};\n",
        "const int warp = (int)threadIdx.x / 32;\n"
        "const int warp_m = warp % kWarpsM * 16, warp_n = warp / kWarpsM * kWarpN;\n"
        "const Index queries = ",
        source_.value(queries_), ", keys = ", source_.value(keys_),
        ", rows = ", source_.value(rows), ", tiles = ", source_.value(tiles), ";\n",
        "const Index shift = ",
        params_.causal_kind == CausalMaskKind::kLOWER_RIGHT ? "keys - queries" : "0", ";\n",
        "for (Index number = blockIdx.x; number < ", source_.value(tasks * Expr(parts)),
        "; number += gridDim.x) {\n"
        "const Index task = number / ",
        parts, ", part = number % ", parts, ";\n",
        // The last queries of a causal mask meet most keys and come first.
        "const Index head_number = task / tiles, first_row = (tiles - 1 - task % tiles) * kTileM;\n"
        "const Index batch = head_number / ",
        shared_heads, ", shared_head = head_number % ", shared_heads,
        ";\n"
        "const auto head_of = [&](Index row) { return shared_head * ",
        source_.value(Expr(params_.group())), " + row / queries; };\n");
    text += "const RowReader key_rows = " + reader(1) + ", value_rows = " + reader(2) + ";\n";
    text += write_limits();
    if (tile_.is_direct) {
      text += write_direct_loops() + write_direct_output();
    } else if (tile_.is_group) {
      text += write_query_copies() + write_group_loop() + write_output();
    } else {
      text += write_query_copies();
      text += write_loop();
      if (tile_.warps_n > 1) text += write_warp_merging();
      if (parts > 1) text += write_part_merging(tasks);
      text += write_output();
    }
    text += "__syncthreads();\n}\n";
    GeneratedKernel kernel =
        source_.finish(text, tasks * Expr(parts), 32 * tile_.warps_m * tile_.warps_n, 0,
                       tile_.is_direct ? parts : 1);
    kernel.launch.shared_memory = SharedMemory(tile_, params_, type_).total;
    kernel.is_for_one_architecture = tile_.is_group || (tile_.is_direct && parts > 1);
    return kernel;
  }

 private:
  static size_t at(int axis) { return static_cast<size_t>(axis); }
  bool has(int input) const {
    return args_.inputs.size() > at(input) && args_.inputs[at(input)].present;
  }

  void write_declarations() {
    const auto constant = [](std::string_view name, int64_t value) {
      return str("constexpr int ", name, " = ", value, ";\n");
    };
    std::string text =
        str("typedef ", storage_type(type_), " Element;\n", constant("kTileM", tile_.m),
            constant("kTileN", tile_.n), constant("kWarpsM", tile_.warps_m),
            constant("kWarpsN", tile_.warps_n), constant("kStages", tile_.stages),
            constant("kSize", rounded(params_.size, tile_.is_direct  ? 32
                                                    : tile_.is_group ? 64
                                                                     : 16)),
            constant("kValueSize", rounded(params_.value_size, is_wide() ? 64 : 16)), kCopyGroups,
            kAttentionTiles);
    if (tile_.is_tensor) {
      std::string unit;
      if (tile_.is_direct)
        unit = str(constant("kGivenSize", params_.size),
                   constant("kGivenValueSize", params_.value_size), kDirectAttention);
      else if (tile_.is_group)
        unit = str("constexpr float kScoreFactor = ", float_literal(group_score_factor()), ";\n",
                   group_instructions(), kGroupTiles);
      else
        unit = str(kLoadMatrices, kTensorAttention);
      constexpr std::string_view kName = "PRODUCT_TYPE";
      for (size_t i = 0; (i = unit.find(kName, i)) != std::string::npos;)
        unit.replace(i, kName.size(), type_ == DataType::kHALF ? "f16" : "bf16");
      text += unit;
    } else {
      text += kScalarAttention;
    }
    if (!tile_.is_group) text += kAttentionState;
    if (tile_.is_direct) text += kDirectMerging;
    source_.add_declarations(text);
  }

  /// Whether vectors of an operand may be copied.
  std::string alignment(int input) {
    const AttentionStrides<Expr>& s = strides_[input];
    const int vector = vector_of(type_);
    std::string test = str("is_aligned<Element, kVector>(in", input, ")");
    for (const Expr& stride : {s.batch, s.head, s.length, Expr(s.offset)})
      if (!stride.is_constant() || stride.constant() % vector != 0)
        test += str(" && ", source_.value(stride), " % kVector == 0");
    return test;
  }
  std::string place(int operand, std::string_view batch, std::string_view head,
                    std::string_view position) {
    const AttentionStrides<Expr>& s = strides_[operand];
    return str(source_.value(Expr(s.offset)), " + ", batch, " * ", source_.value(s.batch), " + ",
               head, " * ", source_.value(s.head), " + ", position, " * ", source_.value(s.length));
  }
  std::string reader(int input) {
    return str("{in", input, " + ", place(input, "batch", "shared_head", "0"), ", ",
               source_.value(strides_[input].length), ", keys, ", params_.size_of(input), ", ",
               alignment(input), "}");
  }

  /// How many keys each query of a lane meets, and all of the block.
  std::string write_limits() {
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

  /// Where a mask begins for each query of a lane.
  std::string write_mask_places(int input) {
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

  std::string write_query_copies() {
    return str(
        "const bool query_is_aligned = ", alignment(0),
        ";\n"
        "for (int at = (int)threadIdx.x; at < kTileM * (kSize / kVector); at += kThreads) {\n"
        "const int line = at / (kSize / kVector), inner = at % (kSize / kVector) * kVector;\n"
        "const Index row = first_row + line;\n"
        "copy_vector(query_tile + ",
        tile_.is_group ? "swizzled_place<kTileM>(line, inner)" : "line * kKeyRow + inner",
        ", in0 + ", place(0, "batch", "head_of(row)", "(row % queries)"), " + inner, row < rows ? ",
        params_.size,
        " - inner : 0, query_is_aligned);\n}\n"
        "end_copies();\n");
  }

  /// What becomes of score `x`, in powers of 2, where its key counts.
  std::string write_score() const {
    const auto log2e = static_cast<float>(std::numbers::log2e);
    const bool has_bias = has(FusedAttention::kBias);
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
      text += str("x *= ", float_literal(log2e), ";\n");
    }
    if (has(FusedAttention::kAllowed))
      text += str("if (is_there && !load(in", FusedAttention::kAllowed, "[mask",
                  FusedAttention::kAllowed, "[i] + key * mask", FusedAttention::kAllowed,
                  "_step])) x = ", float_literal(params_.masked_score * log2e), ";\n");
    return text;
  }

  std::string write_loop() const {
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

  /// Warps with other keys hand over what they have found, one after the other.
  static std::string write_warp_merging() {
    return "float* const found = (float*)shared + warp % kWarpsM * (32 * kStateSize) + threadIdx.x "
           "% 32;\n"
           "#pragma unroll\n"
           "for (int other = 1; other < kWarpsN; ++other) {\n"
           "if (warp / kWarpsM == other) state.save(found, 32);\n"
           "__syncthreads();\n"
           "if (warp / kWarpsM == 0) state.add_saved<false>(found, 32);\n"
           "__syncthreads();\n}\n";
  }

  /// The last block that is done adds up the parts, always in one order.
  std::string write_part_merging(const Expr& tasks) {
    const int parts = tactic_.parts, threads = 32 * tile_.warps_m;
    const int64_t count = tasks.constant();
    const int words = static_cast<int>((count + kCountersOfWord - 1) / kCountersOfWord);
    const int64_t lane_rows = tile_.is_tensor ? 2 : 4,
                  outputs = rounded_size(params_.value_size) / (tile_.is_tensor ? 4 : 8);
    source_.add_counters(words);
    source_.add_scratch("float", count * parts * threads * lane_rows * (2 + outputs) * 4);
    std::string word = "counter0";
    for (int i = 1; i < words; ++i)
      word = str("task >= ", i * kCountersOfWord, " ? counter", i, " : ", word);
    return str("constexpr int kPartSize = ", threads,
               " * kStateSize;\n"
               "float* const parts = scratch + task * ",
               parts,
               " * kPartSize;\n"
               "if (warp / kWarpsM == 0) state.save(parts + part * kPartSize + threadIdx.x, ",
               threads,
               ");\n"
               // What this block has written comes before its count, and what others have after it.
               "__threadfence();\n__syncthreads();\n__shared__ bool is_last;\n"
               "if (threadIdx.x == 0) {\nunsigned long long* const word = ",
               word, ";\nconst int place = (int)(task % ", kCountersOfWord, ") * ", kCounterBits,
               ";\nis_last = (atomicAdd(word, 1ull << place) >> place & ", (1 << kCounterBits) - 1,
               "ull) == ", parts - 1, ";\nif (is_last) atomicAdd(word, 0ull - (", parts,
               "ull << place));\n}\n__syncthreads();\nif (!is_last) continue;\n__threadfence();\n"
               "if (warp / kWarpsM == 0) {\n"
               "state = State();\n"
               "for (int i = 0; i < ",
               parts, "; ++i) state.add_saved<true>(parts + i * kPartSize + threadIdx.x, ", threads,
               ");\n}\n");
  }

  bool is_wide() const { return tile_.is_direct || tile_.is_group; }
  /// Whether scores are only scaled, which is done together with the exponential.
  bool is_plain() const {
    return params_.cap == 0 && params_.scale > 0 && !has(FusedAttention::kAllowed) &&
           !has(FusedAttention::kBias);
  }
  float group_score_factor() const {
    return is_plain() ? params_.scale * static_cast<float>(std::numbers::log2e) : 1.0f;
  }

  /// What scores, and sums of values, are multiplied by: 16 elements along the sum.
  std::string group_instructions() const {
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
    return write("begin_scores", tile_.n, false, false) +
           write("add_scores", tile_.n, true, false) +
           write("add_values", rounded(params_.value_size, 64), true, true);
  }

  /// What becomes of the scores of a tile of keys before they are weighed.
  std::string write_group_scores() const {
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

  /// Products of one tile's weights with its values run beside those of the next tile's keys, and
  /// while that one's scores are weighed.
  std::string write_group_loop() const {
    return str(
        "const auto copy_keys = [&](Index tile) {\n"
        "if (tile < end_tile) copy_rows<kTileN, kSize>(key_tile(tile), key_rows, tile * kTileN);\n"
        "};\n"
        "const auto copy_values = [&](Index tile) {\n"
        "if (tile < end_tile)\n"
        "copy_rows<kTileN, kValueSize>(value_tile(tile), value_rows, tile * kTileN);\n};\n"
        "float scores[2][Unit::kColumns], factors[2];\n",
        write_group_scores(),
        "State state;\n"
        "if (first_tile < end_tile) {\n"
        "copy_keys(first_tile);\n"
        "end_copies();\n"
        "wait_for_tiles();\n"
        "copy_values(first_tile);\n"
        "copy_keys(first_tile + 1);\n"
        "end_copies();\n"
        "begin_products();\n"
        "multiply_keys(scores, query_tile, key_tile(first_tile));\n"
        "end_products();\n"
        "wait_for_products<0>();\n"
        "keep(scores);\n"
        "judge(first_tile);\n"
        "state.weigh(scores, factors);\n"
        "state.pack(scores);\n"
        "for (Index tile = first_tile; tile + 1 < end_tile; ++tile) {\n"
        "wait_for_tiles();\n"
        "copy_values(tile + 1);\n"
        "copy_keys(tile + 2);\n"
        "end_copies();\n"
        "keep(scores);\n"
        "keep(state.sums);\n"
        "begin_products();\n"
        "multiply_keys(scores, query_tile, key_tile(tile + 1));\n"
        "end_products();\n"
        "state.multiply_values(value_tile(tile));\n"
        "end_products();\n"
        "wait_for_products<1>();\n"
        "keep(scores);\n"
        "judge(tile + 1);\n"
        "state.weigh(scores, factors);\n"
        "wait_for_products<0>();\n"
        "keep(state.sums);\n"
        "state.rescale(factors);\n"
        "state.pack(scores);\n"
        "}\n"
        "wait_for_tiles();\n"
        "keep(state.sums);\n"
        "begin_products();\n"
        "state.multiply_values(value_tile(end_tile - 1));\n"
        "end_products();\n"
        "wait_for_products<0>();\n"
        "keep(state.sums);\n"
        "}\n"
        "state.add_lanes();\n"
        "wait_for_copies<0>();\n"
        "__syncthreads();\n");
  }

  /// Whether none of a warp's keys may be met, as far as masks say: these are not read.
  std::string write_direct_skip() const {
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

  /// With `vectors`, or element by element.
  std::string write_direct_loop(bool vectors) {
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

  std::string write_direct_loops() {
    return str("State state;\nif (key_rows.is_aligned && value_rows.is_aligned && ", alignment(0),
               ") {\n", write_direct_loop(true), "} else {\n", write_direct_loop(false),
               "}\nstate.add_lanes();\n");
  }

  std::string write_direct_output() {
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

  std::string write_output() {
    const AttentionStrides<Expr>& s = strides_[3];
    std::string pairs = "is_aligned<Element, Unit::kNeighbours>(out0)";
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
        "Element* const to = out0 + ",
        place(3, "batch", "head_of(row)", "(row % queries)"),
        ";\n"
        "const float factor = state.sum[i] == 0.0f ? 0.0f : 1.0f / state.sum[i];\n"
        "#pragma unroll\n"
        "for (int j = 0; j < Unit::kOutputs; j += Unit::kNeighbours) {\n"
        "const int column = Unit::column(j);\n"
        "Pack<Element, Unit::kNeighbours> result;\n"
        "#pragma unroll\n"
        "for (int e = 0; e < Unit::kNeighbours; ++e)\n"
        "result.at[e] = store<Element>(state.sums[i][j + e] * factor);\n"
        "if (stores_packs && column + Unit::kNeighbours <= ",
        params_.value_size,
        ") {\n"
        "*(Pack<Element, Unit::kNeighbours>*)(to + column) = result;\n"
        "} else {\n"
        "#pragma unroll\n"
        "for (int e = 0; e < Unit::kNeighbours; ++e)\n"
        "if (column + e < ",
        params_.value_size, ") to[column + e] = result.at[e];\n}\n}\n}\n}\n");
  }

  const FusedAttentionParams& params_;
  const KernelArgs& args_;
  KernelSource source_;
  const Tactic tactic_;
  const AttentionTile& tile_;
  const DataType type_;
  AttentionStrides<Expr> strides_[4];
  Expr batch_, queries_, keys_;
};

std::vector<Candidate> attention_candidates(const Operator& op, const CandidateQuery& query) {
  const FusedAttentionParams& params = static_cast<const FusedAttention&>(op).params();
  const DataType type = query.inputs[0].type.dtype;
  const bool is_known =
      type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16;
  if (!is_known || params.size > kMaxSize || params.value_size > kMaxSize) return {};
  std::vector<DataType> types = {type};
  if (!query.strongly_typed && type == DataType::kFLOAT) {
    if (query.fp16) types.push_back(DataType::kHALF);
    if (query.bf16) types.push_back(DataType::kBF16);
  }
  std::vector<Candidate> found;
  for (const DataType offered : types)
    for (const int64_t tactic : tactics(params, offered, query)) {
      Candidate candidate = linear_candidate(query, tactic_of(tactic).name());
      for (size_t i = 0; i < 3; ++i) candidate.inputs[i].dtype = offered;
      candidate.outputs[0].dtype = offered;
      candidate.tactic = tactic;
      found.push_back(std::move(candidate));
    }
  return found;
}

std::optional<GeneratedKernel> generate_attention(const Operator& op, const KernelArgs& args) {
  return AttentionWriter(static_cast<const FusedAttention&>(op).params(), args).write();
}

const RegisteredKernels<FusedAttention> kFusedAttentionKernels({attention_candidates,
                                                                generate_attention, nullptr});

}  // namespace
}  // namespace opwright::gpu::attention
