#include "operators/reduce.h"

#include <algorithm>
#include <set>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "backend/gpu/ways.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Threads of a warp that read neighbouring rows when the innermost axis is kept.
constexpr int kColumns = 32;
/// Elements from which on more than one plan is worth timing.
constexpr int64_t kManyReduced = 1 << 14;
/// Rounds of a block's threads from which on an output pays for a block of its own.
constexpr int kRounds = 4;
/// Bytes of the largest total.
constexpr int64_t kTotalBytes = 8;

/// A division of the work among threads.
struct ReducePlan {
  int lanes = 1;   ///< threads of a team
  int blocks = 0;  ///< approximate number of blocks among which outputs are split; 0: not split
  int64_t tactic() const { return int64_t{blocks} * kMaxLanes + lanes; }
  static ReducePlan of(int64_t tactic) {
    return {static_cast<int>(tactic % kMaxLanes), static_cast<int>(tactic / kMaxLanes)};
  }
  std::string name() const {
    if (blocks > 0) return str(lanes, " threads per part, ", blocks, " blocks");
    return lanes == 1 ? "a thread per output" : str(lanes, " threads per output");
  }

 private:
  static constexpr int kMaxLanes = 2048;
};

/// The axes of the input, neighbours of one kind merged, axes of extent 1 dropped.
struct ReduceAxes {
  SymShape kept, kept_strides, reduced, reduced_strides;
  bool inner_is_reduced = true;
  Expr outputs = 1, count = 1;  ///< number of outputs, and of elements reduced to each
};

ReduceAxes analyze(const SymShape& dims, int64_t mask) {
  struct Axis {
    Expr extent;
    bool reduced;
  };
  std::vector<Axis> axes;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == Expr(1)) continue;
    const bool reduced = mask >> i & 1;
    if (!axes.empty() && axes.back().reduced == reduced)
      axes.back().extent = axes.back().extent * dims[i];
    else
      axes.push_back({dims[i], reduced});
  }
  ReduceAxes result;
  if (!axes.empty()) result.inner_is_reduced = axes.back().reduced;
  Expr stride = 1;
  for (size_t i = axes.size(); i-- > 0; stride = stride * axes[i].extent) {
    SymShape& extents = axes[i].reduced ? result.reduced : result.kept;
    SymShape& strides = axes[i].reduced ? result.reduced_strides : result.kept_strides;
    extents.insert(extents.begin(), axes[i].extent);
    strides.insert(strides.begin(), stride);
  }
  result.outputs = numel(result.kept);
  result.count = numel(result.reduced);
  return result;
}

int vector_width(DataType type) { return std::min(8, 128 / bits(type)); }

/// The operation on elements of `type`: for truth values a sum is OR and a product is AND.
ReduceOperation operation_on(DataType type, ReduceOperation op) {
  if (type != DataType::kBOOL) return op;
  return op == ReduceOperation::kPROD || op == ReduceOperation::kMIN ? ReduceOperation::kMIN
                                                                     : ReduceOperation::kMAX;
}

std::string_view name_of(ReduceOperation op) {
  switch (op) {
    case ReduceOperation::kAVG:
      return "Reduction::kAverage";
    case ReduceOperation::kPROD:
      return "Reduction::kProduct";
    case ReduceOperation::kMAX:
      return "Reduction::kGreatest";
    case ReduceOperation::kMIN:
      return "Reduction::kLeast";
    default:
      return "Reduction::kSum";
  }
}

/// The neutral element. An extreme uses the limits of the elements' own type, so that the extreme
/// of nothing fits the output.
std::string_view neutral(ReduceOperation op, DataType type) {
  if (op == ReduceOperation::kPROD) return "1";
  if (op != ReduceOperation::kMAX && op != ReduceOperation::kMIN) return "0";
  const bool is_max = op == ReduceOperation::kMAX;
  switch (type) {
    case DataType::kINT8:
      return is_max ? "-128" : "127";
    case DataType::kUINT8:
      return is_max ? "0" : "255";
    case DataType::kBOOL:
      return is_max ? "0" : "1";
    case DataType::kINT32:
      return is_max ? "-2147483647 - 1" : "2147483647";
    case DataType::kINT64:
      return is_max ? "-9223372036854775807LL - 1" : "9223372036854775807LL";
    default:
      return is_max ? "__uint_as_float(0xff800000u)" : "__uint_as_float(0x7f800000u)";
  }
}

