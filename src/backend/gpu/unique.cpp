#include <algorithm>
#include <bit>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/checked.h"
#include "base/types.h"
#include "operators/selection.h"

namespace opwright::gpu {
namespace {

constexpr int kSorting = 1024;  ///< threads
constexpr int64_t kManySlices = 1 << 28;

std::vector<Candidate> unique_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "one block")};
}

/// Slices along the axis of [outer, axis, inner].
struct Slices {
  Expr outer = 1, count = 1, inner = 1;
};

/// Statements that sort the indices of the slices in `order`, those of equal slices by themselves:
/// Batcher's bitonic network, in which every comparison is of its own.
constexpr std::string_view kSort = R"(
Index size = 1;
while (size < count) size *= 2;
for (Index i = thread; i < size; i += threads) order[i] = i;
for (Index run = 2; run <= size; run *= 2) {
  for (Index half = run / 2; half > 0; half /= 2) {
    __syncthreads();
    for (Index i = thread; i < size / 2; i += threads) {
      // The lower of a pair, whose partner has the bit of `half`.
      const Index low = i / half * (2 * half) + i % half, high = low + half;
      const Index a = order[low], b = order[high];
      if (is_before(b, a) == ((low & run) == 0)) {
        order[low] = b;
        order[high] = a;
      }
    }
  }
}
__syncthreads();
)";

/// Statements that number the groups of equal slices: `group` of each place in `order`, the place
/// where each group begins, and `total`.
constexpr std::string_view kGroups = R"(
Index total = 0;
for (Index first = 0; first < count; first += threads) {
  const Index i = first + thread;
  const bool is_head = i < count && (i == 0 || compare(order[i - 1], order[i]) != 0);
  const Index rank = rank_of(is_head, total, ranks);
  if (is_head) begin[rank] = i;
  if (i < count) group[i] = is_head ? rank : rank - 1;
}
if (thread == 0) begin[total] = count;
__syncthreads();
)";

/// Statements that find the `place` of each group in the output.
constexpr std::string_view kPlaces = R"(
for (Index g = thread; g < total; g += threads) place[g] = g;
__syncthreads();
)";
constexpr std::string_view kPlacesByFirst = R"(
// The group that begins at a slice, in the slices' order.
for (Index i = thread; i < count; i += threads) starts[i] = -1;
__syncthreads();
for (Index g = thread; g < total; g += threads) starts[order[begin[g]]] = g;
__syncthreads();
Index before = 0;
for (Index first = 0; first < count; first += threads) {
  const Index i = first + thread;
  const bool is_first = i < count && starts[i] >= 0;
  const Index rank = rank_of(is_first, before, ranks);
  if (is_first) place[starts[i]] = rank;
}
__syncthreads();
)";

constexpr std::string_view kWrite = R"(
for (Index i = thread; i < count; i += threads) out2[order[i]] = place[group[i]];
for (Index g = thread; g < total; g += threads) {
  out1[place[g]] = order[begin[g]];
  out3[place[g]] = begin[g + 1] - begin[g];
}
if (thread == 0) out4[0] = total;
__syncthreads();
for (Index i = thread; i < outer * total * inner; i += threads) {
  const Index slice = (Index)out1[i / inner % total];
  out0[i] = in0[(i / (inner * total) * count + slice) * inner + i % inner];
}
)";

std::optional<GeneratedKernel> generate_unique(const Operator& op, const KernelArgs& args) {
  const UniqueParams& params = static_cast<const Unique&>(op).params();
  KernelSource source("unique", args);
  const SymShape& x = source.dims(0);
  Slices slices;
  int64_t most = 1;
  if (params.flatten) {
    slices.count = numel(x);
    most = args.inputs[0].max.numel();
  } else {
    const auto axis = static_cast<size_t>(params.axis);
    slices = {numel(std::span(x).first(axis)), x[axis], numel(std::span(x).subspan(axis + 1))};
    most = args.inputs[0].max[static_cast<int>(axis)];
  }
  // So that twice the places to sort do not overflow.
  if (most > kManySlices) source.widen();
  const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(most) + 1));
  source.add_scratch("Index", checked_product("the memory to sort in",
                                              {5, padded, static_cast<int64_t>(sizeof(int64_t))}));
  source.add_declarations(include("indexing.cuh"));
  const DataType type = args.inputs[0].type.dtype;
  std::string text =
      str("const Index count = ", source.value(slices.count),
          ", outer = ", source.value(slices.outer), ", inner = ", source.value(slices.inner),
          ";\nconst Index thread = (Index)threadIdx.x, threads = ", kSorting,
          ";\n__shared__ Ranks ranks;\n");
  for (int i = 0; const std::string_view name : {"order", "group", "begin", "place", "starts"})
    text += str("Index* const ", name, " = scratch + ", i++ * padded, "LL;\n(void)", name, ";\n");
  // NaN equals itself and is above all numbers. Places behind the slices come last.
  text +=
      str("const auto compare = [&](Index a, Index b) -> int {\nfor (Index o = 0; o < outer; ++o)\n"
          "for (Index i = 0; i < inner; ++i) {\nconst ",
          register_type(type),
          " u = load(in0[(o * count + a) * inner + i]), "
          "v = load(in0[(o * count + b) * inner + i]);\n",
          is_floating(type) ? "if (u != u || v != v) {\nif (u == u) return -1;\n"
                              "if (v == v) return 1;\ncontinue;\n}\n"
                            : "",
          "if (u != v) return u < v ? -1 : 1;\n}\nreturn 0;\n};\n"
          "const auto is_before = [&](Index a, Index b) {\n"
          "if (a >= count || b >= count) return a < b;\nconst int sign = compare(a, b);\n"
          "return sign != 0 ? sign < 0 : a < b;\n};\n");
  text += str(kSort, kGroups, params.sorted ? kPlaces : kPlacesByFirst, kWrite);
  return source.finish(text, Expr(1), kSorting);
}

const RegisteredKernels<Unique> kUniqueKernels({unique_candidates, generate_unique, nullptr});

}  // namespace
}  // namespace opwright::gpu
