#include "backend/gpu/product.h"

#include <algorithm>

#include "backend/gpu/pointwise_math.h"
#include "backend/gpu/product_text.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/pointwise.h"

namespace opwright::gpu {
namespace {

/// Rows of sums that a warp has in shared memory at once.
constexpr int kPartRows = 16;
/// Behind each of them, in elements.
constexpr int kPartPadding = 4;
/// Tiles below each other that neighbouring blocks compute, which share the columns of b.
constexpr int kGroupedRows = 8;

/// The first architecture whose tensor cores multiply FP16 and BF16 by m16n8k16, and that copies to
/// shared memory without registers.
constexpr int kFirstArchitecture = 80;
/// Bytes of shared memory that a block has on each of them.
constexpr int64_t kMostShared = 99 << 10;
/// More than any GPU runs at once.
constexpr int64_t kManyBlocks = 4096;

constexpr ProductTile kTiles[] = {
    {ProductUnit::kTensor, 128, 128, 32, 2, 4, 4}, {ProductUnit::kTensor, 128, 256, 32, 2, 4, 3},
    {ProductUnit::kTensor, 128, 64, 32, 2, 2, 4},  {ProductUnit::kTensor, 64, 128, 32, 2, 2, 4},
    {ProductUnit::kTensor, 64, 64, 64, 2, 2, 4},   {ProductUnit::kTensor, 64, 32, 64, 2, 2, 4},
    {ProductUnit::kTensor, 32, 64, 64, 2, 2, 4},   {ProductUnit::kTensor, 32, 32, 64, 2, 2, 5},
    {ProductUnit::kTensor, 16, 64, 64, 1, 4, 5},   {ProductUnit::kTensor, 16, 32, 128, 1, 2, 4},
    {ProductUnit::kScalar, 128, 128, 16, 4, 2, 3}, {ProductUnit::kScalar, 64, 64, 16, 2, 2, 4},
    {ProductUnit::kScalar, 32, 32, 32, 2, 1, 3},   {ProductUnit::kScalar, 16, 64, 32, 1, 2, 3}};

int architecture_number(std::string_view architecture) {
  int number = 0;
  for (const char c : architecture)
    if (c >= '0' && c <= '9') number = 10 * number + (c - '0');
  return number;
}

int vector_of(DataType type) { return 128 / bits(type); }

/// FP32 for all floating types.
DataType sum_type(DataType type) {
  return is_floating(type) ? DataType::kFLOAT : result_type(type);
}

/// Bytes of shared memory.
int64_t shared_bytes(const ProductTile& tile, DataType type, bool a_along_k, bool b_along_k) {
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

std::string tensor_text(DataType type) {
  std::string text(kTensorProduct);
  constexpr std::string_view name = "PRODUCT_TYPE";
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos;)
    text.replace(at, name.size(), type == DataType::kHALF ? "f16" : "bf16");
  return text;
}

}  // namespace

std::vector<DataType> product_types(const CandidateQuery& query) {
  const DataType type = query.inputs[0].type.dtype;
  if (bits(type) % 8 != 0 || type == DataType::kBOOL || type == DataType::kFP8) return {};
  std::vector<DataType> types = {type};
  if (query.strongly_typed || type != DataType::kFLOAT) return types;
  if (query.fp16) types.push_back(DataType::kHALF);
  if (query.bf16) types.push_back(DataType::kBF16);
  return types;
}

DataType result_type(DataType type) {
  return type == DataType::kINT8 || type == DataType::kUINT8 ? DataType::kINT32 : type;
}

std::string ProductTile::name() const {
  return str(unit == ProductUnit::kTensor ? "tensor " : "scalar ", m, "x", n, "x", k, ", ",
             warps_m * warps_n, " warps, ", stages, " stages");
}

const ProductTile& product_tile(int64_t tactic) {
  require(tactic >= 0 && tactic < std::ssize(kTiles), "there is no tile of number ", tactic);
  return kTiles[tactic];
}

std::vector<int64_t> product_tactics(DataType type, int64_t m, int64_t n, int64_t k,
                                     std::string_view architecture) {
  const bool is_short = type == DataType::kHALF || type == DataType::kBF16;
  const ProductUnit unit = is_short && architecture_number(architecture) >= kFirstArchitecture
                               ? ProductUnit::kTensor
                               : ProductUnit::kScalar;
  std::vector<int64_t> tactics;
  int64_t smallest = 0;
  for (int64_t i = 0; i < std::ssize(kTiles); ++i) {
    const ProductTile& tile = kTiles[i];
    if (tile.unit != unit) continue;
    if (tile.m == 32 && tile.n == 32) smallest = i;
    // A tile that is twice as large as what there is computes mostly zeros.
    const bool wastes = (tile.m > 16 && tile.m >= 2 * m) || (tile.n > 32 && tile.n >= 2 * n) ||
                        (tile.k > 32 && tile.k >= 2 * k);
    // Small tiles of a large product read more.
    const int64_t blocks = ((m + tile.m - 1) / tile.m) * ((n + tile.n - 1) / tile.n);
    const bool is_small = tile.m * tile.n <= 64 * 32;
    const bool fits = shared_bytes(tile, type, true, true) <= kMostShared &&
                      shared_bytes(tile, type, false, false) <= kMostShared;
    if (fits && !wastes && !(is_small && blocks > kManyBlocks)) tactics.push_back(i);
  }
  if (tactics.empty()) tactics.push_back(smallest);
  return tactics;
}

ProductWriter::ProductWriter(std::string name, const KernelArgs& args)
    : args_(args),
      source_(std::move(name), args),
      tile_(product_tile(args.candidate->tactic)),
      output_(args.outputs[0].type.dtype) {}

std::string ProductWriter::alignment(int input, const std::vector<Expr>& strides) {
  std::string test =
      str("is_aligned<", storage_type(args_.inputs[input].type.dtype), ", kVector>(in", input, ")");
  for (const Expr& stride : strides)
    if (!stride.is_constant() || stride.constant() % vector_of(args_.inputs[input].type.dtype) != 0)
      test += str(" && ", source_.value(stride), " % kVector == 0");
  return test;
}

ProductOperand ProductWriter::matrix(bool is_a, int input, bool is_along_k, std::string from,
                                     const Expr& extent, const Expr& stride, const Expr& k,
                                     std::string is_aligned) {
  const std::string_view origin = is_a ? "first_row" : "first_column";
  const std::string step = source_.value(stride);
  return {is_along_k, args_.inputs[input].type.dtype,
          str("MatrixReader<", side(is_a), ", ", is_along_k ? "true" : "false", ">"),
          str("{", from, " + ", origin, is_along_k ? " * " + step : std::string(), ", ", step, ", ",
              source_.value(extent), " - ", origin, ", ", source_.value(k), ", ", is_aligned, "}")};
}

std::string ProductWriter::write_epilogue(const ProductEpilogue& epilogue, const Expr& row_stride) {
  const std::string length = str("(kWarpN + ", kPartPadding, ")");
  std::string text =
      str("Sum* const sums = (Sum*)shared + warp * ", kPartRows, " * ", length,
          ";\n"
          "#pragma unroll\n"
          "for (int part = 0; part < kWarpM / ",
          kPartRows, "; ++part) {\n__syncwarp();\nproduct.put(sums, ", length,
          ", part);\n__syncwarp();\n", "for (int at = lane * kPack; at < ", kPartRows,
          " * kWarpN; at += 32 * kPack) {\n"
          "const Sum* const from = sums + at / kWarpN * ",
          length, " + at % kWarpN;\n", "const Index row = first_row + warp_m + ", kPartRows,
          " * part + at / kWarpN, pack = first_column + warp_n + at % kWarpN;\n"
          "if (row >= rows || pack >= columns) continue;\n"
          "const Index place = first + row * ",
          source_.value(row_stride),
          " + pack;\n"
          "const int count = columns - pack < kPack ? (int)(columns - pack) : kPack;\n"
          "const bool is_whole = stores_packs && count == kPack;\n"
          "Pack<Output, kPack> result;\n");
  if (epilogue.residual >= 0)
    text +=
        str("const Output* const residual = in", epilogue.residual,
            " + place;\n"
            "if (is_whole && is_aligned<Output, kPack>(residual)) {\n"
            "result = *(const Pack<Output, kPack>*)residual;\n"
            "} else {\n"
            "#pragma unroll\n"
            "for (int i = 0; i < kPack; ++i) result.at[i] = i < count ? residual[i] : Output{};\n"
            "}\n");
  text +=
      "#pragma unroll\n"
      "for (int i = 0; i < kPack; ++i) {\n"
      "const Index column = pack + i;\n"
      "Sum y = from[i];\n";
  if (epilogue.bias >= 0)
    text += str("if (i < count) y += load(in", epilogue.bias, "[", epilogue.bias_element, "]);\n");
  if (epilogue.residual >= 0) text += "y += load(result.at[i]);\n";
  text += fused_activation(epilogue.activation);
  text +=
      "result.at[i] = store<Output>(y);\n}\n"
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
  const auto flag = [](bool value) { return std::string_view(value ? "true" : "false"); };
  std::string declarations = str(
      "typedef ", storage_type(a.type), " ElementA;\ntypedef ", storage_type(b.type),
      " ElementB;\ntypedef ", register_type(sum_type(a.type)), " Sum;\ntypedef ",
      storage_type(output_), " Output;\n", constant("kTileM", tile_.m), constant("kTileN", tile_.n),
      constant("kTileK", tile_.k), constant("kWarpsM", tile_.warps_m),
      constant("kWarpsN", tile_.warps_n), constant("kStages", tile_.stages),
      constant("kAlongKA", flag(a.is_along_k)), constant("kAlongKB", flag(b.is_along_k)));
  declarations += kProductTiles;
  declarations +=
      tile_.unit == ProductUnit::kTensor ? tensor_text(a.type) : std::string(kScalarProduct);
  if (epilogue.activation.present()) declarations += pointwise_functions();
  source_.add_declarations(declarations + std::string(kProductLoop) + readers_);

  const Expr tiles_m = ceil_div(m, Expr(tile_.m)), tiles_n = ceil_div(n, Expr(tile_.n));
  const Expr tasks = tiles_m * tiles_n * batches;
  std::string stores = "is_aligned<Output, kPack>(out0)";
  const int pack = vector_of(output_);
  for (const Expr& stride : {row_stride, n})
    if (!stride.is_constant() || stride.constant() % pack != 0)
      stores += str(" && ", source_.value(stride), " % kPack == 0");
  std::string text =
      str("extern __shared__ uint4 shared[];\n"
          "const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;\n"
          "const int warp_m = warp % kWarpsM * kWarpM, warp_n = warp / kWarpsM * kWarpN;\n",
          "const Index rows = ", source_.value(m), ", columns = ", source_.value(n),
          ", steps = ", source_.value(ceil_div(k, Expr(tile_.k))), ";\n",
          "const Index tiles_m = ", source_.value(tiles_m), ", tiles_n = ", source_.value(tiles_n),
          ";\n", "const bool stores_packs = ", stores, ";\n",
          "for (Index task = blockIdx.x; task < ", source_.value(tasks), "; task += gridDim.x) {\n",
          "const Index batch = task / (tiles_m * tiles_n), tile = task % (tiles_m * tiles_n);\n",
          "const Index tile_group = tile / (", kGroupedRows, " * tiles_n) * ", kGroupedRows,
          ", place_in_group = tile % (", kGroupedRows, " * tiles_n);\n",
          "const Index height = tiles_m - tile_group < ", kGroupedRows,
          " ? tiles_m - tile_group : ", kGroupedRows, ";\n",
          "const Index first_row = (tile_group + place_in_group % height) * kTileM, "
          "first_column = place_in_group / height * kTileN;\n",
          of_batch, "const Index first = ", first, ";\n", a.reader, " a = ", a.make, ";\n",
          b.reader, " b = ", b.make, ";\n",
          "Product product;\n"
          "multiply_tiles(product, (char*)shared, a, b, steps, warp_m, warp_n);\n");
  text += write_epilogue(epilogue, row_stride);
  text += "__syncthreads();\n}\n";
  GeneratedKernel kernel = source_.finish(text, tasks, 32 * tile_.warps_m * tile_.warps_n);
  kernel.launch.shared_memory = shared_bytes(tile_, a.type, a.is_along_k, b.is_along_k);
  return kernel;
}

}  // namespace opwright::gpu
