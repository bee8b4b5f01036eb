#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/types.h"
#include "cuda/profile_cases.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pooling.h"
#include "operators/recurrence.h"
#include "operators/reduce.h"
#include "operators/sampling.h"

/// Layers whose kernels are made for a profile with open extents. What they compute is compared
/// with definitions in double precision.
namespace opwright::testing {
namespace {

using Inputs = std::vector<TestInput>;
using Outputs = std::vector<TestOutput>;

/// One way to run the layer, compiled once, and what it is to compute for inputs of each size.
struct Sample {
  Inputs inputs;
  std::vector<Values> expected;
};

/// Each candidate with each run, at addresses that vectors may have and others.
void check(const Operator& op, const std::vector<Candidate>& candidates,
           const std::vector<PortDesc>& inputs, const std::vector<PortDesc>& outputs,
           const std::vector<Sample>& samples, double tolerance) {
  for (const Candidate& candidate : candidates) {
    TestKernel kernel(op, candidate, inputs, outputs);
    for (const Sample& sample : samples)
      for (const int shift : {0, 1}) {
        SCOPED_TRACE(::testing::Message() << describe(candidate) << " "
                                          << sample.inputs[0].values.shape << " shift " << shift);
        Outputs results;
        for (size_t i = 0; i < sample.expected.size(); ++i)
          results.push_back({sample.expected[i].shape, outputs[i].type.dtype});
        const std::vector<Values> y = kernel.run(sample.inputs, results, -1, shift);
        for (size_t i = 0; i < y.size(); ++i) expect_close(y[i], sample.expected[i], tolerance);
        if (::testing::Test::HasFailure()) return;
      }
  }
}

void check(const Operator& op, const std::vector<PortDesc>& inputs,
           const std::vector<PortDesc>& outputs, const std::vector<Sample>& samples,
           double tolerance) {
  const std::vector<Candidate> candidates = candidates_of(op, inputs, outputs);
  ASSERT_TRUE(runs_each_once() || !candidates.empty());
  check(op, candidates, inputs, outputs, samples, tolerance);
}

constexpr TestAxis kOpen = {0, 300};

TEST(OpenPooling, WindowsOfThreadsWarpsAndBlocks) {
  for (const auto& [window, stride, pad, mode] :
       {std::tuple(3, 2, 1, PaddingMode::kEXPLICIT_ROUND_DOWN),
        std::tuple(7, 3, 2, PaddingMode::kEXPLICIT_ROUND_UP),
        std::tuple(9, 4, 0, PaddingMode::kSAME_UPPER),
        std::tuple(50, 40, 3, PaddingMode::kSAME_LOWER)}) {
    for (const PoolingType type : {PoolingType::kMAX, PoolingType::kAVERAGE}) {
      PoolingParams params;
      params.type = type, params.padding_mode = mode;
      params.window = {window, window}, params.stride = {stride, stride};
      params.pre_padding = {pad, pad}, params.post_padding = {pad, pad};
      params.average_count_excludes_padding = false;
      const Pooling op(params);
      std::vector<PortDesc> x = {port_of({kOpen, {3, 3}, {1, 300}, {1, 300}}, DataType::kFLOAT)};
      std::vector<PortDesc> y = {port_of({kOpen, {3, 3}, {1, 300}, {1, 300}}, DataType::kFLOAT)};
      x[0].opt = {1, 3, 60, 60}, y[0].opt = {1, 3, 20, 20};
      std::vector<Sample> samples;
      for (const Shape& shape : {Shape{2, 3, 51, 62}, Shape{0, 3, 60, 60}, Shape{1, 3, 97, 53}}) {
        const ResolvedPadding padding = resolve_padding(params, shape);
        Shape result = shape;
        int64_t limit[2];  // where what counts ends
        for (int a = 0; a < 2; ++a) {
          const int64_t span = shape[a + 2] + padding.pre[a] + padding.post[a];
          result[a + 2] = (span - window) / stride + 1;
          limit[a] =
              shape[a + 2] + (mode == PaddingMode::kEXPLICIT_ROUND_UP ? pad : padding.post[a]);
        }
        const Values values = random_values(shape, 1, -3, -1);
        const Values expected =
            make_values(result, [&, window = window, stride = stride](int64_t i) {
              const int64_t c = i % result[3], r = i / result[3] % result[2];
              const int64_t plane = i / (result[3] * result[2]);
              double most = -INFINITY, sum = 0, count = 0;
              for (int64_t k = 0; k < window * window; ++k) {
                const int64_t at_y = r * stride - padding.pre[0] + k / window;
                const int64_t at_x = c * stride - padding.pre[1] + k % window;
                count += at_y < limit[0] && at_x < limit[1];
                if (at_y < 0 || at_y >= shape[2] || at_x < 0 || at_x >= shape[3]) continue;
                const double value = values[(plane * shape[2] + at_y) * shape[3] + at_x];
                most = std::max(most, value), sum += value;
              }
              return type == PoolingType::kMAX ? most : sum / count;
            });
        samples.push_back({{{values}}, {expected}});
      }
      check(op, x, y, samples, 1e-5);
    }
  }
}

TEST(OpenPooling, NothingToPool) {
  PoolingParams params;
  params.window = {1, 1}, params.pre_padding = {0, 0}, params.post_padding = {0, 0};
  params.padding_mode = PaddingMode::kSAME_UPPER;
  const std::vector<PortDesc> ports = {port_of({{1, 2}, {1, 1}, kOpen, kOpen}, DataType::kFLOAT)};
  TestKernel kernel(Pooling(params), candidates_of(Pooling(params), ports, ports)[0], ports, ports);
  const Inputs none = {{Values{Shape{1, 1, 0, 5}, {}}}};
  EXPECT_TRUE(kernel.run(none, Outputs{{Shape{1, 1, 0, 5}}})[0].data.empty());
}

TEST(OpenPooling, IntegersAndNan) {
  PoolingParams params;
  params.window = {2}, params.stride = {2};
  for (const DataType type : {DataType::kINT8, DataType::kUINT8}) {
    const Values x{Shape{1, 1, 4}, {3, 100, type == DataType::kINT8 ? -7.0 : 7.0, 0}};
    const Inputs inputs = {{x, type}};
    const Outputs outputs = {{Shape{1, 1, 2}, type}};
    check(Pooling(params), describe(inputs), describe(outputs),
          {{inputs, {Values{Shape{1, 1, 2}, {100, type == DataType::kINT8 ? 0.0 : 7.0}}}}}, 0);
  }
  const double nan = std::nan("");
  const Inputs inputs = {{Values{Shape{1, 1, 6}, {nan, 1, 2, nan, 3, 4}}}};
  check(Pooling(params), describe(inputs), describe(Outputs{{Shape{1, 1, 3}}}),
        {{inputs, {Values{Shape{1, 1, 3}, {nan, nan, 4}}}}}, 0);
}

Values normalized(const Values& x, int64_t rows, int64_t inner, int64_t channels,
                  const Values& scale, const Values& bias, bool rms) {
  // Rows of neighbours; `inner` neighbours have one scale.
  const int64_t count = rows == 0 ? 0 : x.size() / rows;
  std::vector<double> means(static_cast<size_t>(rows)), factors(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; ++i) sum += rms ? 0 : x[row * count + i];
    const double mean = count > 0 ? sum / static_cast<double>(count) : 0;
    for (int64_t i = 0; i < count; ++i) {
      const double d = x[row * count + i] - mean;
      squares += d * d;
    }
    means[row] = mean, factors[row] = 1 / std::sqrt(squares / static_cast<double>(count) + 1e-5);
  }
  return make_values(x.shape, [&](int64_t i) {
    const int64_t c = i / inner % channels;
    return (x[i] - means[i / count]) * factors[i / count] * scale[c] + bias[c];
  });
}

TEST(OpenNormalization, LayersOfEveryTypeAndLength) {
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16})
    for (const int64_t most : {200, 3000, 60000})
      for (const bool rms : {false, true}) {
        const TestAxis row = {0, most};
        std::vector<PortDesc> x = {port_of({{0, 300}, row}, type), port_of({row}, type),
                                   port_of({row}, type)};
        std::vector<Sample> samples;
        for (const auto& [rows, length] :
             {std::pair<int64_t, int64_t>(5, most), {3, 33}, {2, 1}, {0, 8}, {9, 128}}) {
          const Values values = rounded(random_values({rows, length}, 1, -2, 3), type);
          const Values scale = rounded(random_values({length}, 2), type);
          const Values bias = rounded(random_values({length}, 3), type);
          samples.push_back({{{values, type}, {scale, type}, {bias, type}},
                             {normalized(values, rows, 1, length, scale, bias, rms)}});
        }
        check(Normalization({1e-5f, 2, 1, rms}), x, {port_of({{0, 300}, row}, type)}, samples,
              2 * tolerance_of(type));
      }
}

