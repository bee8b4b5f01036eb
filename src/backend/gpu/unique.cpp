#include <algorithm>
#include <bit>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/checked.h"
#include "base/types.h"
#include "operators/selection.h"

namespace opwright::gpu {
namespace {

constexpr int kSorting = 1024;  ///< threads of the block
constexpr int64_t kManySlices = 1 << 28;

std::vector<Candidate> unique_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "one block")};
}

/// Slices along the axis of [outer, axis, inner].
struct Slices {
  Expr outer = 1, count = 1, inner = 1;
};

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
  // Keeps twice the number of places to sort from overflowing.
  if (most > kManySlices) source.widen();
  const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(most) + 1));
  source.add_scratch("Index", checked_product("the memory to sort in",
                                              {5, padded, static_cast<int64_t>(sizeof(int64_t))}));
  ConfigWriter config;
  config.type("Element", storage_type(args.inputs[0].type.dtype));
  config.number("kThreads", kSorting), config.flag("kIsSorted", params.sorted);
  source.add_declarations(include("unique.cuh") + config.write());
  std::string text = str("const UniqueArguments<Config> all = {in0, out0, out1, out2, out3, out4, ",
                         source.value(slices.count), ", ", source.value(slices.outer), ", ",
                         source.value(slices.inner));
  for (int i = 0; i < 5; ++i) text += str(", scratch + ", i * padded, "LL");
  return source.finish(text + "};\nfind_unique(all);\n", Expr(1), kSorting);
}

const RegisteredKernels<Unique> kUniqueKernels({unique_candidates, generate_unique, nullptr});

}  // namespace
}  // namespace opwright::gpu
