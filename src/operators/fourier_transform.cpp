// Fourier transforms as products with constant matrices: one matrix, or one for each factor of the
// length, as in J. W. Cooley and J. W. Tukey, "An Algorithm for the Machine Calculation of Complex
// Fourier Series" (Mathematics of Computation 19, 1965). The matrices have the twiddle factors,
// too.

#include "operators/fourier_transform.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "operators/infer.h"

namespace opwright {
namespace {

/// The most elements of constants that are computed here.
constexpr int64_t kMostElements = int64_t{1} << 28;
/// Larger factors cost more products than another pass over the elements.
constexpr int64_t kMostFactor = 40;
/// With the rows and the parts, no tensor gets more axes than there may be.
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

/// What is transformed: an axis of `from` elements of `parts` numbers.
struct Transform {
  const FourierTransformParams& params;
  int64_t from, parts;

  Transform(const FourierTransformParams& of, const SymShape& dims)
      : params(of),
        from(dims[dims.size() - (of.has_planes ? 1 : 2)].constant()),
        parts(dims[dims.size() - (of.has_planes ? 2 : 1)].constant()) {}
  std::vector<Step> steps() const;
  /// What the first step multiplies element n with, beside its turn.
  double share(int64_t n) const;
  /// [rest, rows, columns]
  std::vector<float> matrices(const Step& step, bool is_last) const;

 private:
  std::vector<Step> steps_of(const std::vector<int64_t>& factors) const;
};

std::vector<Step> Transform::steps_of(const std::vector<int64_t>& factors) const {
  std::vector<Step> steps;
  int64_t length = params.length;
  for (const int64_t factor : factors) {
    Step step;
    step.factor = step.elements = step.results = factor, step.rest = length / factor;
    length = step.rest;
    steps.push_back(step);
  }
  steps.front().is_first = true, steps.front().parts = parts;
  if (factors.size() == 1) steps.front().elements = from;
  const int64_t others = params.length / factors.back();
  steps.back().results = (params.results() + others - 1) / others;
  steps.back().result_parts = params.result_parts();
  return steps;
}

/// One step, or one for each factor of the length where these are cheaper.
std::vector<Step> Transform::steps() const {
  const std::vector<Step> whole = steps_of({params.length});
  const std::vector<Step> steps = steps_of(factors_of(params.length));
  double products = 0;
  for (const Step& step : steps) products += step.products(params.length);
  return kSaving * products < whole.front().products(params.length) ? steps : whole;
}

double Transform::share(int64_t n) const {
  const int64_t length = params.length;
  const bool is_half = params.is_inverse && params.is_onesided;
  if (n >= (is_half ? length / 2 + 1 : length) || n >= from) return 0;
  // The other half is the conjugate of this one. It does not repeat the elements that are their own
  // conjugates.
  return is_half && n != 0 && 2 * n != length ? 2 * params.scale : params.scale;
}

/// Planes have all elements of a part before those of the next one, in the rows of the first step
/// and in the columns of the last one.
std::vector<float> Transform::matrices(const Step& step, bool is_last) const {
  const int64_t columns = step.columns(), length = step.factor * step.rest;
  const bool is_plane_of_x = params.has_planes && step.is_first;
  const bool is_plane_of_y = params.has_planes && is_last;
  const int64_t row = is_plane_of_x ? 1 : step.parts,
                imaginary_row = is_plane_of_x ? step.elements : 1;
  const int64_t column = is_plane_of_y ? 1 : step.result_parts;
  const int64_t imaginary_column = is_plane_of_y ? step.results : 1;
  std::vector<float> matrices(static_cast<size_t>(step.rest * step.rows() * columns), 0);
  const double turn = (params.is_inverse ? 2 : -2) * std::numbers::pi / static_cast<double>(length);
  float* matrix = matrices.data();
  for (int64_t n2 = 0; n2 < step.rest; ++n2, matrix += step.rows() * columns)
    for (int64_t n1 = 0; n1 < step.elements; ++n1)
      for (int64_t k = 0; k < step.results; ++k) {
        const int64_t n = n1 * step.rest + n2;
        const double factor = step.is_first ? share(n) : 1;
        // n * k modulo the length is exact, and small enough for exact angles.
        const double angle = turn * static_cast<double>(n % length * k % length);
        const auto real = static_cast<float>(factor * std::cos(angle));
        const auto imaginary = static_cast<float>(factor * std::sin(angle));
        float* const at = matrix + n1 * row * columns + k * column;
        at[0] = real;
        if (step.result_parts == 2) at[imaginary_column] = imaginary;
        if (step.parts == 1) continue;
        float* const below = at + imaginary_row * columns;
        below[0] = -imaginary;
        if (step.result_parts == 2) below[imaginary_column] = real;
      }
  return matrices;
}

}  // namespace

std::vector<OutputInfo> FourierTransform::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  inference.require_floating(0);
  inference.require_rank(0, 2, Dims::MAX_DIMS);
  SymShape dims = inference.input(0).dims;
  const size_t axis = dims.size() - (params().has_planes ? 1 : 2);
  const size_t parts = dims.size() - (params().has_planes ? 2 : 1);
  inference.require(dims[axis].is_constant(), "axis ", axis, " has extent ", dims[axis].str(),
                    "; expected a constant one, since it is transformed");
  inference.require(dims[parts] == Expr(1) || dims[parts] == Expr(2), "axis ", parts,
                    " has extent ", dims[parts].str(),
                    "; expected 1 for real numbers or 2 for complex ones");
  const int64_t from = dims[axis].constant(), length = params().length;
  inference.require(from <= kMostElements && length >= 1 && length <= kMostElements,
                    "a transform of ", from, " elements has length ", length, "; expected 1 to ",
                    kMostElements);
  for (const Step& step : Transform(params(), dims).steps())
    inference.require((Expr(step.rest) * step.rows() * step.columns()).constant() <= kMostElements,
                      "a transform of length ", length, " needs a matrix of ", step.rows(), " x ",
                      step.columns(), ", since its factors are large; expected ", kMostElements,
                      " elements at most");
  dims[axis] = params().results(), dims[parts] = params().result_parts();
  return {make_output(inference.input(0).dtype, std::move(dims))};
}

