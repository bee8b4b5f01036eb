#include <algorithm>

#include "backend/gpu/config_writer.h"
#include "backend/gpu/convolution.h"
#include "backend/gpu/pointwise_math.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// The approximate number of threads in a block, and the most of them that have neighbouring
/// channels.
constexpr int kBlockThreads = 128;
constexpr int64_t kMostLanes = 16;
/// The most taps of a window's row, and the most taps of a window. Each tap of a row has code of
/// its own.
constexpr int64_t kMostInRow = 32, kMostTaps = 1024;
/// The longest steps from a pixel to the next and from a tap to the next: positions are ints.
constexpr int64_t kMostStep = int64_t{1} << 20;
/// The most bytes of a block's weights.
constexpr int64_t kWeightBytes = 46 << 10;
/// Padding behind the weights of each tap, in elements: neighbouring taps begin in different banks.
constexpr int kRowPadding = 4;
/// Numbers of pixels per thread that are timed, and the fewest threads that each must leave.
constexpr int kPixels[] = {1, 2, 4, 8};
constexpr int64_t kFewThreads = int64_t{128} * 16;
/// Blocks that keep any GPU busy, and the most tasks of a block where there are more of these.
constexpr int64_t kManyBlocks = 2048, kTasksOfBlock = 8;

int neighbours(DataType type) { return 128 / bits(type); }

/// The number of threads with neighbouring channels, for `packs` packs of channels. Eight threads
/// read a cache line. More are taken only where they leave no more threads idle. 0 where the
/// weights of one thread are too many.
int lanes_of(int64_t packs, int64_t taps, int pack) {
  constexpr int64_t kLine = 8;
  int64_t best = 0, least = 0;
  for (int64_t lanes = 1; lanes <= std::min(kMostLanes, packs); ++lanes) {
    if ((taps + 1) * (lanes * pack + kRowPadding) * int64_t{sizeof(float)} > kWeightBytes) break;
    const int64_t used = (packs + lanes - 1) / lanes * lanes;
    if (lanes <= kLine || used <= least) best = lanes, least = used;
  }
  return static_cast<int>(best);
}

class DepthwiseWriter {
 public:
  DepthwiseWriter(KernelSource& source, const ConvolutionShape& shape,
                  const ConvolutionParams& params, const KernelArgs& args)
      : source_(source),
        shape_(shape),
        params_(params),
        args_(args),
        pack_(neighbours(args.inputs[0].type.dtype)),
        pixels_(kPixels[args.candidate->tactic - kDepthwiseConvolution]),
        taps_(shape.taps().constant()),
        lanes_(lanes_of(params.groups / pack_, taps_, pack_)) {}

  GeneratedKernel write() {
    if (shape_.windows.reaches_far()) source_.widen();
    const int workers = std::max(1, kBlockThreads / lanes_), threads = workers * lanes_;
    declare(workers);
    const Expr channels(params_.groups), width = shape_.windows.y.back();
    const Expr of_row = ceil_div(width, Expr(pixels_));
    const Expr rows = shape_.images * floor_div(shape_.pixels(), max(width, Expr(1)));
    const Expr groups = rows * of_row;
    const Expr chunks = ceil_div(channels, Expr(int64_t{lanes_} * pack_));
    const Expr tasks = chunks * ceil_div(groups, Expr(workers));
    std::string text = str("const DepthwiseArguments<Config> all{", shape_.windows.make(source_));
    for (const Expr& number :
         {numel(shape_.windows.x) * channels, width, of_row, groups, chunks, tasks})
      text += str(", (Index)", source_.value(number));
    const std::string bias = shape_.bias >= 0 ? str("in", shape_.bias) : std::string("nullptr");
    text += str("};\nconst DepthwiseProgram program{[&] {\n",
                "return DepthwiseOperands<Config>{in0, in1, ", bias, "};\n}, [&] {\n",
                source_.wait(), KernelSource::kBeginNext, "},\n", results(),
                "};\nconvolve_depthwise(all, program, out0);\n");
    // Where a GPU stays full, a block keeps its channels for several tasks.
    const Expr least = ceil_div(Expr(kManyBlocks), chunks) * chunks;
    const Expr several = ceil_div(ceil_div(tasks, chunks), Expr(kTasksOfBlock)) * chunks;
    return source_.finish(text, min(tasks, max(least, several)), threads);
  }

