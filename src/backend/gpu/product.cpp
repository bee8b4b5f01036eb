#include "backend/gpu/product.h"

#include <algorithm>
#include <limits>

#include "backend/gpu/numbered.h"
#include "backend/gpu/part_counters.h"
#include "backend/gpu/pointwise_math.h"
#include "backend/gpu/row_product.h"
#include "backend/gpu/warpgroup_product.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/pointwise.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

/// Rows of sums that a warp has in shared memory at once.
constexpr int kPartRows = 16;
/// Behind each of them, in elements.
constexpr int kPartPadding = 4;
/// Tiles below each other that neighbouring blocks compute, which share the columns of b.
constexpr int kGroupedRows = 8;

/// More than any GPU runs at once.
constexpr int64_t kManyBlocks = 4096;
/// Parts of a tile at most, and tiles that have parts.
constexpr int kMostPartsOfTile = 8;
constexpr int64_t kMostTilesOfParts = 128;
/// Steps along k of a part at least; fewer where the parts' blocks are a cluster.
constexpr int64_t kPartSteps = 4, kClusterPartSteps = 2;
/// Addends of a sum in FP32 that is taken in parts, and of such a part.
constexpr int64_t kLongSum = 8192, kPartOfSum = 256;

constexpr Numbered<ProductTile> kTiles[] = {
    {0, {ProductUnit::kTensor, 128, 128, 32, 2, 4, 4}},
    {1, {ProductUnit::kTensor, 128, 256, 32, 2, 4, 3}},
    {2, {ProductUnit::kTensor, 128, 64, 32, 2, 2, 4}},
    {3, {ProductUnit::kTensor, 64, 128, 32, 2, 2, 4}},
    {4, {ProductUnit::kTensor, 64, 64, 64, 2, 2, 4}},
    {5, {ProductUnit::kTensor, 64, 32, 64, 2, 2, 4}},
    {6, {ProductUnit::kTensor, 32, 64, 64, 2, 2, 4}},
    {7, {ProductUnit::kTensor, 32, 32, 64, 2, 2, 5}},
    {8, {ProductUnit::kTensor, 16, 64, 64, 1, 4, 5}},
    {9, {ProductUnit::kTensor, 16, 32, 128, 1, 2, 4}},
    {10, {ProductUnit::kScalar, 128, 128, 16, 4, 2, 3}},
    {11, {ProductUnit::kScalar, 64, 64, 16, 2, 2, 4}},
    {12, {ProductUnit::kScalar, 32, 32, 32, 2, 1, 3}},
    {13, {ProductUnit::kScalar, 16, 64, 32, 1, 2, 3}},
    {14, {ProductUnit::kTensor, 128, 128, 64, 2, 4, 3}},
    {15, {ProductUnit::kTensor, 128, 256, 64, 2, 4, 3}},
    {16, {ProductUnit::kTensor, 256, 128, 64, 4, 2, 3}},
    {17, {ProductUnit::kTensor, 128, 128, 64, 2, 2, 3}},
    {18, {ProductUnit::kWarpGroup, 256, 128, 64, 8, 1, 4}},
    {19, {ProductUnit::kWarpGroup, 128, 256, 64, 8, 1, 4}},
    {20, {ProductUnit::kWarpGroup, 128, 192, 64, 8, 1, 5}},
    {21, {ProductUnit::kWarpGroup, 128, 128, 64, 8, 1, 6}},
    {22, {ProductUnit::kWarpGroup, 128, 128, 64, 4, 1, 3}},
    {23, {ProductUnit::kWarpGroup, 128, 64, 64, 8, 1, 8}},
    {24, {ProductUnit::kWarpGroup, 128, 64, 64, 4, 1, 4}},
    {25, {ProductUnit::kWarpGroup, 64, 128, 64, 4, 1, 4}},
    {26, {ProductUnit::kWarpGroup, 64, 64, 64, 4, 1, 5}},
    {27, {ProductUnit::kWarpGroup, 64, 64, 128, 4, 1, 6}},
    {28, {ProductUnit::kWarpGroup, 256, 128, 64, 8, 1, 4, true}},
    {29, {ProductUnit::kWarpGroup, 128, 192, 64, 8, 1, 5, true}},
    {30, {ProductUnit::kWarpGroup, 128, 128, 64, 8, 1, 6, true}},
    {31, {ProductUnit::kWarpGroup, 128, 128, 64, 4, 1, 6, true, true}},
    {32, {ProductUnit::kWarpGroup, 128, 64, 64, 4, 1, 8, true, true}},
    {33, {ProductUnit::kWarpGroup, 64, 256, 64, 4, 1, 4, true, true}},
    {34, {ProductUnit::kWarpGroup, 128, 192, 64, 4, 1, 5, true, true}},
    {35, {ProductUnit::kWarpGroup, 256, 128, 128, 8, 1, 4}},
    {36, {ProductUnit::kWarpGroup, 128, 256, 128, 8, 1, 4}},
    {37, {ProductUnit::kWarpGroup, 128, 192, 128, 8, 1, 5}},
    {38, {ProductUnit::kWarpGroup, 128, 128, 128, 8, 1, 6}},
    {39, {ProductUnit::kWarpGroup, 128, 128, 128, 4, 1, 3}},
    {40, {ProductUnit::kWarpGroup, 128, 64, 128, 8, 1, 8}},
    {41, {ProductUnit::kWarpGroup, 64, 128, 128, 4, 1, 4}},
    {42, {ProductUnit::kWarpGroup, 256, 128, 128, 8, 1, 4, true}},
    {43, {ProductUnit::kWarpGroup, 128, 192, 128, 8, 1, 5, true}},
    {44, {ProductUnit::kWarpGroup, 128, 128, 128, 8, 1, 6, true}},
    {45, {ProductUnit::kWarpGroup, 128, 128, 128, 4, 1, 6, true, true}},
    {46, {ProductUnit::kWarpGroup, 64, 256, 128, 4, 1, 4, true, true}},
    {47, {ProductUnit::kWarpGroup, 64, 192, 128, 4, 1, 5, true, true}},
    {48, {ProductUnit::kWarpGroup, 64, 128, 128, 4, 1, 7, true, true}},
    {49, {ProductUnit::kWarpGroup, 192, 192, 64, 12, 1, 4}},
    {50, {ProductUnit::kWarpGroup, 192, 192, 64, 12, 1, 4, true}},
};

