#include <gtest/gtest.h>

#include <cmath>

#include "cpu/run_kernel.h"
#include "operators/movement.h"

namespace opwright::testing {
namespace {

using Mode = InterpolationMode;
using Transformation = ResizeCoordinateTransformation;
using Round = ResizeRoundMode;

/// y along one axis as ONNX's description of Resize has it, in double precision.
std::vector<std::pair<int64_t, double>> taps(const ResizeParams& params, int64_t i, int64_t from,
                                             int64_t to, double scale) {
  double x = (i + 0.5) / scale - 0.5;
  if (params.coordinate_transformation == Transformation::kASYMMETRIC) x = i / scale;
  if (params.coordinate_transformation == Transformation::kALIGN_CORNERS)
    x = to == 1 ? 0 : i * (from - 1.0) / (to - 1.0);
  if (params.coordinate_transformation == Transformation::kPYTORCH_HALF_PIXEL && to == 1) x = 0;
  if (params.selector == ResizeSelector::kUPPER && to == 1) x = 0;
  const auto clamp = [&](double at) {
    return static_cast<int64_t>(std::min(std::max(at, 0.0), from - 1.0));
  };
  if (params.mode == Mode::kNEAREST) {
    switch (params.nearest_rounding) {
      case Round::kHALF_UP:
        return {{clamp(std::floor(x + 0.5)), 1}};
      case Round::kHALF_DOWN:
        return {{clamp(std::ceil(x - 0.5)), 1}};
      case Round::kFLOOR:
        return {{clamp(std::floor(x)), 1}};
      default:
        return {{clamp(std::ceil(x)), 1}};
    }
  }
  const double base = std::floor(x), t = x - base;
  if (params.mode == Mode::kLINEAR) return {{clamp(base), 1 - t}, {clamp(base + 1), t}};
  const double a = params.cubic_coeff;
  const auto weight = [&](double d) {
    d = std::abs(d);
    if (d <= 1) return (a + 2) * d * d * d - (a + 3) * d * d + 1;
    return a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a;
  };
  std::vector<std::pair<int64_t, double>> result;
  double sum = 0;
  for (int k = -1; k <= 2; ++k) {
    const double at = base + k;
    if (params.exclude_outside && (at < 0 || at >= from)) continue;
    result.push_back({clamp(at), weight(t - k)});
    sum += result.back().second;
  }
  if (params.exclude_outside)
    for (auto& [index, w] : result) w /= sum;
  return result;
}

/// One axis after the other.
Values reference(const Values& x, const Shape& shape, const ResizeParams& params) {
  Values y = x;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int64_t from = x.shape[axis], to = shape[axis];
    const double scale = params.scales.empty() ? double(to) / from : params.scales[axis];
    if (to == from && scale == 1) continue;
    const Values before = std::move(y);
    Shape after = before.shape;
    after[axis] = to;
    const int64_t inner = after.numel(axis + 1, after.rank());
    y = make_values(after, [](int64_t) { return 0.0; });
    for (int64_t own = 0; own < to; ++own)
      for (const auto& [index, weight] : taps(params, own, from, to, scale))
        for (int64_t outer = 0; outer < after.numel(0, axis); ++outer) {
          double* const result = y.data.data() + (outer * to + own) * inner;
          const double* const source = before.data.data() + (outer * from + index) * inner;
          for (int64_t i = 0; i < inner; ++i) result[i] += weight * source[i];
        }
  }
  return y;
}

int check(const Shape& from, const Shape& to, ResizeParams params, DataType type = DataType::kFLOAT,
          QueryOptions options = {}) {
  const Values x = rounded(random_values(from, 1), type);
  if (params.scales.empty()) params.shape.assign(to.begin(), to.end());
  const Values expected = reference(x, to, params);
  const std::vector<TestInput> inputs = {{x, type}};
  const std::vector<TestOutput> outputs = {{to, type}};
  const Resize op(params);
  static Selection selection(3);
  int formats = 0;
  for (const Candidate& candidate : candidates_of(op, inputs, outputs, options)) {
    if (!selection.takes_next()) continue;
    formats += candidate.inputs[0].format != TensorFormat::kLINEAR;
    SCOPED_TRACE(::testing::Message()
                 << from << " to " << to << " mode " << static_cast<int>(params.mode)
                 << " transformation " << static_cast<int>(params.coordinate_transformation)
                 << " rounding " << static_cast<int>(params.nearest_rounding) << " "
                 << describe(candidate));
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected,
                 tolerance_of(candidate.inputs[0].dtype));
  }
  return formats;
}

constexpr Transformation kTransformations[] = {
    Transformation::kALIGN_CORNERS, Transformation::kASYMMETRIC, Transformation::kHALF_PIXEL,
    Transformation::kPYTORCH_HALF_PIXEL};

