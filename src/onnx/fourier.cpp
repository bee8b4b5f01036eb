// Fourier transforms as products with constant matrices: one matrix, or one for each factor of the
// length, as in J. W. Cooley and J. W. Tukey, "An Algorithm for the Machine Calculation of Complex
// Fourier Series" (Mathematics of Computation 19, 1965). The matrices have the twiddle factors,
// too.

#include "onnx/fourier.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace opwright::onnx {
namespace {

/// The most elements of constants that are computed here.
constexpr int64_t kMostElements = int64_t{1} << 28;
/// Larger factors cost more products than another pass over the elements.
constexpr int64_t kMostFactor = 40;
/// With the rows, the last factor and the parts, no tensor gets more axes than there may be.
constexpr size_t kMostFactors = Dims::MAX_DIMS - 2;
/// Passes over the elements pay where they save that part of the products.
constexpr double kSaving = 4;

/// The divisor of n, other than 1 and n, whose quotient with `wanted` is nearest to 1; 1 if n is a
/// prime number.
int64_t divisor_near(int64_t n, double wanted) {
  int64_t best = 1;
  const auto distance = [&](int64_t divisor) {
    return std::abs(std::log(static_cast<double>(divisor) / wanted));
  };
  for (int64_t i = 2; i * i <= n; ++i)
    for (const int64_t divisor : {i, n / i})
      if (n % i == 0 && (best == 1 || distance(divisor) < distance(best))) best = divisor;
  return best;
}

std::vector<int64_t> factors_of(int64_t length) {
  std::vector<int64_t> factors;
  while (length > kMostFactor && factors.size() + 1 < kMostFactors) {
    const double logarithm = std::log(static_cast<double>(length));
    const double count = std::ceil(logarithm / std::log(static_cast<double>(kMostFactor)));
    const int64_t factor = divisor_near(length, std::exp(logarithm / count));
    if (factor == 1) break;
    factors.push_back(factor);
    length /= factor;
  }
  factors.push_back(length);
  return factors;
}

/// One factor's step: element n = n1 * rest + n2 adds to result k, n1 < factor, n2 < rest. There is
/// one matrix [elements * parts, results * result parts] for each n2.
struct Step {
  int64_t factor = 0, rest = 1;  ///< the length of what is transformed is their product
  int64_t elements = 0;          ///< n1 that are there
  int64_t results = 0;
  int64_t parts = 2, result_parts = 2;
  bool is_first = false;

  int64_t rows() const { return elements * parts; }
  int64_t columns() const { return results * result_parts; }
  /// Multiplications for each row of `length` elements.
  double products(int64_t length) const {
    return static_cast<double>(length / factor) * static_cast<double>(rows()) *
           static_cast<double>(columns());
  }
};

std::vector<Step> steps_of(const FourierTransform& t, const std::vector<int64_t>& factors) {
  std::vector<Step> steps;
  int64_t length = t.length;
  for (const int64_t factor : factors) {
    Step step;
    step.factor = step.elements = step.results = factor, step.rest = length / factor;
    length = step.rest;
    steps.push_back(step);
  }
  steps.front().is_first = true, steps.front().parts = t.parts;
  if (factors.size() == 1) steps.front().elements = t.from;
  const int64_t others = t.length / factors.back();
  steps.back().results = (t.to() + others - 1) / others;
  steps.back().result_parts = t.result_parts();
  return steps;
}

/// What the first step multiplies element n with, beside its turn.
double share_of(const FourierTransform& t, int64_t n) {
  const bool is_half = t.inverse && t.onesided;
  if (n >= (is_half ? t.length / 2 + 1 : t.length) || n >= t.from) return 0;
  const double scale = t.inverse ? 1 / static_cast<double>(t.length) : 1;
  // The other half is the conjugate of this one. It does not repeat the elements that are their own
  // conjugates.
  return is_half && n != 0 && 2 * n != t.length ? 2 * scale : scale;
}

/// [rest, rows, columns]
std::vector<float> matrices_of(const FourierTransform& t, const Step& step) {
  const int64_t columns = step.columns(), length = step.factor * step.rest;
  std::vector<float> matrices(static_cast<size_t>(step.rest * step.rows() * columns), 0);
  const double turn = (t.inverse ? 2 : -2) * std::numbers::pi / static_cast<double>(length);
  float* to = matrices.data();
  for (int64_t n2 = 0; n2 < step.rest; ++n2)
    for (int64_t n1 = 0; n1 < step.elements; ++n1, to += step.parts * columns)
      for (int64_t k = 0; k < step.results; ++k) {
        const int64_t n = n1 * step.rest + n2;
        const double share = step.is_first ? share_of(t, n) : 1;
        // n * k modulo the length is exact, and small enough for exact angles.
        const double angle = turn * static_cast<double>(n % length * k % length);
        const auto real = static_cast<float>(share * std::cos(angle));
        const auto imaginary = static_cast<float>(share * std::sin(angle));
        float* const at = to + k * step.result_parts;
        at[0] = real;
        if (step.result_parts == 2) at[1] = imaginary;
        if (step.parts == 1) continue;
        at[columns] = -imaginary;
        if (step.result_parts == 2) at[columns + 1] = real;
      }
  return matrices;
}

std::vector<Step> cheapest_steps(const FourierTransform& t) {
  const std::vector<Step> whole = steps_of(t, {t.length}),
                          steps = steps_of(t, factors_of(t.length));
  double products = 0;
  for (const Step& step : steps) products += step.products(t.length);
  return kSaving * products < whole.front().products(t.length) ? steps : whole;
}

}  // namespace