// Plans and timing caches have tactics by their numbers: tiles are added at the end.
static_assert(are_numbered(kTiles));
static_assert(std::size(kTiles) <= kFirstRowTactic && kRowTacticsEnd <= TileInParts::kUnit,
              "tiles of rows follow the others");
static_assert((kMostPartsOfTile + 1) * TileInParts::kUnit <= kProductTacticsEnd);

int vector_of(DataType type) { return 128 / bits(type); }

/// FP32 for all floating types.
DataType sum_type(DataType type) {
  return is_floating(type) ? DataType::kFLOAT : type_of_product(type);
}

/// Whether the tile is one for elements of that type.
bool takes_type(const ProductTile& tile, DataType type) {
  // A warpgroup's rows along k are those of the swizzled pattern, of small tiles two of them.
  constexpr int kPatternBytes = 128, kSmall = 64 * 64;
  const int row_bytes = tile.k * bits(type) / 8;
  if (tile.unit == ProductUnit::kWarpGroup && row_bytes != kPatternBytes &&
      (row_bytes != 2 * kPatternBytes || tile.m * tile.n > kSmall))
    return false;
  // Threads have the sums of FP8 twice.
  constexpr int kMostSums = 96, kMostSumsOfWarp = 64;
  const int sums = tile.m * tile.n / (32 * tile.warps_m * tile.warps_n);
  return type != DataType::kFP8 || tile.unit == ProductUnit::kScalar ||
         sums <= (tile.unit == ProductUnit::kWarpGroup ? kMostSums : kMostSumsOfWarp);
}

/// Bytes of shared memory.
int64_t shared_bytes(const ProductTile& tile, DataType type, bool a_along_k, bool b_along_k) {
  if (tile.unit == ProductUnit::kWarpGroup) return WarpGroupMemory(tile, type).total;
  const int vector = vector_of(type);
  const auto size = [&](int extent, bool along_k) {
    return along_k ? extent * (tile.k + vector) : tile.k * (extent + vector);
  };
  const int64_t operands =
      int64_t{tile.stages} * (size(tile.m, a_along_k) + size(tile.n, b_along_k)) * bits(type) / 8;
  const int64_t parts =
      int64_t{4} * tile.warps_m * tile.warps_n * kPartRows * (tile.n / tile.warps_n + kPartPadding);
  return std::max(operands, parts);
}

/// Whether the tile can multiply operands of that type, of any size and layout.
bool fits_type(const ProductTile& tile, DataType type, int64_t most_shared) {
  return takes_type(tile, type) && shared_bytes(tile, type, true, true) <= most_shared &&
         shared_bytes(tile, type, false, false) <= most_shared;
}

/// Whether there is code for several blocks that share such a tile. The compiler serializes
/// products of a single warpgroup's tall tiles in clusters.
bool has_parts(const ProductTile& tile) {
  const bool is_tall = tile.unit == ProductUnit::kWarpGroup && tile.m > 16 * tile.warps_m;
  return !tile.is_persistent && !is_tall;
}

}  // namespace

std::vector<DataType> product_types(const CandidateQuery& query) {
  const DataType type = query.inputs[0].type.dtype;
  if (bits(type) % 8 != 0 || type == DataType::kBOOL) return {};
  std::vector<DataType> types = {type};
  if (query.strongly_typed || type != DataType::kFLOAT) return types;
  if (query.fp16) types.push_back(DataType::kHALF);
  if (query.bf16) types.push_back(DataType::kBF16);
  return types;
}

