#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "backend/gpu/config_writer.h"
#include "backend/gpu/convolution.h"
#include "backend/gpu/pointwise_math.h"
#include "backend/gpu/warpgroup_product.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Images have one z.
constexpr int kAxisZ = 0, kAxisY = 1, kAxisX = 2, kPatchAxes = 3;
/// Channels of a place in shared memory, which one access copies, and along k of an instruction.
constexpr int64_t kPlaceChannels = 8, kStepChannels = 16;
constexpr int64_t kPlaceBytes = 16;
/// The most channels of a chunk.
constexpr int64_t kMostChunk = 64;
/// The most rows of sums that a warp stages at once, their columns, and their padding; see SumRows
/// of device/product_epilogue.cuh.
constexpr int64_t kStagedRows = 16, kStagedColumns = 32, kStagedPadding = 4;
/// The largest windows, strides and dilations.
constexpr int64_t kMostWindow = 64, kMostPatchStride = 8, kMostPatchTaps = 160;
/// Memory of a multiprocessor that each block takes besides its own.
constexpr int64_t kBlockOverhead = 1 << 10;
constexpr int64_t kMostPlaces = (1 << 14) - 1;  ///< in a descriptor of warpgroups

/// The tile of a block: pixels, maps, and the warps that divide them.
struct PatchTile {
  bool is_warp_group = false;
  int y = 0, x = 0, maps = 0, warps_m = 1, warps_n = 1, z = 1;

  int extent(int axis) const { return axis == kAxisZ ? z : axis == kAxisY ? y : x; }
  bool is_line() const { return z == 1 && y == 1; }
  int pixels() const { return z * y * x; }
  int threads() const { return kWarp * warps_m * warps_n; }
  int strips() const { return pixels() / 16 / warps_m; }
  int warp_maps() const { return maps / warps_n; }
  /// Sums of a thread.
  int sums() const { return strips() * warp_maps() / 2; }
  std::string name() const {
    return str("patch ", is_warp_group ? "warpgroup " : "tensor ", z == 1 ? "" : str(z, "x"), y,
               "x", x, "x", maps, ", ", warps_m * warps_n, " warps");
  }
};
constexpr PatchTile kPatchTiles[] = {
    {false, 16, 16, 64, 4, 1},
    {false, 16, 16, 64, 4, 2},
    {false, 8, 16, 64, 2, 2},
    {false, 8, 32, 64, 4, 2},
    {false, 8, 8, 64, 1, 4},
    {false, 16, 16, 32, 4, 1},
    {false, 8, 16, 32, 4, 1},
    {false, 8, 8, 32, 2, 2},
    {true, 16, 16, 64, 4, 1},
    {true, 8, 16, 64, 4, 1},
    {true, 16, 16, 64, 8, 1},
    {true, 16, 16, 128, 8, 1},
    {true, 8, 16, 128, 4, 1},
    {true, 16, 16, 32, 4, 1},
    // Of volumes.
    {false, 8, 8, 64, 4, 2, 4},
    {false, 8, 8, 32, 4, 1, 4},
    {false, 8, 8, 64, 2, 2, 2},
    {false, 4, 8, 64, 4, 1, 4},
    {true, 8, 8, 32, 4, 1, 4},
    {true, 8, 8, 32, 8, 1, 8},
    {true, 8, 8, 32, 8, 1, 4},
    {true, 8, 8, 64, 4, 1, 4},
    {true, 8, 8, 64, 8, 1, 4},
    {true, 8, 8, 64, 8, 1, 8},
    {true, 8, 8, 64, 4, 1, 2},
    {true, 8, 8, 128, 8, 1, 4},
    // Of lines.
    {false, 1, 256, 64, 4, 2},
    {false, 1, 128, 64, 2, 2},
    {false, 1, 128, 32, 4, 1},
    {false, 1, 64, 64, 1, 4},
    {true, 1, 256, 32, 4, 1},
    {true, 1, 256, 64, 8, 1},
    {true, 1, 256, 64, 4, 1},
    {true, 1, 128, 64, 4, 1},
    {true, 1, 256, 128, 8, 1},
};

