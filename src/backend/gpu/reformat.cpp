#include <algorithm>

#include "backend/candidates.h"
#include "backend/device.h"
#include "backend/gpu/config_writer.h"
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
constexpr int kSide = 32;  ///< lines and columns of a tile

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

/// The channels that a tensor of images has in memory, padding included.
Expr padded_channels(const FormatLayout& layout, const Expr& channels) {
  const Expr block = layout.block;
  return layout.block == 1 ? channels : ceil_div(channels, block) * block;
}

std::string type_of(const FormatLayout& layout) {
  return str("ImageFormat<", layout.block, ", ", layout.channels_last ? "true" : "false", ">");
}

/// Converts type and format together.
class FormatWriter {
 public:
  explicit FormatWriter(const KernelArgs& args)
      : source_("reformat", args),
        x_(source_.dims(0)),
        pixels_(numel(std::span(x_).subspan(2))),
        from_(layout_of(args.candidate->inputs[0].format)),
        to_(layout_of(args.candidate->outputs[0].format)) {
    // Tensors with padding have more elements than the product of their extents.
    if (from_.block > 1 || to_.block > 1) source_.widen();
    const DataType from = args.candidate->inputs[0].dtype, to = args.candidate->outputs[0].dtype;
    config_.type("From", storage_type(from)), config_.type("To", storage_type(to));
    config_.number("kThreads", kThreads), config_.number("kSide", kSide);
    config_.function(
        "To converted(From x)",
        str("const ", register_type(from), " x0 = load(x);\n", register_type(to), " y0;\n",
            conversion(from, to, args.inputs[0].scale), "return store<To>(y0);\n"));
  }

  GeneratedKernel write() {
    const bool is_transposed =
        from_.channels_last != to_.channels_last && from_.block == 1 && to_.block == 1;
    const int64_t channels = source_.typical(x_[1]), pixels = source_.typical(pixels_);
    return is_transposed && std::min(channels, pixels) >= kManyChannels ? tiles() : elements();
  }

 private:
  GeneratedKernel elements() {
    config_.type("FromFormat", type_of(from_)), config_.type("ToFormat", type_of(to_));
    const Expr from = padded_channels(from_, x_[1]), to = padded_channels(to_, x_[1]);
    const Expr count = x_[0] * pixels_ * to;
    return finish("reformat_elements", {count, x_[1], pixels_, from, to},
                  blocks_for(count, kThreads));
  }

  GeneratedKernel tiles() {
    const Expr lines = from_.channels_last ? pixels_ : x_[1];
    const Expr columns = from_.channels_last ? x_[1] : pixels_;
    const Expr down = ceil_div(lines, Expr(kSide)), across = ceil_div(columns, Expr(kSide));
    const Expr tiles = x_[0] * down * across;
    return finish("reformat_tiles", {tiles, down, across, lines, columns, x_[1] * pixels_}, tiles);
  }

  GeneratedKernel finish(std::string_view function, std::initializer_list<Expr> numbers,
                         const Expr& blocks) {
    source_.add_declarations(include("reformat.cuh") + config_.write());
    return source_.finish(str(function, "<Config>({in0, out0, ", source_.values(numbers), "});\n"),
                          blocks, kThreads);
  }

  KernelSource source_;
  const SymShape& x_;
  const Expr pixels_;
  const FormatLayout from_, to_;
  ConfigWriter config_;
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