TEST(Resize, Nearest) {
  int formats = 0;
  for (const Transformation transformation : kTransformations)
    for (const Round round : {Round::kHALF_UP, Round::kHALF_DOWN, Round::kFLOOR, Round::kCEIL}) {
      ResizeParams params;
      params.mode = Mode::kNEAREST;
      params.coordinate_transformation = transformation;
      params.nearest_rounding = round;
      formats += check({2, 16, 4, 6}, {2, 16, 8, 12}, params);
      check({2, 3, 8, 8}, {2, 3, 4, 2}, params);
      check({1, 2, 1, 5}, {1, 2, 4, 1}, params);
      check({3, 8}, {6, 4}, params, DataType::kHALF);
    }
  if (test_device().is_host()) {
    EXPECT_GE(formats, at_least(10));
  }
}

/// floor, of integers.
int64_t quotient(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

/// The element that is nearest, in integers.
int64_t nearest(Transformation transformation, Round round, int64_t i, int64_t from, int64_t to) {
  int64_t numerator = (2 * i + 1) * from - to, parts = 2 * to;
  if (transformation == Transformation::kASYMMETRIC) numerator = 2 * i * from;
  if (transformation == Transformation::kALIGN_CORNERS)
    numerator = i * (from - 1), parts = std::max<int64_t>(to - 1, 1);
  if (transformation == Transformation::kPYTORCH_HALF_PIXEL && to == 1) numerator = 0;
  const int64_t below = quotient(numerator, parts), rest = numerator - below * parts;
  const bool goes_up = round == Round::kCEIL        ? rest > 0
                       : round == Round::kHALF_UP   ? 2 * rest >= parts
                       : round == Round::kHALF_DOWN ? 2 * rest > parts
                                                    : false;
  return std::clamp<int64_t>(below + (goes_up ? 1 : 0), 0, from - 1);
}

// Where a place is whole, or in the middle between two, nothing may round.
TEST(Resize, PlacesAreExact) {
  for (const Transformation transformation : kTransformations)
    for (const Round round : {Round::kHALF_UP, Round::kHALF_DOWN, Round::kFLOOR, Round::kCEIL})
      for (const bool scales : {false, true}) {
        ResizeParams params;
        params.mode = Mode::kNEAREST;
        params.coordinate_transformation = transformation;
        params.nearest_rounding = round;
        const int64_t first = test_device().is_host() ? 1 : 14, last = first == 1 ? 24 : 14;
        for (int64_t from = first; from <= last; ++from) {
          // Three axes at once.
          const Shape x{from, from + 1, from + 6};
          for (int64_t to = first == 1 ? 1 : 2; to <= last; to += 5) {
            Shape y{to, to + 4, 2 * to};
            params.shape.clear(), params.scales.clear();
            for (int axis = 0; axis < 3; ++axis) {
              params.shape.push_back(y[axis]);
              params.scales.push_back(static_cast<double>(y[axis]) / static_cast<double>(x[axis]));
            }
            if (scales)
              params.shape.clear();
            else
              params.scales.clear();
            const std::vector<TestInput> inputs = {
                {make_values(x, [](int64_t i) { return static_cast<double>(i); })}};
            const std::vector<TestOutput> outputs = {{y}};
            const Resize op(params);
            const Values got =
                run_kernel(op, candidates_of(op, inputs, outputs).at(0), inputs, outputs)[0];
            std::vector<int64_t> places[3];
            for (int axis = 0; axis < 3; ++axis)
              for (int64_t i = 0; i < y[axis]; ++i)
                places[axis].push_back(nearest(transformation, round, i, x[axis], y[axis]));
            Values expected{y, {}};
            for (const int64_t plane : places[0])
              for (const int64_t row : places[1])
                for (const int64_t column : places[2])
                  expected.data.push_back(
                      static_cast<double>((plane * x[1] + row) * x[2] + column));
            SCOPED_TRACE(::testing::Message()
                         << x << " to " << y << " transformation "
                         << static_cast<int>(transformation) << " rounding "
                         << static_cast<int>(round) << (scales ? " by scales" : ""));
            expect_close(got, expected, 0);
          }
        }
      }
}

TEST(Resize, NearestMovesEveryType) {
  ResizeParams params;
  params.scales = {1, 2};
  const std::vector<TestInput> inputs = {{{Shape{1, 3}, {1, 2, 3}}, DataType::kINT64}};
  const std::vector<TestOutput> outputs = {{{1, 6}, DataType::kINT64}};
  const Resize op(params);
  expect_close(run_kernel(op, candidates_of(op, inputs, outputs).at(0), inputs, outputs)[0],
               {Shape{1, 6}, {1, 1, 2, 2, 3, 3}}, 0);
}

TEST(Resize, LinearAndCubic) {
  int formats = 0;
  for (const Mode mode : {Mode::kLINEAR, Mode::kCUBIC})
    for (const Transformation transformation : kTransformations)
      for (const bool exclude : {false, true}) {
        ResizeParams params;
        params.mode = mode;
        params.coordinate_transformation = transformation;
        params.exclude_outside = mode == Mode::kCUBIC && exclude;
        params.cubic_coeff = exclude ? -0.5f : -0.75f;
        formats += check({2, 3, 5, 7}, {2, 3, 11, 9}, params);
        check({2, 3, 9, 12}, {2, 3, 4, 30}, params);
        check({1, 5, 20, 18}, {1, 5, 7, 5}, params);
        check({4, 3, 6}, {4, 3, 1}, params);
        check({1, 2, 4, 5, 6}, {1, 2, 7, 3, 9}, params);
        check({3, 4}, {5, 7}, params);
        check({1, 1, 1, 4}, {1, 1, 3, 2}, params);
        check({1, 2, 40, 50}, {1, 2, 100, 120}, params);
      }
  if (test_device().is_host()) {
    EXPECT_GE(formats, at_least(5));
  }
}

TEST(Resize, ScalesNeedNotBeTheQuotientOfTheExtents) {
  ResizeParams params;
  params.mode = Mode::kLINEAR;
  params.coordinate_transformation = Transformation::kHALF_PIXEL;
  params.scales = {1, 1, 1.875, 0.4375};
  check({1, 2, 3, 9}, {1, 2, 5, 3}, params);
  params.scales = {1, 1, 1.25, 1};
  check({2, 2, 3, 9}, {2, 2, 3, 9}, params);
}

TEST(Resize, UpperSelector) {
  ResizeParams params;
  params.mode = Mode::kLINEAR;
  params.coordinate_transformation = Transformation::kHALF_PIXEL;
  params.selector = ResizeSelector::kUPPER;
  check({1, 1, 6, 6}, {1, 1, 1, 3}, params);
}

TEST(Resize, LowerPrecisions) {
  ResizeParams params;
  params.mode = Mode::kLINEAR;
  params.coordinate_transformation = Transformation::kHALF_PIXEL;
  check({2, 16, 5, 7}, {2, 16, 10, 14}, params, DataType::kFLOAT, {.fp16 = true, .bf16 = true});
}

// Examples of the ONNX standard.
TEST(Resize, ExamplesOfTheStandard) {
  const auto run = [](const Values& x, const Shape& to, const ResizeParams& params) {
    const std::vector<TestInput> inputs = {{x}};
    const std::vector<TestOutput> outputs = {{to}};
    const Resize op(params);
    return run_kernel(op, candidates_of(op, inputs, outputs).at(0), inputs, outputs)[0];
  };
  ResizeParams params;
  params.mode = Mode::kLINEAR;
  params.coordinate_transformation = Transformation::kHALF_PIXEL;
  params.scales = {1, 1, 2, 2};
  expect_close(run({Shape{1, 1, 2, 2}, {1, 2, 3, 4}}, {1, 1, 4, 4}, params),
               {Shape{1, 1, 4, 4},
                {1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4}},
               1e-6);
  params.coordinate_transformation = Transformation::kALIGN_CORNERS;
  expect_close(run({Shape{1, 1, 2, 2}, {1, 2, 3, 4}}, {1, 1, 4, 4}, params),
               {Shape{1, 1, 4, 4},
                {1, 4 / 3.0, 5 / 3.0, 2, 5 / 3.0, 2, 7 / 3.0, 8 / 3.0, 7 / 3.0, 8 / 3.0, 3,
                 10 / 3.0, 3, 10 / 3.0, 11 / 3.0, 4}},
               1e-6);
  params.mode = Mode::kNEAREST;
  params.coordinate_transformation = Transformation::kHALF_PIXEL;
  params.nearest_rounding = Round::kHALF_DOWN;
  params.scales = {1, 1, 2, 3};
  expect_close(
      run({Shape{1, 1, 2, 2}, {1, 2, 3, 4}}, {1, 1, 4, 6}, params),
      {Shape{1, 1, 4, 6}, {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 3, 3, 3, 4, 4, 4}},
      0);
}

TEST(Resize, TensorsWithoutElements) {
  for (const Mode mode : {Mode::kNEAREST, Mode::kLINEAR}) {
    ResizeParams params;
    params.mode = mode;
    check({0, 2, 3}, {0, 2, 6}, params);
  }
}

}  // namespace
}  // namespace opwright::testing
