#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/normalization.h"

namespace opwright::gpu {
namespace {

constexpr int64_t kKeptWindow = 17;  ///< channels of a window whose squares fit the registers
constexpr int64_t kLrnChannels = 8;  ///< channels per thread, which loads the channels between them
                                     ///< once
constexpr int64_t kMostNeighbours = 1 << 30;  ///< no tensor has more channels on a side of another

std::vector<Candidate> lrn_candidates(const Operator&, const CandidateQuery& query) {
  return moving_candidates(
      query, formats_of(query, query.inputs[0].opt.rank()),
      [](const KernelArgs&) { return std::vector<std::string>{"squares in registers"}; });
}

std::string_view name_of_power(float beta) {
  return beta == 0.5f    ? "LrnPower::kHalf"
         : beta == 0.75f ? "LrnPower::kThreeQuarters"
         : beta == 1.0f  ? "LrnPower::kOne"
                         : "LrnPower::kAny";
}

std::optional<GeneratedKernel> generate_lrn(const Operator& op, const KernelArgs& args) {
  const LrnParams& params = static_cast<const Lrn&>(op).params();
  KernelSource source("lrn", args);
  const SymShape& x = source.dims(0);
  const Expr pixels = numel(std::span(x).subspan(2));
  const bool is_kept = params.window <= kKeptWindow;
  const int64_t run = is_kept ? kLrnChannels : 1;
  ConfigWriter config;
  config.type("Element", storage_type(args.outputs[0].type.dtype));
  config.flag("kIsChannelsLast", layout_of(args.inputs[0].type.format).channels_last);
  config.value("LrnPower", "kPower", name_of_power(params.beta));
  config.number("kWindow", is_kept ? params.window : 0);
  config.number("kRun", run);
  source.add_declarations(include("lrn.cuh") + config.write());
  const Expr runs = ceil_div(x[1], Expr(run)), tasks = x[0] * runs * pixels;
  // ONNX's definition: the greater part of an even window lies behind the channel.
  const int64_t before = std::min((params.window - 1) / 2, kMostNeighbours);
  const int64_t behind = std::min(params.window / 2, kMostNeighbours);
  return source.finish(
      str("normalize_channels<Config>({in0, out0, ",
          source.values({tasks, runs, x[1], pixels, x[1] * pixels, before, behind}), ", ",
          float_literal(params.k), ", ",
          float_literal(params.alpha / static_cast<float>(params.window)), ", ",
          float_literal(params.beta), "});\n"),
      blocks_for(tasks, kThreads), kThreads);
}

const RegisteredKernels<Lrn> kLrnKernels({lrn_candidates, generate_lrn, nullptr});

}  // namespace
}  // namespace opwright::gpu