TEST(OpenNormalization, GroupsAndInstances) {
  for (const int64_t groups : {1, 4}) {
    const NormalizationParams params = {1e-5f, 12, groups};
    const TestAxis channels = {0, 64}, size = {0, 40};
    const std::vector<PortDesc> x = {port_of({{0, 3}, channels, size, size}, DataType::kFLOAT),
                                     port_of({{1, 1}, channels, {1, 1}, {1, 1}}, DataType::kFLOAT),
                                     port_of({{1, 1}, channels, {1, 1}, {1, 1}}, DataType::kFLOAT)};
    std::vector<Sample> samples;
    for (const Shape& shape : {Shape{2, 12, 7, 9}, Shape{1, 64, 8, 8}, Shape{3, 8, 1, 1}}) {
      const int64_t c = shape[1];
      const Values values = random_values(shape, 1, -2, 3);
      const Values scale = random_values({1, c, 1, 1}, 2), bias = random_values({1, c, 1, 1}, 3);
      samples.push_back({{{values}, {scale}, {bias}},
                         {normalized(values, shape[0] * (groups > 1 ? groups : c),
                                     shape[2] * shape[3], c, scale, bias, false)}});
    }
    check(Normalization(params), x, {x[0]}, samples, 2e-5);
  }
  const std::vector<PortDesc> x = {port_of({{1, 3}, {0, 64}, {1, 9}}, DataType::kFLOAT)};
  TestKernel kernel(Normalization({1e-5f, 4, 4}),
                    candidates_of(Normalization({1e-5f, 4, 4}), x, x)[0], x, x);
  const Inputs uneven = {{random_values({1, 6, 3}, 1)}};
  EXPECT_THROW(kernel.run(uneven, Outputs{{Shape{1, 6, 3}}}), std::runtime_error);
}

