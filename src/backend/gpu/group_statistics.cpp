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

constexpr int kStatisticsThreads = 512;
/// Two blocks of a multiprocessor have as many accesses in flight as the memory needs.
constexpr int kResidentBlocks = 2;
constexpr int64_t kGridBlocks = kResidentBlocks * kFewBlocks;
/// The fewest accesses that a thread of a part has.
constexpr int64_t kLeastOfThread = 2;
/// One block merges all parts of a section's groups. Sections become smaller where these are more,
/// but pixels of a section stay whole sectors of the memory.
constexpr int64_t kFewMergedParts = 4096, kLeastBytesOfSection = 64;
/// Bits of a counter of a section's finished blocks.
constexpr int kStatisticsCounterBits = 16;
/// Sections have counters in a kernel's arguments, and groups have places in shared memory.
constexpr int64_t kMostSections = 64, kMostChannels = 1024;
/// sizeof(Moments).
constexpr int64_t kBytesOfMoments = 8;

bool is_last(const PortDesc& x) { return x.type.format != TensorFormat::kLINEAR; }

/// The images and channels, if a kernel can compute their statistics: they are fixed, and few.
bool can_compute(const PortDesc& x) {
  return x.min[0] == x.max[0] && x.min[1] == x.max[1] && x.max[0] >= 1 &&
         x.max[0] <= kMostSections && x.max[1] >= 1 && x.max[1] <= kMostChannels;
}

/// How blocks share the work.
struct StatisticsPlan {
  int64_t section;  ///< channels of a section
  int64_t width;    ///< elements of an access
  int64_t parts;    ///< of a section's pixels, or of a group's elements
};

/// Sections of `section` channels. Linear, a group lies in one piece, and a section is an image.
StatisticsPlan plan_of(const PortDesc& x, int64_t of_group, int64_t section) {
  StatisticsPlan plan = {section, 128 / bits(x.type.dtype), 1};
  while (is_last(x) && section % plan.width != 0) plan.width /= 2;
  const int64_t tasks = x.opt.numel() == 0 ? 1
                        : is_last(x)       ? x.opt[0] * x.opt[1] / section
                                           : x.opt[0] * x.opt[1] / of_group;
  const int64_t accesses = x.opt.numel() / tasks / plan.width;
  // Each lane of a block has the same slots of other pixels.
  const int64_t slots = is_last(x) ? section / plan.width : 1;
  const int64_t lanes = std::max<int64_t>(1, kStatisticsThreads / slots);
  const int64_t most = accesses / slots / (lanes * kLeastOfThread);
  plan.parts = std::clamp<int64_t>(kGridBlocks / tasks, 1, std::max<int64_t>(1, most));
  return plan;
}

StatisticsPlan plan_of(const PortDesc& x, int64_t of_group) {
  const int64_t channels = x.opt[1], groups = channels / of_group;
  StatisticsPlan plan = plan_of(x, of_group, channels);
  for (int64_t sections = 2;
       is_last(x) && sections <= groups && plan.parts * (plan.section / of_group) > kFewMergedParts;
       ++sections) {
    const int64_t section = channels / sections;
    if (x.opt[0] * sections > kMostSections ||
        section * bits(x.type.dtype) < 8 * kLeastBytesOfSection)
      break;
    if (groups % sections != 0) continue;
    const StatisticsPlan smaller = plan_of(x, of_group, section);
    if (smaller.width == plan.width) plan = smaller;
  }
  return plan;
}

GeneratedKernel write(const NormalizationParams& params, const KernelArgs& args) {
  KernelSource source("group_statistics", args);
  const SymShape& dims = source.dims(0);
  const DataType type = args.inputs[0].type.dtype;
  const int64_t images = dims[0].constant(), channels = dims[1].constant();
  const int64_t of_group = channels / params.groups_of(channels), groups = channels / of_group;
  const bool last = is_last(args.inputs[0]);
  const bool has_scale = args.inputs.size() > 1 && args.inputs[1].present;
  const auto [section, width, parts] = plan_of(args.inputs[0], of_group);
  const Expr pixels = numel(std::span(dims).subspan(2));
  const Expr extent = last ? pixels : pixels * Expr(of_group);
  // Linear, a part ends with a whole access.
  const int64_t step = last ? 1 : width;
  const Expr length = ceil_div(extent, Expr(parts * step)) * Expr(step);

  ConfigWriter config;
  config.type("Element", storage_type(type));
  config.type("Scale", has_scale ? storage_type(args.inputs[1].type.dtype) : "float");
  config.flag("kIsLast", last), config.flag("kHasScale", has_scale);
  config.number("kChannels", channels), config.number("kOfGroup", of_group);
  config.number("kSection", section), config.number("kWidth", width);
  config.number("kThreads", kStatisticsThreads), config.number("kParts", parts);
  config.number("kEpsilon", params.epsilon);
  const std::string counters =
      add_part_counters(source, images * (channels / section), kStatisticsCounterBits);
  source.add_scratch("Moments", images * groups * parts * kBytesOfMoments);
  source.add_declarations(include("group_statistics.cuh") + config.write());
  std::string condition = str("is_aligned<", storage_type(type), ", ", width, ">(in0)");
  if (!last) condition += str(" && ", source.value(extent), " % ", width, " == 0");
  const auto call = [&](int64_t of) {
    return str("find_statistics<", of, ", ", kStatisticsCounterBits, ">(all, counters);\n");
  };
  return source.finish(
      str("const StatisticsArguments<Config> all = {in0, ", has_scale ? "in1" : "nullptr",
          ", out0, out1, ", source.value(extent), ", ", source.value(length),
          ", scratch};\nunsigned long long* const counters[] = {", counters, "};\nif (", condition,
          ")\n", call(width), "else\n", call(1)),
      Expr(images * parts * (last ? channels / section : groups)), kStatisticsThreads,
      kResidentBlocks);
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