bool set_fused_types(Candidate& candidate, const FusedProgram& program, const CandidateQuery& query,
                     DataType type, TensorFormat format) {
  if (!program.present()) return true;
  // Floating tensors have the type that is multiplied, or what the network has beside bytes.
  const auto type_of = [&](DataType asked) {
    const bool follows = is_floating(asked) && !is_quantized(asked);
    return follows && is_floating(type) && !is_quantized(type) ? type : asked;
  };
  candidate.outputs = {{type_of(program.result), format}};
  const size_t first = query.inputs.size() - program.inputs();
  bool fits = true;
  for (size_t i = first; i < query.inputs.size(); ++i) {
    const PortDesc& port = query.inputs[i];
    candidate.inputs[i] = {port.is_constant ? port.type.dtype : type_of(port.type.dtype)};
    if (program.places[i - first] < static_cast<int64_t>(FusedPlace::kElement)) continue;
    candidate.inputs[i] = {type_of(port.type.dtype), format};
    fits =
        fits && (format == TensorFormat::kLINEAR || port.opt.rank() == query.outputs[0].opt.rank());
  }
  return fits;
}

std::string ProductTile::name() const {
  const std::string_view kind = unit == ProductUnit::kScalar         ? "scalar "
                                : unit == ProductUnit::kTensor       ? "tensor "
                                : unit == ProductUnit::kRows         ? "rows "
                                : unit == ProductUnit::kStreamedRows ? "streamed rows "
                                                                     : "warpgroup ";
  return str(kind, m, "x", n, "x", k, ", ", warps_m * warps_n, " warps, ", stages, " stages",
             takes_turns ? ", in turns" : "", is_persistent ? ", persistent" : "");
}

std::vector<ProductUnit> product_units(DataType a, DataType b, const CandidateQuery& query) {
  if (target_architecture(query) < kTensorArchitecture) return {ProductUnit::kScalar};
  const bool is_short = a == DataType::kHALF || a == DataType::kBF16 || a == DataType::kFP8;
  if ((is_short && a == b) || (is_byte(a) && is_byte(b))) return {ProductUnit::kTensor};
  if (a == DataType::kFLOAT && a == b && query.tf32)
    return {ProductUnit::kTensor, ProductUnit::kScalar};
  return {ProductUnit::kScalar};
}

std::string ProductTactic::name(DataType type) const {
  const bool is_tf32 = type == DataType::kFLOAT && tile.unit == ProductUnit::kTensor;
  return str(is_tf32 ? "TF32 " : "", tile.name(),
             parts > 1 ? str(", in ", parts, " parts") : std::string());
}

ProductTactic product_tactic(int64_t number) {
  const auto [tile, parts] = TileInParts::of(number);
  const int64_t of_rows = number - kFirstRowTactic;
  if (of_rows >= 0 && of_rows < std::ssize(row_tiles())) return {row_tiles()[of_rows].entry};
  require(number >= 0 && tile < std::ssize(kTiles) && parts <= kMostPartsOfTile,
          "there is no tile of number ", number);
  return {kTiles[tile].entry, static_cast<int>(parts)};
}

std::vector<std::string> product_tactic_names(std::initializer_list<ProductUnit> units,
                                              std::initializer_list<DataType> types) {
  std::vector<std::string> names;
  const int64_t most = most_shared_memory(kWarpGroupArchitecture);
  const auto is_asked = [&](const ProductTile& tile) {
    return std::ranges::find(units, tile.unit) != units.end();
  };
  for (const auto& [number, tile] : kTiles) {
    if (!is_asked(tile)) continue;
    for (const std::string_view prefix : {"", "TF32 "}) {
      const bool is_tf32 = !prefix.empty(), is_scalar = tile.unit == ProductUnit::kScalar;
      const bool is_used = std::ranges::any_of(types, [&, &each = tile](DataType type) {
        return (type == DataType::kFLOAT) == (is_tf32 || is_scalar) && fits_type(each, type, most);
      });
      if (!is_used || (is_tf32 && tile.unit != ProductUnit::kTensor)) continue;
      names.push_back(str(prefix, tile.name()));
      if (has_parts(tile)) names.push_back(str(prefix, tile.name(), ", in parts"));
    }
  }
  for (const auto& [number, tile] : row_tiles())
    if (is_asked(tile)) names.push_back(tile.name());
  return names;
}

bool has_fixed_shapes(const CandidateQuery& query) {
  return std::all_of(query.inputs.begin(), query.inputs.end(),
                     [](const PortDesc& port) { return !port.present || port.min == port.max; });
}

