// Recurrent layers whose weights are whole multiples of a number for each unit, as those of
// quantized models are.

#include "backend/cpu/byte_panel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cpu/run_kernel.h"
#include "operators/recurrence.h"

namespace opwright::testing {
namespace {

/// Codes of bytes times a scale for each row, rounded as FP32 rounds.
Values multiples(const Shape& shape, int seed) {
  Values codes = random_values(shape, seed, -127.49, 127.49);
  const int64_t inner = shape[shape.rank() - 1];
  return make_values(shape, [&](int64_t at) {
    const auto scale = 0.001F + 0.0003F * static_cast<float>(at / inner % 7);
    return static_cast<double>(static_cast<float>(std::nearbyint(codes[at])) * scale);
  });
}

struct CellCase {
  RecurrentCell cell;
  int64_t steps, batch, input, hidden, directions;
  bool linear_before_reset = false;
};

/// The results of all steps, in double precision.
Values reference(const CellCase& c, const Values& x, const Values& w, const Values& r,
                 const Values& b) {
  const int64_t gates = gate_count(c.cell), hidden = c.hidden;
  Values y = make_values({c.steps, c.directions, c.batch, hidden}, [](int64_t) { return 0.0; });
  for (int64_t d = 0; d < c.directions; ++d)
    for (int64_t n = 0; n < c.batch; ++n) {
      std::vector<double> h(hidden, 0), cell(hidden, 0);
      for (int64_t step = 0; step < c.steps; ++step) {
        const int64_t time = d == 1 ? c.steps - 1 - step : step;
        const auto input = [&](int64_t gate, int64_t u) {
          double sum = b[(d * 2 * gates + gate) * hidden + u];
          for (int64_t k = 0; k < c.input; ++k) {
            // A weight of zero adds nothing, also where the input is infinite.
            const double weight = w[((d * gates + gate) * hidden + u) * c.input + k];
            if (weight != 0) sum += weight * x[(time * c.batch + n) * c.input + k];
          }
          return sum;
        };
        const auto state = [&](int64_t gate, int64_t u, const std::vector<double>& from) {
          double sum = b[(d * 2 * gates + gates + gate) * hidden + u];
          for (int64_t k = 0; k < hidden; ++k)
            sum += r[((d * gates + gate) * hidden + u) * hidden + k] * from[k];
          return sum;
        };
        std::vector<double> next(hidden), reset(hidden);
        for (int64_t u = 0; u < hidden; ++u) {
          if (c.cell == RecurrentCell::kRNN) {
            next[u] = std::tanh(input(0, u) + state(0, u, h));
          } else if (c.cell == RecurrentCell::kLSTM) {
            const auto gate = [&](int64_t g) { return input(g, u) + state(g, u, h); };
            cell[u] = sigmoid(gate(2)) * cell[u] + sigmoid(gate(0)) * std::tanh(gate(3));
            next[u] = sigmoid(gate(1)) * std::tanh(cell[u]);
          } else {
            reset[u] = sigmoid(input(1, u) + state(1, u, h));
          }
        }
        if (c.cell == RecurrentCell::kGRU) {
          std::vector<double> kept(hidden);
          for (int64_t u = 0; u < hidden; ++u) kept[u] = reset[u] * h[u];
          for (int64_t u = 0; u < hidden; ++u) {
            const double z = sigmoid(input(0, u) + state(0, u, h));
            const double candidate =
                std::tanh(input(2, u) +
                          (c.linear_before_reset ? reset[u] * state(2, u, h) : state(2, u, kept)));
            next[u] = (1 - z) * candidate + z * h[u];
          }
        }
        h = next;
        for (int64_t u = 0; u < hidden; ++u)
          y[((time * c.directions + d) * c.batch + n) * hidden + u] = h[u];
      }
    }
  return y;
}

void check(const CellCase& c, double outlier = 0) {
  SCOPED_TRACE(::testing::Message()
               << "cell " << static_cast<int>(c.cell) << ", " << c.steps << " steps of " << c.batch
               << " x " << c.input << " to " << c.hidden << ", " << c.directions << " directions");
  const int64_t gates = gate_count(c.cell);
  RecurrenceParams params;
  params.cell = c.cell;
  params.linear_before_reset = c.linear_before_reset;
  if (c.directions == 2) params.direction = RecurrentDirection::kBIDIRECTIONAL;
  const auto sigmoids = static_cast<int64_t>(RecurrentActivation::kSIGMOID),
             tanhs = static_cast<int64_t>(RecurrentActivation::kTANH);
  for (int64_t d = 0; d < c.directions; ++d) {
    if (c.cell != RecurrentCell::kRNN) params.activations.push_back(sigmoids);
    params.activations.push_back(tanhs);
    if (c.cell == RecurrentCell::kLSTM) params.activations.push_back(tanhs);
  }
  params.alphas = params.betas = std::vector<double>(params.activations.size(), 0);
  TestInput x{random_values({c.steps, c.batch, c.input}, 1)};
  if (outlier != 0) x.values[c.input / 2] = outlier;
  x.values = rounded(x.values, DataType::kFLOAT);
  const TestInput w{multiples({c.directions, gates * c.hidden, c.input}, 2), DataType::kFLOAT,
                    true};
  const TestInput r{multiples({c.directions, gates * c.hidden, c.hidden}, 3), DataType::kFLOAT,
                    true};
  const TestInput b{
      rounded(random_values({c.directions, 2 * gates * c.hidden}, 4), DataType::kFLOAT)};
  const Values y = reference(c, x.values, w.values, r.values, b.values);
  const Recurrence op(params);
  std::vector<TestOutput> outputs = {{y.shape}, {{c.directions, c.batch, c.hidden}}};
  if (c.cell == RecurrentCell::kLSTM) outputs.push_back(outputs[1]);
  const std::vector<TestInput> inputs = {x, w, r, b, absent(), absent(), absent(), absent()};
  const std::vector<Candidate> candidates = candidates_of(op, inputs, outputs);
  for (const Candidate& candidate : candidates)
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], y, 3e-6);
  if (candidates.empty()) return;
  TestKernel built(op, candidates[0], inputs, outputs);
  const bool w_bytes = prefers_bytes(c.input, gates * c.hidden, c.steps * c.batch);
  const bool r_bytes = prefers_bytes(c.hidden, gates * c.hidden, c.batch);
  EXPECT_EQ(built.kernel().description(),
            std::string("panels of 32 units") + (w_bytes && r_bytes ? " of bytes"
                                                 : w_bytes          ? ", inputs by bytes"
                                                 : r_bytes          ? ", states by bytes"
                                                                    : ""));
  const std::vector<PackedInput> packed = built.kernel().packed();
  TestKernel loaded(op, candidates[0], inputs, outputs, packed);
  EXPECT_EQ(loaded.kernel().description(), built.kernel().description());
  expect_close(loaded.run(inputs, outputs)[0], y, 3e-6);
}