/// The windows over z, y and x.
class PatchWindows {
 public:
  explicit PatchWindows(const Windows& windows)
      : windows_(windows), missing_(kPatchAxes - static_cast<int>(windows.axes.size())) {}

  /// The element of `of` for an axis, or `otherwise` if the convolution has no such axis.
  Expr at(const SymShape& of, int axis, int64_t otherwise) const {
    return axis < missing_ ? Expr(otherwise) : of[axis - missing_];
  }
  Expr x(int axis) const { return at(windows_.x, axis, 1); }
  Expr y(int axis) const { return at(windows_.y, axis, 1); }
  Expr padding(int axis) const { return at(windows_.padding, axis, 0); }
  int64_t window(int axis) const { return at(windows_.window, axis, 1).constant(); }
  WindowAxis axis(int axis) const {
    return axis < missing_ ? WindowAxis{} : windows_.axes[axis - missing_];
  }
  bool has_depth() const { return missing_ == 0; }
  /// The pixels along an axis that a tile's patch has.
  int64_t reach(const PatchTile& tile, int of, int64_t taps) const {
    return (tile.extent(of) - 1) * axis(of).stride + (taps - 1) * axis(of).dilation + 1;
  }
  /// Whether all pairs of neighbouring taps of a row lie equally far from each other in the patch,
  /// whose columns lie in phases.
  bool has_equal_pairs() const {
    const WindowAxis of = axis(kAxisX);
    return of.stride <= 2 || of.dilation % of.stride == 0 || window(kAxisX) <= 2;
  }

 private:
  const Windows& windows_;
  const int missing_;  ///< leading axes
};

/// How a block keeps patches and weights in shared memory.
struct PatchLayout {
  int64_t unit_groups = 1, unit_maps = 0, unit_channels = 0;
  int64_t chunk = 0, chunks = 1, plane = 0;
  int64_t slices = 0;           ///< of all maps
  int64_t slices_of_group = 0;  ///< 0: slices have whole groups
  int stages = 2;
  bool keeps_weights = true;
  bool has_pairs = false;  ///< instructions multiply pairs of taps
  int64_t bytes = 0;
  int blocks = 1;  ///< for which a multiprocessor has room
};

/// Finds the layout of a convolution's patches.
class PatchPlanner {
 public:
  /// `y`: the extents of the output along z, y and x that the layout is for; other extents are
  /// right, too.
  PatchPlanner(const ConvolutionShape& shape, const PatchTile& tile, int architecture,
               int64_t images, const std::array<int64_t, kPatchAxes>& y)
      : tile_(tile),
        architecture_(architecture),
        channels_(shape.channels.constant()),
        maps_(shape.maps.constant()),
        groups_(shape.groups.constant()),
        taps_(shape.taps().constant()),
        tiles_(images) {
    const PatchWindows windows(shape.windows);
    const int64_t stride = windows.axis(kAxisX).stride, window_x = windows.window(kAxisX);
    has_pairs_ = groups_ == 1 && channels_ <= kPlaceChannels && windows.has_equal_pairs();
    const int64_t taps_x = has_pairs_ ? round_up(window_x, 2) : window_x;
    taps_ = taps_ / window_x * taps_x;
    places_ = windows.reach(tile, kAxisZ, windows.window(kAxisZ)) *
              windows.reach(tile, kAxisY, windows.window(kAxisY)) * stride *
              divide_up(windows.reach(tile, kAxisX, taps_x), stride);
    for (int axis = 0; axis < kPatchAxes; ++axis) tiles_ *= divide_up(y[axis], tile.extent(axis));
  }

