#include <bit>
#include <limits>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/source.h"

namespace opwright::gpu {
namespace {

constexpr int kVectorBytes = 16;

std::string integer_literal(int64_t number) {
  if (number == std::numeric_limits<int64_t>::min()) return "(-9223372036854775807LL - 1)";
  return str("(", number, "LL)");
}

std::string double_literal(double value) {
  return str("__longlong_as_double(", integer_literal(std::bit_cast<int64_t>(value)), ")");
}

/// Writes the kernel of one filling. A thread writes neighbours in one access where they are
/// aligned.
class FillWriter {
 public:
  FillWriter(const Fill& op, const KernelArgs& args)
      : source_("fill", args),
        args_(args),
        params_(op.params()),
        type_(args.outputs[0].type.dtype),
        width_(kVectorBytes / element_size(type_)) {
    shape_.assign(params_.shape.begin(), params_.shape.end());
    if (is_given(0)) shape_ = source_.shape_values(0);
  }

  GeneratedKernel write() {
    const Expr count = numel(shape_), groups = ceil_div(count, Expr(width_));
    config_.type("Element", storage_type(type_)), config_.type("Value", register_type(type_));
    config_.number("kWidth", width_);
    const bool is_linear = params_.operation == FillOperation::kLINSPACE;
    const std::string filling = is_linear ? linear() : random();
    source_.add_declarations(include("fill.cuh") + config_.write());
    return source_.finish(str(is_linear ? "fill_linearly" : "fill_randomly", "<Config>({out0, ",
                              source_.values({count, groups}), "}, {", filling, "});\n"),
                          blocks_for(groups, kThreads), kThreads);
  }

 private:
  bool is_given(size_t input) const {
    return input < args_.inputs.size() && args_.inputs[input].present;
  }
  /// Alpha or beta: element `axis` of the input where it is given, else the parameter.
  std::string parameter(int input, double number, size_t axis, std::string_view type) const {
    if (is_given(input)) return str("(", type, ")load(in", input, "[", axis, "])");
    if (type == "double") return double_literal(number);
    if (type == "float") return float_literal(static_cast<float>(number));
    return integer_literal(static_cast<int64_t>(number));
  }
  /// Whether the steps are a vector with one for each axis.
  bool has_step_per_axis() {
    return is_given(2) && args_.inputs[2].max.rank() == 1 &&
           args_.inputs[2].max[0] == static_cast<int64_t>(shape_.size());
  }

  /// The members of LinearFilling.
  std::string linear() {
    const std::string_view sum = is_integer(type_) ? "long long" : "double";
    const bool has_all_steps = has_step_per_axis();
    config_.type("Sum", sum), config_.number("kAxes", shape_.size());
    config_.flag("kHasAllSteps", has_all_steps);
    std::string steps;
    for (size_t i = 0; i < shape_.size(); ++i) {
      const bool has_step = has_all_steps || i + 1 == shape_.size();
      steps += str(i > 0 ? ", " : "",
                   has_step ? parameter(2, params_.beta, has_all_steps ? i : 0, sum) : "0");
    }
    return str("{", source_.values(shape_), "}, ", parameter(1, params_.alpha, 0, sum), ", {",
               steps, "}");
  }

  /// The members of RandomFilling.
  std::string random() {
    const auto seed = static_cast<uint64_t>(params_.seed);
    config_.flag("kIsUniform", params_.operation == FillOperation::kRANDOM_UNIFORM);
    return str(static_cast<uint32_t>(seed), "u, ", static_cast<uint32_t>(seed >> 32), "u, ",
               parameter(1, params_.alpha, 0, "float"), ", ",
               parameter(2, params_.beta, 0, "float"));
  }

  KernelSource source_;
  const KernelArgs& args_;
  const FillParams& params_;
  const DataType type_;
  const int width_;
  SymShape shape_;
  ConfigWriter config_;
};

std::vector<Candidate> fill_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "counter")};
}

std::optional<GeneratedKernel> generate_fill(const Operator& op, const KernelArgs& args) {
  return FillWriter(static_cast<const Fill&>(op), args).write();
}

const RegisteredKernels<Fill> kFillKernels({fill_candidates, generate_fill, nullptr});

}  // namespace
}  // namespace opwright::gpu
