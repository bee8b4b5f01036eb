#include <algorithm>

#include "backend/gpu/convolution.h"
#include "backend/gpu/pointwise_math.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Threads of a block about, and of them at most those that have neighbouring channels.
constexpr int kBlockThreads = 128;
constexpr int64_t kMostLanes = 16;
/// Taps of a row of a window, for all of which there is code, and of a window.
constexpr int64_t kMostInRow = 32, kMostTaps = 1024;
/// Places that the windows of a thread's pixels may reach over in a row, for all of which there is
/// code.
constexpr int64_t kMostReach = 256;
/// Bytes of a block's weights at most.
constexpr int64_t kWeightBytes = 46 << 10;
/// Behind the weights of each tap, in elements: neighbouring taps begin in different banks.
constexpr int kRowPadding = 4;
/// Pixels of a thread that are tried, and how many threads each has to leave.
constexpr int kPixels[] = {1, 2, 4, 8};
constexpr int64_t kFewThreads = 128 * 16;

int neighbours(DataType type) { return 128 / bits(type); }

/// Threads with neighbouring channels, of `packs` in all: eight read a line of memory, more are
/// taken where that leaves no more of them idle. 0 where the weights of one are too many.
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

/// Threads have kPack neighbouring channels of some pixels in a row. A block's weights, and its
/// bias behind them, lie in shared memory by taps; where they are constant that is done while the
/// kernel before ends.
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
    const auto value = [&](const Expr& expr) { return source_.value(expr); };
    const Expr channels(params_.groups), width = shape_.windows.y.back();
    const Expr of_row = ceil_div(width, Expr(pixels_));
    const Expr rows = shape_.images * floor_div(shape_.pixels(), max(width, Expr(1)));
    const Expr groups = rows * of_row;
    const Expr chunks = ceil_div(channels, Expr(lanes_ * pack_));
    const Expr tasks = chunks * ceil_div(groups, Expr(workers));
    const bool has_bias = shape_.bias >= 0;
    const bool is_constant =
        args_.inputs[1].is_constant && (!has_bias || args_.inputs[shape_.bias].is_constant);
    const std::string wait =
        str("if (task == blockIdx.x) {\n", source_.wait(), KernelSource::kBeginNext, "}\n");
    const std::string text = str(
        "alignas(16) __shared__ float weights[(kTaps + 1) * kLength];\n"
        "const Windows windows = ",
        shape_.windows.make(source_), ";\nconst Index width = ", value(width),
        ", of_row = ", value(of_row), ", groups = ", value(groups), ", chunks = ", value(chunks),
        ";\nconst int lane = (int)threadIdx.x % kLanes, worker = (int)threadIdx.x / kLanes;\n"
        "for (Index task = blockIdx.x; task < ",
        value(tasks),
        "; task += gridDim.x) {\n"
        "const Index first_channel = task % chunks * (kLanes * kPack);\n"
        "const int count = kGroups - first_channel < kLanes * kPack ? "
        "(int)(kGroups - first_channel) : kLanes * kPack;\n"
        "if (task != blockIdx.x) __syncthreads();\n",
        is_constant ? "" : wait,
        "#pragma unroll 4\nfor (int i = threadIdx.x * kPack; i < count * kTaps; i += ",
        threads * pack_,
        ") {\nconst auto pack = read_pack(in1 + first_channel * kTaps + i);\n"
        "#pragma unroll\nfor (int e = 0; e < kPack; ++e)\n"
        "weights[(i + e) % kTaps * kLength + (i + e) / kTaps] = load(pack.at[e]);\n}\n"
        "for (int i = threadIdx.x; i < count; i += ",
        threads, ")\nweights[kTaps * kLength + i] = ",
        has_bias ? str("load(in", shape_.bias, "[first_channel + i])") : "0.0f", ";\n",
        is_constant ? wait : "",
        "__syncthreads();\n"
        "const Index group = task / chunks * kWorkers + worker;\n"
        "if (group >= groups || lane * kPack >= count) continue;\n"
        "const Index channel = first_channel + lane * kPack;\n"
        "const Index row = group / of_row, first = group % of_row * kPixels;\n"
        "Index start[kAxes];\n"
        "const Index image = windows.begin(row * width + first, start);\n"
        "const X* const from = in0 + image * ",
        value(numel(shape_.windows.x) * channels),
        " + channel;\n"
        "float sums[kPixels][kPack];\n"
        "#pragma unroll\nfor (int p = 0; p < kPixels; ++p)\n#pragma unroll\n"
        "for (int i = 0; i < kPack; ++i) sums[p][i] = weights[kTaps * kLength + lane * kPack + "
        "i];\n",
        taps_ <= 49 ? "#pragma unroll\n" : "#pragma unroll 1\n",
        "for (int line = 0; line < kTaps / kRow; ++line) {\n"
        "const Index place = windows.find_row(start, line);\n"
        "if (place >= 0)\nadd_row(sums, from + place * kGroups, start[kAxes - 1], "
        "windows.x[kAxes - 1], kGroups, weights + line * kRow * kLength + lane * kPack);\n}\n",
        epilogue(), "}\n");
    return source_.finish(text, tasks, threads);
  }

 private:
  void declare(int workers) {
    const WindowAxis& inner = shape_.windows.axes.back();
    const auto constant = [](std::string_view name, int64_t number) {
      return str("constexpr int ", name, " = ", number, ";\n");
    };
    std::string text = shape_.windows.constants();
    text += include("windows.cuh");
    text += str("typedef ", storage_type(args_.inputs[0].type.dtype), " X;\ntypedef ",
                storage_type(args_.outputs[0].type.dtype), " Y;\n", constant("kPack", pack_),
                constant("kPixels", pixels_), constant("kLanes", lanes_),
                constant("kWorkers", workers), constant("kLength", lanes_ * pack_ + kRowPadding),
                constant("kTaps", taps_), constant("kRow", shape_.windows.window.back().constant()),
                constant("kStride", inner.stride), constant("kDilation", inner.dilation),
                "constexpr Index kGroups = ", params_.groups, ";\n",
                include("depthwise_convolution.cuh"));
    if (params_.activation.present() || params_.fused.present()) text += pointwise_functions();
    source_.add_declarations(text);
  }

  std::string epilogue() {
    const FusedProgram& program = params_.fused;
    std::string text =
        "#pragma unroll\nfor (int p = 0; p < kPixels; ++p) {\n"
        "if (first + p >= width) continue;\n"
        "const Index at = (row * width + first + p) * kGroups + channel;\n"
        "Pack<Y, kPack> result;\n";
    if (shape_.residual >= 0)
      text += str("const auto residual = read_pack(in", shape_.residual, " + at);\n");
    std::string elements;
    const int inputs = static_cast<int>(args_.inputs.size()) - program.inputs();
    for (int i = 0; i < program.inputs(); ++i) {
      const int input = inputs + i;
      std::string element = str("in", input, "[0]");
      switch (static_cast<FusedPlace>(program.places[i])) {
        case FusedPlace::kElement:
        case FusedPlace::kChannel: {
          const bool is_element = program.places[i] == static_cast<int64_t>(FusedPlace::kElement);
          text += str("const auto pack", i + 1, " = read_pack(in", input, " + ",
                      is_element ? "at" : "channel", ");\n");
          element = str("pack", i + 1, ".at[i]");
          break;
        }
        case FusedPlace::kRepeated:
          element = str("in", input, "[",
                        repeated_place(source_, args_, input, "at + i", Expr(params_.groups)), "]");
          break;
        case FusedPlace::kScalar:
        case FusedPlace::kProduct:  // of other operators
          break;
      }
      elements += str("const auto x", i + 1, " = load(", element, ");\n");
    }
    text +=
        "#pragma unroll\nfor (int i = 0; i < kPack; ++i) {\n"
        "float y = sums[p][i];\n";
    if (shape_.residual >= 0) text += "y += load(residual.at[i]);\n";
    text += fused_activation(params_.activation);
    if (program.present()) text += elements + fused_program(program, args_.outputs[0].type.dtype);
    return str(text, "result.at[i] = store<Y>(", program.present() ? "z" : "y",
               ");\n}\nwrite_pack(out0 + at, result);\n}\n");
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

std::vector<DepthwiseTactic> depthwise_tactics(const ConvolutionShape& shape, DataType type,
                                               bool all) {
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
  if (groups % pack != 0 || in_row > kMostInRow || inner.dilation > kMostReach ||
      lanes_of(groups / pack, taps, pack) == 0)
    return {};
  const int64_t width = windows.y.back().constant();
  const int64_t threads = shape.images.constant() * shape.pixels().constant() * (groups / pack);
  std::vector<DepthwiseTactic> result;
  for (int i = 0; i < static_cast<int>(std::size(kPixels)); ++i) {
    const int pixels = kPixels[i];
    const bool is_worth = pixels == 1 || (pixels <= width && threads >= pixels * kFewThreads);
    if ((all || is_worth) && inner.stride <= kMostReach &&
        (pixels - 1) * inner.stride + (in_row - 1) * inner.dilation < kMostReach)
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
