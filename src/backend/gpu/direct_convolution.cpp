#include "backend/gpu/convolution.h"
#include "backend/gpu/pointwise_math.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Writes a loop over the elements of the output, or over packs of its neighbouring channels.
/// Inside is a loop over the taps of the window.
class DirectConvolutionWriter {
 public:
  DirectConvolutionWriter(KernelSource& source, const ConvolutionShape& shape,
                          const ConvolutionParams& params, const KernelArgs& args)
      : source_(source), shape_(shape), params_(params), args_(args) {
    const int neighbours = 128 / bits(args.inputs[0].type.dtype);
    const bool is_depthwise = shape.channels == Expr(1) && shape.maps == Expr(1);
    if (shape.is_channels_last && is_depthwise && params.groups % neighbours == 0)
      pack_ = neighbours;
  }

  GeneratedKernel write() {
    const bool is_transposed = shape_.windows.is_transposed;
    if (shape_.windows.reaches_far()) source_.widen();
    const DataType x = args_.inputs[0].type.dtype, y = args_.outputs[0].type.dtype;
    std::string declarations = shape_.windows.constants();
    declarations += include("windows.cuh");
    declarations +=
        str("typedef ", storage_type(x), " X;\ntypedef ", storage_type(y), " Y;\ntypedef ",
            register_type(sums_of(x)), " Sum;\nconstexpr int kPack = ", pack_, ";\n");
    declarations += include("direct_convolution.cuh");
    const FusedProgram& program = params_.fused;
    if (params_.activation.present() || program.present()) declarations += pointwise_functions();
    source_.add_declarations(declarations);

    const Expr all_maps = shape_.maps * shape_.groups,
               all_channels = shape_.channels * shape_.groups;
    const Expr packs = floor_div(all_maps, Expr(pack_)), pixels = shape_.pixels();
    const Expr count = shape_.images * pixels * packs, plane = numel(shape_.windows.x);
    const auto value = [&](const Expr& expr) { return source_.value(expr); };
    const bool is_last = shape_.is_channels_last;
    const std::string last[] = {"number", "map"}, linear[] = {"image", "map", "pixel"};
    const Expr last_extents[] = {shape_.images * pixels, packs};
    const Expr linear_extents[] = {shape_.images, all_maps, pixels};
    std::string text = str("const Windows windows = ", shape_.windows.make(source_),
                           ";\nfor (Index at = first_index(); at < ", value(count),
                           "; at += index_step()) {\nIndex start[kAxes];\n");
    if (is_last)
      text += source_.decompose("at", last, last_extents) +
              "const Index image = windows.begin(number, start);\n";
    else
      text += source_.decompose("at", linear, linear_extents) + "windows.begin(pixel, start);\n";
    // The first channel of the group in the image, and the distance of neighbouring channels.
    const std::string channels = value(shape_.channels), maps = value(shape_.maps);
    const std::string group = pack_ > 1 ? str("map * ", pack_) : str("map / ", maps);
    const std::string pixel = is_last ? value(all_channels) : "1";
    const std::string channel = is_last ? "1" : value(plane), taps = value(shape_.taps());
    text += str("const Index group = ", group, ";\nconst X* const from = in0 + image * ",
                value(all_channels * plane), " + group * ", channels, " * ", channel, ";\n");
    // Element [map, c, tap] of the kernel tensor. The first two axes are exchanged in a transposed
    // convolution.
    std::string first = str("map * ", pack_, " * ", channels, " * ", taps), c = taps, tap = "1";
    if (is_last) c = "1", tap = channels;
    if (is_transposed && pack_ == 1) {
      first = str("group * ", channels, " * ", maps, " * ", taps, " + map % ", maps, " * ",
                  is_last ? "1" : taps);
      c = str(maps, " * ", taps), tap = is_last ? maps : "1";
    }
    text += str("const auto* const kernel = in1 + ", first, ";\nSum sums[kPack] = {};\n",
                "for (Index tap = 0; tap < ", taps, "; ++tap) {\n",
                "const Index place = windows.find(start, tap);\nif (place < 0) continue;\n",
                "for (Index c = 0; c < ", channels, "; ++c) {\n",
                "const Pack<X, kPack> x = read_pack(from + place * ", pixel, " + c * ", channel,
                ", ", pack_ > 1 ? "is_aligned<X, kPack>(from)" : "true", ");\n",
                "#pragma unroll\nfor (int i = 0; i < kPack; ++i)\nsums[i] += ");
    const std::string weight = str("load(kernel[c * ", c, " + tap * ", tap,
                                   pack_ > 1 ? str(" + i * ", taps) : std::string(), "])");
    // Sums of integers wrap around.
    text += is_floating(x) ? str("load(x.at[i]) * ", weight)
                           : str("(Sum)((unsigned)((Sum)load(x.at[i]) - (Sum)", params_.zero_point,
                                 ") * (unsigned)(Sum)", weight, ")");
    text += ";\n}\n}\n#pragma unroll\nfor (int i = 0; i < kPack; ++i) {\nSum y = sums[i];\n";
    const std::string place = pack_ > 1 ? str("at * ", pack_, " + i") : "at";
    const std::string of = pack_ > 1 ? str("map * ", pack_, " + i") : "map";
    if (shape_.bias >= 0) text += str("y += load(in", shape_.bias, "[", of, "]);\n");
    if (shape_.residual >= 0) text += str("y += load(in", shape_.residual, "[", place, "]);\n");
    text += fused_activation(params_.activation);
    const int inputs = first_program_input(args_, program);
    for (int i = 0; i < program.inputs(); ++i) {
      const int input = inputs + i;
      std::string element = "0";
      if (const auto at = static_cast<FusedPlace>(program.places[i]); at == FusedPlace::kElement)
        element = place;
      else if (at == FusedPlace::kRepeated)
        element = repeated_place(source_, args_, input, place, all_maps);
      else if (at == FusedPlace::kChannel)
        element = of;
      text += str("const auto x", i + 1, " = load(in", input, "[", element, "]);\n");
    }
    if (program.present()) text += fused_program(program, y);
    text += str("out0[", place, "] = store<Y>(", program.present() ? "z" : "y", ");\n}\n}\n");
    return source_.finish(text, blocks_for(count, kThreads), kThreads);
  }

 private:
  static DataType sums_of(DataType x) { return is_floating(x) ? x : DataType::kINT32; }

  KernelSource& source_;
  const ConvolutionShape& shape_;
  const ConvolutionParams& params_;
  const KernelArgs& args_;
  int pack_ = 1;
};

}  // namespace

GeneratedKernel generate_direct_convolution(KernelSource& source, const ConvolutionShape& shape,
                                            const ConvolutionParams& params,
                                            const KernelArgs& args) {
  return DirectConvolutionWriter(source, shape, params, args).write();
}

}  // namespace opwright::gpu
