#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/types.h"
#include "operators/reduce.h"

namespace opwright::gpu {
namespace {

/// One thread adds up each line, so neighbouring threads read neighbouring elements.
std::string write_lines(KernelSource& source, const CumulativeParams& params, const Expr& lines,
                        const Expr& extent, const Expr& inner, DataType type) {
  const std::string length = source.value(extent), stride = source.value(inner);
  const std::string_view stored = storage_type(type);
  return str("for (Index line = first_index(); line < ", source.value(lines),
             "; line += index_step()) {\nconst Index first = line / ", stride, " * (", length,
             " * ", stride, ") + line % ", stride, ";\nRunning sum;\nfor (Index k = 0; k < ",
             length, "; ++k) {\nconst Index at = first + ",
             params.reverse ? str("(", length, " - 1 - k)") : "k", " * ", stride,
             // The output may be the input's memory.
             ";\nconst Value x = load(in0[at]);\n", params.exclusive ? "" : "sum.take(x);\n",
             "out0[at] = store<", stored, ">(sum.value());\n",
             params.exclusive ? "sum.take(x);\n" : "", "}\n}\n");
}

/// One block adds up each line, in sums of as many elements as the block has threads.
std::string write_blocks(KernelSource& source, const CumulativeParams& params, const Expr& lines,
                         const Expr& extent, DataType type) {
  const std::string length = source.value(extent);
  const std::string_view sum = register_type(type), stored = storage_type(type);
  constexpr int kWarps = kThreads / kWarp;
  return str("__shared__ ", sum, " parts[", kWarps,
             "];\nconst int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;\n"
             "for (Index line = (Index)blockIdx.x; line < ",
             source.value(lines),
             "; line += (Index)gridDim.x) {\nRunning before;\nfor (Index done = 0; done < ", length,
             "; done += ", kThreads,
             ") {\nconst Index k = done + (Index)threadIdx.x;\nconst Index at = line * ", length,
             " + ", params.reverse ? str("(", length, " - 1 - k)") : "k", ";\n", sum,
             " sum = 0;\nif (k < ", length,
             ") sum = load(in0[at]);\n"
             "#pragma unroll\nfor (int distance = 1; distance < 32; distance *= 2) {\nconst ",
             sum,
             " other = __shfl_up_sync(0xffffffffu, sum, distance);\n"
             "if (lane >= distance) sum += other;\n}\n",
             sum,
             " other = __shfl_up_sync(0xffffffffu, sum, 1);\nif (lane == 0) other = 0;\n"
             "__syncthreads();\nif (lane == 31) parts[warp] = sum;\n__syncthreads();\n",
             "Running all = before;\nfor (int i = 0; i < ", kWarps,
             "; ++i) {\nif (i == warp) before = all;\nall.take(parts[i]);\n}\nbefore.take(",
             params.exclusive ? "other" : "sum", ");\nif (k < ", length, ") out0[at] = store<",
             stored, ">(before.value());\nbefore = all;\n}\n}\n");
}

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
  const std::string_view value = register_type(type);
  const std::string unsigned_value = is_floating(type) ? str(value) : str("unsigned ", value);
  source.add_declarations(str(include("cumulative.cuh"), "typedef ", value,
                              " Value;\ntypedef RunningTotal<", value, ", ", unsigned_value, ", ",
                              params.product ? "true" : "false", "> Running;\n"));
  if (ways(params, args).at(args.candidate->tactic) == kBlocks)
    return source.finish(write_blocks(source, params, lines, dims[axis], type), lines, kThreads);
  return source.finish(write_lines(source, params, lines, dims[axis], inner, type),
                       blocks_for(lines, kThreads), kThreads);
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
