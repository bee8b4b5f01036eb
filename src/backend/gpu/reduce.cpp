#include "operators/reduce.h"

#include <algorithm>
#include <set>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/reduce_functions.h"
#include "backend/gpu/source.h"
#include "backend/gpu/ways.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Threads of a warp that read neighbouring rows when the innermost axis is kept.
constexpr int kColumns = 32;
/// Elements from which on more than one way is worth trying.
constexpr int64_t kManyReduced = 1 << 14;
/// Rounds of a block's threads from which on an output is worth a block of its own.
constexpr int kRounds = 4;
/// Bytes of the longest total.
constexpr int64_t kTotalBytes = 8;

/// How threads share the work.
struct ReducePlan {
  int lanes = 1;   ///< threads of a team
  int blocks = 0;  ///< that outputs are split for, so that so many run in all; 0: they are not
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
  Expr outputs = 1, count = 1;  ///< of outputs, and of elements that each is made of
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

std::vector<std::string> variables(char prefix, size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(prefix + std::to_string(i));
  return names;
}

/// A block has teams of `lanes` threads, each of which reduces to one output. Where the innermost
/// axis is reduced the lanes are neighbours, else the teams are, so that either way neighbouring
/// threads read neighbouring elements. Where there are too few outputs for that to fill the device,
/// each is made of parts, every part by a team of another block; the last block that is done merges
/// them, always in the same order.
class ReduceWriter {
 public:
  ReduceWriter(const Reduce& op, const KernelArgs& args)
      : ports_(args),
        source_("reduce", ports_),
        input_(args.inputs[0].type.dtype),
        output_(args.outputs[0].type.dtype),
        axes_(
            analyze(source_.dims(0), axes_in_memory(args.inputs[0].type.format,
                                                    args.inputs[0].max.rank(), op.params().axes))),
        plan_(ReducePlan::of(args.candidate->tactic)),
        lanes_(plan_.lanes),
        threads_(axes_.inner_is_reduced ? std::max(kThreads, lanes_)
                                        : std::max(kThreads, lanes_ * kColumns)),
        teams_(threads_ / lanes_) {
    source_.add_declarations(reduce_functions(op.params().op, input_, output_));
  }

  GeneratedKernel write() {
    const bool by_rows = axes_.inner_is_reduced;
    text_ = str("const Index outputs = ", source_.value(axes_.outputs),
                ", count = ", source_.value(axes_.count), ";\n");
    const Expr groups = ceil_div(axes_.outputs, Expr(teams_));
    const Expr parts = plan_.blocks > 0 ? parts_of(groups) : Expr(1);
    if (by_rows) text_ += str("const bool aligned = ", alignment_test(), ";\n");
    text_ += position(lanes_);
    if (plan_.blocks > 0) {
      source_.add_counters(1);
      source_.add_scratch("Total", kTotalBytes * teams_ * 2 * plan_.blocks);
      const Expr unit(unit_of_part());
      const Expr length = ceil_div(axes_.count, parts * unit) * unit;
      text_ +=
          str("const Index parts = ", source_.value(parts), ", groups = ", source_.value(groups),
              ", length = ", source_.value(length), ";\n",
              // The same for all threads of a block, which wait for each other.
              "for (Index task = blockIdx.x; task < groups * parts; task += gridDim.x) {\n",
              "const Index first = task / parts * ", teams_, ", part = task % parts;\n",
              "const Index begin = part * length;\n"
              "const Index end = begin >= count ? begin : begin + length < count ? begin + "
              "length : count;\n");
    } else {
      text_ +=
          str("const Index begin = 0, end = count;\n", "for (Index first = (Index)blockIdx.x * ",
              teams_, "; first < outputs; first += (Index)gridDim.x * ", teams_, ") {\n");
    }
    text_ +=
        "const Index output = first + team;\n"
        "Total total = neutral();\n"
        "if (output < outputs) {\n";
    const std::vector<std::string> kept = variables('k', axes_.kept.size());
    text_ += source_.decompose("output", kept, axes_.kept);
    text_ += str("const ", storage_type(input_), "* const from = in0 + (",
                 source_.offset(kept, axes_.kept_strides), ");\n");
    if (by_rows) vectors();
    elements();
    text_ += "}\n";
    join(lanes_);
    if (plan_.blocks > 0)
      text_ += str("if (parts > 1) {\n",
                   "if (lane == 0 && output < outputs) scratch[part * outputs + output] = total;\n",
                   "continue;\n}\n");
    text_ += store_output() + "}\n";
    if (plan_.blocks > 0) merge_parts();
    return source_.finish(text_, groups * parts, threads_);
  }

