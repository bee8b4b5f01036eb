#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/part_counters.h"
#include "base/types.h"
#include "operators/normalization.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

/// Blocks that keep all multiprocessors busy.
constexpr int64_t kBlocks = 4 * kFewBlocks;
/// Bits of a counter of an image's finished blocks.
constexpr int kCounterBits = 16;
constexpr int64_t kMostBlocksOfImage = (1 << kCounterBits) - 1;
/// The fewest pixels that a thread of a part sums up.
constexpr int64_t kLeastOfThread = 8;
/// Images have counters in a kernel's arguments, and channels have places in shared memory.
constexpr int64_t kMostImages = 64, kMostChannels = 1024;
/// sizeof(Moments).
constexpr int64_t kBytesOfMoments = 12;

bool is_last(const PortDesc& x) { return x.type.format != TensorFormat::kLINEAR; }

/// The images and channels, if a kernel can compute their statistics: they are fixed, and few.
bool can_compute(const PortDesc& x) {
  return x.min[0] == x.max[0] && x.min[1] == x.max[1] && x.max[0] >= 1 && x.max[0] <= kMostImages &&
         x.max[1] >= 1 && x.max[1] <= kMostChannels;
}

/// Elements of an access.
int64_t width_of(const PortDesc& x) {
  int64_t width = 128 / bits(x.type.dtype);
  while (is_last(x) && x.opt[1] % width != 0) width /= 2;
  return width;
}

/// The number of parts of an image's pixels.
int64_t count_parts(const PortDesc& x) {
  const int64_t width = width_of(x), tasks = x.opt[0] * (is_last(x) ? 1 : x.opt[1]);
  // Threads that share the pixels of a channel, in accesses.
  const int64_t lanes = is_last(x) ? std::max<int64_t>(1, kThreads * width / x.opt[1]) : kThreads;
  const int64_t pixels = x.opt.numel() / (x.opt[0] * x.opt[1]);
  const int64_t accesses = is_last(x) ? pixels : pixels / width;
  const int64_t most = std::min(accesses / (lanes * kLeastOfThread),
                                kMostBlocksOfImage / (is_last(x) ? 1 : x.opt[1]));
  return std::clamp<int64_t>((kBlocks + tasks - 1) / tasks, 1, std::max<int64_t>(1, most));
}

GeneratedKernel write(const NormalizationParams& params, const KernelArgs& args) {
  KernelSource source("group_statistics", args);
  const SymShape& dims = source.dims(0);
  const DataType type = args.inputs[0].type.dtype;
  const int64_t images = dims[0].constant(), channels = dims[1].constant();
  const bool last = is_last(args.inputs[0]);
  const bool has_scale = args.inputs.size() > 1 && args.inputs[1].present;
  const Expr pixels = numel(std::span(dims).subspan(2));
  const int64_t parts = count_parts(args.inputs[0]);
  const int64_t width = width_of(args.inputs[0]);
  // A part ends with a whole access.
  const Expr length = ceil_div(pixels, Expr(parts * width)) * Expr(width);

  ConfigWriter config;
  config.type("Element", storage_type(type));
  config.type("Scale", has_scale ? storage_type(args.inputs[1].type.dtype) : "float");
  config.flag("kIsLast", last), config.flag("kHasScale", has_scale);
  config.number("kChannels", channels);
  config.number("kOfGroup", channels / params.groups_of(channels));
  config.number("kThreads", kThreads), config.number("kParts", parts);
  config.number("kEpsilon", params.epsilon);
  const std::string counters = add_part_counters(source, images, kCounterBits);
  source.add_scratch("Moments", images * channels * parts * kBytesOfMoments);
  source.add_declarations(include("group_statistics.cuh") + config.write());
  std::string condition = str("is_aligned<", storage_type(type), ", ", width, ">(in0)");
  if (!last) condition += str(" && ", source.value(pixels), " % ", width, " == 0");
  const auto call = [&](int64_t of) {
    return str("find_statistics<", of, ", ", kCounterBits, ">(all, counters);\n");
  };
  return source.finish(
      str("const StatisticsArguments<Config> all = {in0, ", has_scale ? "in1" : "nullptr",
          ", out0, out1, ", source.value(pixels), ", ", source.value(length),
          ", scratch};\nunsigned long long* const counters[] = {", counters, "};\nif (", condition,
          ")\n", call(width), "else\n", call(1)),
      Expr(images * parts * (last ? 1 : channels)), kThreads);
}

std::vector<Candidate> statistics_candidates(const Operator&, const CandidateQuery& query) {
  const PortDesc& x = query.inputs[0];
  if (!is_floating(x.type.dtype) || is_quantized(x.type.dtype) || !can_compute(x)) return {};
  std::vector<Candidate> types = {linear_candidate(query, {})}, result;
  add_lower_precisions(query, x, types);
  for (const Candidate& type : types)
    for (const TensorFormat format : formats_of(query, x.opt.rank())) {
      Candidate& candidate = result.emplace_back(type);
      candidate.inputs[0].format = format;
    }
  return result;
}

std::optional<GeneratedKernel> generate_statistics(const Operator& op, const KernelArgs& args) {
  return write(static_cast<const GroupStatistics&>(op).params(), args);
}

const RegisteredKernels<GroupStatistics> kStatisticsKernels({.candidates = statistics_candidates,
                                                             .generate = generate_statistics,
                                                             .make = nullptr});

}  // namespace
}  // namespace opwright::gpu