std::vector<int64_t> product_tactics(DataType type, ProductUnit unit, const ProductSize& size,
                                     int architecture, bool all) {
  const int64_t m = size.m, n = size.n, k = size.k, batches = size.batches;
  const bool is_fixed = size.is_fixed, is_along_k = size.is_along_k;
  // Half of a warpgroup's rows of bytes would be zeros.
  constexpr int64_t kShort = 64;
  const bool can_group =
      unit == ProductUnit::kTensor &&
      (is_quantized(type) ? is_along_k : type == DataType::kHALF || type == DataType::kBF16) &&
      architecture == kWarpGroupArchitecture;
  const bool has_warp_groups = can_group && (!is_quantized(type) || k > kShort);
  const int64_t most = most_shared_memory(architecture);
  // Whether the tile can multiply operands of any size.
  const auto can_compute = [&](const ProductTile& tile) {
    return (tile.unit == unit || (tile.unit == ProductUnit::kWarpGroup && can_group)) &&
           fits_type(tile, type, most);
  };
  // Whether several blocks can share a tile, of a number that is known.
  const auto can_divide = [&](const ProductTile& tile, int64_t blocks) {
    return is_fixed && blocks > 0 && has_parts(tile);
  };
  const auto is_worth_timing = [&](const ProductTile& tile, int64_t blocks) {
    // Large tiles are the warpgroups', which multiply several times as fast.
    const bool is_group = tile.unit == ProductUnit::kWarpGroup;
    if (has_warp_groups ? !is_group && tile.m * tile.n > 64 * 64 : is_group) return false;
    // A tile that is twice as large as what there is computes mostly zeros.
    const bool wastes = (tile.m > 16 && tile.m >= 2 * m) || (tile.n > 32 && tile.n >= 2 * n) ||
                        (tile.k > 32 && tile.k >= 2 * k);
    // Small tiles of a large product read more.
    const bool is_small = tile.m * tile.n <= 64 * 32;
    return !wastes && !(is_small && blocks > kManyBlocks) &&
           !(tile.is_persistent && blocks <= kFewBlocks);
  };
  const auto are_parts_worth_timing = [&](const ProductTile& tile, int64_t blocks, int64_t parts) {
    // Of bytes clusters of warpgroups share tiles better, where their tiles are not mostly zeros.
    constexpr int64_t kLeastOfGroup = 64;
    const bool is_beside = has_warp_groups && is_quantized(type) &&
                           tile.unit != ProductUnit::kWarpGroup && 2 * m > kLeastOfGroup &&
                           2 * n > kLeastOfGroup;
    // Steps of bytes are twice as long.
    const int64_t part_steps = tile.unit != ProductUnit::kWarpGroup ? kPartSteps
                               : is_quantized(type)                 ? kClusterPartSteps / 2
                                                                    : kClusterPartSteps;
    // A few tiles over a long k leave multiprocessors idle, unless several share a tile.
    return !is_beside && blocks <= kMostTilesOfParts && blocks * parts <= 2 * kFewBlocks &&
           4 * blocks * parts >= kFewBlocks && k >= parts * part_steps * tile.k;
  };
  std::vector<int64_t> tactics;
  int64_t smallest = 0;
  for (const auto& [number, tile] : kTiles) {
    if (!can_compute(tile)) continue;
    if (tile.m == 32 && tile.n == 32) smallest = number;
    const int64_t blocks = ((m + tile.m - 1) / tile.m) * ((n + tile.n - 1) / tile.n) * batches;
    const bool is_worth = is_worth_timing(tile, blocks);
    if (!is_worth && !all) continue;
    tactics.push_back(number);
    if (!can_divide(tile, blocks)) continue;
    // What two parts can, more can.
    for (int64_t parts = 2; parts <= kMostPartsOfTile; parts *= 2)
      if ((is_worth && are_parts_worth_timing(tile, blocks, parts)) || (all && parts == 2))
        tactics.push_back(TileInParts{number, parts}.tactic());
  }
  if (tactics.empty()) tactics.push_back(smallest);
  return tactics;
}

ProductWriter::ProductWriter(std::string name, const KernelArgs& args)
    : args_(args),
      source_(std::move(name), args),
      tile_(product_tactic(args.candidate->tactic).tile),
      parts_(product_tactic(args.candidate->tactic).parts),
      output_(args.outputs[0].type.dtype) {}

int64_t ProductWriter::steps_of_part(const Expr& k) const {
  int64_t most = std::numeric_limits<int64_t>::max();  // what k can be, as far as inputs tell
  if (k.is_constant()) {
    most = k.constant();
  } else {
    for (const PortDesc& port : args_.inputs.first(2)) {
      int64_t longest = 1;
      for (const int64_t extent : port.max) longest = std::max(longest, extent);
      most = std::min(most, longest);
    }
  }
  return is_floating(sum_type_) && most >= kLongSum ? kPartOfSum / tile_.k : 0;
}

