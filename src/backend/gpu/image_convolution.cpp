#include <algorithm>

#include "backend/gpu/config_writer.h"
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

/// `width`: that of the image.
std::string write_config(const ImageTiles& tiles, const Expr& width,
                         const ConvolutionParams& params, const KernelArgs& args) {
  const DataType type = args.inputs[0].type.dtype;
  ProductOperand operand;
  operand.type = is_byte(type) ? DataType::kHALF : type;
  ConfigWriter config;
  config.type("Input", storage_type(type));
  config.type("Weight", storage_type(args.inputs[1].type.dtype));
  config.type("Output", storage_type(args.outputs[0].type.dtype));
  config.type("Multiplied", storage_type(operand.type)), config.type("Sum", "float");
  config.number("kZeroPoint", params.zero_point), config.number("kVector", kVector);
  config.number("kChannels", tiles.channels), config.number("kPixels", tiles.pixels);
  config.number("kWindowY", tiles.window_y), config.number("kWindowX", tiles.window_x);
  config.number("kStrideY", tiles.stride_y), config.number("kLead", tiles.lead);
  config.number("kTaps", tiles.taps), config.number("kRowsOfTile", kRowsOfTile);
  config.number("kColumns", tiles.columns), config.number("kTileN", tiles.maps);
  config.number("kSharedBytes", tiles.shared_memory());
  config.flag("kMayCopyVectors", tiles.pixels > 1 && (tiles.pixels & (tiles.pixels - 1)) == 0 &&
                                     width.is_constant() && width.constant() % tiles.pixels == 0);
  config.flag("kIsConstant", args.inputs[1].is_constant);
  config.member(warp_group_instruction(static_cast<int>(tiles.maps), operand, operand));
  return config.write();
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
  const SymShape &x = shape.windows.x, &y = shape.windows.y;
  const Expr tiles_y = ceil_div(y[0], Expr(kRowsOfTile));
  const Expr tiles_x = ceil_div(y[1], Expr(tiles.columns));
  const Expr tiles_n = ceil_div(shape.maps, Expr(tiles.maps));
  const Expr count = tiles_n * shape.images * tiles_y * tiles_x;
  source.add_declarations(include("image_convolution.cuh") +
                          write_config(tiles, x[1], params, args) +
                          "typedef ImageTile<Config> C;\n");
  if (params.activation.present() || params.fused.present())
    source.add_declarations(pointwise_functions(/*has_short_results=*/true));
  ProductEpilogue epilogue;
  epilogue.bias = shape.bias, epilogue.bias_element = "column";
  epilogue.activation = params.activation, epilogue.program = params.fused;
  epilogue.channel_element = "column";
  const ResultProgram results = write_packed_results(args, epilogue, {}, "all.maps");
  const std::string text =
      str("const ImageArguments<Config> all{out0, ",
          source.values({shape.images, x[0], x[1], shape.maps, y[0], y[1], shape.windows.padding[0],
                         tiles.padding, tiles_n, tiles_y, tiles_x, count}),
          "};\nconst ProductProgram program{0, 0, 0, ", results.columns, ",\n", results.read, ",\n",
          results.make, "};\nconvolve_images(all, [&] {\n",
          "return ImageOperands<Config>{in0, in1};\n}, [&] {\n", source.wait(), "}, program);\n",
          KernelSource::kBeginNext);
  GeneratedKernel kernel = source.finish(text, min(count, Expr(kFewBlocks * kBlocksAtOnce)),
                                         kThreadsOfTile, kBlocksAtOnce);
  kernel.launch.shared_memory = tiles.shared_memory();
  kernel.is_for_one_architecture = true;
  return kernel;
}

}  // namespace opwright::gpu
