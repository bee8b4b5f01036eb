// Loops of the API that are the cell of a recurrent layer, and one that is not.

#include <cmath>
#include <vector>

#include "compile/engine_run.h"
#include "control/regions.h"
#include "operators/activation.h"
#include "operators/assertion.h"
#include "operators/layer_writer.h"
#include "operators/recurrence.h"

namespace opwright {
namespace {

constexpr int kSteps = 3, kBatch = 2, kInput = 2, kHidden = 3;

/// h = tanh(x W + h R + b), all of them outputs.
struct Cell {
  std::vector<float> w, r, b;
  Cell() {
    for (int i = 0; i < kInput * kHidden; ++i) w.push_back(0.3f * static_cast<float>(i - 2));
    for (int i = 0; i < kHidden * kHidden; ++i) r.push_back(0.1f * static_cast<float>(4 - i));
    for (int i = 0; i < kHidden; ++i) b.push_back(0.05f * static_cast<float>(i));
  }

  Plan plan(bool asserts) const {
    Network network;
    LayerWriter writer(network, "cell");
    Tensor* x = network.add_input("x", DataType::kFLOAT, {kSteps, kBatch, kInput});
    const auto constant = [&](const Shape& shape, const std::vector<float>& values) {
      return writer.constant_of(shape, values, DataType::kFLOAT);
    };
    Tensor *weights = constant({kInput, kHidden}, w), *recurrent = constant({kHidden, kHidden}, r);
    Tensor* bias = constant({1, kHidden}, b);
    Tensor* zeros = constant({kBatch, kHidden}, std::vector<float>(kBatch * kHidden));
    Tensor* steps = network.add_values({kSteps}, DataType::kINT32, true);
    LoopRegion* loop = add_loop(network);
    loop->add_trip_limit(*steps, TripLimit::kCOUNT);
    Tensor* element = loop->add_iterator(*x, 0, false)->output(0);
    auto* state = loop->add_recurrence(*zeros);
    Tensor* sum =
        writer.elementwise(ElementWiseOperation::kSUM, writer.multiply_matrices(element, weights),
                           writer.multiply_matrices(state->output(0), recurrent));
    sum = writer.elementwise(ElementWiseOperation::kSUM, bias, sum);
    Tensor* next = writer.activation(ActivationType::kTANH, sum);
    if (asserts) {
      Tensor* largest = writer.reduce(ReduceOperation::kMAX, next, {0, 1}, false);
      Tensor* fits = writer.elementwise(ElementWiseOperation::kLESS, largest, 2.0);
      AssertionParams params;
      params.message = "too large";
      network.add<Assertion>(params, {fits});
    }
    state->set_input(1, next);
    auto* stacked = loop->add_loop_output(*next, LoopOutput::kCONCATENATE, 0);
    stacked->set_input(1, steps);
    network.mark_output(*stacked->output(0));
    BuilderConfig config{DeviceId{"cpu"}};
    config.timing = false;
    return compile(network, config);
  }

  std::vector<double> expected(const std::vector<float>& x) const {
    std::vector<double> h(kBatch * kHidden), all;
    for (int t = 0; t < kSteps; ++t) {
      std::vector<double> next;
      for (int n = 0; n < kBatch; ++n)
        for (int j = 0; j < kHidden; ++j) {
          double sum = b[static_cast<size_t>(j)];
          for (int k = 0; k < kInput; ++k)
            sum += static_cast<double>(x[static_cast<size_t>((t * kBatch + n) * kInput + k)]) *
                   static_cast<double>(w[static_cast<size_t>(k * kHidden + j)]);
          for (int k = 0; k < kHidden; ++k)
            sum += h[static_cast<size_t>(n * kHidden + k)] *
                   static_cast<double>(r[static_cast<size_t>(k * kHidden + j)]);
          next.push_back(std::tanh(sum));
        }
      h = next;
      all.insert(all.end(), h.begin(), h.end());
    }
    return all;
  }
};

int count_recurrences(const Plan& plan) {
  int count = 0;
  for (const PlanStep& step : plan.schedules[0].steps) count += step.kind == Recurrence::kKind;
  return count;
}

void expect_right(const Cell& cell, Plan plan) {
  std::vector<float> x(kSteps * kBatch * kInput), y(kSteps * kBatch * kHidden);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.25f * static_cast<float>(i) - 1;
  Context context(Engine::load(std::move(plan), {}));
  context.set_input_address(0, x.data());
  context.set_output_address(0, y.data());
  context.enqueue();
  const std::vector<double> wanted = cell.expected(x);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], wanted[i], 1e-5) << i;
}

TEST(RecurrentLoop, IsOneLayer) {
  const Cell cell;
  Plan plan = cell.plan(false);
  EXPECT_EQ(count_recurrences(plan), 1);
  expect_right(cell, std::move(plan));
}

TEST(RecurrentLoop, WithAnAssertionStaysALoop) {
  const Cell cell;
  Plan plan = cell.plan(true);
  EXPECT_EQ(count_recurrences(plan), 0);
  expect_right(cell, std::move(plan));
}

}  // namespace
}  // namespace opwright
