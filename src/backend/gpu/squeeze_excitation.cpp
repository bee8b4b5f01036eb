#include "operators/squeeze_excitation.h"

#include <algorithm>
#include <bit>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/pointwise_math.h"
#include "backend/gpu/ways.h"
#include "base/types.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

constexpr int kSqueezeThreads = 512;
/// Every number of blocks that an image's cluster may have.
constexpr int kImageBlocks[] = {1, 2, 4, 8, 16};
/// With fewer blocks in all, most multiprocessors are idle. With more, each block has little to do.
constexpr int64_t kFewImageBlocks = 64, kManyImageBlocks = 2 * kFewBlocks;
/// Blocks for which a multiprocessor has registers. With one, clusters do not fit all
/// multiprocessors, and some of an image's blocks run behind the others.
constexpr int kResidentImageBlocks = 2;
/// Clusters of a grid. Each may have several images.
constexpr int64_t kMostImageClusters = 1024;
/// The fewest neighbouring bytes of a pixel that a block reads: two sectors of the memory.
constexpr int64_t kLeastSliceBytes = 64;
/// Bytes of shared memory in which a block keeps its rows of the matrices, and of a block in all.
constexpr int64_t kMostKeptBytes = 64 << 10, kMostSqueezeBytes = 99 << 10;

/// Blocks that share an image.
struct ImageBlocks {
  int count = 1;
  std::string name() const {
    return count == 1 ? "a block per image" : str(count, " blocks per image");
  }
};

Ways<ImageBlocks> ways_of(int64_t images) {
  Ways<ImageBlocks> ways;
  for (const int count : kImageBlocks) {
    const bool are_enough =
        images * count >= kFewImageBlocks || count == std::ranges::max(kImageBlocks);
    ways.add({count}, are_enough && (images * count <= kManyImageBlocks || count == 1));
  }
  return ways;
}

/// How a cluster's blocks share an image, and a block's shared memory.
struct SqueezePlan {
  int64_t channels, hidden;
  int64_t slices, slice;  ///< slices of the channels, and channels of each
  int64_t number_bytes, kept_bytes;

  SqueezePlan(const PortDesc& x, const PortDesc& reduce, int blocks)
      : channels(reduce.max[1]), hidden(reduce.max[0]) {
    const int64_t of_access = 128 / bits(x.type.dtype);
    const bool is_last = x.type.format != TensorFormat::kLINEAR;
    const int64_t least = is_last ? kLeastSliceBytes * 8 / bits(x.type.dtype) : 1;
    const int64_t most = std::clamp<int64_t>(channels / least, 1, blocks);
    slices = std::bit_floor(static_cast<uint64_t>(most));
    slice = divide_up(channels, slices);
    if (is_last && channels % of_access == 0) slice = round_up(slice, of_access);
    const int64_t parts = blocks / slices, rows = divide_up(hidden, blocks);
    const int64_t thread_sums = std::max(is_last ? kSqueezeThreads * of_access : 0, rows);
    number_bytes = round_up(4 * (parts * channels + hidden + slice + thread_sums), 16);
    const int64_t size = bits(reduce.type.dtype) / 8;
    kept_bytes = round_up(rows * channels * size, 16) + round_up(slice * hidden * size, 16);
  }
  bool keeps_weights() const { return kept_bytes <= kMostKeptBytes; }
  int64_t bytes() const { return number_bytes + (keeps_weights() ? kept_bytes : 0); }
};

bool is_matrix(const PortDesc& port) {
  return port.min[0] == port.max[0] && port.min[1] == port.max[1] && port.max[0] > 0 &&
         port.max[1] > 0;
}

std::vector<Candidate> squeeze_candidates(const Operator& op, const CandidateQuery& query) {
  const PortDesc &x = query.inputs[0], &reduce = query.inputs[SqueezeExcitation::kReduce];
  const bool multiplies = static_cast<const SqueezeExcitation&>(op).params().multiplies;
  if (target_architecture(query) < kClusterArchitecture || !is_floating(x.type.dtype) ||
      is_quantized(x.type.dtype) || !is_matrix(reduce) ||
      !is_matrix(query.inputs[SqueezeExcitation::kExpand]))
    return {};
  std::vector<Candidate> types = {linear_candidate(query, {})}, result;
  add_lower_precisions(query, x, types);
  const Ways<ImageBlocks> ways = ways_of(x.opt[0]);
  for (const Candidate& type : types)
    for (const TensorFormat format : formats_of(query, x.opt.rank())) {
      int64_t tactic = 0;
      for (const ImageBlocks& blocks : ways.listed(query.all_tactics)) {
        Candidate candidate = type;
        candidate.inputs[0].format = format;
        if (multiplies)
          candidate.outputs[0].format = format;
        else
          candidate.outputs[0].dtype = candidate.inputs[0].dtype;
        candidate.tactic = tactic++;
        candidate.tactic_name = blocks.name();
        PortDesc image = x;
        image.type = candidate.inputs[0];
        if (SqueezePlan(image, reduce, blocks.count).bytes() <= kMostSqueezeBytes)
          result.push_back(std::move(candidate));
      }
    }
  return result;
}

