#include "backend/gpu/product_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include "backend/gpu/numbered.h"
#include "cuda_device/measured_products.h"

namespace opwright::gpu {
namespace {

constexpr int kArchitecture = 90;

double estimate(const MeasuredProduct& product, int tactic) {
  return product_ms(product_tactic(tactic), product.work(), gpu_rates(kArchitecture));
}

/// The times of the tactics whose estimates are within 1.2 times the best one, at least three
/// and at most six.
std::vector<double> kept_times(const MeasuredProduct& product) {
  std::vector<MeasuredProduct::Time> times = product.times;
  const auto of = [&](const MeasuredProduct::Time& time) { return estimate(product, time.tactic); };
  std::ranges::stable_sort(times, {}, of);
  std::vector<double> kept;
  for (const MeasuredProduct::Time& time : times)
    if (kept.size() < 3 || (kept.size() < 6 && of(time) <= 1.2 * of(times[0])))
      kept.push_back(time.microseconds);
  return kept;
}

double best_time(const MeasuredProduct& product) {
  return std::ranges::min(product.times, {}, &MeasuredProduct::Time::microseconds).microseconds;
}

TEST(ProductCost, TheBestEstimatesHaveTheFastestTacticOrOneHardlySlower) {
  std::vector<double> ratios;
  std::map<std::string_view, double> kept_sums, best_sums;
  size_t kept = 0, all = 0;
  for (const MeasuredProduct& product : measured_products()) {
    const std::vector<double> times = kept_times(product);
    const double best = best_time(product), found = std::ranges::min(times);
    ratios.push_back(found / best);
    kept_sums[product.layer.network] += product.layer.count * found;
    best_sums[product.layer.network] += product.layer.count * best;
    kept += times.size(), all += product.times.size();
  }
  std::ranges::sort(ratios);
  EXPECT_EQ(ratios[ratios.size() / 2], 1) << "the median";
  EXPECT_LT(ratios[ratios.size() * 9 / 10], 1.02);
  EXPECT_LT(ratios.back(), 1.7);
  for (const auto& [network, sum] : kept_sums) EXPECT_LT(sum, 1.03 * best_sums[network]) << network;
  EXPECT_LT(static_cast<double>(kept), 0.33 * static_cast<double>(all));
}

TEST(ProductCost, EstimatesAreNearTheTimesOfFastTactics) {
  std::vector<double> errors;
  for (const MeasuredProduct& product : measured_products())
    for (const auto& [tactic, microseconds] : product.times)
      if (microseconds < 1.3 * best_time(product))
        errors.push_back(std::abs(std::log(1000 * estimate(product, tactic) / microseconds)));
  std::ranges::sort(errors);
  EXPECT_LT(errors[errors.size() / 2], std::log(1.25));
  EXPECT_LT(errors.back(), std::log(3));
}

TEST(ProductCost, MoreWorkTakesMoreTime) {
  const GpuRates& rates = gpu_rates(kArchitecture);
  const auto time = [&](int64_t tactic, int64_t m, int64_t n, int64_t k, OperandCopy copy) {
    const ProductWork work = {.size = {m, n, k},
                              .type = DataType::kHALF,
                              .a = copy,
                              .has_boxes = copy == OperandCopy::kVectors,
                              .bytes = 2.0 * static_cast<double>(m * n + m * k + n * k)};
    return product_ms(product_tactic(tactic), work, rates);
  };
  for (const int64_t tactic : {0, 4, 7, 11, 18, 22, 26, 28, 31, 50}) {
    const double usual = time(tactic, 4096, 4096, 1024, OperandCopy::kVectors);
    EXPECT_GT(time(tactic, 8192, 4096, 1024, OperandCopy::kVectors), 1.5 * usual) << tactic;
    EXPECT_GT(time(tactic, 4096, 8192, 1024, OperandCopy::kVectors), 1.5 * usual) << tactic;
    EXPECT_GT(time(tactic, 4096, 4096, 2048, OperandCopy::kVectors), 1.5 * usual) << tactic;
    EXPECT_GT(time(tactic, 4096, 4096, 1024, OperandCopy::kElements), usual) << tactic;
    EXPECT_GE(time(tactic, 0, 4096, 1024, OperandCopy::kVectors), 0) << tactic;
  }
  // 16 tiles of 128x128 leave most multiprocessors idle, unless several share one.
  const double whole = time(0, 512, 512, 8192, OperandCopy::kVectors);
  const int64_t in_parts = TileInParts{0, 8}.tactic();
  ASSERT_EQ(product_tactic(in_parts).parts, 8);
  EXPECT_LT(time(in_parts, 512, 512, 8192, OperandCopy::kVectors), whole);
}

TEST(ProductCost, EveryTacticOfEveryTypeHasAnEstimateOnEveryArchitecture) {
  const ProductSize size = {.m = 100, .n = 300, .k = 70, .batches = 3, .is_fixed = true};
  for (const int architecture : {75, 80, 86, 89, 90, 100, 120})
    for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16, DataType::kFP8,
                                DataType::kINT8, DataType::kUINT8})
      for (const ProductUnit unit : {ProductUnit::kTensor, ProductUnit::kScalar})
        for (const int64_t tactic : product_tactics(type, unit, size, architecture, true)) {
          const ProductWork work = {.size = size, .type = type, .bytes = 1e5};
          const double time = product_ms(product_tactic(tactic), work, gpu_rates(architecture));
          EXPECT_TRUE(time > 1e-4 && time < 10)
              << architecture << " " << static_cast<int>(type) << " " << tactic << " " << time;
        }
  EXPECT_EQ(gpu_rates(75).architecture, 80);
  EXPECT_EQ(gpu_rates(87).architecture, 86);
  EXPECT_EQ(gpu_rates(120).architecture, 90);
}

}  // namespace
}  // namespace opwright::gpu