  std::optional<PatchLayout> find() const {
    PatchLayout layout;
    if (has_units()) {
      layout.unit_groups = std::max<int64_t>(1, kStepChannels / channels_);
      layout.unit_maps = layout.unit_groups * maps_;
      layout.unit_channels = layout.unit_groups * channels_;
      layout.chunk = tile_.maps / layout.unit_maps * layout.unit_channels;
      layout.slices = divide_up(groups_ * maps_, tile_.maps);
      return plan(layout, true) ? std::optional(layout) : std::nullopt;
    }
    // Each pixel begins at a whole place, or threads copy its channels one by one.
    if (groups_ > 1 && channels_ % kPlaceChannels != 0) return {};
    layout.unit_maps = tile_.maps;
    layout.slices_of_group = divide_up(maps_, tile_.maps);
    layout.slices = layout.slices_of_group * groups_;
    if (has_pairs_) {
      layout.has_pairs = true;
      layout.chunk = layout.unit_channels = kPlaceChannels;
      return plan(layout, true) ? std::optional(layout) : std::nullopt;
    }
    std::optional<PatchLayout> best;
    // Blocks beside each other hide what one of them waits for. Weights that a block keeps are
    // copied once for many tiles.
    const auto worth = [&](const PatchLayout& of) {
      const bool has_many = of.chunks == 1 || tiles_ * of.slices > 2 * kFewBlocks * of.blocks;
      return 2 * static_cast<int>(of.keeps_weights == has_many) + (of.blocks > 1);
    };
    const int64_t all = round_up(channels_, kStepChannels);
    for (int64_t count = divide_up(all, kMostChunk); count <= all / kStepChannels; ++count)
      for (const bool keeps : {true, false}) {
        layout.chunk = round_up(divide_up(all, count), kStepChannels);
        layout.chunks = divide_up(all, layout.chunk);
        layout.unit_channels = layout.chunk;
        if (plan(layout, keeps) && (!best || worth(layout) > worth(*best))) best = layout;
      }
    return best;
  }
  int64_t tasks(const PatchLayout& layout) const { return tiles_ * layout.slices; }

 private:
  /// Whether groups are so narrow that a slice has several.
  bool has_units() const {
    if (tile_.is_warp_group || groups_ == 1 || channels_ > 2 * kStepChannels ||
        2 * kStepChannels % channels_ != 0)
      return false;
    const int64_t maps = std::max<int64_t>(1, kStepChannels / channels_) * maps_;
    return maps % 8 == 0 && tile_.maps % maps == 0;
  }
  /// Plans chunks of the layout's size. Returns false if a block has too little memory.
  bool plan(PatchLayout& layout, bool keeps_weights) const {
    const int64_t vectors = layout.chunk / kPlaceChannels;
    layout.keeps_weights = keeps_weights;
    // Eight threads write to as many banks.
    layout.plane = places_;
    const int64_t rest = vectors == 2 ? 4 : vectors == 4 ? 2 : 1;
    while (layout.plane % 8 != rest) ++layout.plane;
    if (layout.plane > kMostPlaces) return false;
    // One patch is enough if each tile has a block of its own, and all blocks run at once.
    if (layout.chunks == 1 && fits(layout, 1) && tasks(layout) <= kFewBlocks * layout.blocks)
      return true;
    return fits(layout, 2);
  }
  bool fits(PatchLayout& layout, int stages) const {
    layout.stages = stages;
    const int64_t patch = layout.chunk / kPlaceChannels * layout.plane;
    const int64_t weights = taps_ * layout.unit_channels / kPlaceChannels * (tile_.maps + 1);
    const int64_t staged = kStagedRows *
                           (std::min<int64_t>(kStagedColumns, tile_.warp_maps()) + kStagedPadding) *
                           int64_t{sizeof(float)} * (tile_.threads() / kWarp);
    layout.bytes = kPlaceBytes * (stages * (patch + (layout.keeps_weights ? 0 : weights)) +
                                  (layout.keeps_weights ? layout.chunks * weights : 0)) +
                   staged;
    const int64_t most = most_shared_memory(architecture_);
    // A thread needs registers for its sums and about as many for operands and addresses.
    constexpr int kRegisters = 1 << 16, kManySums = 128, kSomeSums = 64;
    const int registers = tile_.sums() >= kManySums ? 255 : tile_.sums() >= kSomeSums ? 160 : 128;
    layout.blocks = static_cast<int>(
        std::clamp<int64_t>((most + kBlockOverhead) / (layout.bytes + kBlockOverhead), 1,
                            std::max(1, kRegisters / (registers * tile_.threads()))));
    return layout.bytes <= most;
  }

