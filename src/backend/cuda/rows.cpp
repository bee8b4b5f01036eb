#include "backend/cuda/rows.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "backend/candidates.h"
#include "base/error.h"

namespace opwright::cuda {
namespace {

constexpr int kThreads = 256, kWarp = 32;
constexpr int kMaxVectorBytes = 16;
/// Bytes that a thread loads before it stores.
constexpr int kMaxUnroll = 8;
/// Elements from which on more than one way is worth trying.
constexpr int64_t kManyElements = 1 << 16;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Threads for a row of `length` accesses, at most `most`, and how many accesses each has.
RowPlan plan_of(int64_t length, int most) {
  RowPlan plan;
  plan.lanes = static_cast<int>(
      std::min<uint64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, length))), most));
  plan.unroll = static_cast<int>(std::clamp<int64_t>(divide_up(length, plan.lanes), 1, kMaxUnroll));
  return plan;
}

/// The loop over the rows with accesses of `width` elements.
std::string row_loop(KernelSource& source, const RowMove& move, const RowPlan& plan,
                     const Expr& chunks, int width) {
  std::vector<std::string> coordinates;
  for (size_t i = 0; i < move.outer.size(); ++i) coordinates.push_back(str("c", i));
  const int rows = kThreads / plan.lanes;
  const int span = plan.lanes * plan.unroll;  // positions of all lanes at once
  const bool is_whole = chunks == Expr(1);
  const std::string per_row = source.value(chunks);
  std::string text =
      str("typedef ", carrier_type(move.element_size * width), " Element;\n",
          "const Index length = ", source.value(move.length), width > 1 ? str(" / ", width) : "",
          ";\n", "for (Index group = (Index)blockIdx.x * ", rows, " + (Index)threadIdx.x / ",
          plan.lanes, "; group < groups; group += (Index)gridDim.x * ", rows, ") {\n");
  text += is_whole ? "const Index row = group;\n"
                   : str("const Index row = (Index)((UIndex)group / (UIndex)", per_row, ");\n");
  text += "(void)row;\n";
  text += source.decompose("row", coordinates, move.outer);
  for (const std::string& name : coordinates) text += str("(void)", name, ";\n");
  text += move.row(width);
  text += str("Element* const to = (Element*)(out0 + row * ", source.value(move.length), ");\n",
              "Index first = (Index)threadIdx.x % ", plan.lanes);
  const int repeats = move.width / width;
  if (!is_whole) text += str(" + (group - row * ", per_row, ") * ", span * repeats);
  text += ";\n";
  if (repeats > 1)
    text += str("for (int repeat = 0; repeat < ", repeats, "; ++repeat, first += ", span, ") {\n");
  text += str("Element elements[", plan.unroll, "];\n");
  const auto each = [&](std::string_view statement) {
    text += str("#pragma unroll\nfor (int k = 0; k < ", plan.unroll,
                "; ++k) {\nconst Index i = first + k * ", plan.lanes, ";\nif (i < length) ",
                statement, "\n}\n");
  };
  each("elements[k] = fetch(i);");
  each("__stcs(to + i, elements[k]);");
  if (repeats > 1) text += "}\n";
  return text + "}\n";
}

}  // namespace

std::string RowPlan::name() const { return str(lanes, " lanes, ", unroll, " at once"); }

std::vector<RowPlan> row_plans(int64_t length, int64_t elements) {
  std::vector<RowPlan> plans = {plan_of(length, kWarp)};
  if (elements < kManyElements) {
    // Few rows do not occupy the device unless many threads share each.
    if (elements / std::max<int64_t>(1, length) < kThreads / kWarp)
      plans[0] = plan_of(length, kThreads);
    return plans;
  }
  for (const int lanes : {64, kThreads})
    if (length > lanes / 2) plans.push_back(plan_of(length, lanes));
  return plans;
}

std::vector<RowPlan> row_plans(const RowMove& move, const KernelArgs& args) {
  return row_plans(divide_up(move.typical_length, move.width), args.outputs[0].opt.numel());
}

std::vector<std::string> names_of(const std::vector<RowPlan>& plans) {
  std::vector<std::string> names;
  for (const RowPlan& plan : plans) names.push_back(plan.name());
  return names;
}

GeneratedKernel generate_rows(KernelSource& source, const RowMove& move, const RowPlan& plan) {
  source.set_output_type(0, carrier_type(move.element_size));
  const int chunk = plan.lanes * plan.unroll * move.width;
  const Expr rows = numel(move.outer), chunks = ceil_div(move.length, Expr(chunk));
  const Expr groups = rows * chunks;
  std::string text = str("const Index groups = ", source.value(groups), ";\n");
  if (move.width > 1) {
    std::string condition = alignment_condition(move.element_size, move.width, "out0");
    for (const std::string& each : move.conditions) condition += " && " + each;
    text += str("if (", condition, ") {\n", row_loop(source, move, plan, chunks, move.width),
                "return;\n}\n");
  }
  text += row_loop(source, move, plan, chunks, 1);
  return source.finish(text, blocks_for(groups, kThreads / plan.lanes), kThreads);
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
    const std::function<std::vector<std::string>(const KernelArgs&)>& tactics) {
  std::vector<Candidate> result;
  const auto add = [&](DataType type) {
    std::vector<PortDesc> inputs(query.inputs.begin(), query.inputs.end());
    std::vector<PortDesc> outputs(query.outputs.begin(), query.outputs.end());
    Candidate candidate = linear_candidate(query, {});
    for (const auto& [ports, types] :
         {std::pair(&inputs, &candidate.inputs), std::pair(&outputs, &candidate.outputs)}) {
      for (size_t i = 0; i < ports->size(); ++i) {
        if ((*ports)[i].present && (*types)[i].dtype == DataType::kFLOAT) (*types)[i].dtype = type;
        (*ports)[i].type = (*types)[i];
      }
    }
    KernelArgs args;
    args.layer = query.layer;
    args.candidate = &candidate;
    args.inputs = inputs;
    args.outputs = outputs;
    args.device = query.device;
    for (std::string& name : tactics(args)) {
      result.push_back(candidate);
      result.back().tactic_name = std::move(name);
      ++candidate.tactic;
    }
  };
  add(DataType::kFLOAT);
  if (query.strongly_typed || query.outputs[0].type.dtype != DataType::kFLOAT) return result;
  if (query.bf16) add(DataType::kBF16);
  if (query.fp16) add(DataType::kHALF);
  return result;
}

}  // namespace opwright::cuda