TEST(BytePanels, Cells) {
  check({RecurrentCell::kLSTM, 3, 1, 40, 70, 1});
  check({RecurrentCell::kLSTM, 4, 3, 1, 33, 2});
  check({RecurrentCell::kGRU, 3, 6, 7, 32, 1});
  check({RecurrentCell::kGRU, 3, 2, 66, 31, 2, true});
  check({RecurrentCell::kRNN, 5, 9, 17, 5, 1});
  check({RecurrentCell::kLSTM, 300, 1, 12, 8, 1});
  check({RecurrentCell::kLSTM, 3, 1, 40, 199, 2});
  check({RecurrentCell::kGRU, 2, 2, 11, 250, 1});
  check({RecurrentCell::kLSTM, 1, 1, 701, 197, 1});
}

/// Vectors that no integers of 24 bits represent.
TEST(BytePanels, Outliers) {
  for (const double outlier : {1e30, 1e-38, std::numeric_limits<double>::infinity()})
    check({RecurrentCell::kLSTM, 2, 3, 9, 6, 1}, outlier);
  for (const double outlier : {1e30, 1e-38})
    check({RecurrentCell::kLSTM, 1, 1, 701, 197, 1}, outlier);
}

TEST(BytePanels, Codes) {
  const auto codes_of = [](std::vector<float> weights) {
    std::vector<int8_t> codes(weights.size());
    float scale = 0;
    std::vector<double> found;
    if (find_byte_codes(weights.data(), static_cast<int64_t>(weights.size()), codes.data(), scale))
      for (const int8_t code : codes) found.push_back(code * static_cast<double>(scale));
    return found;
  };
  const auto expect_found = [&](const std::vector<float>& weights) {
    const std::vector<double> found = codes_of(weights);
    ASSERT_EQ(found.size(), weights.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], weights[i], 5e-7 * std::abs(weights[i]));
  };
  expect_found({0, 0});
  expect_found({0.3F, -0.1F * 3, 0.2F, 0.7F});
  expect_found({-128 * 0.017F, 127 * 0.017F, 0.017F});
  EXPECT_TRUE(codes_of({128 * 0.017F, -127 * 0.017F, 0.017F}).empty());
  EXPECT_TRUE(codes_of({1, 0.123456F, 0.7654321F}).empty());
  EXPECT_TRUE(codes_of({1, std::numeric_limits<float>::infinity()}).empty());
  EXPECT_TRUE(codes_of({1, std::numeric_limits<float>::quiet_NaN()}).empty());
}

}  // namespace
}  // namespace opwright::testing