/// Values and indices of the k greatest or least of each row along `axis`, equal ones in order.
std::vector<Values> ordered(const Values& x, int axis, int64_t k, bool greatest) {
  Shape shape = x.shape;
  shape[axis] = k;
  const int64_t n = x.shape[axis], inner = x.shape.numel(axis + 1, x.shape.rank());
  Values values = make_values(shape, [](int64_t) { return 0.0; }), indices = values;
  for (int64_t row = 0; n > 0 && row < x.size() / n; ++row) {
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    const int64_t base = row / inner * inner * n + row % inner;
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const double u = x[base + a * inner], v = x[base + b * inner];
      return greatest ? u > v : u < v;
    });
    for (int64_t i = 0; i < k; ++i) {
      const int64_t to = row / inner * inner * k + row % inner + i * inner;
      values[to] = x[base + order[i] * inner], indices[to] = static_cast<double>(order[i]);
    }
  }
  return {values, indices};
}

TEST(OpenTopK, GivenK) {
  for (const DataType type : {DataType::kFLOAT, DataType::kINT64})
    for (const int axis : {0, 1})
      for (const auto& [most, k_most] :
           {std::pair<int64_t, int64_t>(60, 8), {2000, 20}, {9000, 6000}}) {
        const TopK op(
            {axis == 0 ? TopKOperation::kMIN : TopKOperation::kMAX, 1, int64_t{1} << axis});
        const TestAxis row = {0, most}, other = {0, 50}, k = {0, k_most};
        std::vector<PortDesc> x = {
            axis == 0 ? port_of({row, other}, type) : port_of({other, row}, type),
            port_of({}, DataType::kINT64)};
        const std::vector<TestAxis> result =
            axis == 0 ? std::vector{k, other} : std::vector{other, k};
        const std::vector<PortDesc> y = {port_of(result, type), port_of(result, DataType::kINT32)};
        std::vector<Sample> samples;
        for (const auto& [rows, length, wanted] :
             {std::tuple<int64_t, int64_t, int64_t>(3, most, k_most),
              {7, k_most + 3, k_most},
              {2, 5, 4},
              {0, 9, 2}}) {
          Values values = random_values(axis == 0 ? Shape{length, rows} : Shape{rows, length}, 1,
                                        -static_cast<double>(most) / 3, 9);
          for (double& value : values.data) value = std::trunc(value);
          samples.push_back(
              {{{values, type}, {Values{Shape{}, {static_cast<double>(wanted)}}, DataType::kINT64}},
               ordered(values, axis, wanted, axis == 1)});
        }
        check(op, x, y, samples, 0);
      }
}