/// Adds the members of Config that the operation decides.
void add_operation(ConfigWriter& config, ReduceOperation op, DataType type) {
  // The average of integers must not wrap around before it is divided.
  const std::string_view value = is_floating(type) ? "float"
                                 : type == DataType::kINT64 || op == ReduceOperation::kAVG
                                     ? "long long"
                                     : "int";
  config.type("Value", value);
  config.value("Reduction", "kReduction", name_of(op));
  config.function("Value neutral()", str("return ", neutral(op, type), ";\n"));
}

/// Writes `const ReduceArguments<Config> all` and `const ReducePlaces places`.
std::string write_arguments(KernelSource& source, const ReduceAxes& axes, DataType type,
                            std::span<const Expr> numbers) {
  const int width = vector_width(type);
  std::string aligned = str("is_aligned<Config::Element, ", width, ">(in0)");
  // With several rows, each row must begin aligned.
  if (!axes.kept.empty() || axes.reduced.size() > 1)
    aligned = str(source.value(axes.reduced.empty() ? Expr(1) : axes.reduced.back()), " % ", width,
                  " == 0 && ", aligned);
  std::string text =
      str("const ReduceArguments<Config> all = {in0, out0, ", source.value(axes.outputs), ", ",
          source.value(axes.count), ", ", axes.inner_is_reduced ? aligned : "false");
  for (const Expr& number : numbers) text += ", " + source.value(number);
  SymShape extents = axes.reduced, strides = axes.reduced_strides;
  if (extents.size() > 1) extents.back() = floor_div(extents.back(), Expr(width));
  if (!strides.empty()) strides.back() = Expr(width);
  return str(text, "};\nconst ReducePlaces places{\n", source.place(axes.kept, axes.kept_strides),
             ",\n", source.place(axes.reduced, axes.reduced_strides), ",\n",
             axes.inner_is_reduced ? source.place(extents, strides) : "0", "};\n");
}

std::optional<GeneratedKernel> generate_reduce(const Operator& op, const KernelArgs& args) {
  const ReduceParams& params = static_cast<const Reduce&>(op).params();
  const PortsInMemory ports(args);
  KernelSource source("reduce", ports);
  const PortDesc& input = args.inputs[0];
  const DataType type = input.type.dtype;
  const ReduceAxes axes =
      analyze(source.dims(0), axes_in_memory(input.type.format, input.max.rank(), params.axes));
  const ReducePlan plan = ReducePlan::of(args.candidate->tactic);
  const bool is_inner = axes.inner_is_reduced;
  const int threads = std::max(kThreads, is_inner ? plan.lanes : plan.lanes * kColumns);
  const int teams = threads / plan.lanes;
  const Expr groups = ceil_div(axes.outputs, Expr(teams));
  // Parts are multiples of the elements that a team takes at once. None is too short to pay for a
  // block.
  const Expr unit(int64_t{plan.lanes} * (is_inner ? vector_width(type) : 1));
  const Expr parts = max(Expr(1), min(ceil_div(Expr(plan.blocks), max(groups, Expr(1))),
                                      floor_div(axes.count, unit * Expr(kRounds))));
  const bool merges_rows = is_inner && source.typical(axes.outputs) >= threads / kWarp;

  ConfigWriter config;
  config.type("Element", storage_type(type));
  config.type("Output", storage_type(args.outputs[0].type.dtype));
  add_operation(config, operation_on(type, params.op), type);
  config.flag("kIsInner", is_inner);
  config.number("kThreads", threads), config.number("kLanes", plan.lanes);
  config.number("kMergingLanes", merges_rows ? kWarp : plan.lanes);
  config.number("kWidth", vector_width(type));
  source.add_declarations(include("reduce.cuh") + config.write());
  if (plan.blocks == 0)
    return source.finish(write_arguments(source, axes, type, {}) + "reduce_outputs(all, places);\n",
                         groups, threads);
  source.add_counters(1);
  source.add_scratch("Total<Config>", kTotalBytes * teams * 2 * plan.blocks);
  const Expr numbers[] = {groups, parts, ceil_div(axes.count, parts * unit) * unit};
  return source.finish(write_arguments(source, axes, type, numbers) +
                           "reduce_parts(all, places, scratch, counter0);\n",
                       groups * parts, threads);
}