std::string ProductWriter::alignment(int input, const std::vector<Expr>& strides) {
  std::string test =
      str("is_aligned<", storage_type(args_.inputs[input].type.dtype), ", kVector>(in", input, ")");
  for (const Expr& stride : strides)
    if (!stride.is_constant() || stride.constant() % vector_of(args_.inputs[input].type.dtype) != 0)
      test += str(" && ", source_.value(stride), " % kVector == 0");
  return test;
}

ProductOperand ProductWriter::matrix(bool is_a, int input, bool is_along_k,
                                     const MatrixStackPlace& place, const Expr& extent,
                                     const Expr& stride, const Expr& k,
                                     const std::string& is_aligned) {
  const std::string_view origin = is_a ? "first_row" : "first_column";
  const std::string_view flag = is_along_k ? "true" : "false";
  const std::string step = source_.value(stride);
  std::string from = str("in", input);
  if (place.count != Expr(1))
    from += str(" + (", place.number, ") * ", source_.value(place.stride));
  ProductOperand operand = {
      is_along_k, args_.inputs[input].type.dtype, str("MatrixReader<", side(is_a), ", ", flag, ">"),
      str("{", from, " + ", origin, is_along_k ? " * " + step : std::string(), ", ", step, ", ",
          source_.value(extent), " - ", origin, ", ", source_.value(k), ", ", is_aligned, "}"),
      args_.inputs[input].is_constant};
  // The copying unit wants rows and matrices that begin at multiples of 16 bytes whatever the
  // shapes are, and something along k.
  const int vector = vector_of(operand.type);
  const auto is_aligned_by = [&](const Expr& number) {
    return number.is_constant() && number.constant() % vector == 0;
  };
  const bool has_matrices = place.count != Expr(1);
  if (!k.is_constant() || k.constant() == 0 || !is_aligned_by(stride) ||
      (has_matrices && !is_aligned_by(place.stride)))
    return operand;
  const int extent_of_tile = is_a ? tile_.m : tile_.n;
  KernelTensorMap map;
  map.input = input, map.type = operand.type;
  map.extents = {is_along_k ? k : extent, is_along_k ? extent : k, place.count};
  map.strides = {stride, has_matrices ? place.stride : Expr(vector)};
  map.box = {8 * vector, is_along_k ? extent_of_tile : tile_.k, 1};
  map.steps = {1, 1, 1};
  operand.map = std::move(map);
  operand.box_reader = str("MatrixBoxes<", extent_of_tile, ", ", flag, ">");
  operand.make_boxes = str("{", is_a ? "a_map" : "b_map", ", ", origin, ", ", place.number, "}");
  return operand;
}

void ProductWriter::stage_behind(const Expr& m, const Expr& n, const Expr& batches,
                                 const Expr& row_stride, const ProductEpilogue& epilogue) {
  int found = epilogue.residual;
  const FusedProgram& program = epilogue.program;
  const int first = static_cast<int>(args_.inputs.size()) - program.inputs();
  for (int i = 0; i < program.inputs() && found < 0; ++i)
    if (static_cast<FusedPlace>(program.places[i]) == FusedPlace::kElement) found = first + i;
  // Of sums in registers each has the program for itself: of a long one, as several quantizations
  // are, the compiler has too much. It is computed in a loop then, behind shared memory.
  constexpr size_t kLongProgram = 24;
  const bool is_long = program.present() && is_quantized(args_.inputs[0].type.dtype) &&
                       decode(program.program).size() > kLongProgram;
  // Parts of a cluster put their sums where the stages are.
  if (found < 0 || is_long || parts_ > 1 || batches != Expr(1)) return;
  // They lie in tiles as the operands do, in whole columns of the swizzled pattern; what is stored
  // at once is in one of its vectors.
  const DataType type = args_.inputs[found].type.dtype;
  const auto is_aligned = [&](const Expr& number) {
    return number.is_constant() && number.constant() > 0 &&
           number.constant() % vector_of(type) == 0;
  };
  if (bits(type) > 16 || (bits(type) == 8 && bits(args_.inputs[0].type.dtype) != 8) ||
      type == DataType::kBOOL || bits(output_) < bits(type) ||
      tile_.n % (8 * vector_of(type)) != 0 || !is_aligned(n) || !is_aligned(row_stride))
    return;
  staged_ = found;
  KernelTensorMap map;
  map.input = staged_, map.type = type;
  map.extents = {n, m, 1};
  map.strides = {row_stride, Expr(vector_of(type))};
  map.box = {8 * vector_of(type), tile_.m, 1};
  map.steps = {1, 1, 1};
  source_.add_map("behind_map", std::move(map));
}

std::string ProductWriter::write_readers(const ProductOperand& a, const ProductOperand& b) {
  return str(a.reader, " a = ", a.make, ";\n", b.reader, " b = ", b.make, ";\n");
}

