#include "compile/compile.h"

#include <cmath>

#include "add_profile.h"
#include "base/error.h"
#include "engine_run.h"
#include "operators/convolution.h"
#include "operators/elementwise.h"

namespace opwright {
namespace {

/// Cross-correlation by its definition, without padding, x [1, C, H, W] and kernel [M, C, 3, 3].
std::vector<float> convolve(const std::vector<float>& x, const std::vector<float>& kernel,
                            const std::vector<float>& bias, int channels, int extent, int filters) {
  const int out = extent - 2;
  std::vector<float> y(static_cast<size_t>(filters) * out * out);
  for (int m = 0; m < filters; ++m)
    for (int i = 0; i < out; ++i)
      for (int j = 0; j < out; ++j) {
        double sum = bias.empty() ? 0 : bias[m];
        for (int c = 0; c < channels; ++c)
          for (int u = 0; u < 3; ++u)
            for (int v = 0; v < 3; ++v)
              sum += static_cast<double>(x[(c * extent + i + u) * extent + j + v]) *
                     kernel[((m * channels + c) * 3 + u) * 3 + v];
        y[(m * out + i) * out + j] = static_cast<float>(sum);
      }
  return y;
}

TEST(Compile, ConvolutionsGiveWhatTheirDefinitionGives) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {1, 3, 12, 12});
  const auto data = random_floats(3 * 12 * 12, 1), first = random_floats(8 * 3 * 9, 2),
             bias = random_floats(8, 3), second = random_floats(4 * 8 * 9, 4);
  Tensor* w1 = network.add_constant(DataType::kFLOAT, {8, 3, 3, 3}, blob_of(first));
  Tensor* b1 = network.add_constant(DataType::kFLOAT, {8}, blob_of(bias));
  Tensor* w2 = network.add_constant(DataType::kFLOAT, {4, 8, 3, 3}, blob_of(second));
  Tensor* h = network.add<Convolution>({}, {x, w1, b1})->output(0);
  Tensor* y = network.add<Convolution>({}, {h, w2})->output(0);
  y->set_name("y");
  network.mark_output(*y);

  const auto expected = convolve(convolve(data, first, bias, 3, 12, 8), second, {}, 8, 10, 4);
  BuilderConfig config = quick_config();
  Plan plan = compile(network, config);
  ASSERT_EQ(plan.schedules.size(), 1u);
  expect_near(run_plan(plan, {{1, 3, 12, 12}}, {data})[0], expected);
  // Weights are packed, so that the plan does not hold them twice.
  for (const PlanTensor& tensor : plan.schedules[0].tensors) {
    if (tensor.location != PlanTensor::Location::kWeight || tensor.dims.size() != 4) continue;
    EXPECT_TRUE(tensor.data.empty()) << tensor.name;
  }

  config.timing = false;
  expect_near(run_plan(compile(network, config), {{1, 3, 12, 12}}, {data})[0], expected);
}

/// A residual that is the convolution's operand, too, must not be overwritten while it is read.
TEST(Compile, AResidualMayBeTheConvolutionsOwnOperand) {
  constexpr int kChannels = 16, kPixels = 64;
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {1, kChannels, 8, 8});
  const auto data = random_floats(kChannels * kPixels, 1),
             weights = random_floats(kChannels * kChannels, 2);
  Tensor* w =
      network.add_constant(DataType::kFLOAT, {kChannels, kChannels, 1, 1}, blob_of(weights));
  Tensor* r = network.add<Unary>({UnaryOperation::kABS}, {x})->output(0);
  Tensor* c = network.add<Convolution>({}, {r, w})->output(0);
  Tensor* sum = network.add<ElementWise>({ElementWiseOperation::kSUM}, {c, r})->output(0);
  Tensor* y = network.add<Unary>({UnaryOperation::kNEG}, {sum})->output(0);
  y->set_name("y");
  network.mark_output(*y);

  std::vector<float> expected(data.size());
  for (int m = 0; m < kChannels; ++m)
    for (int i = 0; i < kPixels; ++i) {
      double value = std::abs(data[m * kPixels + i]);
      for (int k = 0; k < kChannels; ++k)
        value += static_cast<double>(weights[m * kChannels + k]) * std::abs(data[k * kPixels + i]);
      expected[m * kPixels + i] = static_cast<float>(-value);
    }
  expect_near(run_plan(compile(network, quick_config()), {{1, kChannels, 8, 8}}, {data})[0],
              expected);
}

