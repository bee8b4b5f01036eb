#include <algorithm>

#include "backend/gpu/convolution.h"
#include "backend/gpu/pointwise_math.h"
#include "backend/gpu/warpgroup_product.h"
#include "base/types.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

/// Elements of 16 bytes. All channels of the pixels of one stride fit into them and form a place.
constexpr int kVector = 8;
constexpr int kRowsOfTile = 8;
constexpr int kThreadsOfTile = 128;
/// Rows and padding of a warp's part of the results in a tile; see packed_results.cuh.
constexpr int kWarpRows = 16, kPadding = 8;
/// Blocks for which a multiprocessor has room in its memory.
constexpr int kBlocksAtOnce = 3;
constexpr int64_t kMostShared = (228 << 10) / kBlocksAtOnce - (1 << 10);

/// Constants of a convolution of images.
struct ImageTiles {
  int64_t channels = 0, pixels = 0, window_y = 0, window_x = 0, stride_y = 0;
  int64_t lead = 0;               ///< pixels of the first place that lie before a window
  int64_t padding = 0;            ///< pixels before the first column, in whole places
  int64_t taps = 0;               ///< places in a row of a window, an even number
  int64_t columns = 0, maps = 0;  ///< columns and maps of a tile

  /// Empty where the convolution cannot be computed in this way.
  static std::optional<ImageTiles> find(const ConvolutionShape& shape);
  int64_t shared_memory() const {
    const int64_t places = ((kRowsOfTile - 1) * stride_y + window_y) * (columns + taps - 1);
    const int64_t results = int64_t{2} * kThreadsOfTile / kWarp * kWarpRows * (maps + kPadding);
    return 16 * (places + window_y * taps * maps) + results;
  }
};

std::optional<ImageTiles> ImageTiles::find(const ConvolutionShape& shape) {
  constexpr int kHeight = 0, kWidth = 1;
  constexpr int64_t kMostColumns = 64, kFewMaps = 32, kManyMaps = 64;
  const Windows& windows = shape.windows;
  if (windows.is_transposed || windows.axes.size() != 2 || shape.groups != Expr(1) ||
      shape.residual >= 0 || !shape.channels.is_constant() || !shape.maps.is_constant())
    return {};
  for (const int axis : {kHeight, kWidth})
    if (windows.axes[axis].dilation != 1 || !windows.window[axis].is_constant() ||
        !windows.padding[axis].is_constant() || windows.padding[axis].constant() < 0)
      return {};
  ImageTiles tiles;
  tiles.channels = shape.channels.constant(), tiles.pixels = windows.axes[kWidth].stride;
  tiles.window_y = windows.window[kHeight].constant();
  tiles.window_x = windows.window[kWidth].constant();
  tiles.stride_y = windows.axes[kHeight].stride;
  if (tiles.channels < 1 || tiles.window_y < 1 || tiles.window_x < 1 ||
      tiles.pixels > kVector / tiles.channels)
    return {};
  const int64_t padding = windows.padding[kWidth].constant();
  tiles.padding = round_up(padding, tiles.pixels);
  tiles.lead = tiles.padding - padding;
  tiles.taps = round_up(round_up(tiles.window_x + tiles.lead, tiles.pixels) / tiles.pixels, 2);
  tiles.maps = shape.maps.constant() <= kFewMaps ? kFewMaps : kManyMaps;
  // Divides a row into parts that are as even as possible.
  const Expr& width = windows.y[kWidth];
  tiles.columns = kMostColumns;
  if (width.is_constant()) {
    const int64_t groups = std::max<int64_t>(1, round_up(width.constant(), 8) / 8);
    const int64_t parts = round_up(groups, kMostColumns / 8) / (kMostColumns / 8);
    tiles.columns = round_up(groups, parts) / parts * 8;
  }
  while (tiles.columns > 8 && tiles.shared_memory() > kMostShared) tiles.columns -= 8;
  if (tiles.shared_memory() > kMostShared) return {};
  return tiles;
}

}  // namespace