Tensor* fourier_transform(NodeImporter& node, Tensor* x, const FourierTransform& t) {
  if (t.from < 0 || t.length < 1 || t.from > kMostElements || t.length > kMostElements)
    node.error("a transform of ", t.from, " elements of ", t.length, " has more than ",
               kMostElements, " elements");
  const std::vector<Step> steps = cheapest_steps(t);
  for (const Step& step : steps)
    if ((Expr(step.rest) * step.rows() * step.columns()).constant() > kMostElements)
      node.error("a transform of length ", t.length, " needs a matrix of ", step.rows(), " x ",
                 step.columns(), ", since its factors are large; expected ", kMostElements,
                 " elements at most");
  const DataType type = x->dtype();
  const SymShape dims = x->dims();
  const Expr rows = numel(std::span(dims).first(dims.size() - 2));
  x = node.reshape(node.cast(x, DataType::kFLOAT), SymShape{rows, t.from, 1, t.parts});
  if (steps.size() > 1 && t.from != t.length)
    x = node.slice(x, SymShape(4, 0), SymShape{rows, t.length, 1, t.parts}, {}, SampleMode::kFILL);
  // x is [outer, elements, inner, parts] before each step. The inner axes have the digits of the
  // result's index, the least significant digit first.
  Expr outer = rows, inner = 1;
  for (const Step& step : steps) {
    x = node.reshape(x, SymShape{outer, step.elements, step.rest, inner, step.parts});
    if (steps.size() > 1) x = node.transpose(x, {2, 0, 3, 1, 4});
    inner = outer * inner;
    x = node.reshape(x, SymShape{step.rest, inner, step.rows()});
    Tensor* matrices = node.constant_of({step.rest, step.rows(), step.columns()},
                                        matrices_of(t, step), DataType::kFLOAT);
    x = node.multiply_matrices(x, matrices);
    inner = inner * step.results, outer = 1;
  }
  if (steps.size() > 1) {
    const auto count = static_cast<int64_t>(steps.size());
    SymShape digits = {rows};
    Ints order = {0};
    for (const Step& step : steps) digits.emplace_back(step.results);
    for (int64_t i = count; i > 0; --i) order.push_back(i);
    digits.emplace_back(t.result_parts()), order.push_back(count + 1);
    x = node.transpose(node.reshape(x, digits), order);
    const int64_t results = t.length / steps.back().factor * steps.back().results;
    x = node.reshape(x, SymShape{rows, results, t.result_parts()});
    if (results != t.to()) x = node.slice_axis(x, 1, 0, t.to());
  }
  SymShape result(dims.begin(), dims.end() - 2);
  result.emplace_back(t.to()), result.emplace_back(t.result_parts());
  return node.cast(node.reshape(x, result), type);
}

}  // namespace opwright::onnx
