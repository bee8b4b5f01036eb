#include "backend/gpu/rows.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "backend/candidates.h"
#include "base/error.h"

namespace opwright::gpu {
namespace {

constexpr int kMaxVectorBytes = 16;
/// The most accesses that a thread loads before it stores.
constexpr int kMaxUnroll = 8;
constexpr int kRowsAtOnce = 4;
/// Elements from which on more than one plan is worth timing.
constexpr int64_t kManyInRows = 1 << 16;

/// Plans a row of `length` accesses: its threads, at most `most`, and the accesses of each.
RowPlan plan_of(int64_t length, int most) {
  RowPlan plan;
  plan.lanes = static_cast<int>(
      std::min<uint64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, length))), most));
  plan.unroll = static_cast<int>(std::clamp<int64_t>(divide_up(length, plan.lanes), 1, kMaxUnroll));
  return plan;
}

}  // namespace

std::string RowPlan::name() const {
  return rows > 1 ? str(lanes, " lanes, ", rows, " rows at once")
                  : str(lanes, " lanes, ", unroll, " at once");
}

void add_plan(ConfigWriter& config, const RowPlan& plan) {
  config.number("kLanes", plan.lanes), config.number("kUnroll", plan.unroll);
  config.number("kThreads", kThreads);
}

Ways<RowPlan> row_plans(int64_t length, int64_t elements) {
  Ways<RowPlan> plans;
  // Every plan can move any rows.
  const auto add = [&](const RowPlan& plan, bool is_worth_timing) {
    if (!plans.contains(plan)) plans.add(plan, is_worth_timing);
  };
  RowPlan short_rows = plan_of(length, kWarp);
  short_rows.rows = kRowsAtOnce;
  const bool are_many = elements >= kManyInRows;
  // Few rows do not occupy the device unless many threads share each row.
  const bool are_shared = !are_many && elements / std::max<int64_t>(1, length) < kThreads / kWarp;
  add(short_rows, are_many && length <= kWarp);
  add(plan_of(length, are_shared ? kThreads : kWarp), true);
  for (const int lanes : {64, kThreads})
    add(plan_of(length, lanes), are_many && length > lanes / 2);
  add(plan_of(length, kWarp), false);
  return plans;
}

std::vector<std::string> row_plan_names() {
  std::set<std::string> names;
  for (int64_t length = 1; length <= int64_t{kThreads} * kMaxUnroll; ++length)
    for (const int64_t elements : {length, kManyInRows}) {
      const Ways<RowPlan> plans = row_plans(length, elements);
      for (const RowPlan& plan : plans.listed(true)) names.insert(plan.name());
    }
  return {names.begin(), names.end()};
}

Ways<RowPlan> row_plans(const RowMove& move, const KernelArgs& args) {
  return row_plans(divide_up(move.typical_length, move.width), args.outputs[0].opt.numel());
}

GeneratedKernel generate_rows(KernelSource& source, const RowMove& move, const RowPlan& plan) {
  source.set_output_type(0, carrier_type(move.element_size));
  const int chunk = plan.lanes * plan.unroll * move.width;
  const Expr chunks =
      plan.rows > 1 ? min(move.length, Expr(1)) : ceil_div(move.length, Expr(chunk));
  const Expr groups = numel(move.outer) * chunks;
  ConfigWriter config;
  add_plan(config, plan);
  config.number("kRows", plan.rows), config.number("kWidth", move.width);
  source.add_declarations(include("rows.cuh") + config.write());

  std::string text = str("const RowArguments<Config> all = {",
                         source.values({groups, chunks, move.length}), "};\n");
  std::vector<std::string> coordinates;
  for (size_t i = 0; i < move.outer.size(); ++i) coordinates.push_back(str("c", i));
  const auto add_call = [&](int width) {
    text += str("typedef ", carrier_type(move.element_size * width),
                " Element;\nmove_rows<Config, Element>(all, out0, [&](Index row) {\n",
                source.decompose("row", coordinates, move.outer));
    for (const std::string& name : coordinates) text += str("(void)", name, ";\n");
    text += move.row(width) + "});\n";
  };
  if (move.width > 1) {
    std::vector<std::string> conditions = move.conditions;
    conditions.push_back(alignment_condition(move.element_size, move.width, "out0"));
    text += "if (" + joined(conditions, " && ") + ") {\n";
    add_call(move.width);
    text += "return;\n}\n";
  }
  add_call(1);
  return source.finish(text, blocks_for(groups, kThreads / plan.lanes * plan.rows), kThreads);
}

int vector_width(KernelSource& source, int element_size, std::span<const Expr> multiples,
                 std::vector<std::string>& conditions) {
  int width = kMaxVectorBytes / element_size;
  for (const Expr& number : multiples)
    while (number.is_constant() && number.constant() % width != 0) width /= 2;
  if (width == 1) return 1;
  for (const Expr& number : multiples)
    if (!number.is_constant())
      conditions.push_back(str(source.value(number), " % ", width, " == 0"));
  return width;
}

std::string alignment_condition(int element_size, int width, std::string_view pointer) {
  return str("is_aligned<", carrier_type(element_size), ", ", width, ">(", pointer, ")");
}

std::vector<Candidate> moving_candidates(
    const CandidateQuery& query,
    const std::function<Ways<std::string>(const KernelArgs&)>& tactics) {
  const TensorFormat linear[] = {TensorFormat::kLINEAR};
  return moving_candidates(query, linear, tactics);
}

std::vector<Candidate> moving_candidates(
    const CandidateQuery& query, std::span<const TensorFormat> formats,
    const std::function<Ways<std::string>(const KernelArgs&)>& tactics) {
  std::vector<Candidate> result;
  const auto add_as = [&](DataType type, TensorFormat format) {
    std::vector<PortDesc> inputs(query.inputs.begin(), query.inputs.end());
    std::vector<PortDesc> outputs(query.outputs.begin(), query.outputs.end());
    Candidate candidate = linear_candidate(query, {});
    for (const auto& [ports, types] :
         {std::pair(&inputs, &candidate.inputs), std::pair(&outputs, &candidate.outputs)}) {
      for (size_t i = 0; i < ports->size(); ++i) {
        if ((*ports)[i].present && (*types)[i].dtype == DataType::kFLOAT) (*types)[i].dtype = type;
        (*types)[i].format = format;
        (*ports)[i].type = (*types)[i];
      }
    }
    KernelArgs args;
    args.layer = query.layer;
    args.candidate = &candidate;
    args.inputs = inputs;
    args.outputs = outputs;
    args.device = query.device;
    const Ways<std::string> names = tactics(args);
    for (const std::string& name : names.listed(query.all_tactics)) {
      result.push_back(candidate);
      result.back().tactic_name = name;
      ++candidate.tactic;
    }
  };
  const auto add = [&](DataType type) {
    for (const TensorFormat format : formats) add_as(type, format);
  };
  add(DataType::kFLOAT);
  if (query.strongly_typed || query.outputs[0].type.dtype != DataType::kFLOAT) return result;
  if (query.bf16) add(DataType::kBF16);
  if (query.fp16) add(DataType::kHALF);
  return result;
}

}  // namespace opwright::gpu