/// All plans can reduce any number of elements.
Ways<ReducePlan> reduce_plans(bool inner_is_reduced, int64_t outputs, int64_t count) {
  Ways<ReducePlan> plans;
  const bool is_small = count * outputs < kManyReduced;
  const auto add = [&](bool is_worth_timing, int lanes, int blocks = 0) {
    const bool is_enough = is_small && !plans.listed(false).empty();
    plans.add({lanes, blocks}, is_worth_timing && !is_enough);
  };
  if (inner_is_reduced) {
    // These outputs are far fewer than the blocks that run at once.
    const bool is_split = outputs < 256 && count >= (1 << 15);
    add(is_split, 256, 2048), add(is_split, 256, 512);
    add(count >= 4096, outputs < 128 ? 1024 : 256);
    add(count >= 32 && count < 16384, kWarp);
    add(count >= 4096, outputs < 128 ? 256 : 1024);
    add(count >= 4 && count < 256, 8);
    add(count < 32, 1);
  } else {
    // With few outputs, only more threads for each of them fill the device. One block merges all
    // parts, so they must not be many.
    const bool is_split = outputs <= 1024 && count >= 4096;
    add(is_split, 8, 512), add(is_split, 32, 256);
    add(count >= 256 && outputs < (1 << 16), 32);
    add(count >= 8 && outputs < (1 << 20), 8);
    add(count < 256 || outputs >= (1 << 14), 1);
  }
  return plans;
}

Ways<ReducePlan> reduce_plans(const Reduce& op, const Shape& input, TensorFormat format) {
  const int rank = input.rank();
  SymShape dims;
  for (int place = 0; place < rank; ++place)
    dims.emplace_back(input[axis_in_memory(format, rank, place)]);
  const ReduceAxes axes = analyze(dims, axes_in_memory(format, rank, op.params().axes));
  return reduce_plans(axes.inner_is_reduced, axes.outputs.constant(), axes.count.constant());
}

/// Pairs of formats for the input and the output. Kept elements must have the same order in both.
std::vector<std::pair<TensorFormat, TensorFormat>> reduce_formats(const ReduceParams& params,
                                                                  const CandidateQuery& query) {
  constexpr TensorFormat kLinear = TensorFormat::kLINEAR;
  std::vector<std::pair<TensorFormat, TensorFormat>> result;
  const int rank = query.inputs[0].opt.rank();
  for (const TensorFormat format : formats_of(query, rank)) {
    const int64_t spatial = ((int64_t{1} << rank) - 1) & ~int64_t{3};
    const bool has_one_order = (params.axes & 2) != 0 || (params.axes & spatial) == spatial;
    if (format == kLinear || params.keep_dims)
      result.emplace_back(format, format);
    else if (has_one_order)
      result.emplace_back(format, kLinear);
  }
  return result;
}

std::vector<Candidate> reduce_candidates(const Operator& op, const CandidateQuery& query) {
  const PortDesc& input = query.inputs[0];
  std::vector<Candidate> types = {linear_candidate(query, {})};
  add_lower_precisions(query, input, types);
  // The output is smaller than the input. It may keep its precision or take the input's.
  for (size_t i = types.size(); i-- > 0;) {
    if (types[i].inputs[0].dtype == types[i].outputs[0].dtype) continue;
    Candidate candidate = types[i];
    candidate.outputs[0].dtype = candidate.inputs[0].dtype;
    types.push_back(std::move(candidate));
  }
  std::vector<Candidate> result;
  const auto& reduce = static_cast<const Reduce&>(op);
  for (const Candidate& type : types)
    for (const auto& [from, to] : reduce_formats(reduce.params(), query)) {
      const Ways<ReducePlan> plans = reduce_plans(reduce, input.opt, from);
      for (const ReducePlan& plan : plans.listed(query.all_tactics)) {
        result.push_back(type);
        result.back().inputs[0].format = from, result.back().outputs[0].format = to;
        result.back().tactic = plan.tactic();
        result.back().tactic_name = plan.name();
      }
    }
  return result;
}

std::vector<std::string> reduce_tactics() {
  std::set<std::string> names;
  for (const bool is_inner : {true, false})
    for (const int64_t outputs : {1, 1 << 10}) {
      const Ways<ReducePlan> plans = reduce_plans(is_inner, outputs, 1);
      for (const ReducePlan& plan : plans.listed(true)) names.insert(plan.name());
    }
  return {names.begin(), names.end()};
}

const RegisteredKernels<Reduce> kReduceKernels({.candidates = reduce_candidates,
                                                .generate = generate_reduce,
                                                .make = nullptr,
                                                .tactics = reduce_tactics});

}  // namespace
}  // namespace opwright::gpu
