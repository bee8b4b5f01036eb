#include <algorithm>
#include <bit>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/part_counters.h"
#include "backend/gpu/source.h"
#include "backend/gpu/ways.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/reduce.h"

namespace opwright::gpu {
namespace {

constexpr int64_t kMaxInThread = 16;  ///< keys that a thread keeps
constexpr int64_t kMaxInWarp = 1024;  ///< elements that a warp keeps
constexpr int64_t kMaxFromWarp = 32;  ///< keys that a warp finds one after another
constexpr int64_t kSortBytes = 32768;

/// The most blocks that share a row to find its best element, and the most such rows.
constexpr int64_t kMostBlocksOfRow = 32, kMostSharedRows = 64;
/// Bits of a counter of finished blocks.
constexpr int kTopKCounterBits = 8;

enum class TopKWay { kThread, kWarp, kSort, kSelect, kBest };

std::string_view name_of(TopKWay way) {
  switch (way) {
    case TopKWay::kThread:
      return "a thread per row";
    case TopKWay::kWarp:
      return "a warp per row";
    case TopKWay::kSort:
      return "a block sorts a row";
    case TopKWay::kSelect:
      return "a block selects by digits";
    case TopKWay::kBest:
      return "blocks find the best";
  }
  return {};
}

struct TopKExtents {
  int axis;
  int64_t most, k, rows;
  bool is_last;
  int64_t capacity;  ///< keys in shared memory
  int64_t parts;     ///< blocks that share a row, where only its best is wanted

  TopKExtents(const TopKParams& params, std::span<const PortDesc> inputs,
              std::span<const PortDesc> outputs)
      : axis(std::countr_zero(static_cast<uint64_t>(params.axes))) {
    const Shape &x = inputs[0].max, &typical = inputs[0].opt;
    most = x[axis], k = outputs[0].max[axis];
    rows = typical.numel() / std::max<int64_t>(1, typical[axis]);
    is_last = x.numel(axis + 1, x.rank()) == 1;
    capacity = kSortBytes / (inputs[0].type.dtype == DataType::kINT64 ? 16 : 8);
    const bool is_fixed = inputs[0].min == x && rows > 0 && rows <= kMostSharedRows;
    parts = is_fixed
                ? std::clamp<int64_t>(most / 2048, 1, std::min(kMostBlocksOfRow, kFewBlocks / rows))
                : 1;
    parts = std::max<int64_t>(parts, 1);
  }

  Ways<TopKWay> ways() const {
    Ways<TopKWay> ways;
    const bool is_long = most > 512 && k < most / 4;
    if (k == 1 && is_last) ways.add(TopKWay::kBest, most > 512);
    if (k <= kMaxInThread) ways.add(TopKWay::kThread, !is_last || (most <= 64 && rows >= 4096));
    if (is_last && most <= kMaxInWarp && k <= kMaxFromWarp) ways.add(TopKWay::kWarp, true);
    if (is_long) ways.add(TopKWay::kSelect, true);
    if (most <= capacity) ways.add(TopKWay::kSort, true);
    if (!is_long) ways.add(TopKWay::kSelect, most > capacity);
    return ways;
  }
};

/// A call of a function of topk.cuh, and its launch.
struct TopKKernel {
  std::string_view function;
  int64_t kept;  ///< keys that a thread, or a block, keeps
  int threads;
  Expr blocks;
};

int64_t sorted_keys(int64_t wanted) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(2, wanted))));
}

TopKKernel kernel_of(TopKWay way, const TopKExtents& extents, const Expr& rows) {
  constexpr int64_t kMostThreads = 1024;
  switch (way) {
    case TopKWay::kThread:
      return {"find_by_threads", extents.k, kThreads, blocks_for(rows, kThreads)};
    case TopKWay::kWarp:
      return {"find_by_warps", (extents.most + kWarp - 1) / kWarp, kThreads,
              blocks_for(rows, kThreads / kWarp)};
    case TopKWay::kSort: {
      const int64_t size = sorted_keys(extents.most);
      return {"sort_rows", size,
              static_cast<int>(std::clamp<int64_t>(size / 2, kWarp, kMostThreads)), rows};
    }
    case TopKWay::kSelect:
      return {"select_rows", sorted_keys(std::min(extents.k, extents.capacity)),
              extents.most >= 8192 ? 1024 : 512, rows};
    case TopKWay::kBest:
      return {"find_best", 1, kThreads, rows * Expr(extents.parts)};
  }
  return {};
}