TEST(OpenResize, GivenShape) {
  for (const InterpolationMode mode : {InterpolationMode::kNEAREST, InterpolationMode::kLINEAR}) {
    ResizeParams params;
    params.mode = mode;
    params.coordinate_transformation = ResizeCoordinateTransformation::kASYMMETRIC;
    const TestAxis plane = {0, 40}, size = {1, 60};
    const std::vector<PortDesc> x = {port_of({plane, size, size}, DataType::kFLOAT),
                                     port_of({{3, 3}}, DataType::kINT64)};
    const std::vector<PortDesc> y = {port_of({plane, size, size}, DataType::kFLOAT)};
    std::vector<Sample> samples;
    for (const auto& [from, to] : {std::pair(Shape{11, 4, 6}, Shape{11, 8, 18}),
                                   {Shape{3, 5, 7}, Shape{3, 5, 14}},
                                   {Shape{0, 2, 3}, Shape{0, 4, 3}}}) {
      const Values values = rounded(random_values(from, 1), DataType::kFLOAT);
      const int64_t up = to[1] / from[1], across = to[2] / from[2];
      const Values expected = make_values(to, [&, from = from, to = to](int64_t i) {
        const int64_t p = i / (to[1] * to[2]), r = i / to[2] % to[1], c = i % to[2];
        const auto at = [&](int64_t row, int64_t column) {
          return values[(p * from[1] + std::min(row, from[1] - 1)) * from[2] +
                        std::min(column, from[2] - 1)];
        };
        const int64_t r0 = r / up, c0 = c / across;
        if (mode == InterpolationMode::kNEAREST) return at(r0, c0);
        const double v = static_cast<double>(r % up) / static_cast<double>(up);
        const double u = static_cast<double>(c % across) / static_cast<double>(across);
        return (1 - v) * ((1 - u) * at(r0, c0) + u * at(r0, c0 + 1)) +
               v * ((1 - u) * at(r0 + 1, c0) + u * at(r0 + 1, c0 + 1));
      });
      std::vector<double> extents(to.begin(), to.end());
      samples.push_back({{{values}, {Values{Shape{3}, extents}, DataType::kINT64}}, {expected}});
    }
    check(Resize(params), x, y, samples, mode == InterpolationMode::kNEAREST ? 0 : 1e-5);
  }
}

TEST(OpenResize, KeptAxesHaveNoNeighbours) {
  // An infinite neighbour with the weight 0 would give NaN.
  ResizeParams params;
  params.mode = InterpolationMode::kLINEAR;
  const std::vector<PortDesc> x = {port_of({{1, 9}, {1, 9}}, DataType::kFLOAT),
                                   port_of({{2, 2}}, DataType::kINT32)};
  const Values values{Shape{2, 2}, {INFINITY, 1, 2, -INFINITY}};
  check(Resize(params), x, {x[0]},
        {{{{values}, {Values{Shape{2}, {2, 2}}, DataType::kINT32}}, {values}}}, 0);
}