  const PatchTile& tile_;
  const int architecture_;
  const int64_t channels_, maps_, groups_;
  int64_t taps_;  ///< with those that fill pairs
  bool has_pairs_ = false;
  int64_t places_ = 0, tiles_;  ///< places_: of a plane, without padding
};

/// Whether a tile can compute the convolution, apart from memory.
bool can_copy_patches(const ConvolutionShape& shape, const ConvolutionParams& params, DataType type,
                      const PatchTile& tile, int architecture) {
  const Windows& windows = shape.windows;
  if ((type != DataType::kHALF && type != DataType::kBF16) || params.zero_point != 0 ||
      windows.is_transposed || windows.axes.size() < 2 || windows.axes.size() > kPatchAxes ||
      (windows.axes.size() == 2 && tile.z > 1) || !is_constant(windows.window) ||
      !shape.channels.is_constant() || !shape.maps.is_constant() || !shape.groups.is_constant())
    return false;
  if (tile.is_warp_group ? architecture != kWarpGroupArchitecture
                         : architecture < kTensorArchitecture)
    return false;
  int64_t taps = 1;
  for (size_t axis = 0; axis < windows.axes.size(); ++axis) {
    const int64_t window = windows.window[axis].constant();
    if (window < 1 || window > kMostWindow || windows.axes[axis].stride > kMostPatchStride ||
        windows.axes[axis].dilation > kMostWindow)
      return false;
    taps *= window;
  }
  const int64_t channels = shape.channels.constant(), groups = shape.groups.constant();
  return taps <= kMostPatchTaps && channels >= 1 && shape.maps.constant() >= 1 &&
         (groups == 1 || channels * groups % kPlaceChannels == 0);
}

class PatchWriter {
 public:
  PatchWriter(KernelSource& source, const ConvolutionShape& shape, const ConvolutionParams& params,
              const KernelArgs& args)
      : source_(source),
        shape_(shape),
        windows_(shape.windows),
        params_(params),
        args_(args),
        tile_(kPatchTiles[args.candidate->tactic - kPatchConvolution]) {
    const int architecture = target_architecture(args);
    std::optional<PatchLayout> layout;
    if (can_copy_patches(shape, params, args.inputs[0].type.dtype, tile_, architecture))
      layout = PatchPlanner(shape, tile_, architecture, source.typical(shape.images),
                            {source.typical(windows_.y(kAxisZ)), source.typical(windows_.y(kAxisY)),
                             source.typical(windows_.y(kAxisX))})
                   .find();
    require(layout.has_value(), "the convolution cannot be computed by patches");
    layout_ = *layout;
  }

