#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/types.h"
#include "operators/reduce.h"

namespace opwright::gpu {
namespace {

/// Whether a block for each line is worth trying. Its threads read neighbours only where the axis
/// is the last one.
bool has_blocks(const CumulativeParams& params, const KernelArgs& args) {
  const PortDesc& x = args.inputs[0];
  if (params.product) return false;
  for (int i = static_cast<int>(params.axis) + 1; i < x.max.rank(); ++i)
    if (x.min[i] != 1 || x.max[i] != 1) return false;
  return true;
}

constexpr std::string_view kLines = "a thread per line", kBlocks = "a block per line";

Ways<std::string> ways(const CumulativeParams& params, const KernelArgs& args) {
  Ways<std::string> names;
  names.add(std::string(kLines), true);
  if (has_blocks(params, args)) names.add(std::string(kBlocks), true);
  return names;
}

std::vector<Candidate> cumulative_candidates(const Operator& op, const CandidateQuery& query) {
  return moving_candidates(query, [&](const KernelArgs& args) {
    const DataType type = args.inputs[0].type.dtype;
    if (!is_floating(type) && type != DataType::kINT32 && type != DataType::kINT64)
      return Ways<std::string>();
    return ways(static_cast<const Cumulative&>(op).params(), args);
  });
}

std::optional<GeneratedKernel> generate_cumulative(const Operator& op, const KernelArgs& args) {
  const CumulativeParams& params = static_cast<const Cumulative&>(op).params();
  KernelSource source("cumulative", args);
  const SymShape& dims = source.dims(0);
  const auto axis = static_cast<size_t>(params.axis);
  const Expr inner = numel(std::span(dims).subspan(axis + 1));
  const Expr lines = numel(std::span(dims).first(axis)) * inner;
  const DataType type = args.outputs[0].type.dtype;
  ConfigWriter config;
  config.type("Element", storage_type(type)), config.type("Value", register_type(type));
  config.flag("kIsProduct", params.product);
  config.flag("kIsExclusive", params.exclusive), config.flag("kIsReversed", params.reverse);
  config.number("kThreads", kThreads);
  source.add_declarations(include("cumulative.cuh") + config.write());
  const bool is_by_blocks = ways(params, args).at(args.candidate->tactic) == kBlocks;
  return source.finish(
      str(is_by_blocks ? "sum_up_lines" : "cumulate_lines", "<Config>({in0, out0, ",
          source.values({lines, dims[axis], inner}), "});\n"),
      is_by_blocks ? lines : blocks_for(lines, kThreads), kThreads);
}

const RegisteredKernels<Cumulative> kCumulativeKernels(
    {.candidates = cumulative_candidates,
     .generate = generate_cumulative,
     .make = nullptr,
     .tactics = [] {
       return std::vector<std::string>{std::string(kLines), std::string(kBlocks)};
     }});

}  // namespace
}  // namespace opwright::gpu