TEST(OpenDeformableColumns, OffsetsAndFactors) {
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF})
    for (const bool has_factors : {false, true}) {
      DeformableColumnsParams params;
      params.window = {3, 2}, params.stride = {2, 1}, params.dilation = {1, 2};
      params.pre_padding = {1, 0}, params.post_padding = {0, 1}, params.offset_groups = 2;
      const TestAxis batch = {0, 4}, size = {0, 40};
      std::vector<PortDesc> ports = {port_of({batch, {0, 40}, size, size}, type),
                                     port_of({batch, {24, 24}, size, size}, type),
                                     port_of({batch, {12, 12}, size, size}, type)};
      ports[2].present = has_factors;
      const std::vector<PortDesc> y = {port_of({batch, {0, 240}, size, size}, type)};
      std::vector<Sample> samples;
      for (const Shape& shape : {Shape{2, 6, 7, 9}, Shape{1, 20, 5, 4}, Shape{0, 2, 6, 6}}) {
        const int64_t rows = (shape[2] + 1 - 3) / 2 + 1, columns = shape[3] + 1 - 3 + 1;
        const int64_t group_size = shape[1] / 2;
        const Values x = rounded(random_values(shape, 1), type);
        const Values offsets =
            rounded(random_values({shape[0], 24, rows, columns}, 2, -4, 4), type);
        const Values factors = rounded(random_values({shape[0], 12, rows, columns}, 3), type);
        const Values expected =
            make_values({shape[0], shape[1] * 6, rows, columns}, [&](int64_t i) {
              const int64_t c = i % columns, r = i / columns % rows,
                            place = i / (columns * rows) % 6;
              const int64_t channel = i / (columns * rows * 6) % shape[1];
              const int64_t image = i / (columns * rows * 6 * shape[1]);
              const int64_t moved = (image * 2 + channel / group_size) * 6 + place;
              const auto given = [&](const Values& of, int64_t plane) {
                return of[(plane * rows + r) * columns + c];
              };
              const double at_y =
                  static_cast<double>(r * 2 - 1 + place / 2) + given(offsets, moved * 2);
              const double at_x =
                  static_cast<double>(c + place % 2 * 2) + given(offsets, moved * 2 + 1);
              double sum = 0;
              for (int64_t a = 0; a < shape[2]; ++a)
                for (int64_t b = 0; b < shape[3]; ++b)
                  sum += std::max(0.0, 1 - std::abs(at_y - static_cast<double>(a))) *
                         std::max(0.0, 1 - std::abs(at_x - static_cast<double>(b))) *
                         x[((image * shape[1] + channel) * shape[2] + a) * shape[3] + b];
              return sum * (has_factors ? given(factors, moved) : 1);
            });
        samples.push_back(
            {{{x, type}, {offsets, type}, has_factors ? TestInput{factors, type} : absent()},
             {expected}});
      }
      check(DeformableColumns(params), ports, y, samples, std::max(1e-5, tolerance_of(type)));
    }
}

/// One direction of a cell as ONNX defines it, step by step; states are [batch, hidden].
struct Recurrent {
  RecurrenceParams params;
  int64_t hidden, input;
  Values x, w, r, b, p, h0, c0;
  std::vector<int64_t> lengths;

  double activate(int direction, int function, double v, bool clips = true) const {
    if (clips && params.clip > 0) v = std::clamp(v, -params.clip, params.clip);
    const auto at = static_cast<size_t>(direction * activation_count(params.cell) + function);
    const double alpha = params.alphas[at], beta = params.betas[at];
    switch (static_cast<RecurrentActivation>(params.activations[at])) {
      case RecurrentActivation::kRELU:
        return std::max(v, 0.0);
      case RecurrentActivation::kTANH:
        return std::tanh(v);
      case RecurrentActivation::kSIGMOID:
        return 1 / (1 + std::exp(-v));
      case RecurrentActivation::kAFFINE:
        return alpha * v + beta;
      case RecurrentActivation::kLEAKY_RELU:
        return v < 0 ? alpha * v : v;
      case RecurrentActivation::kTHRESHOLDED_RELU:
        return v < alpha ? 0 : v;
      case RecurrentActivation::kSCALED_TANH:
        return alpha * std::tanh(beta * v);
      case RecurrentActivation::kHARD_SIGMOID:
        return std::clamp(alpha * v + beta, 0.0, 1.0);
      case RecurrentActivation::kELU:
        return v < 0 ? alpha * (std::exp(v) - 1) : v;
      case RecurrentActivation::kSOFTSIGN:
        return v / (1 + std::abs(v));
      case RecurrentActivation::kSOFTPLUS:
        return std::log1p(std::exp(v));
    }
    return v;
  }

