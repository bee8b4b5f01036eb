#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/checked.h"
#include "base/types.h"
#include "operators/indexing.h"

namespace opwright::gpu {
namespace {

/// Threads that eliminate one matrix, and matrices that are eliminated at once.
constexpr int kEliminating = 128;
constexpr int64_t kMatrices = 512;

std::vector<Candidate> determinant_candidates(const Operator&, const CandidateQuery& query) {
  if (!is_floating(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "a block per matrix")};
}

/// Computes the product of the diagonal after Gaussian elimination with row exchanges, in double
/// precision.
std::optional<GeneratedKernel> generate_determinant(const Operator&, const KernelArgs& args) {
  KernelSource source("determinant", args);
  const SymShape& x = source.dims(0);
  const Expr count = numel(std::span(x).first(x.size() - 2));
  source.check_equal(x[x.size() - 2], x.back(), "matrices must be square");
  const Shape& most = args.inputs[0].max;
  const int rank = most.rank();
  const int64_t rows = std::max<int64_t>(1, most[rank - 1]);
  const int64_t blocks = std::clamp<int64_t>(most.numel(0, rank - 2), 1, kMatrices);
  source.add_scratch("double",
                     checked_product("the memory to eliminate in",
                                     {blocks, rows, rows, static_cast<int64_t>(sizeof(double))}));
  const std::string n = source.value(x.back());
  const std::string text = str(
      "double* const a = scratch + (unsigned long long)blockIdx.x * ", rows * rows,
      "ull;\n__shared__ Index pivot;\nconst Index thread = (Index)threadIdx.x;\n"
      "for (Index matrix = (Index)blockIdx.x; matrix < ",
      source.value(count), "; matrix += (Index)gridDim.x) {\n__syncthreads();\n",
      "for (Index i = thread; i < ", n, " * ", n, "; i += ", kEliminating,
      ") a[i] = (double)load(in0[matrix * (", n, " * ", n, ") + i]);\ndouble result = 1;\n",
      "for (Index k = 0; k < ", n, "; ++k) {\n__syncthreads();\nif (thread == 0) {\npivot = k;\n",
      "for (Index row = k + 1; row < ", n, "; ++row)\nif (fabs(a[row * ", n,
      " + k]) > fabs(a[pivot * ", n, " + k])) pivot = row;\n}\n__syncthreads();\n",
      "const Index other = pivot;\nconst double head = a[other * ", n, " + k];\n",
      "result *= other == k ? head : -head;\n",
      // All threads take this branch together.
      "if (head == 0) {\nresult = 0;\nbreak;\n}\n__syncthreads();\nif (other != k)\n",
      "for (Index c = k + thread; c < ", n, "; c += ", kEliminating,
      ") {\nconst double upper = a[k * ", n, " + c];\na[k * ", n, " + c] = a[other * ", n,
      " + c];\na[other * ", n, " + c] = upper;\n}\n__syncthreads();\nconst Index rest = ", n,
      " - k - 1;\nfor (Index i = thread; i < rest * rest; i += ", kEliminating,
      ") {\nconst Index row = k + 1 + i / rest, c = k + 1 + i % rest;\na[row * ", n,
      " + c] -= a[row * ", n, " + k] / head * a[k * ", n,
      " + c];\n}\n}\nif (thread == 0) out0[matrix] = store<",
      storage_type(args.outputs[0].type.dtype), ">((float)result);\n}\n");
  return source.finish(text, min(count, Expr(blocks)), kEliminating);
}

const RegisteredKernels<Determinant> kDeterminantKernels({determinant_candidates,
                                                          generate_determinant, nullptr});

}  // namespace
}  // namespace opwright::gpu
