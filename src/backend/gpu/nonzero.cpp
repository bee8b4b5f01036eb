#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "operators/selection.h"

namespace opwright::gpu {
namespace {

constexpr int kCounting = 1024;  ///< threads of the block that counts

std::vector<Candidate> nonzero_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "one block")};
}

/// One block goes through the elements twice. The first pass counts them, since the count decides
/// where the indices of each axis begin.
std::optional<GeneratedKernel> generate_nonzero(const Operator&, const KernelArgs& args) {
  KernelSource source("nonzero", args);
  const SymShape& x = source.dims(0);
  const std::string count = source.value(numel(x));
  std::vector<std::string> names;
  std::string write;
  for (size_t i = 0; i < x.size(); ++i) {
    names.push_back(str("c", i));
    write += str("out0[", i, " * total + at] = (", storage_type(args.outputs[0].type.dtype), ")c",
                 i, ";\n");
  }
  source.add_declarations(include("indexing.cuh"));
  const std::string round =
      str("for (Index first = 0; first < ", count, "; first += ", kCounting,
          ") {\nconst Index i = first + (Index)threadIdx.x;\nconst bool is_met = i < ", count,
          " && load(in0[i]) != 0;\n");
  return source.finish(
      str("__shared__ Ranks ranks;\nIndex total = 0, before = 0;\n", round,
          "total += __syncthreads_count(is_met);\n}\nif (threadIdx.x == 0) out1[0] = total;\n",
          round, "const Index at = rank_of(is_met, before, ranks);\nif (is_met) {\n",
          source.decompose("i", names, x), write, "}\n}\n"),
      Expr(1), kCounting);
}

const RegisteredKernels<NonZero> kNonZeroKernels({nonzero_candidates, generate_nonzero, nullptr});

}  // namespace
}  // namespace opwright::gpu