 private:
  void declare(int workers) {
    const WindowAxis& inner = shape_.windows.axes.back();
    const bool has_bias = shape_.bias >= 0;
    ConfigWriter config;
    config.type("Input", storage_type(args_.inputs[0].type.dtype));
    config.type("Weight", storage_type(args_.inputs[1].type.dtype));
    config.type("Bias", storage_type(args_.inputs[has_bias ? shape_.bias : 1].type.dtype));
    config.type("Output", storage_type(args_.outputs[0].type.dtype));
    config.number("kPack", pack_), config.number("kPixels", pixels_);
    config.number("kLanes", lanes_), config.number("kWorkers", workers);
    config.number("kLength", lanes_ * pack_ + kRowPadding), config.number("kTaps", taps_);
    config.number("kRow", shape_.windows.window.back().constant());
    config.number("kStride", inner.stride), config.number("kDilation", inner.dilation);
    shape_.windows.configure(config);
    config.value("Index", "kChannels", params_.groups);
    config.flag("kHasBias", has_bias);
    config.flag("kIsConstant", args_.inputs[1].is_constant &&
                                   (!has_bias || args_.inputs[shape_.bias].is_constant));
    std::string text = include("depthwise_convolution.cuh") + config.write();
    if (params_.activation.present() || params_.fused.present()) text += pointwise_functions();
    source_.add_declarations(text);
  }

  /// DepthwiseProgram::read and make.
  std::string results() {
    const FusedProgram& program = params_.fused;
    ReturnedMembers inputs;
    // Reads an input's neighbours from `place` on. Returns the code of the i-th of them.
    const auto read = [&](const std::string& name, int input, std::string_view place) {
      inputs.add(str("Pack<", storage_type(args_.inputs[input].type.dtype), ", ", pack_, ">"), name,
                 str("read_pack<", pack_, ">(in", input, " + ", place, ")"));
      return str("inputs.", name, ".at[i]");
    };
    std::string make;
    if (shape_.residual >= 0)
      make += str("y += load(", read("residual", shape_.residual, "at"), ");\n");
    make += fused_activation(params_.activation);
    for (int i = 0; i < program.inputs(); ++i) {
      const int input = first_program_input(args_, program) + i;
      const std::string name = str("x", i + 1);
      std::string element = str("in", input, "[0]");
      if (const auto of = static_cast<FusedPlace>(program.places[i]); of == FusedPlace::kElement)
        element = read(name, input, "at");
      else if (of == FusedPlace::kChannel)
        element = read(name, input, "channel");
      else if (of == FusedPlace::kRepeated)
        element = str("in", input, "[",
                      repeated_place(source_, args_, input, "at + i", Expr(params_.groups)), "]");
      make += str("const auto ", name, " = load(", element, ");\n");
    }
    if (program.present()) make += fused_program(program, args_.outputs[0].type.dtype);
    return str("[&](Index at, Index channel) {\n(void)at, (void)channel;\n", inputs.write(),
               "}, [&](const auto& inputs, Index at, int i, float y) {\n(void)inputs, (void)at;\n",
               make, "return ", program.present() ? "z" : "y", ";\n}");
  }

  KernelSource& source_;
  const ConvolutionShape& shape_;
  const ConvolutionParams& params_;
  const KernelArgs& args_;
  const int pack_, pixels_;
  const int64_t taps_;
  const int lanes_;
};

}  // namespace

namespace {

std::string depthwise_name(int pixels, int pack) {
  return str("depthwise, ", pixels, pixels == 1 ? " pixel" : " pixels", " of ", pack,
             " channels a thread");
}

}  // namespace

std::vector<std::string> depthwise_names() {
  std::vector<std::string> names;
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kFP8})
    for (const int pixels : kPixels) names.push_back(depthwise_name(pixels, neighbours(type)));
  return names;
}

std::vector<NamedTactic> depthwise_tactics(const ConvolutionShape& shape, DataType type, bool all) {
  const Windows& windows = shape.windows;
  if (!is_floating(type) || windows.is_transposed || shape.channels != Expr(1) ||
      shape.maps != Expr(1) || !shape.groups.is_constant())
    return {};
  const int pack = neighbours(type);
  const int64_t groups = shape.groups.constant();
  int64_t taps = 1;
  for (const Expr& extent : windows.window) {
    if (!extent.is_constant() || extent.constant() < 1 || extent.constant() > kMostTaps) return {};
    taps *= extent.constant();
    if (taps > kMostTaps) return {};
  }
  const WindowAxis& inner = windows.axes.back();
  const int64_t in_row = windows.window.back().constant();
  if (groups % pack != 0 || in_row > kMostInRow || inner.dilation > kMostStep ||
      inner.stride > kMostStep || lanes_of(groups / pack, taps, pack) == 0)
    return {};
  const int64_t width = windows.y.back().constant();
  const int64_t threads = shape.images.constant() * shape.pixels().constant() * (groups / pack);
  std::vector<NamedTactic> result;
  for (int i = 0; i < static_cast<int>(std::size(kPixels)); ++i) {
    const int pixels = kPixels[i];
    const bool is_worth = pixels == 1 || (pixels <= width && threads >= pixels * kFewThreads);
    if (all || is_worth)
      result.push_back({kDepthwiseConvolution + i, depthwise_name(pixels, pack)});
  }
  return result;
}

GeneratedKernel generate_depthwise_convolution(KernelSource& source, const ConvolutionShape& shape,
                                               const ConvolutionParams& params,
                                               const KernelArgs& args) {
  return DepthwiseWriter(source, shape, params, args).write();
}

}  // namespace opwright::gpu
