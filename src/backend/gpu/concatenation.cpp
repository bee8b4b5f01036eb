#include <algorithm>
#include <bit>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "operators/movement.h"

namespace opwright::gpu {
namespace {

/// With at most this number of inputs, a thread may search its input at every access.
constexpr size_t kFewInputs = 16;
/// Accesses per input and row from which on it pays that threads stay in one input.
constexpr int64_t kLongPiece = 64;

/// The output is a stack of rows that hold a piece of each input.
class ConcatenationWriter {
 public:
  ConcatenationWriter(const Concatenation& op, const KernelArgs& given_args)
      : ports_(given_args),
        source_("concatenation", ports_),
        args_(ports_.args()),
        size_(element_size(args_.outputs[0].type.dtype)) {
    const KernelArgs& args = args_;
    const int rank = args.outputs[0].max.rank();
    const int64_t given = op.params().axis;
    const int64_t bit = int64_t{1} << (given < 0 ? given + rank : given);
    const int axis = std::countr_zero(
        static_cast<uint64_t>(axes_in_memory(args.outputs[0].type.format, rank, bit)));
    rows_ = numel(std::span(source_.dims(0)).first(axis));
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      const SymShape& dims = source_.dims(static_cast<int>(i));
      for (int k = 0; k < rank; ++k)
        if (k != axis && dims[k] != source_.dims(0)[k])
          source_.check_equal(dims[k], source_.dims(0)[k],
                              str("inputs 0 and ", i, " must agree in axis ", k));
      lengths_.push_back(numel(std::span(dims).subspan(axis)));
      begins_.push_back(length_);
      length_ = length_ + lengths_.back();
      typical_longest_ = std::max(typical_longest_, args.inputs[i].opt.numel(axis, rank));
      typical_length_ += args.inputs[i].opt.numel(axis, rank);
    }
    std::vector<Expr> multiples = lengths_;
    width_ = vector_width(source_, size_, multiples, conditions_);
  }

  /// Row plans of the kernel by input or by row, from the longest piece or the whole row.
  Ways<RowPlan> plans(bool by_input) const {
    const int64_t length = by_input ? typical_longest_ : typical_length_;
    return row_plans((length + width_ - 1) / width_, args_.outputs[0].opt.numel());
  }
  bool is_worth_by_input() const {
    return lengths_.size() > kFewInputs || typical_longest_ >= kLongPiece * width_;
  }
  /// Whether the kernel by row exists: its threads compare positions with the inputs one after
  /// another.
  bool has_rows() const { return lengths_.size() <= kFewInputs; }

  GeneratedKernel write(const RowPlan& plan, bool by_input) {
    for (size_t i = 0; i < lengths_.size(); ++i)
      source_.set_input_type(static_cast<int>(i), carrier_type(size_));
    return by_input ? pieces(plan) : rows(plan);
  }

 private:
  std::string length_in(const Expr& number, int width) {
    return source_.value(number) + (width > 1 ? str(" / ", width) : std::string());
  }

  GeneratedKernel rows(const RowPlan& plan) {
    RowMove move;
    move.outer = {rows_};
    move.length = length_;
    move.typical_length = typical_length_;
    move.element_size = size_;
    move.width = width_;
    move.conditions = conditions_;
    if (width_ > 1)
      for (size_t i = 0; i < lengths_.size(); ++i)
        move.conditions.push_back(alignment_condition(size_, width_, str("in", i)));
    move.row = [this](int width) {
      std::string text = "return [=](Index i) -> Element {\n";
      for (size_t i = 0; i < lengths_.size(); ++i) {
        if (i + 1 < lengths_.size())
          text += str("if (i < ", length_in(begins_[i + 1], width), ") ");
        text +=
            str("return __ldcs((const Element*)in", i, " + (row * (", length_in(lengths_[i], width),
                ") + i - ", length_in(begins_[i], width), "));\n");
      }
      return text + "};\n";
    };
    return generate_rows(source_, move, plan);
  }

