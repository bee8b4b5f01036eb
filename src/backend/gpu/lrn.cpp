#include <utility>

#include "backend/candidates.h"
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

std::vector<Candidate> lrn_candidates(const Operator&, const CandidateQuery& query) {
  return moving_candidates(
      query, formats_of(query, query.inputs[0].opt.rank()),
      [](const KernelArgs&) { return std::vector<std::string>{"squares in registers"}; });
}

/// Neighbouring threads have neighbours of the innermost axis. Each thread has some channels.
std::optional<GeneratedKernel> generate_lrn(const Operator& op, const KernelArgs& args) {
  const LrnParams& params = static_cast<const Lrn&>(op).params();
  KernelSource source("lrn", args);
  const SymShape& x = source.dims(0);
  const Expr spatial = numel(std::span(x).subspan(2));
  const std::string_view stored = storage_type(args.outputs[0].type.dtype);
  // ONNX's definition: the greater part of an even window lies behind the channel.
  const int64_t before = (params.window - 1) / 2, behind = params.window / 2;
  const bool is_kept = params.window <= kKeptWindow;
  const int64_t run = is_kept ? kLrnChannels : 1;
  const bool is_channels_last = layout_of(args.inputs[0].type.format).channels_last;
  SymShape extents = {x[0], ceil_div(x[1], Expr(run)), spatial};
  std::vector<std::string> names = {"image", "part", "pixel"};
  if (is_channels_last) std::swap(extents[1], extents[2]), std::swap(names[1], names[2]);
  const std::string channels = source.value(x[1]);
  const std::string stride = is_channels_last ? "1" : source.value(spatial);
  const Expr count = numel(extents);
  std::string text =
      str("for (Index task = first_index(); task < ", source.value(count),
          "; task += index_step()) {\n", source.decompose("task", names, extents),
          "const Index first = part * ", run, ", base = image * ", source.value(x[1] * spatial),
          " + pixel", is_channels_last ? " * " + channels : std::string(), ";\n");
  const auto finish = [&](std::string_view value, std::string_view sum, std::string_view at) {
    const std::string scale =
        str("const float scale = ", float_literal(params.k), " + ",
            float_literal(params.alpha / static_cast<float>(params.window)), " * ", sum, ";\n");
    const std::string divided =
        params.beta == 0.75f  ? str(value, " / (sqrtf(scale) * sqrtf(sqrtf(scale)))")
        : params.beta == 0.5f ? str(value, " / sqrtf(scale)")
        : params.beta == 1.0f ? str(value, " / scale")
                              : str(value, " / powf(scale, ", float_literal(params.beta), ")");
    return str(scale, "out0[base + ", at, " * ", stride, "] = store<", stored, ">(", divided,
               ");\n");
  };
  if (is_kept) {
    const int64_t kept = run + params.window - 1;
    text += str("float values[", kept, "];\n#pragma unroll\nfor (int k = 0; k < ", kept,
                "; ++k) {\nconst Index c = first + (k - ", before, ");\nvalues[k] = c >= 0 && c < ",
                channels, " ? load(in0[base + c * ", stride,
                "]) : 0.0f;\n}\n#pragma unroll\nfor (int k = 0; k < ", run,
                "; ++k) {\nif (first + k >= ", channels,
                ") break;\nfloat sum = 0.0f;\n#pragma unroll\nfor (int i = 0; i < ", params.window,
                "; ++i) sum += values[k + i] * values[k + i];\n",
                finish(str("values[k + ", before, "]"), "sum", "(first + k)"), "}\n");
  } else {
    // Differences are compared, so a window of any size does not overflow.
    text += str("const Index begin = first > ", std::min(before, INT64_C(1) << 30), " ? first - ",
                std::min(before, INT64_C(1) << 30), " : 0;\nconst Index end = ", channels,
                " - 1 - first > ", std::min(behind, INT64_C(1) << 30), " ? first + ",
                std::min(behind, INT64_C(1) << 30), " : ", channels, " - 1;\nfloat sum = 0.0f;\n",
                "for (Index c = begin; c <= end; ++c) {\nconst float value = load(in0[base + c * ",
                stride, "]);\nsum += value * value;\n}\nconst float x = load(in0[base + first * ",
                stride, "]);\n", finish("x", "sum", "first"));
  }
  return source.finish(text + "}\n", blocks_for(count, kThreads), kThreads);
}

const RegisteredKernels<Lrn> kLrnKernels({lrn_candidates, generate_lrn, nullptr});

}  // namespace
}  // namespace opwright::gpu
