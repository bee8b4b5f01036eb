#include <algorithm>

#include "backend/candidates.h"
#include "backend/device.h"
#include "backend/gpu/copy.h"
#include "backend/gpu/elementwise.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/types.h"
#include "operators/movement.h"

namespace opwright::gpu {
namespace {

/// Channels from which on tiles through shared memory are more than half full.
constexpr int64_t kManyChannels = 16;
constexpr int kSide = 32;

std::vector<Candidate> reformat_candidates(const Operator&, const CandidateQuery& query) {
  const PortType from = query.inputs[0].type, to = query.outputs[0].type;
  const auto with_formats = [&](std::string name) {
    Candidate candidate = linear_candidate(query, std::move(name));
    candidate.inputs[0].format = from.format, candidate.outputs[0].format = to.format;
    return candidate;
  };
  if (from == to && from.format == TensorFormat::kLINEAR) return {with_formats("copy")};
  if (bits(from.dtype) < 8 || bits(to.dtype) < 8) return {};
  if (from.format != to.format) return {with_formats("channels moved")};
  if (layout_of(from.format).block > 1) return {with_formats("channels moved")};
  return elementwise_tactics(with_formats({}), query);
}

/// Statements for the conversions of base/half.h; INT8 conversions include the tensor's scale.
std::string conversion(DataType from, DataType to, float scale) {
  const bool quantizes = to == DataType::kINT8 && is_floating(from);
  const bool dequantizes = from == DataType::kINT8 && is_floating(to);
  if (scale > 0 && quantizes)
    return str("y0 = convert<signed char>(rintf(__fdiv_rn(x0, ", float_literal(scale), ")));\n");
  if (scale > 0 && dequantizes)
    return str("y0 = __fmul_rn(convert<float>(x0), ", float_literal(scale), ");\n");
  return str("y0 = convert<", register_type(to), ">(x0);\n");
}

/// The memory layout of a tensor of images.
struct ImageLayout {
  int64_t block = 1;
  bool is_last = false;
  Expr channels;  ///< padding included

  ImageLayout(TensorFormat format, const Expr& real_channels) {
    const FormatLayout layout = layout_of(format);
    block = layout.block, is_last = layout.channels_last;
    channels = block == 1 ? real_channels : ceil_div(real_channels, Expr(block)) * Expr(block);
  }
};

/// Converts type and format together.
class FormatWriter {
 public:
  explicit FormatWriter(const KernelArgs& args)
      : source_("reformat", args),
        x_(source_.dims(0)),
        pixels_(numel(std::span(x_).subspan(2))),
        from_(args.candidate->inputs[0].format, x_[1]),
        to_(args.candidate->outputs[0].format, x_[1]) {
    // Tensors with padding have more elements than the product of their extents.
    if (from_.block > 1 || to_.block > 1) source_.widen();
    const DataType from = args.candidate->inputs[0].dtype, to = args.candidate->outputs[0].dtype;
    source_.add_declarations(
        str("typedef ", storage_type(from), " From;\ntypedef ", storage_type(to),
            " To;\n__device__ inline To convert_element(From x) {\n", "const ", register_type(from),
            " x0 = load(x);\n", register_type(to), " y0;\n",
            conversion(from, to, args.inputs[0].scale), "return store<To>(y0);\n}\n"));
  }

  GeneratedKernel write() {
    const bool is_transposed = from_.is_last != to_.is_last && from_.block == 1 && to_.block == 1;
    const int64_t channels = source_.typical(x_[1]), pixels = source_.typical(pixels_);
    return is_transposed && std::min(channels, pixels) >= kManyChannels ? tiles() : elements();
  }

 private:
  /// Offset of channel `c` of pixel `p` of image `n`.
  std::string place(const ImageLayout& layout) {
    const std::string channels = source_.value(layout.channels), pixels = source_.value(pixels_);
    if (layout.is_last) return str("(n * ", pixels, " + p) * ", channels, " + c");
    if (layout.block == 1) return str("(n * ", channels, " + c) * ", pixels, " + p");
    return str("((n * (", channels, " / ", layout.block, ") + c / ", layout.block, ") * ", pixels,
               " + p) * ", layout.block, " + c % ", layout.block);
  }