  std::vector<Values> run() const {
    const int64_t steps = x.shape[0], batch = x.shape[1], directions = params.directions();
    const int64_t gates = gate_count(params.cell);
    Values y = make_values({steps, directions, batch, hidden}, [](int64_t) { return 0.0; });
    Values y_h = h0, y_c = c0;
    for (int64_t d = 0; d < directions; ++d)
      for (int64_t n = 0; n < batch; ++n) {
        const int64_t length = lengths[static_cast<size_t>(n)], state = (d * batch + n) * hidden;
        const bool reverse = d == 1 || params.direction == RecurrentDirection::kREVERSE;
        for (int64_t step = 0; step < length; ++step) {
          const int64_t t = reverse ? length - 1 - step : step;
          std::vector<double> h(y_h.data.begin() + state, y_h.data.begin() + state + hidden);
          const auto of_input = [&](int64_t gate, int64_t j) {
            double sum = b[d * 2 * gates * hidden + gate * hidden + j];
            for (int64_t k = 0; k < input; ++k)
              sum +=
                  w[((d * gates + gate) * hidden + j) * input + k] * x[(t * batch + n) * input + k];
            return sum;
          };
          const auto of_state = [&](int64_t gate, int64_t j, const std::vector<double>& from) {
            double sum = 0;
            for (int64_t k = 0; k < hidden; ++k)
              sum +=
                  r[((d * gates + gate) * hidden + j) * hidden + k] * from[static_cast<size_t>(k)];
            return sum;
          };
          const auto state_bias = [&](int64_t gate, int64_t j) {
            return b[(d * 2 + 1) * gates * hidden + gate * hidden + j];
          };
          const auto sum = [&](int64_t gate, int64_t j) {
            return of_input(gate, j) + of_state(gate, j, h) + state_bias(gate, j);
          };
          const int dir = static_cast<int>(d);
          std::vector<double> reset(h.size());
          for (int64_t j = 0; params.cell == RecurrentCell::kGRU && j < hidden; ++j)
            reset[static_cast<size_t>(j)] = activate(dir, 0, sum(1, j));
          std::vector<double> scaled(h.size());
          for (size_t j = 0; j < h.size(); ++j) scaled[j] = reset[j] * h[j];
          for (int64_t j = 0; j < hidden; ++j) {
            double& next = y_h[state + j];
            if (params.cell == RecurrentCell::kRNN) {
              next = activate(dir, 0, sum(0, j));
            } else if (params.cell == RecurrentCell::kGRU) {
              const double z = activate(dir, 0, sum(0, j));
              const double part =
                  params.linear_before_reset
                      ? reset[static_cast<size_t>(j)] * (of_state(2, j, h) + state_bias(2, j))
                      : of_state(2, j, scaled) + state_bias(2, j);
              const double candidate = activate(dir, 1, of_input(2, j) + part);
              next = (1 - z) * candidate + z * h[static_cast<size_t>(j)];
            } else {
              const double* const peephole = &p.data[static_cast<size_t>(d * 3 * hidden + j)];
              double& c = y_c[state + j];
              const double in = activate(dir, 0, sum(0, j) + peephole[0] * c);
              const double forget = params.input_forget
                                        ? 1 - in
                                        : activate(dir, 0, sum(2, j) + peephole[2 * hidden] * c);
              c = forget * c + in * activate(dir, 1, sum(3, j));
              next =
                  activate(dir, 0, sum(1, j) + peephole[hidden] * c) * activate(dir, 2, c, false);
            }
            y[((t * directions + d) * batch + n) * hidden + j] = next;
          }
        }
      }
    if (params.cell == RecurrentCell::kLSTM) return {y, y_h, y_c};
    return {y, y_h};
  }
};

/// Activations in turn from the given one on, so that all occur.
RecurrenceParams recurrent_params(RecurrentCell cell, RecurrentDirection direction, int first) {
  RecurrenceParams params;
  params.cell = cell, params.direction = direction;
  for (int i = 0; i < params.directions() * activation_count(cell); ++i) {
    params.activations.push_back((first + i) % kRecurrentActivations);
    params.alphas.push_back(0.3), params.betas.push_back(0.4);
  }
  return params;
}

