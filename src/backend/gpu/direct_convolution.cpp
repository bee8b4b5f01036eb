#include "backend/gpu/config_writer.h"
#include "backend/gpu/convolution.h"
#include "backend/gpu/pointwise_math.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

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
    if (shape_.windows.reaches_far()) source_.widen();
    declare();
    const bool is_last = shape_.is_channels_last;
    const bool is_transposed = shape_.windows.is_transposed && pack_ == 1;
    const Expr all_maps = shape_.maps * shape_.groups;
    const Expr all_channels = shape_.channels * shape_.groups;
    const Expr packs = floor_div(all_maps, Expr(pack_)), pixels = shape_.pixels();
    const Expr count = shape_.images * pixels * packs, plane = numel(shape_.windows.x);
    const Expr taps = shape_.taps();
    const Expr channel = is_last ? Expr(1) : plane, pixel = is_last ? all_channels : Expr(1);
    Expr weight = is_last ? Expr(1) : taps, tap = is_last ? shape_.channels : Expr(1);
    if (is_transposed) weight = shape_.maps * taps, tap = is_last ? shape_.maps : Expr(1);
    return source_.finish(
        str("convolve<Config>({in0, in1, out0, ",
            source_.values({count, packs, pixels, shape_.channels, shape_.maps, taps,
                            all_channels * plane, channel, pixel, weight, tap}),
            ", ", shape_.windows.make(source_), "}, [&](Index place, Index map, Config::Sum y) {\n",
            result(all_maps), "});\n"),
        blocks_for(count, kThreads), kThreads);
  }

 private:
  void declare() {
    const DataType x = args_.inputs[0].type.dtype;
    const DataType sums = is_floating(x) ? x : DataType::kINT32;
    ConfigWriter config;
    config.type("X", storage_type(x));
    config.type("Weight", storage_type(args_.inputs[1].type.dtype));
    config.type("Y", storage_type(args_.outputs[0].type.dtype));
    config.type("Sum", register_type(sums));
    config.number("kZeroPoint", params_.zero_point), config.number("kPack", pack_);
    config.flag("kIsChannelsLast", shape_.is_channels_last);
    shape_.windows.configure(config);
    source_.add_declarations(include("direct_convolution.cuh") + config.write());
    if (params_.activation.present() || params_.fused.present())
      source_.add_declarations(pointwise_functions());
  }

  /// Statements that return the element at `place`, which belongs to `map`, for its sum `y`.
  std::string result(const Expr& all_maps) {
    const FusedProgram& program = params_.fused;
    std::string text = "(void)place, (void)map;\n";
    if (shape_.bias >= 0) text += str("y += load(in", shape_.bias, "[map]);\n");
    if (shape_.residual >= 0) text += str("y += load(in", shape_.residual, "[place]);\n");
    text += fused_activation(params_.activation);
    const int inputs = first_program_input(args_, program);
    for (int i = 0; i < program.inputs(); ++i) {
      const int input = inputs + i;
      std::string element = "0";
      if (const auto at = static_cast<FusedPlace>(program.places[i]); at == FusedPlace::kElement)
        element = "place";
      else if (at == FusedPlace::kRepeated)
        element = repeated_place(source_, args_, input, "place", all_maps);
      else if (at == FusedPlace::kChannel)
        element = "map";
      text += str("const auto x", i + 1, " = load(in", input, "[", element, "]);\n");
    }
    if (program.present()) text += fused_program(program, args_.outputs[0].type.dtype);
    return text + str("return ", program.present() ? "z" : "y", ";\n");
  }

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