  /// Statements that find the input of a stretch by binary search.
  std::string choose(size_t first, size_t last, const std::vector<Expr>& stretches) {
    if (last - first == 1)
      return str("return {in", first, ", ", source_.values({lengths_[first], begins_[first]}),
                 ", number - ", source_.value(stretches[first]), "};\n");
    const size_t middle = (first + last) / 2;
    return str("if (number < ", source_.value(stretches[middle]), ") {\n",
               choose(first, middle, stretches), "} else {\n", choose(middle, last, stretches),
               "}\n");
  }

  /// Writes a kernel whose lanes copy a stretch of one row's piece of one input.
  GeneratedKernel pieces(const RowPlan& plan) {
    source_.set_output_type(0, carrier_type(size_));
    const int chunk = plan.lanes * plan.unroll * width_;
    std::vector<Expr> stretches;  // those before each input's
    Expr count = 0;
    for (const Expr& length : lengths_) {
      stretches.push_back(count);
      count = count + rows_ * ceil_div(length, Expr(chunk));
    }
    ConfigWriter config;
    config.type("Element", carrier_type(size_));
    config.type("Access", carrier_type(size_ * width_));
    config.number("kWidth", width_);
    add_plan(config, plan);
    source_.add_declarations(include("concatenation.cuh") + config.write());
    return source_.finish(str("concatenate<Config>(out0, ", source_.values({length_, count}),
                              ", [&](Index number) -> Piece<Config> {\n",
                              choose(0, lengths_.size(), stretches), "});\n"),
                          blocks_for(count, kThreads / plan.lanes), kThreads);
  }

  const PortsInMemory ports_;
  KernelSource source_;
  const KernelArgs& args_;
  const int size_;
  Expr rows_ = 1, length_ = 0;
  std::vector<Expr> lengths_, begins_;  ///< elements per row of each input
  int64_t typical_longest_ = 0, typical_length_ = 0;
  int width_ = 1;
  std::vector<std::string> conditions_;
};

/// Tactics by input have lower numbers than those by row.
struct Choice {
  RowPlan plan;
  bool by_input;
  std::string name() const { return str(by_input ? "by input, " : "by row, ", plan.name()); }
};
Ways<Choice> choices(const ConcatenationWriter& writer) {
  Ways<Choice> result;
  const auto add = [&](bool by_input, bool is_worth_timing) {
    const Ways<RowPlan> plans = writer.plans(by_input);
    size_t number = 0;
    for (const RowPlan& plan : plans.listed(true))
      result.add({plan, by_input}, is_worth_timing && plans.is_worth_timing(number++));
  };
  add(true, writer.is_worth_by_input());
  if (writer.has_rows()) add(false, true);
  return result;
}

std::vector<Candidate> concatenation_candidates(const Operator& op, const CandidateQuery& query) {
  const std::vector<TensorFormat> formats = formats_of(query, query.outputs[0].opt.rank());
  return moving_candidates(query, formats, [&](const KernelArgs& args) {
    return choices(ConcatenationWriter(static_cast<const Concatenation&>(op), args)).names();
  });
}

std::optional<GeneratedKernel> generate_concatenation(const Operator& op, const KernelArgs& args) {
  ConcatenationWriter writer(static_cast<const Concatenation&>(op), args);
  const Choice choice = choices(writer).at(args.candidate->tactic);
  return writer.write(choice.plan, choice.by_input);
}

std::vector<std::string> concatenation_tactics() {
  std::vector<std::string> names;
  for (const std::string& plan : row_plan_names())
    for (const std::string_view by : {"by input, ", "by row, "}) names.push_back(str(by, plan));
  return names;
}

const RegisteredKernels<Concatenation> kConcatenationKernels(
    {.candidates = concatenation_candidates,
     .generate = generate_concatenation,
     .make = nullptr,
     .tactics = concatenation_tactics});

}  // namespace
}  // namespace opwright::gpu