  GeneratedKernel elements() {
    const Expr count = x_[0] * pixels_ * to_.channels;
    const std::string names[] = {"n", to_.is_last || to_.block > 1 ? "p" : "c",
                                 to_.is_last || to_.block > 1 ? "c" : "p"};
    const bool has_channels_last = names[2] == "c";
    const Expr extents[] = {x_[0], has_channels_last ? pixels_ : to_.channels,
                            has_channels_last ? to_.channels : pixels_};
    std::string text = str("for (Index at = first_index(); at < ", source_.value(count),
                           "; at += index_step()) {\n", source_.decompose("at", names, extents));
    const std::string read = str("convert_element(in0[", place(from_), "])");
    text += str("out0[", place(to_), "] = ",
                to_.block == 1 ? read : str("c < ", source_.value(x_[1]), " ? ", read, " : To{}"),
                ";\n}\n");
    return source_.finish(text, blocks_for(count, kThreads), kThreads);
  }

  /// A block reads a tile along the input's contiguous axis and writes it along the output's.
  GeneratedKernel tiles() {
    const Expr lines = from_.is_last ? pixels_ : x_[1], columns = from_.is_last ? x_[1] : pixels_;
    const std::string names[] = {"n", "lines", "columns"};
    const Expr extents[] = {x_[0], ceil_div(lines, Expr(kSide)), ceil_div(columns, Expr(kSide))};
    const Expr tiles = numel(extents);
    const std::string line_count = source_.value(lines), column_count = source_.value(columns);
    const std::string text =
        str("__shared__ To tile[", kSide, "][", kSide + 1,
            "];\nconst int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;\n",
            "for (Index number = blockIdx.x; number < ", source_.value(tiles),
            "; number += gridDim.x) {\n", source_.decompose("number", names, extents),
            "const Index line = lines * ", kSide, ", column = columns * ", kSide,
            ";\nconst Index image = n * ", source_.value(x_[1] * pixels_),
            ";\n#pragma unroll\nfor (int i = warp; i < ", kSide, "; i += ", kThreads / kWarp,
            ")\nif (line + i < ", line_count, " && column + lane < ", column_count,
            ") tile[i][lane] = convert_element(in0[image + (line + i) * ", column_count,
            " + column + lane]);\n__syncthreads();\n#pragma unroll\nfor (int i = warp; i < ", kSide,
            "; i += ", kThreads / kWarp, ")\nif (column + i < ", column_count, " && line + lane < ",
            line_count, ") out0[image + (column + i) * ", line_count,
            " + line + lane] = tile[lane][i];\n__syncthreads();\n}\n");
    return source_.finish(text, tiles, kThreads);
  }

  KernelSource source_;
  const SymShape& x_;
  const Expr pixels_;
  const ImageLayout from_, to_;
};

std::optional<GeneratedKernel> generate_reformat(const Operator&, const KernelArgs& args) {
  const PortType from = args.candidate->inputs[0], to = args.candidate->outputs[0];
  if (from == to && from.format == TensorFormat::kLINEAR) return std::nullopt;
  if (from.format != to.format || layout_of(from.format).block > 1)
    return FormatWriter(args).write();
  return generate_elementwise("reformat", args,
                              {{}, conversion(from.dtype, to.dtype, args.inputs[0].scale), {0}});
}

std::vector<std::string> reformat_tactics() {
  std::vector<std::string> names = elementwise_tactic_names();
  std::erase(names, "rows");  // neighbours of one input are one axis
  for (const std::string_view name : {"copy", "channels moved"}) names.emplace_back(name);
  return names;
}

const RegisteredKernels<Reformat> kReformatKernels({.candidates = reformat_candidates,
                                                    .generate = generate_reformat,
                                                    .make = make_copy_kernel,
                                                    .check = check_copy,
                                                    .tactics = reformat_tactics});

}  // namespace
}  // namespace opwright::gpu