void check_recurrent(const RecurrenceParams& params, int64_t hidden, int64_t input, DataType type,
                     bool has_all, std::initializer_list<std::pair<int64_t, int64_t>> sizes,
                     bool is_tf32 = false) {
  SCOPED_TRACE(::testing::Message() << "cell " << static_cast<int>(params.cell) << " direction "
                                    << static_cast<int>(params.direction) << " hidden " << hidden
                                    << " input " << input << " " << name(type));
  const int64_t directions = params.directions(), gates = gate_count(params.cell);
  const bool is_lstm = params.cell == RecurrentCell::kLSTM;
  int64_t most_batch = 1;
  for (const auto& [steps, batch] : sizes) most_batch = std::max(most_batch, batch);
  const TestAxis steps_axis = {0, 30}, batch_axis = {0, most_batch};
  const auto fixed = [&](int64_t extent) { return TestAxis{extent, extent}; };
  std::vector<PortDesc> ports = {
      port_of({steps_axis, batch_axis, fixed(input)}, type),
      port_of({fixed(directions), fixed(gates * hidden), fixed(input)}, type),
      port_of({fixed(directions), fixed(gates * hidden), fixed(hidden)}, type),
      port_of({fixed(directions), fixed(2 * gates * hidden)}, type),
      port_of({batch_axis}, DataType::kINT32),
      port_of({fixed(directions), batch_axis, fixed(hidden)}, type),
      port_of({fixed(directions), batch_axis, fixed(hidden)}, type),
      port_of({fixed(directions), fixed(3 * hidden)}, type)};
  ports[3].present = ports[4].present = ports[5].present = has_all;
  ports[6].present = ports[7].present = has_all && is_lstm;
  std::vector<PortDesc> results = {
      port_of({steps_axis, fixed(directions), batch_axis, fixed(hidden)}, type),
      port_of({fixed(directions), batch_axis, fixed(hidden)}, type)};
  if (is_lstm) results.push_back(results[1]);
  std::vector<Sample> samples;
  for (const auto& [steps, batch] : sizes) {
    Recurrent cell{params, hidden, input, {}, {}, {}, {}, {}, {}, {}, {}};
    const double scale = 1 / std::sqrt(static_cast<double>(hidden));
    const auto values = [&](const Shape& shape, int seed, double size, bool is_there = true) {
      return rounded(random_values(shape, seed, is_there ? -size : 0, is_there ? size : 0), type);
    };
    cell.x = values({steps, batch, input}, 1, 1);
    cell.w = values({directions, gates * hidden, input}, 2, scale);
    cell.r = values({directions, gates * hidden, hidden}, 3, scale);
    cell.b = values({directions, 2 * gates * hidden}, 4, 0.5, has_all);
    cell.h0 = values({directions, batch, hidden}, 5, 1, has_all);
    cell.c0 = values({directions, batch, hidden}, 6, 1, has_all && is_lstm);
    cell.p = values({directions, 3 * hidden}, 7, 0.5, has_all && is_lstm);
    Values lengths = make_values({batch}, [&, steps = steps](int64_t i) {
      return static_cast<double>(has_all ? (i * 5 + steps - 1) % (steps + 2) : steps);
    });
    for (const double length : lengths.data)
      cell.lengths.push_back(std::min(static_cast<int64_t>(length), steps));
    const auto given = [&](const Values& of, int port) {
      return ports[static_cast<size_t>(port)].present ? TestInput{of, type} : absent();
    };
    samples.push_back({{{cell.x, type},
                        {cell.w, type},
                        {cell.r, type},
                        given(cell.b, 3),
                        has_all ? TestInput{lengths, DataType::kINT32} : absent(),
                        given(cell.h0, 5),
                        given(cell.c0, 6),
                        given(cell.p, 7)},
                       cell.run()});
  }
  const Recurrence op(params);
  QueryOptions options;
  options.tf32 = is_tf32;
  std::vector<Candidate> candidates = candidates_of(op, ports, results, options);
  if (is_tf32)
    std::erase_if(candidates,
                  [](const Candidate& each) { return !each.tactic_name.starts_with("TF32 "); });
  ASSERT_TRUE(runs_each_once() || !candidates.empty());
  static PairSelection pairs;
  std::erase_if(candidates, [&](const Candidate& each) {
    return !pairs.takes({each.tactic_name, str(static_cast<int>(params.cell)),
                         str(static_cast<int>(params.direction)), name(type),
                         str(hidden, " ", input), has_all ? "all" : "",
                         str(params.linear_before_reset, params.input_forget, params.clip > 0)});
  });
  check(op, candidates, ports, results, samples,
        is_tf32 ? 4e-3 : std::max(3e-5, tolerance_of(type)));
}

TEST(OpenRecurrence, EveryCellDirectionAndActivation) {
  int first = 0;
  for (const RecurrentCell cell : {RecurrentCell::kRNN, RecurrentCell::kGRU, RecurrentCell::kLSTM})
    for (const RecurrentDirection direction :
         {RecurrentDirection::kFORWARD, RecurrentDirection::kREVERSE,
          RecurrentDirection::kBIDIRECTIONAL})
      for (const bool has_all : {false, true}) {
        RecurrenceParams params = recurrent_params(cell, direction, first++);
        check_recurrent(params, 12, 7, DataType::kFLOAT, has_all, {{6, 5}, {1, 1}, {0, 3}, {4, 0}});
        params.clip = 0.6, params.input_forget = params.linear_before_reset = true;
        check_recurrent(params, 5, 8, DataType::kFLOAT, has_all, {{4, 3}});
      }
}