 private:
  /// Whether a row has neighbours to take together; several rows only where each begins aligned.
  std::string alignment_test() {
    const int width = vector_width(input_);
    std::string test = str("is_aligned<", storage_type(input_), ", ", width, ">(in0)");
    if (axes_.kept.empty() && axes_.reduced.size() < 2) return test;
    const Expr inner = axes_.reduced.empty() ? Expr(1) : axes_.reduced.back();
    return str(source_.value(inner), " % ", width, " == 0 && ", test);
  }

  /// Statements that define `team` and `lane` of a thread for teams of so many lanes.
  std::string position(int lanes) const {
    const int teams = threads_ / lanes;
    const auto divided = [&](std::string_view name, char operation, int by) {
      return str("const int ", name, " = (int)threadIdx.x ", operation, " ", by, ";\n");
    };
    if (axes_.inner_is_reduced) return divided("team", '/', lanes) + divided("lane", '%', lanes);
    return divided("team", '%', teams) + divided("lane", '/', teams);
  }

  std::string store_output() const {
    return str("if (lane == 0 && output < outputs) out0[output] = store<", storage_type(output_),
               ">(finish(total, count));\n");
  }

  /// Elements that a team takes at once, which parts are multiples of.
  int64_t unit_of_part() const {
    return int64_t{lanes_} * (axes_.inner_is_reduced ? vector_width(input_) : 1);
  }

  /// Parts of every output, none of which is too short to be worth a block.
  Expr parts_of(const Expr& groups) const {
    const Expr wanted = ceil_div(Expr(plan_.blocks), max(groups, Expr(1)));
    return max(Expr(1), min(wanted, floor_div(axes_.count, Expr(unit_of_part() * kRounds))));
  }

  /// The end of the kernel: the last block makes the outputs from the totals of the parts.
  void merge_parts() {
    const int lanes = axes_.inner_is_reduced && source_.typical(axes_.outputs) >= threads_ / kWarp
                          ? kWarp
                          : lanes_;
    text_ +=
        str("if (parts == 1) return;\n"
            "__shared__ bool is_last;\n"
            // What this block has written comes before its count, and what others have after it.
            "__threadfence();\n"
            "__syncthreads();\n"
            "if (threadIdx.x == 0) is_last = atomicAdd(counter0, 1ull) == gridDim.x - 1;\n"
            "__syncthreads();\n"
            "if (!is_last) return;\n"
            "__threadfence();\n"
            "if (threadIdx.x == 0) *counter0 = 0;\n"
            "{\n",
            position(lanes), "for (Index first = 0; first < outputs; first += ", threads_ / lanes,
            ") {\n",
            "const Index output = first + team;\n"
            "Total total = neutral();\n"
            "if (output < outputs) {\n"
            "#pragma unroll 4\n"
            "for (Index i = lane; i < parts; i += ",
            lanes, ") merge(total, scratch[i * outputs + output]);\n}\n");
    join(lanes);
    text_ += store_output() + "}\n}\n";
  }

  void vectors() {
    const int width = vector_width(input_);
    SymShape extents = axes_.reduced, strides = axes_.reduced_strides;
    if (extents.size() > 1) extents.back() = floor_div(extents.back(), Expr(width));
    if (!strides.empty()) strides.back() = Expr(width);
    const std::vector<std::string> names = variables('v', extents.size());
    const std::string pack = str("Pack<", storage_type(input_), ", ", width, ">");
    text_ += str("const Index vectors = (aligned ? end : begin) / ", width, ";\n",
                 "#pragma unroll 4\n"
                 "for (Index i = begin / ",
                 width, " + lane; i < vectors; i += ", lanes_, ") {\n",
                 source_.decompose("i", names, extents));
    text_ +=
        str("const ", pack, " pack = *(const ", pack, "*)(from + ", source_.offset(names, strides),
            ");\n", "Value values[", width, "];\n", "#pragma unroll\nfor (int k = 0; k < ", width,
            "; ++k) values[k] = load(pack.at[k]);\n",
            // In pairs, which rounds less often.
            "#pragma unroll\nfor (int half = ", width / 2, "; half > 0; half /= 2)\n",
            "#pragma unroll\nfor (int k = 0; k < half; ++k) ",
            "values[k] = combine(values[k], values[k + half]);\n", "add(total, values[0]);\n}\n");
  }

