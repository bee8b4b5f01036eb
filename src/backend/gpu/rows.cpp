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

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Plans a row of `length` accesses: its threads, at most `most`, and the accesses of each.
RowPlan plan_of(int64_t length, int most) {
  RowPlan plan;
  plan.lanes = static_cast<int>(
      std::min<uint64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, length))), most));
  plan.unroll = static_cast<int>(std::clamp<int64_t>(divide_up(length, plan.lanes), 1, kMaxUnroll));
  return plan;
}

/// Writes the loop over the rows with accesses of `width` elements.
class RowLoop {
 public:
  RowLoop(KernelSource& source, const RowMove& move, const RowPlan& plan, const Expr& chunks,
          int width)
      : source_(source),
        move_(move),
        plan_(plan),
        chunks_(chunks),
        width_(width),
        groups_(kThreads / plan.lanes * plan.rows) {}

  std::string write() {
    const std::string whole = source_.value(move_.length);
    text_ = str("typedef ", carrier_type(move_.element_size * width_), " Element;\n",
                "const Index length = ", whole, width_ > 1 ? str(" / ", width_) : std::string(),
                ", lane = (Index)threadIdx.x % ", plan_.lanes, ";\n",
                "for (Index group = (Index)blockIdx.x * ", groups_, " + (Index)threadIdx.x / ",
                plan_.lanes, "; group < groups; group += (Index)gridDim.x * ", groups_, ") {\n");
    if (plan_.rows > 1)
      short_rows(whole);
    else
      long_rows(whole);
    return text_ + "}\n";
  }

 private:
  /// Statements that prepare row number `row`.
  std::string begin_row() {
    std::vector<std::string> coordinates;
    for (size_t i = 0; i < move_.outer.size(); ++i) coordinates.push_back(str("c", i));
    std::string text = source_.decompose("row", coordinates, move_.outer);
    for (const std::string& name : coordinates) text += str("(void)", name, ";\n");
    return text + move_.row(width_);
  }

  void each(std::string_view variable, int count, std::string_view statements) {
    text_ += str("#pragma unroll\nfor (int ", variable, " = 0; ", variable, " < ", count, "; ++",
                 variable, ") {\n", statements, "}\n");
  }

  /// Statements for several accesses to one row.
  void long_rows(const std::string& whole) {
    const int span = plan_.lanes * plan_.unroll;  // positions of all lanes at once
    const int repeats = move_.width / width_;
    if (chunks_ == Expr(1)) {
      text_ += "const Index row = group;\nIndex first = lane;\n";
    } else {
      const std::string per_row = source_.value(chunks_);
      text_ +=
          str("const Index row = (Index)((UIndex)group / (UIndex)", per_row,
              ");\nIndex first = lane + (group - row * ", per_row, ") * ", span * repeats, ";\n");
    }
    text_ += begin_row();
    text_ += str("Element* const to = (Element*)(out0 + row * ", whole, ");\n");
    if (repeats > 1)
      text_ +=
          str("for (int repeat = 0; repeat < ", repeats, "; ++repeat, first += ", span, ") {\n");
    text_ += str("Element elements[", plan_.unroll, "];\n");
    const std::string position =
        str("const Index i = first + k * ", plan_.lanes, ";\nif (i < length) ");
    each("k", plan_.unroll, position + "elements[k] = fetch(i);\n");
    each("k", plan_.unroll, position + "__stcs(to + i, elements[k]);\n");
    if (repeats > 1) text_ += "}\n";
  }

  /// Statements for one access to each of several rows.
  void short_rows(const std::string& whole) {
    text_ += str("for (Index i = lane; i < length; i += ", plan_.lanes, ") {\nElement elements[",
                 plan_.rows, "];\n");
    const std::string number =
        str("const Index row = group + r * ", kThreads / plan_.lanes, ";\nif (row < groups) {\n");
    each("r", plan_.rows, number + begin_row() + "elements[r] = fetch(i);\n}\n");
    each("r", plan_.rows,
         number + str("__stcs((Element*)(out0 + row * ", whole, ") + i, elements[r]);\n}\n"));
    text_ += "}\n";
  }

  KernelSource& source_;
  const RowMove& move_;
  const RowPlan& plan_;
  const Expr& chunks_;
  const int width_, groups_;
  std::string text_;
};

}  // namespace

std::string RowPlan::name() const {
  return rows > 1 ? str(lanes, " lanes, ", rows, " rows at once")
                  : str(lanes, " lanes, ", unroll, " at once");
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
  const Expr rows = numel(move.outer);
  const Expr chunks =
      plan.rows > 1 ? min(move.length, Expr(1)) : ceil_div(move.length, Expr(chunk));
  const Expr groups = rows * chunks;
  std::string text = str("const Index groups = ", source.value(groups), ";\n");
  if (move.width > 1) {
    std::string condition = alignment_condition(move.element_size, move.width, "out0");
    for (const std::string& each : move.conditions) condition += " && " + each;
    text += str("if (", condition, ") {\n", RowLoop(source, move, plan, chunks, move.width).write(),
                "return;\n}\n");
  }
  text += RowLoop(source, move, plan, chunks, 1).write();
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