TEST(OpenRecurrence, TypesBatchesAndLongStates) {
  const RecurrenceParams lstm =
      recurrent_params(RecurrentCell::kLSTM, RecurrentDirection::kBIDIRECTIONAL, 1);
  for (const DataType type : {DataType::kHALF, DataType::kBF16})
    check_recurrent(lstm, 24, 16, type, true, {{3, 2}});
  check_recurrent(lstm, 8, 4, DataType::kFLOAT, true, {{3, 70}});
  // States that shared memory has no room for.
  for (const RecurrentCell cell : {RecurrentCell::kGRU, RecurrentCell::kLSTM})
    check_recurrent(recurrent_params(cell, RecurrentDirection::kFORWARD, 1), 3600, 4,
                    DataType::kFLOAT, true, {{2, 1}});
}

/// Units, inputs and rows that clusters do not divide, weights that blocks keep and that they do
/// not.
TEST(OpenRecurrence, ClustersOfBlocks) {
  int first = 0;
  for (const RecurrentCell cell : {RecurrentCell::kRNN, RecurrentCell::kGRU, RecurrentCell::kLSTM})
    for (const RecurrentDirection direction :
         {RecurrentDirection::kREVERSE, RecurrentDirection::kBIDIRECTIONAL}) {
      RecurrenceParams params = recurrent_params(cell, direction, first++);
      params.linear_before_reset = true;
      check_recurrent(params, 70, 7, DataType::kFLOAT, true, {{3, 5}, {1, 1}, {0, 3}, {4, 0}});
      check_recurrent(params, 72, 16, DataType::kHALF, false, {{3, 2}});
    }
  const RecurrenceParams lstm =
      recurrent_params(RecurrentCell::kLSTM, RecurrentDirection::kBIDIRECTIONAL, 1);
  check_recurrent(lstm, 64, 4, DataType::kFLOAT, true, {{3, 20}});
  check_recurrent(lstm, 64, 2048, DataType::kFLOAT, true, {{2, 1}});
  check_recurrent(lstm, 360, 4, DataType::kFLOAT, true, {{2, 1}});
}

/// On tensor cores: all cells, both forms of a GRU, more steps than are computed at once.
TEST(OpenRecurrence, TensorCores) {
  int first = 0;
  for (const RecurrentCell cell : {RecurrentCell::kRNN, RecurrentCell::kGRU, RecurrentCell::kLSTM})
    for (const bool linear : {false, true}) {
      RecurrenceParams params = recurrent_params(cell, RecurrentDirection::kBIDIRECTIONAL, first++);
      params.linear_before_reset = params.input_forget = linear;
      if (linear) params.clip = 0.6;
      check_recurrent(params, 24, 7, DataType::kFLOAT, true, {{11, 5}, {1, 1}, {0, 3}, {4, 0}});
      check_recurrent(params, 50, 40, DataType::kHALF, linear, {{10, 3}});
      check_recurrent(params, 50, 40, DataType::kBF16, linear, {{3, 3}});
    }
}

/// Several tiles in a warp, sixteen rows, sixteen blocks, weights that shared memory keeps and
/// others, and FP32 in TF32.
TEST(OpenRecurrence, TensorCoresOfManySizes) {
  RecurrenceParams params = recurrent_params(RecurrentCell::kLSTM, RecurrentDirection::kREVERSE, 1);
  check_recurrent(params, 130, 16, DataType::kHALF, true, {{3, 2}});
  check_recurrent(params, 40, 16, DataType::kHALF, true, {{9, 20}, {3, 540}});
  check_recurrent(params, 40, 3000, DataType::kHALF, true, {{2, 1}});
  check_recurrent(params, 512, 8, DataType::kHALF, true, {{2, 1}});
  check_recurrent(params, 60, 24, DataType::kFLOAT, true, {{9, 3}}, true);
}

/// Units for one to four blocks on tensor cores, and for eight and sixteen; rows for all plans.
TEST(OpenRecurrence, AllTactics) {
  if (!runs_all_tactics()) GTEST_SKIP() << "only with OPWRIGHT_ALL_TACTICS";
  const RecurrenceParams params =
      recurrent_params(RecurrentCell::kLSTM, RecurrentDirection::kREVERSE, 1);
  for (const int64_t hidden : {64, 256})
    for (const bool is_tf32 : {false, true})
      check_recurrent(params, hidden, 8, DataType::kFLOAT, true, {{3, 19}}, is_tf32);
}

}  // namespace
}  // namespace opwright::testing