  GeneratedKernel write() {
    if (shape_.windows.reaches_far()) source_.widen();
    ProductEpilogue epilogue;
    epilogue.bias = shape_.bias, epilogue.bias_element = epilogue.channel_element = "column";
    epilogue.residual = shape_.residual;
    epilogue.activation = params_.activation, epilogue.program = params_.fused;
    const Expr channels = shape_.channels * shape_.groups, maps = shape_.maps * shape_.groups;
    const ResultProgram results = write_results(source_, args_, epilogue, maps,
                                                vector_of(args_.outputs[0].type.dtype), -1, {});
    declare();
    std::vector<Expr> numbers = {layout_.slices, layout_.slices_of_group, channels, maps};
    for (int axis = 0; axis < kPatchAxes; ++axis) numbers.push_back(windows_.x(axis));
    for (int axis = 0; axis < kPatchAxes; ++axis) numbers.push_back(windows_.y(axis));
    for (int axis = 0; axis < kPatchAxes; ++axis) numbers.push_back(windows_.padding(axis));
    Expr tiles = shape_.images;
    for (int axis = 0; axis < kPatchAxes; ++axis) {
      const Expr along = ceil_div(windows_.y(axis), Expr(tile_.extent(axis)));
      numbers.push_back(along), tiles = tiles * along;
    }
    numbers.push_back(tiles);
    std::string text = "const PatchArguments all{";
    for (const Expr& number : numbers)
      text += str(text.back() == '{' ? "" : ", ", "(Index)", source_.value(number));
    text += str("};\nconst ProductProgram program{0, 0, 0, ", results.columns, ",\n", results.read,
                ",\n", results.make,
                "};\nconvolve_patches<Config>(all, out0, [&] {\n"
                "return PatchOperands<Config>{in0, in1};\n}, [&] {\n",
                source_.wait(), "}, program);\n", KernelSource::kBeginNext);
    // A block has one slice, and every so many tiles of it.
    const int64_t most =
        std::max<int64_t>(1, int64_t{kFewBlocks} * layout_.blocks / layout_.slices);
    GeneratedKernel kernel = source_.finish(text, Expr(layout_.slices) * min(tiles, Expr(most)),
                                            tile_.threads(), layout_.blocks);
    kernel.launch.shared_memory = layout_.bytes;
    kernel.is_for_one_architecture = tile_.is_warp_group;
    return kernel;
  }

 private:
  void declare() {
    ProductOperand operand;
    operand.type = args_.inputs[0].type.dtype;
    ConfigWriter config;
    config.type("Element", storage_type(operand.type));
    config.type("Output", storage_type(args_.outputs[0].type.dtype));
    config.type("Sum", "float");
    config.number("kMaps", tile_.maps), config.number("kStrips", tile_.strips());
    config.number("kWarpsM", tile_.warps_m), config.number("kWarpsN", tile_.warps_n);
    for (int axis = 0; axis < kPatchAxes; ++axis) {
      const char name = "ZYX"[axis];
      config.number(str("kTile", name), tile_.extent(axis));
      config.number(str("kWindow", name), windows_.window(axis));
      config.number(str("kStride", name), windows_.axis(axis).stride);
      config.number(str("kDilation", name), windows_.axis(axis).dilation);
    }
    config.number("kChannels", shape_.channels.constant());
    config.number("kGroupMaps", shape_.maps.constant());
    config.number("kUnitGroups", layout_.unit_groups);
    config.number("kUnitMaps", layout_.unit_maps);
    config.number("kUnitChannels", layout_.unit_channels);
    config.number("kChunk", layout_.chunk), config.number("kChunks", layout_.chunks);
    config.number("kPlane", layout_.plane), config.number("kStages", layout_.stages);
    config.flag("kKeepsWeights", layout_.keeps_weights);
    config.flag("kHasPairs", layout_.has_pairs);
    config.flag("kIsWarpGroup", tile_.is_warp_group);
    config.flag("kIsConstant", args_.inputs[1].is_constant);
    config.flag("kHasProgram", params_.fused.present());
    if (tile_.is_warp_group) config.member(warp_group_instruction(tile_.maps, operand, operand));
    std::string text = str(include("patch_convolution.cuh"), config.write());
    if (params_.activation.present() || params_.fused.present()) text += pointwise_functions();
    source_.add_declarations(text);
  }

  KernelSource& source_;
  const ConvolutionShape& shape_;
  const PatchWindows windows_;
  const ConvolutionParams& params_;
  const KernelArgs& args_;
  const PatchTile& tile_;
  PatchLayout layout_;
};

