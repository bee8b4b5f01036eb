#include <algorithm>
#include <cmath>
#include <optional>

#include "compile/passes.h"
#include "compile/program.h"

namespace opwright {
namespace {

constexpr int32_t kErf = opcode(UnaryOperation::kERF);
constexpr int32_t kTanh = opcode(ActivationType::kTANH);

/// How far a product of two constants may be from the exact number, relative to it. Exporters write
/// the constants in single precision, or in the type of the tensors beside them.
double tolerance_of(const GraphNode& node) {
  constexpr double kSingle = 1e-4, kHalf = 0x1p-10, kBFloat16 = 0x1p-7;
  double tolerance = kSingle;
  for (const GraphValue* input : node.inputs) {
    if (input->info.dtype == DataType::kHALF) tolerance = std::max(tolerance, kHalf);
    if (input->info.dtype == DataType::kBF16) tolerance = std::max(tolerance, kBFloat16);
  }
  return tolerance;
}

/// A product of a number and registers.
struct Product {
  double factor = 1;
  std::vector<int> registers;  // ascending
};
/// A sum of a number and weighted registers.
struct Sum {
  double constant = 0;
  std::vector<std::pair<double, int>> terms;
};

/// Finds GELU in a program: 0.5 x (1 + erf(x / sqrt 2)), and its approximation 0.5 x (1 +
/// tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel 2016), in whatever order they are
/// written.
class GeluFinder {
 public:
  GeluFinder(std::vector<PointwiseInstruction> program, double tolerance)
      : program_(std::move(program)), tolerance_(tolerance) {}

  struct Gelu {
    ActivationType type;
    int x;
  };
  std::optional<Gelu> at(int result) const {
    const Product product = factors(result);
    if (!close(product.factor, 0.5) || product.registers.size() != 2) return std::nullopt;
    for (int k = 0; k < 2; ++k) {
      const int x = product.registers[k];
      const Sum sum = terms(product.registers[1 - k]);
      if (!close(sum.constant, 1) || sum.terms.size() != 1 || sum.terms[0].first != 1) continue;
      const PointwiseInstruction& inner = program_[sum.terms[0].second];
      if (inner.op == kErf && is_scaled(inner.a, x, std::sqrt(0.5)))
        return Gelu{ActivationType::kGELU_ERF, x};
      if (inner.op == kTanh && is_cubic(inner.a, x)) return Gelu{ActivationType::kGELU_TANH, x};
    }
    return std::nullopt;
  }

 private:
  bool close(double a, double b) const { return std::abs(a - b) <= tolerance_ * std::abs(b); }

  const double* constant(int at) const {
    return program_[at].op == opcode(PointwiseOp::kConstant) ? &program_[at].alpha : nullptr;
  }

  Product factors(int at) const {
    const PointwiseInstruction& i = program_[at];
    if (const double* value = constant(at)) return {*value, {}};
    if (i.op == opcode(ElementWiseOperation::kPROD)) {
      Product a = factors(i.a);
      const Product b = factors(i.b);
      a.factor *= b.factor;
      a.registers.insert(a.registers.end(), b.registers.begin(), b.registers.end());
      std::sort(a.registers.begin(), a.registers.end());
      return a;
    }
    if (i.op == opcode(ElementWiseOperation::kDIV) && constant(i.b)) {
      Product a = factors(i.a);
      a.factor /= *constant(i.b);
      return a;
    }
    if (i.op == opcode(ElementWiseOperation::kPOW) && constant(i.b)) {
      const double power = *constant(i.b);
      if (power == 2 || power == 3) {
        const Product base = factors(i.a);
        Product result;
        for (int n = 0; n < static_cast<int>(power); ++n) {
          result.factor *= base.factor;
          result.registers.insert(result.registers.end(), base.registers.begin(),
                                  base.registers.end());
        }
        std::sort(result.registers.begin(), result.registers.end());
        return result;
      }
    }
    return {1, {at}};
  }

  Sum terms(int at) const {
    const PointwiseInstruction& i = program_[at];
    if (const double* value = constant(at)) return {*value, {}};
    if (i.op != opcode(ElementWiseOperation::kSUM)) return {0, {{1, at}}};
    Sum a = terms(i.a);
    const Sum b = terms(i.b);
    a.constant += b.constant;
    a.terms.insert(a.terms.end(), b.terms.begin(), b.terms.end());
    return a;
  }

  bool is_scaled(int at, int x, double factor) const {
    const Product product = factors(at);
    return close(product.factor, factor) && product.registers == std::vector<int>{x};
  }

  /// Matches sqrt(2 / pi) (x + 0.044715 x^3), with the factor before the sum or within it, or with
  /// x factored out.
  bool is_cubic(int at, int x) const {
    const double outer = std::sqrt(2 / M_PI), cubic = 0.044715;
    Product product = factors(at);
    auto found = std::find(product.registers.begin(), product.registers.end(), x);
    const bool taken_out = found != product.registers.end();
    if (taken_out) product.registers.erase(found);
    if (product.registers.size() != 1) return false;
    const Sum sum = terms(product.registers[0]);
    if (taken_out) {
      if (sum.terms.size() != 1 || !close(sum.constant, 1)) return false;
      const Product square = factors(sum.terms[0].second);
      return close(product.factor, outer) && close(square.factor, cubic) &&
             square.registers == std::vector<int>{x, x};
    }
    if (sum.terms.size() != 2 || sum.constant != 0) return false;
    double linear = 0, third = 0;
    for (const auto& [weight, reg] : sum.terms) {
      const Product term = factors(reg);
      if (term.registers == std::vector<int>{x}) linear += weight * term.factor;
      if (term.registers == std::vector<int>{x, x, x}) third += weight * term.factor;
    }
    return close(linear * product.factor, outer) && close(third * product.factor, outer * cubic);
  }

  std::vector<PointwiseInstruction> program_;
  double tolerance_;
};

bool rewrite(Graph& graph, GraphNode* node) {
  const PointwiseParams& params = node->as<Pointwise>()->params();
  const std::vector<PointwiseInstruction> program = decode(params);
  const GeluFinder finder(program, tolerance_of(*node));
  std::optional<GeluFinder::Gelu> found;
  size_t at = 0;
  for (size_t i = program.size(); i-- > 0 && !found;) {
    if (program[i].type != DataType::kFLOAT) continue;
    found = finder.at(static_cast<int>(i));
    at = i;
  }
  if (!found) return false;
  ProgramWriter writer;
  std::vector<int> inputs;
  for (size_t i = 0; i < node->inputs.size(); ++i)
    inputs.push_back(writer.input(static_cast<int>(i), node->inputs[i]->info.dtype));
  std::vector<PointwiseInstruction> changed = program;
  changed[at] = {opcode(found->type), DataType::kFLOAT, found->x};
  const std::vector<int> results = writer.append(encode(changed, params.results), inputs);
  std::vector<int> used;
  PointwiseParams rewritten = writer.finish(results, &used);
  std::vector<GraphValue*> remaining;
  for (int input : used) remaining.push_back(node->inputs[input]);
  graph.replace(node, std::make_shared<Pointwise>(std::move(rewritten)), std::move(remaining));
  return true;
}

}  // namespace

void recognize_activations(Graph& graph) {
  for (GraphNode* node : graph.nodes()) {
    if (!node->as<Pointwise>()) continue;
    while (rewrite(graph, node)) {
    }
  }
}

}  // namespace opwright