std::string ProductWriter::write_prefetch(std::string_view to, const ProductOperand& a,
                                          const ProductOperand& b,
                                          const ProductEpilogue& epilogue) {
  std::string columns;
  const auto prefetch = [&](int input, std::string_view element) {
    if (element == "column" && args_.inputs[input].is_constant)
      columns += str("prefetch_columns(in", input, ", first_column, columns);\n");
  };
  if (epilogue.bias >= 0) prefetch(epilogue.bias, epilogue.bias_element);
  const FusedProgram& program = epilogue.program;
  const int first = static_cast<int>(args_.inputs.size()) - program.inputs();
  for (int i = 0; i < program.inputs(); ++i)
    if (static_cast<FusedPlace>(program.places[i]) == FusedPlace::kChannel)
      prefetch(first + i, epilogue.channel_element);
  return str("if (number == blockIdx.x) {\n{\n", write_readers(a, b), "prefetch_tiles(", to,
             ", a, b, first_step, end_step);\n}\n", columns, source_.wait(), "}\n");
}

std::string ProductWriter::write_merging(const Expr& tasks) {
  const int threads = 32 * tile_.warps_m * tile_.warps_n;
  const int64_t count = tasks.constant();
  source_.add_scratch("Sum", count * parts_ * tile_.m * tile_.n * bits(sum_type_) / 8);
  return str("Sum* const parts = scratch + task * ", parts_, " * (kTileM * kTileN);\n",
             "product.save(parts + part * (kTileM * kTileN) + threadIdx.x, ", threads, ");\n",
             continue_unless_last_part(source_, count, parts_),
             "product = Product();\nfor (int i = 0; i < ", parts_,
             "; ++i) product.add_saved(parts + i * (kTileM * kTileN) + threadIdx.x, ", threads,
             ");\n");
}

std::string ProductWriter::read_pack(int input, std::string_view pack,
                                     std::string_view place) const {
  const std::string_view type = storage_type(args_.inputs[input].type.dtype);
  if (input == staged_)
    return str("const Pack<", type, ", kPack> ", pack, " = *(const Pack<", type,
               ", kPack>*)behind.find(warp_m + ", kPartRows,
               " * part + at / kWarpN, warp_n + at % kWarpN);\n");
  return str("Pack<", type, ", kPack> ", pack, " = {};\n{\nconst ", type, "* const source = in",
             input, " + ", place, ";\nif (is_whole && is_aligned<", type, ", kPack>(source)) {\n",
             pack, " = *(const Pack<", type,
             ", kPack>*)source;\n} else {\n"
             "#pragma unroll\n"
             "for (int i = 0; i < kPack; ++i)\nif (i < count) ",
             pack, ".at[i] = source[i];\n}\n}\n");
}