/// A guess whether a tile may be the fastest. `tasks`: tiles of all slices.
bool is_patch_worth_timing(const ConvolutionShape& shape, const PatchTile& tile,
                           const PatchLayout& layout, int64_t tasks, int architecture) {
  constexpr int64_t kMostChannels = 256, kFewPixels = int64_t{64} * 64, kFewMaps = 32;
  constexpr int kFewWarps = 8;
  constexpr double kMostWaste = 1.35;
  const PatchWindows windows(shape.windows);
  const int64_t height = windows.y(kAxisY).constant(), width = windows.y(kAxisX).constant();
  const int64_t depth = windows.y(kAxisZ).constant();
  const int64_t channels = shape.channels.constant();
  const int64_t maps = shape.maps.constant(), groups = shape.groups.constant();
  const bool has_units = layout.slices_of_group == 0;
  if (!has_units && (shape.taps() == Expr(1) || channels > kMostChannels ||
                     shape.images.constant() * depth * height * width * groups < kFewPixels))
    return false;
  // Threads copy single channels. Images have tiles of their own; see kImageConvolution.
  if (!has_units && channels % kPlaceChannels != 0 &&
      (!layout.has_pairs || (architecture == kWarpGroupArchitecture && !windows.has_depth())))
    return false;
  // Neighbours along z share most of what they read, if windows reach that far.
  if ((tile.z > 1) != (depth > 1 && windows.window(kAxisZ) > 1)) return false;
  if (tile.is_line() && depth * height > 1) return false;
  // Most of a tile is in the image and has maps.
  const auto volume = [&](int64_t z, int64_t y, int64_t x) {
    return static_cast<double>(round_up(depth, z) * round_up(height, y) * round_up(width, x));
  };
  const double least = height == 1 ? volume(1, 1, 64) : volume(1, 8, 8);
  if (volume(tile.z, tile.y, tile.x) > kMostWaste * least) return false;
  const int64_t of_slices = has_units ? maps * groups : maps;
  if (of_slices <= tile.maps / 2) return false;
  // Few tiles leave multiprocessors idle, and small ones read more at their borders. The patches of
  // windows that lie apart need much memory.
  const bool is_small = tile.pixels() <= (tile.z > 1 ? 128 : 64);
  const bool lie_apart = windows.axis(kAxisY).stride > 1;
  if (is_small ? tasks > 4 * kFewBlocks && !lie_apart : tasks < kFewBlocks / 2) return false;
  if (!is_small && layout.blocks * tile.threads() < kFewWarps * kWarp) return false;
  // Narrow tiles copy a patch again for other maps.
  if (tile.maps <= kFewMaps && of_slices > kFewMaps &&
      !(lie_apart && (has_units || layout.has_pairs)))
    return false;
  // Warpgroups multiply faster. Their operands keep shared memory busy if a tile has few maps.
  return tile.is_warp_group || has_units || architecture != kWarpGroupArchitecture || is_small ||
         tile.maps <= kFewMaps || (tile.y < tile.x && !tile.is_line());
}

}  // namespace

std::vector<std::string> patch_names() {
  std::vector<std::string> names;
  for (const PatchTile& tile : kPatchTiles) names.push_back(tile.name());
  return names;
}

std::vector<NamedTactic> patch_tactics(const ConvolutionShape& shape,
                                       const ConvolutionParams& params, DataType type,
                                       int architecture, bool all) {
  std::vector<NamedTactic> result;
  for (int i = 0; i < static_cast<int>(std::size(kPatchTiles)); ++i) {
    const PatchTile& tile = kPatchTiles[i];
    if (!can_copy_patches(shape, params, type, tile, architecture)) continue;
    const PatchWindows windows(shape.windows);
    const PatchPlanner planner(
        shape, tile, architecture, shape.images.constant(),
        {windows.y(kAxisZ).constant(), windows.y(kAxisY).constant(), windows.y(kAxisX).constant()});
    const std::optional<PatchLayout> layout = planner.find();
    if (!layout) continue;
    if (all || is_patch_worth_timing(shape, tile, *layout, planner.tasks(*layout), architecture))
      result.push_back({kPatchConvolution + i, tile.name()});
  }
  return result;
}

GeneratedKernel generate_patch_convolution(KernelSource& source, const ConvolutionShape& shape,
                                           const ConvolutionParams& params,
                                           const KernelArgs& args) {
  return PatchWriter(source, shape, params, args).write();
}

}  // namespace opwright::gpu