std::vector<Tensor*> FourierTransform::compose(Network& network, std::span<Tensor* const> inputs,
                                               const std::string& layer) const {
  ComposedWriter writer(network, *this, layer, inputs, 1, 1);
  const FourierTransformParams& p = params();
  Tensor* x = inputs[0];
  const DataType type = x->dtype();
  SymShape dims = x->dims();
  const Transform transform(p, dims);
  const std::vector<Step> steps = transform.steps();
  const bool has_factors = steps.size() > 1;
  const Expr rows = numel(std::span(dims).first(dims.size() - 2));
  x = writer.cast(x, DataType::kFLOAT);
  if (has_factors && transform.from != p.length) {
    x = writer.reshape(x, SymShape{rows, dims[dims.size() - 2], dims.back()});
    SymShape padded = {rows, p.length, transform.parts};
    if (p.has_planes) std::swap(padded[1], padded[2]);
    x = writer.slice(x, SymShape(3, 0), padded, {}, SampleMode::kFILL);
  }
  // x is [outer, elements, inner, parts] before each step. The inner axes have the digits of the
  // result's index, the least significant digit first.
  Expr outer = rows, inner = 1;
  for (const Step& step : steps) {
    if (has_factors && step.is_first && p.has_planes) {
      x = writer.reshape(x, SymShape{rows, step.parts, step.factor, step.rest});
      x = writer.transpose(x, {3, 0, 1, 2});
    } else if (has_factors) {
      x = writer.reshape(x, SymShape{outer, step.elements, step.rest, inner, step.parts});
      x = writer.transpose(x, {2, 0, 3, 1, 4});
    }
    inner = outer * inner;
    x = writer.reshape(x, SymShape{step.rest, inner, step.rows()});
    const bool is_last = &step == &steps.back();
    Tensor* matrices = writer.constant_of({step.rest, step.rows(), step.columns()},
                                          transform.matrices(step, is_last), DataType::kFLOAT);
    x = writer.multiply_matrices(x, matrices);
    inner = inner * step.results, outer = 1;
  }
  const int64_t elements = p.length / steps.back().factor * steps.back().results;
  SymShape result = {rows, elements, p.result_parts()};
  if (p.has_planes) std::swap(result[1], result[2]);
  if (has_factors) {
    const auto count = static_cast<int64_t>(steps.size());
    // The parts are in front of the last digit, or behind it.
    SymShape digits = {rows};
    Ints order = {0};
    for (const Step& step : steps) digits.emplace_back(step.results);
    digits.insert(digits.end() - (p.has_planes ? 1 : 0), Expr(p.result_parts()));
    if (p.has_planes) order.push_back(count);
    order.push_back(p.has_planes ? count + 1 : count);
    for (int64_t i = count - 1; i > 0; --i) order.push_back(i);
    if (!p.has_planes) order.push_back(count + 1);
    x = writer.transpose(writer.reshape(x, digits), order);
    x = writer.reshape(x, result);
    if (elements != p.results()) x = writer.slice_axis(x, p.has_planes ? 2 : 1, 0, p.results());
  }
  const size_t rank = dims.size();
  dims[rank - (p.has_planes ? 1 : 2)] = p.results();
  dims[rank - (p.has_planes ? 2 : 1)] = p.result_parts();
  return {writer.cast(writer.reshape(x, dims), type)};
}

}  // namespace opwright