std::string ProductWriter::write_epilogue(const ProductEpilogue& epilogue, const Expr& row_stride,
                                          std::string_view sums, EarlyReads* early) {
  const std::string length = str("(kWarpN + ", kPartPadding, ")");
  const std::string place =
      str("const Index row = first_row + warp_m + ", kPartRows,
          " * part + at / kWarpN, pack = first_column + warp_n + at % kWarpN;\n"
          "if (row >= rows || pack >= columns) continue;\n"
          "const Index place = first + row * ",
          source_.value(row_stride),
          " + pack;\n"
          "const int count = columns - pack < kPack ? (int)(columns - pack) : kPack;\n"
          "const bool is_whole = stores_packs && count == kPack;\n");
  std::string reads;
  const auto read = [&](int input, const std::string& name, std::string_view at) {
    const std::string code = read_pack(input, name, at);
    if (early == nullptr) {
      reads += code;
      return;
    }
    const std::string type = str("Pack<", storage_type(args_.inputs[input].type.dtype), ", kPack>");
    early->declarations += str(type, " early_", name, "[kEarly];\n");
    early->statements += str("{\n", code, "early_", name, "[j] = ", name, ";\n}\n");
    reads += str("const ", type, "& ", name, " = early_", name, "[j];\n");
  };
  if (epilogue.residual >= 0) read(epilogue.residual, "residual", "place");
  // Neighbours have neighbours of a bias by columns.
  const bool has_bias_pack = epilogue.bias >= 0 && epilogue.bias_element == "column" &&
                             bits(args_.inputs[epilogue.bias].type.dtype) == bits(output_);
  if (has_bias_pack) read(epilogue.bias, "bias", "pack");
  const FusedProgram& program = epilogue.program;
  const int first = static_cast<int>(args_.inputs.size()) - program.inputs();
  // Channels-last, neighbours of a pack are one pixel's channels: of images that are repeated they
  // are neighbours, too.
  const bool is_linear = args_.outputs[0].type.format == TensorFormat::kLINEAR;
  const int row_axes = is_linear ? epilogue.row_axes : args_.outputs[0].max.rank() - 1;
  std::string elements;
  for (int i = 0; i < program.inputs(); ++i) {
    const auto of = static_cast<FusedPlace>(program.places[i]);
    if (of == FusedPlace::kProduct) {
      elements += str("const Sum x", i + 1, " = from[kMatrixSums + i];\n");
      continue;
    }
    const int input = first + i;
    const std::string name = str("pack", i + 1);
    std::string element = str(name, ".at[i]");
    if (of == FusedPlace::kElement)
      read(input, name, "place");
    else if (of == FusedPlace::kRepeated && repeats_whole_axes(args_, input, row_axes))
      read(input, name, repeated_place(source_, args_, input, "place", row_stride));
    else if (of == FusedPlace::kRepeated)
      element = str("in", input, "[",
                    repeated_place(source_, args_, input, "place + i", row_stride), "]");
    else if (of == FusedPlace::kChannel && epilogue.channel_element == "column")
      read(input, name, "pack");
    else if (of == FusedPlace::kChannel)
      element = str("in", input, "[i < count ? ", epilogue.channel_element, " : 0]");
    else
      element = str("in", input, "[0]");
    elements += str("const auto x", i + 1, " = load(", element, ");\n");
  }
  const std::string of_early =
      str("#pragma unroll\nfor (int j = 0; j < kEarly; ++j) {\nconst int at = "
          "(lane + 32 * j) * kPack;\nif (at >= ",
          kPartRows, " * kWarpN) continue;\n");
  if (early != nullptr) {
    early->declarations = str("constexpr int kEarly = (", kPartRows,
                              " * kWarpN + 32 * kPack - 1) / (32 * kPack);\n", early->declarations);
    early->statements = str(of_early, "constexpr int part = 0;\n", place, early->statements, "}\n");
  }
  // The compiler takes long where a program stands there for all of a thread's sums.
  std::string text = str(
      "Sum* const sums = ",
      sums.empty() ? str("(Sum*)shared + warp * ", kPartRows, " * ", length) : std::string(sums),
      ";\n", program.present() ? "#pragma unroll 1\n" : "#pragma unroll\n",
      "for (int part = 0; part < kWarpM / ", kPartRows,
      "; ++part) {\n__syncwarp();\nproduct.put(sums, ", length, ", part);\n__syncwarp();\n",
      early != nullptr ? early->behind_sums : std::string_view(),
      early != nullptr
          ? of_early
          : str("for (int at = lane * kPack; at < ", kPartRows, " * kWarpN; at += 32 * kPack) {\n"),
      "const Sum* const from = sums + at / kWarpN * ", length, " + at % kWarpN;\n", place,
      "Pack<Output, kPack> result;\n", reads,
      "#pragma unroll\n"
      "for (int i = 0; i < kPack; ++i) {\n"
      "const Index column = pack + i;\n(void)column;\n"
      "Sum y = from[i];\n");
  if (has_bias_pack)
    text += "y += load(bias.at[i]);\n";
  else if (epilogue.bias >= 0)
    text += str("if (i < count) y += load(in", epilogue.bias, "[", epilogue.bias_element, "]);\n");
  if (epilogue.residual >= 0) text += "y += load(residual.at[i]);\n";
  text += fused_activation(epilogue.activation);
  if (program.present()) text += elements + fused_program(program, output_);
  text += str("result.at[i] = store<Output>(", program.present() ? "z" : "y", ");\n}\n") +
          "if (is_whole) {\n"
          "*(Pack<Output, kPack>*)(out0 + place) = result;\n"
          "} else {\n"
          "#pragma unroll\n"
          "for (int i = 0; i < kPack; ++i)\n"
          "if (i < count) out0[place + i] = result.at[i];\n"
          "}\n";
  return text + "}\n}\n";
}

