#include <algorithm>
#include <bit>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/reduce.h"

namespace opwright::gpu {
namespace {

constexpr int kMaxThreads = 1024;
/// The most elements that a thread keeps in registers.
constexpr int64_t kMaxKept = 32;
/// The longest row that a single warp takes.
constexpr int64_t kWarpRow = kWarp * kMaxKept;

/// With fewer rows, a small block for each row leaves most of a GPU idle.
constexpr int64_t kFewSoftmaxRows = 256;

/// Tactics by the number of threads per row.
Ways<int> lanes_per_row(const SoftmaxParams& params, const KernelArgs& args) {
  const Shape &max = args.inputs[0].max, &opt = args.inputs[0].opt;
  const int axis = std::countr_zero(static_cast<uint64_t>(params.axes));
  for (int i = axis + 1; i < max.rank(); ++i)
    if (args.inputs[0].min[i] != 1 || max[i] != 1) return Ways<int>({1});
  const bool is_short = opt[axis] <= kWarpRow;
  const bool are_few = opt.numel() < kFewSoftmaxRows * opt[axis];
  Ways<int> lanes;
  lanes.add(kWarp, is_short);
  lanes.add(are_few ? kMaxThreads : kThreads, !is_short);
  lanes.add(are_few ? kThreads : kMaxThreads, !is_short);
  return lanes;
}

/// A warp or a block computes each row of the axis, which is read once where it fits the registers.
/// Where the axis is not the last one, a thread computes each row, so that neighbouring threads
/// read neighbouring elements.
GeneratedKernel write(const SoftmaxParams& params, const KernelArgs& args) {
  KernelSource source("softmax", args);
  const SymShape& dims = source.dims(0);
  const int axis = std::countr_zero(static_cast<uint64_t>(params.axes));
  const Shape& max = args.inputs[0].max;
  const Expr outer = numel(std::span(dims).first(axis)), extent = dims[axis];
  const Expr inner = numel(std::span(dims).subspan(axis + 1)), rows = outer * inner;
  const int lanes = lanes_per_row(params, args).at(args.candidate->tactic);
  const int threads = std::max(kThreads, lanes);
  const int64_t kept = std::max<int64_t>(1, (max[axis] + lanes - 1) / lanes);
  ConfigWriter config;
  config.type("Element", storage_type(args.outputs[0].type.dtype));
  config.number("kThreads", threads), config.number("kLanes", lanes);
  config.number("kKept", kept <= kMaxKept ? kept : 0), config.flag("kIsLogarithm", params.log);
  source.add_declarations(include("softmax.cuh") + config.write());
  return source.finish(
      str("const SoftmaxArguments<Config> all = {in0, out0, ", source.value(rows), ", ",
          source.value(extent), ", ", source.value(inner), "};\nsoftmax_rows(all);\n"),
      blocks_for(rows, threads / lanes), threads);
}

std::string name_of_lanes(int lanes) {
  return lanes == 1 ? std::string("a thread per row") : str(lanes, " threads per row");
}

std::vector<Candidate> softmax_candidates(const Operator& op, const CandidateQuery& query) {
  return moving_candidates(query, [&](const KernelArgs& args) {
    if (!is_floating(args.inputs[0].type.dtype)) return Ways<std::string>();
    return lanes_per_row(static_cast<const Softmax&>(op).params(), args).names(name_of_lanes);
  });
}

std::optional<GeneratedKernel> generate_softmax(const Operator& op, const KernelArgs& args) {
  return write(static_cast<const Softmax&>(op).params(), args);
}

std::vector<std::string> softmax_tactics() {
  std::vector<std::string> names;
  for (const int lanes : {1, kWarp, kThreads, kMaxThreads}) names.push_back(name_of_lanes(lanes));
  return names;
}

const RegisteredKernels<Softmax> kSoftmaxKernels({.candidates = softmax_candidates,
                                                  .generate = generate_softmax,
                                                  .make = nullptr,
                                                  .tactics = softmax_tactics});

}  // namespace
}  // namespace opwright::gpu
