#include <gtest/gtest.h>

#include <cmath>

#include "base/types.h"
#include "cpu/run_kernel.h"
#include "operators/source.h"

namespace opwright::testing {
namespace {

Values run(FillParams params, const Shape& shape, const std::vector<TestInput>& inputs = {}) {
  params.shape.assign(shape.begin(), shape.end());
  const std::vector<TestOutput> outputs = {{shape, params.to_type}};
  const Fill op(params);
  return run_kernel(op, candidates_of(op, inputs, outputs).at(0), inputs, outputs)[0];
}

TEST(Fill, LinearSpacesOfEveryType) {
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16, DataType::kFP8,
                              DataType::kINT8, DataType::kINT32, DataType::kINT64}) {
    SCOPED_TRACE(name(type));
    FillParams params{FillOperation::kLINSPACE, {}, type, 3, 2};
    expect_close(run(params, {5}), {Shape{5}, {3, 5, 7, 9, 11}}, 0);
    params.beta = 0;
    expect_close(run(params, {2, 3}), {Shape{2, 3}, {3, 3, 3, 3, 3, 3}}, 0);
    // A step for every axis.
    const std::vector<TestInput> inputs = {
        absent(), {{Shape{}, {-2}}, type}, {{Shape{2}, {10, 3}}, type}};
    expect_close(run(params, {2, 3}, inputs), {Shape{2, 3}, {-2, 1, 4, 8, 11, 14}}, 0);
  }
  FillParams params{FillOperation::kLINSPACE, {}, DataType::kFLOAT, 0, 0.1};
  const Values y = run(params, {1000});
  for (int i = 0; i < 1000; ++i) ASSERT_NEAR(y[i], i * 0.1, 1e-5);
  EXPECT_EQ(run(params, {0, 3}).size(), 0);
}

TEST(Fill, UniformNumbersComeFromPhilox) {
  // The generator's known answer for counter 0 and key 0.
  const FillParams params{FillOperation::kRANDOM_UNIFORM, {}, DataType::kFLOAT, 0, 1, 0};
  const Values y = run(params, {4});
  const uint32_t words[] = {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y[i], (words[i] >> 8) * 0x1p-24);
}

TEST(Fill, UniformMoments) {
  FillParams params{FillOperation::kRANDOM_UNIFORM, {}, DataType::kFLOAT, -1, 3, 42};
  const Values y = run(params, {100, 1001});
  double sum = 0, squares = 0;
  for (const double v : y.data) {
    ASSERT_TRUE(v >= -1 && v < 3);
    sum += v, squares += (v - 1) * (v - 1);
  }
  EXPECT_NEAR(sum / y.size(), 1, 0.02);
  EXPECT_NEAR(squares / y.size(), 16.0 / 12, 0.03);
  expect_close(run(params, {100, 1001}), y, 0);
  params.seed = 43;
  EXPECT_NE(run(params, {100, 1001}).data, y.data);
}

TEST(Fill, NormalMoments) {
  const FillParams params{FillOperation::kRANDOM_NORMAL, {}, DataType::kFLOAT, 2, 0.5, 7};
  const Values y = run(params, {99999});
  double sum = 0, squares = 0, fourth = 0;
  for (const double v : y.data) {
    ASSERT_TRUE(std::isfinite(v));
    const double z = (v - 2) / 0.5;
    sum += z, squares += z * z, fourth += z * z * z * z;
  }
  EXPECT_NEAR(sum / y.size(), 0, 0.02);
  EXPECT_NEAR(squares / y.size(), 1, 0.02);
  EXPECT_NEAR(fourth / y.size(), 3, 0.1);
}

}  // namespace
}  // namespace opwright::testing