GeneratedKernel ProductWriter::write(const Expr& m, const Expr& n, const Expr& k,
                                     const Expr& batches, const std::string& of_batch,
                                     const ProductOperand& a, const ProductOperand& b,
                                     const std::string& first, const Expr& row_stride,
                                     const ProductEpilogue& epilogue) {
  const auto constant = [](std::string_view name, auto value) {
    return str("constexpr auto ", name, " = ", value, ";\n");
  };
  sum_type_ = sum_type(a.type);
  const auto flag = [](bool value) { return std::string_view(value ? "true" : "false"); };
  std::string declarations = str(
      "typedef ", storage_type(a.type), " ElementA;\ntypedef ", storage_type(b.type),
      " ElementB;\ntypedef ", register_type(sum_type_), " Sum;\ntypedef ", storage_type(output_),
      " Output;\n", constant("kTileM", tile_.m), constant("kTileN", tile_.n),
      constant("kTileK", tile_.k), constant("kWarpsM", tile_.warps_m),
      constant("kWarpsN", tile_.warps_n), constant("kStages", tile_.stages),
      constant("kAlongKA", flag(a.is_along_k)), constant("kAlongKB", flag(b.is_along_k)),
      constant("kIsConstantA", flag(a.is_constant)), constant("kIsConstantB", flag(b.is_constant)));
  if (epilogue.activation.present() || epilogue.program.present())
    declarations += pointwise_functions(bits(output_) <= 16);
  const bool has_boxes = copies_boxes(a, b);
  if (has_boxes) {
    source_.add_map("a_map", *a.map), source_.add_map("b_map", *b.map);
    stage_behind(m, n, batches, row_stride, epilogue);
  }
  is_packed_ = keeps_registers(epilogue);
  if (tile_.unit == ProductUnit::kWarpGroup) {
    declarations += declare_warp_groups(a, b);
  } else if (tile_.unit == ProductUnit::kRows) {
    declarations += declare_rows();
  } else if (tile_.unit == ProductUnit::kStreamedRows) {
    declarations += declare_row_stream(m, k, epilogue);
  } else {
    declarations +=
        tile_.unit == ProductUnit::kTensor
            ? str(constant("kPromotes", flag(a.type == DataType::kFP8)),
                  include("product_tensor.cuh"))
            : str(constant("kStepsOfPart", steps_of_part(k)), include("product_scalar.cuh"));
    declarations += include("product_loop.cuh");
  }
  if (tile_.unit != ProductUnit::kRows && tile_.unit != ProductUnit::kStreamedRows)
    declarations += include("column_prefetch.cuh");
  source_.add_declarations(declarations + (has_boxes ? box_readers_ : readers_));

  const Expr tiles_m = ceil_div(m, Expr(tile_.m)), tiles_n = ceil_div(n, Expr(tile_.n));
  const Expr tasks = tiles_m * tiles_n * batches;
  std::string stores = "is_aligned<Output, kPack>(out0)";
  const int pack = vector_of(output_);
  for (const Expr& stride : {row_stride, n})
    if (!stride.is_constant() || stride.constant() % pack != 0)
      stores += str(" && ", source_.value(stride), " % kPack == 0");
  ProductTasks loop;
  loop.count = tasks, loop.row_stride = row_stride, loop.first = first;
  loop.constants =
      str("const Index rows = ", source_.value(m), ", columns = ", source_.value(n),
          ", steps = ", source_.value(ceil_div(k, Expr(tile_.k))), ";\n",
          "const Index tiles_m = ", source_.value(tiles_m), ", tiles_n = ", source_.value(tiles_n),
          ";\n", "const bool stores_packs = ", stores, ";\n");
  loop.loop =
      str("for (Index number = blockIdx.x; number < ", source_.value(tasks * Expr(parts_)),
          "; number += gridDim.x) {\nconst Index task = number / ", parts_, ", part = number % ",
          parts_, ";\nconst Index length = (steps + ", parts_ - 1, ") / ", parts_,
          ", first_step = part * length;\n"
          "const Index end_step = first_step + length < steps ? first_step + length : steps;\n",
          "const Index batch = task / (tiles_m * tiles_n), tile = task % (tiles_m * tiles_n);\n",
          "const Index tile_group = tile / (", kGroupedRows, " * tiles_n) * ", kGroupedRows,
          ", place_in_group = tile % (", kGroupedRows, " * tiles_n);\n",
          "const Index height = tiles_m - tile_group < ", kGroupedRows,
          " ? tiles_m - tile_group : ", kGroupedRows, ";\n",
          "const Index first_row = (tile_group + place_in_group % height) * kTileM, "
          "first_column = place_in_group / height * kTileN;\n",
          of_batch);
  if (tile_.unit == ProductUnit::kWarpGroup) return write_warp_groups(a, b, epilogue, loop);
  if (tile_.unit == ProductUnit::kRows) return write_rows(a, b, epilogue, loop);
  if (tile_.unit == ProductUnit::kStreamedRows) return write_row_stream(a, b, epilogue, loop, m);
  std::string text =
      str("extern __shared__ uint4 shared[];\n"
          "const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;\n"
          "const int warp_m = warp % kWarpsM * kWarpM, warp_n = warp / kWarpsM * kWarpN;\n",
          loop.constants, loop.loop, "const Index first = ", first, ";\n",
          write_prefetch("(char*)shared", a, b, epilogue), write_readers(a, b),
          "Product product;\n"
          "multiply_tiles(product, (char*)shared, a, b, first_step, end_step, warp_m, warp_n, "
          "number == blockIdx.x);\n",
          KernelSource::kBeginNext);
  if (parts_ > 1) text += write_merging(tasks);
  text += write_epilogue(epilogue, row_stride);
  text += "__syncthreads();\n}\n";
  GeneratedKernel kernel =
      source_.finish(text, tasks * Expr(parts_), 32 * tile_.warps_m * tile_.warps_n);
  kernel.launch.shared_memory = shared_bytes(tile_, a.type, a.is_along_k, b.is_along_k);
  return kernel;
}

}  // namespace opwright::gpu