bool is_image_convolution(const ConvolutionShape& shape, const ConvolutionParams& params,
                          DataType type, int architecture) {
  const auto is_of_channels = [](int64_t place) {
    return static_cast<FusedPlace>(place) != FusedPlace::kElement &&
           static_cast<FusedPlace>(place) != FusedPlace::kRepeated;
  };
  // Sums of bytes are whole numbers that FP32 holds exactly.
  constexpr int64_t kMostProducts = (1 << 23) / (255 * 128);
  const bool is_short = type == DataType::kHALF || type == DataType::kBF16;
  const DataType result = params.fused.present() ? params.fused.result : type_of_product(type);
  const Expr products = shape.channels * shape.taps();
  return architecture == kWarpGroupArchitecture &&
         (is_short
              ? params.zero_point == 0
              : is_byte(type) && products.is_constant() && products.constant() <= kMostProducts) &&
         bits(result) <= 16 && result != DataType::kBOOL &&
         std::all_of(params.fused.places.begin(), params.fused.places.end(), is_of_channels) &&
         ImageTiles::find(shape);
}

GeneratedKernel generate_image_convolution(KernelSource& source, const ConvolutionShape& shape,
                                           const ConvolutionParams& params,
                                           const KernelArgs& args) {
  const ImageTiles tiles = ImageTiles::find(shape).value();
  const DataType type = args.inputs[0].type.dtype;
  const auto constant = [](std::string_view name, int64_t value) {
    return str("constexpr int ", name, " = ", value, ";\n");
  };
  ProductOperand operand;
  operand.type = is_byte(type) ? DataType::kHALF : type;
  std::string declarations = str(
      "typedef float Sum;\ntypedef ", storage_type(type), " ElementA;\ntypedef ",
      storage_type(args.inputs[1].type.dtype), " ElementB;\ntypedef ", storage_type(operand.type),
      " Multiplied;\ntypedef ", storage_type(args.outputs[0].type.dtype), " Output;\n",
      constant("kVector", kVector), constant("kRowsOfTile", kRowsOfTile),
      constant("kZeroPoint", params.zero_point), constant("kChannels", tiles.channels),
      constant("kPixels", tiles.pixels), constant("kWindowY", tiles.window_y),
      constant("kWindowX", tiles.window_x), constant("kStrideY", tiles.stride_y),
      constant("kLead", tiles.lead), constant("kTaps", tiles.taps),
      constant("kColumns", tiles.columns), constant("kTileN", tiles.maps),
      // The bits of an exponent, which detect infinities. Bytes have no infinities.
      constant("kExponent", type == DataType::kHALF ? 0x7c00 : 0x7f80),
      warp_group_instruction(static_cast<int>(tiles.maps), operand, operand),
      include("image_convolution.cuh"), "typedef ImageResults C;\n");
  if (params.activation.present() || params.fused.present())
    declarations += pointwise_functions(/*has_short_results=*/true);
  source.add_declarations(declarations);

  const SymShape &x = shape.windows.x, &y = shape.windows.y;
  const auto value = [&](const Expr& number) { return source.value(number); };
  const Expr tiles_y = ceil_div(y[0], Expr(kRowsOfTile));
  const Expr tiles_x = ceil_div(y[1], Expr(tiles.columns));
  const Expr tiles_n = ceil_div(shape.maps, Expr(tiles.maps));
  const Expr count = tiles_n * shape.images * tiles_y * tiles_x;
  const std::string variables[] = {"part", "image", "tile_y", "tile_x"};
  const Expr extents[] = {tiles_n, shape.images, tiles_y, tiles_x};
  ProductEpilogue epilogue;
  epilogue.bias = shape.bias, epilogue.bias_element = "column";
  epilogue.activation = params.activation, epilogue.program = params.fused;
  epilogue.channel_element = "column";
  const Expr height = x[0], width = x[1];
  const bool may_be_pairs = tiles.pixels > 1 && width.is_constant() &&
                            width.constant() % tiles.pixels == 0 &&
                            (tiles.pixels & (tiles.pixels - 1)) == 0;
  const std::string put =
      str("(places, image_of, first_y * kStrideY - ", value(shape.windows.padding[0]),
          ", first_x * kPixels - ", tiles.padding, ", ", value(height), ", ", value(width), ")");
  const ResultProgram results = write_packed_results(args, epilogue, {}, "columns");
  std::string text = str(
      "extern __shared__ uint4 memory[];\n"
      "Place* const places = (Place*)memory;\n"
      "Place* const weights = places + kPlacesY * kPlacesX;\n"
      "uint4* const shared = (uint4*)(weights + kSteps * kTileN);\n"
      "const int warp = (int)threadIdx.x / 32;\n"
      "const Index columns = ",
      value(shape.maps), ";\nconst bool stores_packs = is_aligned<Output, kPack>(out0) && columns ",
      "% kPack == 0;\nconst bool are_pairs = ",
      may_be_pairs ? "is_aligned<ElementA, kPixels>(in0)" : "false",
      ";\n(void)are_pairs;\nIndex weights_of = -1;\n",
      // Constant weights do not depend on an earlier kernel.
      args.inputs[1].is_constant ? std::string() : source.wait(),
      "for (Index number = blockIdx.x; number < ", value(count), "; number += gridDim.x) {\n",
      source.decompose("number", variables, extents),
      "const Index first_column = part * kTileN;\n"
      // All threads have read the previous tile.
      "__syncthreads();\n"
      "if (part != weights_of) put_weights(weights, in1 + first_column * (kChannels * kWindowY * "
      "kWindowX), columns - first_column);\nweights_of = part;\n",
      args.inputs[1].is_constant ? str("if (number == blockIdx.x) {\n", source.wait(), "}\n")
                                 : std::string(),
      "const Index first_y = tile_y * kRowsOfTile, first_x = tile_x * kColumns;\n"
      "const ElementA* const image_of = in0 + image * ",
      value(shape.channels * height * width), ";\n",
      "const bool is_infinite = ", may_be_pairs ? "are_pairs ? put_places<true>" + put + " : " : "",
      "put_places<false>", put, ";\n",
      "fence_copies();\n"
      "const bool may_be_infinite = __syncthreads_or(is_infinite) != 0;\n",
      "const ProductTask task = {0, 0, image, 0, first_column};\nconst ProductProgram program{0, "
      "0, "
      "0, ",
      results.columns, ",\n", results.read, ",\n", results.make,
      "};\nconst auto of_columns = program.columns(task);\n"
      "for (int of_row = 0; of_row < kBlocks; ++of_row) {\n"
      "const Product product(places + 8 * of_row, weights, may_be_infinite);\n"
      // A warp has two rows of eight windows.
      "const auto find = [&](int i, Index column) {\n"
      "const Index y = first_y + warp * 2 + i / 8, x = first_x + of_row * 8 + i % 8;\nreturn y < ",
      value(y[0]), " && x < ", value(y[1]), " ? out0 + ((image * ", value(y[0]), " + y) * ",
      value(y[1]),
      " + x) * columns + column : nullptr;\n};\n"
      "store_packed_results<C>(task, program, of_columns, product.sums[0], shared, warp * 16, 0, "
      "NothingBehind(), 64, columns, stores_packs, find);\n}\n}\n",
      KernelSource::kBeginNext);
  GeneratedKernel kernel = source.finish(text, min(count, Expr(kFewBlocks * kBlocksAtOnce)),
                                         kThreadsOfTile, kBlocksAtOnce);
  kernel.launch.shared_memory = tiles.shared_memory();
  kernel.is_for_one_architecture = true;
  return kernel;
}

}  // namespace opwright::gpu
