#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/reduce.h"

namespace opwright::gpu {
namespace {

constexpr int kMaxThreads = 1024;
/// Elements that a thread keeps in registers.
constexpr int64_t kMaxKept = 32;
/// Elements of a row that a warp alone takes.
constexpr int64_t kWarpRow = kWarp * kMaxKept;

/// Rows that leave most of a GPU idle with a small block for each.
constexpr int64_t kFewSoftmaxRows = 256;

/// Threads for a row.
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

/// A warp or block per row of the axis, which is read once where it fits the registers; where the
/// axis is not the last one, a thread per row, so that neighbours read neighbours.
GeneratedKernel write(const SoftmaxParams& params, const KernelArgs& args) {
  KernelSource source("softmax", args);
  const SymShape& dims = source.dims(0);
  const int axis = std::countr_zero(static_cast<uint64_t>(params.axes));
  const Shape& max = args.inputs[0].max;
  const Expr outer = numel(std::span(dims).first(axis)), extent = dims[axis];
  const Expr inner = numel(std::span(dims).subspan(axis + 1)), rows = outer * inner;
  const bool is_last = inner == Expr(1);
  const int lanes = lanes_per_row(params, args).at(args.candidate->tactic);
  const int threads = std::max(kThreads, lanes);
  const int64_t kept = (max[axis] + lanes - 1) / lanes;
  const bool keeps = kept <= kMaxKept;
  const std::string_view type = storage_type(args.outputs[0].type.dtype);

  source.add_declarations(include("lane_reductions.cuh"));
  const std::string length = source.value(extent), stride = source.value(inner);
  std::string text =
      str("const int lane = (int)threadIdx.x % ", lanes, ";\nfor (Index row = (Index)blockIdx.x * ",
          threads / lanes, " + (Index)threadIdx.x / ", lanes, "; row < ", source.value(rows),
          "; row += (Index)gridDim.x * ", threads / lanes, ") {\n");
  const std::string first =
      is_last ? str("row * ", length)
              : str("row / ", stride, " * (", length, " * ", stride, ") + row % ", stride);
  text += str("const Index first = ", first, ";\n", "const ", type, "* const from = in0 + first;\n",
              type, "* const to = out0 + first;\n");
  if (keeps) {
    text += str("float kept[", std::max<int64_t>(1, kept), "];\n");
  }
  // Runs over the thread's elements; `x` is the value.
  const auto each = [&](bool loads, std::string_view statement) {
    if (keeps)
      text += str("#pragma unroll\nfor (int k = 0; k < ", kept,
                  "; ++k) {\nconst Index i = lane + k * ", lanes, ";\nif (i < ", length, ") {\n",
                  loads ? str("kept[k] = load(from[i * ", stride, "]);\n") : std::string(),
                  "const float x = kept[k];\n", statement, "\n}\n}\n");
    else
      text += str("for (Index i = lane; i < ", length, "; i += ", lanes,
                  ") {\nconst float x = load(from[i * ", stride, "]);\n", statement, "\n}\n");
  };
  text += str("float largest = ", float_literal(-INFINITY), ", sum = 0.0f;\n");
  each(true, "largest = fmaxf(largest, x);");
  text += str("largest = reduce<Largest, ", lanes, ">(largest);\n");
  // What is kept is then the exponential function, which is not computed twice.
  const bool keeps_power = keeps && !params.log;
  // Of long rows what a sum loses to rounding goes into the next one (W. Kahan, "Further remarks on
  // reducing truncation errors", 1965).
  if (!keeps) text += "float lost = 0.0f;\n";
  each(false, keeps_power ? "kept[k] = expf(x - largest);\nsum += kept[k];"
              : keeps     ? "sum += expf(x - largest);"
                          : "const float part = __fsub_rn(expf(x - largest), lost);\n"
                            "const float next = __fadd_rn(sum, part);\n"
                            "lost = __fsub_rn(__fsub_rn(next, sum), part);\nsum = next;");
  text += str("sum = reduce<Sum, ", lanes, ">(sum);\n");
  const std::string_view result = params.log    ? "x - largest - total"
                                  : keeps_power ? "x * total"
                                                : "expf(x - largest) * total";
  text += params.log ? "const float total = logf(sum);\n" : "const float total = 1.0f / sum;\n";
  each(false, str("to[i * ", stride, "] = store<", type, ">(", result, ");"));
  text += "}\n";
  return source.finish(text, blocks_for(rows, threads / lanes), threads);
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