/// The statements of a function of the sum `y`.
std::string statements_of(const DenseFunction& function) {
  std::string text = fused_activation(function.activation);
  if (!function.fused.present()) return text + "return y;\n";
  return text + fused_program(function.fused, DataType::kFLOAT) + "return z;\n";
}

std::optional<GeneratedKernel> generate_squeeze(const Operator& op, const KernelArgs& args) {
  using Op = SqueezeExcitation;
  const SqueezeExcitationParams& params = static_cast<const Op&>(op).params();
  const PortDesc &x = args.inputs[0], &reduce = args.inputs[Op::kReduce];
  const int blocks = ways_of(x.opt[0]).at(args.candidate->tactic).count;
  const SqueezePlan plan(x, reduce, blocks);
  KernelSource source("squeeze_excitation", args);
  const SymShape& dims = source.dims(0);
  source.check_equal(dims[1], Expr(plan.channels), "the matrices must fit the channels of x");
  const auto has = [&](int input) {
    return input < std::ssize(args.inputs) && args.inputs[input].present;
  };
  const auto bias_type = [&](int input) {
    return has(input) ? storage_type(args.inputs[input].type.dtype) : std::string_view("void");
  };
  const auto pointer = [&](int input) { return has(input) ? str("in", input) : "nullptr"; };
  const bool keeps_weights =
      plan.keeps_weights() && reduce.is_constant && args.inputs[Op::kExpand].is_constant;
  const bool is_last = x.type.format != TensorFormat::kLINEAR;
  const std::string_view element = storage_type(x.type.dtype);

  const Expr pixels = numel(std::span(dims).subspan(2));
  ConfigWriter config;
  config.type("Element", element), config.type("Weight", storage_type(reduce.type.dtype));
  config.type("HiddenBias", bias_type(Op::kReduceBias));
  config.type("GateBias", bias_type(Op::kExpandBias));
  config.number("kChannels", plan.channels), config.number("kHidden", plan.hidden);
  config.flag("kIsLast", is_last), config.flag("kMultiplies", params.multiplies);
  config.number("kThreads", kSqueezeThreads), config.number("kBlocks", blocks);
  config.number("kSlices", plan.slices), config.number("kSlice", plan.slice);
  config.flag("kKeepsWeights", keeps_weights);
  config.number("kPixels", pixels.is_constant() ? pixels.constant() : 0);
  config.function("float hidden(float y)", statements_of(params.hidden));
  config.function("float gate(float y)", statements_of(params.gate));
  source.add_declarations(pointwise_functions() + include("squeeze_excitation.cuh") +
                          config.write());

  std::string text =
      str("copy_squeeze_weights<Config>(in", Op::kReduce, ", in", Op::kExpand, ");\n",
          source.wait(), KernelSource::kBeginNext, "const SqueezeArguments<Config> all = {in0, in",
          Op::kReduce, ", in", Op::kExpand, ", ", pointer(Op::kReduceBias), ", ",
          pointer(Op::kExpandBias), ", out0, ", source.values({dims[0], pixels}), "};\n",
          "constexpr int kWidth = SqueezeLayout<Config>::kWidth;\n", "if (is_aligned<", element,
          ", kWidth>(in0)");
  if (params.multiplies) text += str(" && is_aligned<", element, ", kWidth>(out0)");
  if (!is_last) text += str(" && ", source.value(pixels), " % kWidth == 0");
  text +=
      ")\nsqueeze_and_excite<Config, kWidth>(all);\nelse\nsqueeze_and_excite<Config, 1>(all);\n";
  const Expr clusters = min(dims[0], Expr(kMostImageClusters));
  GeneratedKernel kernel =
      source.finish(text, clusters * Expr(blocks), kSqueezeThreads, kResidentImageBlocks, blocks);
  kernel.launch.shared_memory = plan.number_bytes + (keeps_weights ? plan.kept_bytes : 0);
  return kernel;
}

std::vector<std::string> squeeze_tactics() {
  std::vector<std::string> names;
  for (const int count : kImageBlocks) names.push_back(ImageBlocks{count}.name());
  return names;
}

const RegisteredKernels<SqueezeExcitation> kSqueezeExcitationKernels(
    {.candidates = squeeze_candidates,
     .generate = generate_squeeze,
     .make = nullptr,
     .tactics = squeeze_tactics});

}  // namespace
}  // namespace opwright::gpu
