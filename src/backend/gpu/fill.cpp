#include <bit>
#include <limits>

#include "backend/candidates.h"
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
    const bool is_linear = params_.operation == FillOperation::kLINSPACE;
    std::string text = is_linear ? linear_setup() : random_setup();
    text +=
        str("const Index count = ", source_.value(count), ";\nconst bool aligned = is_aligned<",
            storage_type(type_), ", ", width_, ">(out0);\n", "for (Index g = first_index(); g < ",
            source_.value(groups), "; g += index_step()) {\nconst Index first = g * ", width_,
            ";\nPack<", storage_type(type_), ", ", width_, "> pack;\n");
    text += is_linear ? linear() : random();
    text += str("if (aligned && first + ", width_ - 1, " < count) {\n*(Pack<", storage_type(type_),
                ", ", width_, ">*)(out0 + first) = pack;\n} else {\nfor (int k = 0; k < ", width_,
                "; ++k)\nif (first + k < count) out0[first + k] = pack.at[k];\n}\n}\n");
    return source_.finish(text, blocks_for(groups, kThreads), kThreads);
  }

 private:
  bool is_given(size_t input) const {
    return input < args_.inputs.size() && args_.inputs[input].present;
  }
  /// Integers are counted as integers, since a double does not hold all of them. They wrap around.
  bool is_integral() const { return is_integer(type_); }

  std::string stored(std::string_view value) const {
    return str("store<", storage_type(type_), ">(convert<", register_type(type_), ">(", value,
               "))");
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

  std::string linear_setup() {
    const std::string_view sum = is_integral() ? "long long" : "double";
    std::string text = str("const ", sum, " alpha = ", parameter(1, params_.alpha, 0, sum), ";\n");
    const bool per_axis = has_step_per_axis();
    for (size_t i = 0; i < shape_.size(); ++i)
      if (per_axis || i + 1 == shape_.size())
        text += str("const ", sum, " step", i, " = ",
                    parameter(2, params_.beta, per_axis ? i : 0, sum), ";\n");
    return text;
  }

  std::string linear() {
    std::vector<std::string> positions;
    for (size_t i = 0; i < shape_.size(); ++i) positions.push_back(str("a", i));
    const std::string_view sum = is_integral() ? "long long" : "double";
    std::string text = str("#pragma unroll\nfor (int k = 0; k < ", width_,
                           "; ++k) {\nconst Index i = first + k;\n(void)i;\n",
                           source_.decompose("i", positions, shape_), sum, " value = alpha;\n");
    for (size_t i = 0; i < shape_.size(); ++i)
      text += has_step_per_axis() || i + 1 == shape_.size()
                  ? str("value += (", sum, ")", positions[i], " * step", i, ";\n")
                  : str("(void)", positions[i], ";\n");
    return text + str("pack.at[k] = ", stored(is_integral() ? "value" : "(float)value"), ";\n}\n");
  }

  std::string random_setup() {
    source_.add_declarations(include("philox.cuh"));
    return str("const float alpha = ", parameter(1, params_.alpha, 0, "float"),
               ", beta = ", parameter(2, params_.beta, 0, "float"), ";\n");
  }

  std::string random() {
    const auto seed = static_cast<uint64_t>(params_.seed);
    std::string text = str("#pragma unroll\nfor (int k = 0; k < ", width_, "; k += 4) {\n",
                           "const Philox draw = philox((unsigned long long)(first + k) / 4, ",
                           static_cast<uint32_t>(seed), "u, ", static_cast<uint32_t>(seed >> 32),
                           "u);\nfloat values[4];\n");
    text += params_.operation == FillOperation::kRANDOM_UNIFORM
                ? "for (int j = 0; j < 4; ++j) values[j] = uniform(draw.words[j], alpha, beta);\n"
                : "normal(draw.words[0], draw.words[1], alpha, beta, values);\n"
                  "normal(draw.words[2], draw.words[3], alpha, beta, values + 2);\n";
    return text +
           str("for (int j = 0; j < 4; ++j) pack.at[k + j] = ", stored("values[j]"), ";\n}\n");
  }

  KernelSource source_;
  const KernelArgs& args_;
  const FillParams& params_;
  const DataType type_;
  const int width_;
  SymShape shape_;
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