TEST(Compile, DynamicExtentsNeedAProfileAndTheErrorSaysHow) {
  Network network;
  Tensor* x = network.add_input("photo", DataType::kFLOAT, {-1, 3, 12, 12});
  const auto kernel = random_floats(8 * 3 * 9, 2);
  Tensor* w = network.add_constant(DataType::kFLOAT, {8, 3, 3, 3}, blob_of(kernel));
  network.mark_output(*network.add<Convolution>({}, {x, w})->output(0));
  try {
    compile(network, quick_config());
    FAIL() << "compiled without a profile";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("photo"), std::string::npos) << text;
    EXPECT_NE(text.find("set_shape"), std::string::npos) << text;
  }
  BuilderConfig config = quick_config();
  add_profile(config).set_shape("photo", {1, 3, 12, 12}, {2, 3, 12, 12}, {3, 3, 12, 12});
  add_profile(config).set_shape("photo", {8, 3, 12, 12}, {8, 3, 12, 12}, {8, 3, 12, 12});
  const Plan plan = compile(network, config);
  ASSERT_EQ(plan.schedules.size(), 2u);
  for (int batch : {1, 3, 8}) {
    const auto data = random_floats(batch * 3 * 144, 5);
    const auto y = run_plan(plan, {{batch, 3, 12, 12}}, {data}, batch > 3);
    for (int n = 0; n < batch; ++n) {
      const std::vector<float> image(data.begin() + n * 432, data.begin() + (n + 1) * 432);
      const std::vector<float> part(y[0].begin() + n * 800, y[0].begin() + (n + 1) * 800);
      expect_near(part, convolve(image, kernel, {}, 3, 12, 8));
    }
  }
}

TEST(Compile, ATimingCacheSparesTheSecondBuildAllTiming) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {1, 3, 12, 12});
  Tensor* w =
      network.add_constant(DataType::kFLOAT, {8, 3, 3, 3}, blob_of(random_floats(8 * 27, 2)));
  network.mark_output(*network.add<Convolution>({}, {x, w})->output(0));
  BuilderConfig config = quick_config();
  config.timing_cache = std::make_shared<TimingCache>(get_device(DeviceType::kCPU).identity());
  compile(network, config);
  const size_t entries = config.timing_cache->size();
  EXPECT_GT(entries, 0u);
  // Every time in the cache is replaced; a second build takes them for granted.
  for (const std::string& key : config.timing_cache->keys())
    config.timing_cache->insert(key, 123.0f);
  const Plan plan = compile(network, config);
  EXPECT_EQ(config.timing_cache->size(), entries);
  EXPECT_EQ(plan.schedules[0].steps[0].time_ms, 123.0f);

  config.timing_cache = std::make_shared<TimingCache>("another device");
  EXPECT_THROW(compile(network, config), Error);
}

TEST(Compile, ProgressCancelsTheBuild) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, {1, 3, 12, 12});
  Tensor* w =
      network.add_constant(DataType::kFLOAT, {8, 3, 3, 3}, blob_of(random_floats(8 * 27, 2)));
  network.mark_output(*network.add<Convolution>({}, {x, w})->output(0));
  BuilderConfig config = quick_config();
  int calls = 0;
  config.progress = [&](const std::string&, int done, int total) {
    EXPECT_LE(done, total);
    return ++calls < 3;
  };
  EXPECT_THROW(compile(network, config), Error);
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace opwright