  /// What vectors left over, which is all where they cannot be used.
  void elements() {
    const std::vector<std::string> names = variables('e', axes_.reduced.size());
    const std::string first =
        axes_.inner_is_reduced ? str("vectors * ", vector_width(input_)) : "begin";
    text_ += str("#pragma unroll 4\nfor (Index i = ", first, " + lane; i < end; i += ", lanes_,
                 ") {\n", source_.decompose("i", names, axes_.reduced), "add(total, load(from[",
                 source_.offset(names, axes_.reduced_strides), "]));\n}\n");
  }

  /// Merges the totals of a team of so many lanes into its lane 0.
  void join(int lanes) {
    if (lanes == 1) return;
    if (!axes_.inner_is_reduced) {
      text_ += str("__shared__ Total totals[", threads_, "];\n",
                   "__syncthreads();\n"
                   "totals[threadIdx.x] = total;\n"
                   "__syncthreads();\n",
                   "for (int half = ", lanes / 2, "; half > 0; half /= 2) {\n",
                   "if (lane < half) merge(totals[threadIdx.x], totals[threadIdx.x + half * ",
                   threads_ / lanes, "]);\n__syncthreads();\n}\ntotal = totals[threadIdx.x];\n");
      return;
    }
    const auto within_warp = [&](int threads) {
      text_ += str("#pragma unroll\nfor (int half = ", threads / 2,
                   "; half > 0; half /= 2) merge(total, exchange(total, half));\n");
    };
    within_warp(std::min(lanes, kWarp));
    if (lanes <= kWarp) return;
    const int warps = lanes / kWarp;
    text_ += str("__shared__ Total totals[", warps, "];\n",
                 "__syncthreads();\n"
                 "if (lane % 32 == 0) totals[lane / 32] = total;\n"
                 "__syncthreads();\n"
                 "if (lane < 32) {\n"
                 "total = lane < ",
                 warps, " ? totals[lane] : neutral();\n");
    within_warp(kWarp);
    text_ += "}\n";
  }

  const PortsInMemory ports_;
  KernelSource source_;
  const DataType input_, output_;
  const ReduceAxes axes_;
  const ReducePlan plan_;
  const int lanes_, threads_, teams_;
  std::string text_;
};

/// All of them can reduce any number of elements.
Ways<ReducePlan> reduce_plans(bool inner_is_reduced, int64_t outputs, int64_t count) {
  Ways<ReducePlan> plans;
  const bool is_small = count * outputs < kManyReduced;
  const auto add = [&](bool is_worth_timing, int lanes, int blocks = 0) {
    const bool is_enough = is_small && !plans.listed(false).empty();
    plans.add({lanes, blocks}, is_worth_timing && !is_enough);
  };
  if (inner_is_reduced) {
    // Far fewer outputs than blocks run at once.
    const bool is_split = outputs < 256 && count >= (1 << 15);
    add(is_split, 256, 2048), add(is_split, 256, 512);
    add(count >= 4096, outputs < 128 ? 1024 : 256);
    add(count >= 32 && count < 16384, kWarp);
    add(count >= 4096, outputs < 128 ? 256 : 1024);
    add(count >= 4 && count < 256, 8);
    add(count < 32, 1);
  } else {
    // With few outputs only more threads for each of them fill the device. All parts are merged by
    // one block, which must not have much to do.
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

/// The formats of the input, and that of the output beside each: what is kept must lie in the order
/// in which the output has it.
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
  // The output is smaller than the input; it may be as precise or follow the input.
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

std::optional<GeneratedKernel> generate_reduce(const Operator& op, const KernelArgs& args) {
  return ReduceWriter(static_cast<const Reduce&>(op), args).write();
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