std::optional<GeneratedKernel> generate_topk(const Operator& op, const KernelArgs& args) {
  const TopKParams& params = static_cast<const TopK&>(op).params();
  KernelSource source("topk", args);
  const TopKExtents extents(params, args.inputs, args.outputs);
  const TopKWay way = extents.ways().at(args.candidate->tactic);
  const SymShape& x = source.dims(0);
  const auto axis = static_cast<size_t>(extents.axis);
  Expr k(params.k);
  if (args.inputs.size() > 1 && args.inputs[1].present) k = source.shape_values(1).at(0);
  if (args.outputs[0].min[extents.axis] == args.outputs[0].max[extents.axis])
    k = Expr(args.outputs[0].max[extents.axis]);
  source.check(Expr(1) - Expr::make(ExprOp::kLess, x[axis], k),
               "k must not exceed the extent of the axis");
  const Expr stride = numel(std::span(x).subspan(axis + 1));
  const Expr rows = numel(std::span(x).first(axis)) * stride;

  const TopKKernel kernel = kernel_of(way, extents, rows);
  const bool is_wide = args.inputs[0].type.dtype == DataType::kINT64;
  ConfigWriter config;
  config.type("Element", storage_type(args.inputs[0].type.dtype));
  config.type("Number", storage_type(args.outputs[1].type.dtype));
  config.type("Key", is_wide ? "WideKey" : "NarrowKey");
  config.flag("kIsLeast", params.op == TopKOperation::kMIN);
  config.number("kKept", std::max<int64_t>(1, kernel.kept));
  config.number("kThreads", kernel.threads), config.number("kParts", extents.parts);
  source.add_declarations(include("topk.cuh") + config.write());
  std::string text = "const TopKArguments<Config> all = {in0, out0, out1";
  for (const Expr& number : {rows, x[axis], stride, k}) text += ", " + source.value(number);
  text += "};\n";
  if (way != TopKWay::kBest)
    return source.finish(str(text, kernel.function, "(all);\n"), kernel.blocks, kernel.threads);
  std::string scratch = "nullptr", counters = "nullptr";
  if (extents.parts > 1) {
    source.add_scratch("Config::Key", kernel.blocks.constant() * (is_wide ? 16 : 8));
    scratch = "scratch", counters = add_part_counters(source, rows.constant(), kTopKCounterBits);
  }
  return source.finish(str(text, "Word* const counters[] = {", counters, "};\n", kernel.function,
                           "(all, ", scratch, ", counters);\n"),
                       kernel.blocks, kernel.threads);
}

bool is_ordered(DataType type) {
  return is_floating(type) || type == DataType::kINT8 || type == DataType::kUINT8 ||
         type == DataType::kINT32 || type == DataType::kINT64 || type == DataType::kBOOL;
}

std::vector<Candidate> topk_candidates(const Operator& op, const CandidateQuery& query) {
  if (!is_ordered(query.inputs[0].type.dtype)) return {};
  const TopKParams& params = static_cast<const TopK&>(op).params();
  std::vector<Candidate> result;
  const TopKExtents extents(params, query.inputs, query.outputs);
  const Ways<TopKWay> ways = extents.ways();
  for (const TopKWay way : ways.listed(query.all_tactics)) {
    result.push_back(linear_candidate(query, std::string(name_of(way))));
    result.back().tactic = static_cast<int64_t>(result.size()) - 1;
  }
  return result;
}

std::vector<std::string> topk_tactics() {
  std::vector<std::string> names;
  for (const TopKWay way :
       {TopKWay::kThread, TopKWay::kWarp, TopKWay::kSort, TopKWay::kSelect, TopKWay::kBest})
    names.emplace_back(name_of(way));
  return names;
}

const RegisteredKernels<TopK> kTopKKernels({.candidates = topk_candidates,
                                            .generate = generate_topk,
                                            .make = nullptr,
                                            .tactics = topk_tactics});

}  // namespace
}  // namespace opwright::gpu
