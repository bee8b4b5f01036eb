#include "operators/window_reduction.h"

#include <cstdio>

#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "backend/gpu/window_writer.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

std::vector<Candidate> candidates(const Operator&, const CandidateQuery& query) {
  return moving_candidates(
      query, [](const KernelArgs&) { return std::vector<std::string>{"a thread per window"}; });
}

std::optional<GeneratedKernel> generate_max(const Operator& op, const KernelArgs& args) {
  const IndexedMaxPoolingParams& params = static_cast<const IndexedMaxPooling&>(op).params();
  WindowWriter writer("indexed_max_pooling", params.pooling, args);
  const DataType type = args.inputs[0].type.dtype;
  const SymShape& x = writer.x();
  std::string index = "place";
  if (params.column_major) {
    index = "0";
    for (size_t i = x.size(); i-- > 2;)
      index = str("(", index, " * ", writer.source().value(x[i]), " + p", i - 2, ")");
    index = str("plane * ", writer.source().value(numel(std::span(x).subspan(2))), " + ", index);
  }
  // Once `most` is NaN it stays: the comparison is skipped.
  return writer.write(
      str("Index index = -1;\n", register_type(type), " most = ", least_of(type), ";\n"),
      str("const ", register_type(type),
          " value = load(in0[place]);\nif (index < 0 || (most == most && !(value <= most))) {\n"
          "most = value;\nindex = ",
          index, ";\n}\n"),
      str("out0[at] = store<", storage_type(type),
          ">(most);\nout1[at] = index < 0 ? 0 : index;\n"));
}

std::optional<GeneratedKernel> generate_lp(const Operator& op, const KernelArgs& args) {
  const LpPoolingParams& params = static_cast<const LpPooling&>(op).params();
  WindowWriter writer("lp_pooling", params.pooling, args);
  const bool is_sum = params.p == 1, is_euclidean = params.p == 2;
  char p[40];
  std::snprintf(p, sizeof p, "%.17e", params.p);
  // Uses double precision, in which squares of FP32 do not overflow.
  return writer.write(
      "double sum = 0;\n",
      str("const double value = fabs((double)load(in0[place]));\nsum += ",
          is_sum         ? "value"
          : is_euclidean ? "value * value"
                         : str("pow(value, ", p, ")"),
          ";\n"),
      str("out0[at] = store<", storage_type(args.outputs[0].type.dtype), ">((float)",
          is_sum         ? "sum"
          : is_euclidean ? "sqrt(sum)"
                         : str("pow(sum, 1.0 / ", p, ")"),
          ");\n"));
}

const RegisteredKernels<IndexedMaxPooling> kIndexedMaxPoolingKernels({candidates, generate_max,
                                                                      nullptr});
const RegisteredKernels<LpPooling> kLpPoolingKernels({candidates, generate_lp, nullptr});

}  // namespace
}  // namespace opwright::gpu
