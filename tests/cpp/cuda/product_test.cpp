#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/types.h"
#include "cuda/profile_cases.h"
#include "operators/matrix.h"

namespace opwright::testing {
namespace {

Values product(const Values& a, const Values& b, int64_t stack, int64_t m, int64_t n, int64_t k) {
  return make_values({stack, m, n}, [&](int64_t i) {
    const int64_t column = i % n, row = i / n;  // of all of a
    double sum = 0;
    for (int64_t e = 0; e < k; ++e) sum += a[row * k + e] * b[(row / m * k + e) * n + column];
    return sum;
  });
}

/// Every tile, on shapes that are no multiple of it and on those that are, at addresses that
/// vectors may have and others.
TEST(CudaProduct, OpenExtentsInEveryTile) {
  const TestAxis stack = {1, 3}, open = {0, 512};
  const MatrixMultiply op;
  struct Sizes {
    int64_t stack, m, n, k;
  };
  const Sizes sizes[] = {{1, 37, 70, 45}, {2, 130, 40, 96}, {3, 5, 131, 7}, {1, 64, 64, 0}};
  std::set<int64_t> tactics;
  for (const DataType type :
       {DataType::kFLOAT, DataType::kHALF, DataType::kBF16, DataType::kINT32}) {
    const std::vector<PortDesc> inputs = {port_of({stack, open, open}, type),
                                          port_of({stack, open, open}, type)};
    const std::vector<PortDesc> outputs = {port_of({stack, open, open}, type)};
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      tactics.insert(candidate.tactic);
      TestKernel kernel(op, candidate, inputs, outputs);
      for (const auto& [count, m, n, k] : sizes) {
        Values a = random_values({count, m, k}, 1), b = random_values({count, k, n}, 2);
        if (type == DataType::kINT32)
          for (Values* values : {&a, &b})
            for (double& value : values->data) value = std::round(100 * value);
        a = rounded(a, type), b = rounded(b, type);
        const Values expected = product(a, b, count, m, n, k);
        for (const int shift : {0, 1}) {
          SCOPED_TRACE(::testing::Message() << count << " " << m << "x" << n << "x" << k << " "
                                            << describe(candidate) << " shift " << shift);
          const Values y =
              kernel.run(std::vector<TestInput>{{a, type}, {b, type}},
                         std::vector<TestOutput>{{expected.shape, type}}, -1, shift)[0];
          expect_close(y, expected,
                       type == DataType::kINT32 ? 0 : std::max(1e-5, tolerance_of(type)));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GE(tactics.size(), 12u) << "not every tile was tested";
}

/// Blocks that compute one tile after another, of more tiles than there are blocks.
TEST(CudaProduct, BlocksThatStay) {
  const int64_t m = 3000, n = 1504, k = 40;
  const DataType type = DataType::kHALF;
  const MatrixMultiply op;
  const Values a = rounded(random_values({1, m, k}, 1), type);
  const Values b = rounded(random_values({1, k, n}, 2), type);
  const Values expected = product(a, b, 1, m, n, k);
  const std::vector<TestInput> inputs = {{a, type}, {b, type}};
  const std::vector<TestOutput> outputs = {{expected.shape, type}};
  int tested = 0;
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    if (!candidate.tactic_name.ends_with("persistent")) continue;
    SCOPED_TRACE(describe(candidate));
    TestKernel kernel(op, candidate, inputs, outputs);
    expect_close(kernel.run(inputs, outputs)[0], expected, tolerance_of(type));
    ++tested;
  }
  EXPECT_EQ(tested, 3);
}

/// Tiles of which several blocks compute parts, again and again: each run leaves the counters of
/// what is done as it found them.
TEST(CudaProduct, TilesInParts) {
  const int64_t m = 37, n = 300, k = 4 * 8 * 64;
  const MatrixMultiply op;
  std::set<int> parts_seen, cluster_parts_seen;
  for (const DataType type :
       {DataType::kFLOAT, DataType::kHALF, DataType::kBF16, DataType::kINT32}) {
    Values a = random_values({1, m, k}, 1), b = random_values({1, k, n}, 2);
    if (type == DataType::kINT32)
      for (Values* values : {&a, &b})
        for (double& value : values->data) value = std::round(100 * value);
    a = rounded(a, type), b = rounded(b, type);
    const Values expected = product(a, b, 1, m, n, k);
    const std::vector<TestInput> inputs = {{a, type}, {b, type}};
    const std::vector<TestOutput> outputs = {{expected.shape, type}};
    for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
      const size_t at = candidate.tactic_name.find(", in ");
      if (at == std::string::npos) continue;
      const bool is_cluster = candidate.tactic_name.starts_with("warpgroup");
      (is_cluster ? cluster_parts_seen : parts_seen)
          .insert(std::stoi(candidate.tactic_name.substr(at + 5)));
      SCOPED_TRACE(describe(candidate));
      TestKernel kernel(op, candidate, inputs, outputs);
      const Values y = kernel.run(inputs, outputs)[0];
      expect_close(y, expected, type == DataType::kINT32 ? 0 : std::max(3e-5, tolerance_of(type)));
      EXPECT_EQ(kernel.run(inputs, outputs)[0].data, y.data) << "the second run differs";
    }
  }
  EXPECT_EQ(parts_seen, (std::set<int>{2, 4, 8}));
  EXPECT_EQ(cluster_parts_seen, (std::set<int>{8}));
}

}  // namespace
}  // namespace opwright::testing
