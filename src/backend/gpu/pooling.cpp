#include "operators/pooling.h"

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/pooling_writer.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

std::string name_of_window_lanes(int lanes) {
  return lanes == 1 ? std::string("a thread per window") : str(lanes, " threads per window");
}

/// Tactics by the number of threads per window.
Ways<int> lanes_per_window(const PoolingParams& params, const KernelArgs& args) {
  int64_t window = 1;
  for (const int64_t extent : params.window)
    if (__builtin_mul_overflow(window, extent, &window)) window = INT64_MAX;
  const int64_t outputs = args.outputs[0].opt.numel();
  // Channels-last, neighbours in memory belong to other windows, so lanes gain nothing.
  Ways<int> lanes;
  if (layout_of(args.inputs[0].type.format).channels_last) {
    lanes.add(1, true);
    return lanes;
  }
  const bool is_long = window >= 2048 && outputs < 4096;
  const bool is_for_warps = window >= 48 && outputs < (1 << 18);
  lanes.add(kThreads, is_long);
  if (is_for_warps) lanes.add(kWarp, true);
  lanes.add(1, !is_long);
  if (!is_for_warps) lanes.add(kWarp, window >= 32);
  return lanes;
}

std::vector<Candidate> pooling_candidates(const Operator& op, const CandidateQuery& query) {
  const PoolingParams& params = static_cast<const Pooling&>(op).params();
  const std::vector<TensorFormat> formats = formats_of(query, query.inputs[0].opt.rank());
  return moving_candidates(query, formats, [&](const KernelArgs& args) {
    return lanes_per_window(params, args).names(name_of_window_lanes);
  });
}

/// Neighbouring threads have neighbouring windows, or neighbouring elements of one window.
std::optional<GeneratedKernel> generate_pooling(const Operator& op, const KernelArgs& args) {
  const PoolingParams& params = static_cast<const Pooling&>(op).params();
  const int lanes = lanes_per_window(params, args).at(args.candidate->tactic);
  PoolingWriter writer("pooling", params, args, lanes);
  KernelSource& source = writer.source();
  source.check(Expr::select(writer.count(), min(numel(writer.x()), Expr(1)), Expr(1)),
               "there is nothing to pool in an input without elements");
  ConfigWriter& config = writer.config();
  config.flag("kTakesMost", params.type != PoolingType::kAVERAGE);
  config.flag("kTakesMean", params.type != PoolingType::kMAX);
  config.flag("kSkipsPadding", params.average_count_excludes_padding);
  config.number("kBlend", params.blend_factor);
  return writer.write("pool", "in0, out0");
}

std::vector<std::string> pooling_tactics() {
  std::vector<std::string> names;
  for (const int lanes : {1, kWarp, kThreads}) names.push_back(name_of_window_lanes(lanes));
  return names;
}

const RegisteredKernels<Pooling> kPoolingKernels({.candidates = pooling_candidates,
                                                  .generate = generate_pooling,
                                                  .make = nullptr,
                                                  .tactics = pooling_tactics});

}  // namespace
}  // namespace opwright::gpu
