#include "operators/diffused_cast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/run_kernel.h"

namespace opwright::testing {
namespace {

struct NarrowType {
  DataType type;
  int digits, least_exponent;  ///< of the significand; of the smallest normal number
  double spacing(double x) const {
    const int exponent = x == 0 ? least_exponent : std::max(std::ilogb(x), least_exponent);
    return std::ldexp(1, exponent - digits + 1);
  }
};
constexpr NarrowType kNarrowTypes[] = {{DataType::kHALF, 11, -14}, {DataType::kBF16, 8, -126}};

Values run_cast(const Values& x, DataType type) {
  const DiffusedCast op({type});
  const std::vector<TestInput> inputs = {{x, DataType::kFLOAT}};
  const std::vector<TestOutput> outputs = {{x.shape, type}};
  return run_kernel(op, candidates_of(op, inputs, outputs).front(), inputs, outputs)[0];
}

class DiffusedCastTest : public ::testing::Test {
  void SetUp() override {
    if (!test_device().is_host()) GTEST_SKIP() << "weights are cast on the CPU";
  }
};

TEST_F(DiffusedCastTest, ColumnsKeepTheirSums) {
  for (const NarrowType& narrow : kNarrowTypes)
    for (const Shape& shape : {Shape{2, 9, 70, 3}, Shape{65, 40, 1, 1}, Shape{1, 1, 5, 33}}) {
      SCOPED_TRACE(::testing::Message() << shape << " of " << narrow.digits << " digits");
      const Values x = rounded(random_values(shape, 5, -3, 3), DataType::kFLOAT);
      const Values y = run_cast(x, narrow.type);
      for (int64_t column = 0; column < shape[0] * shape[2]; ++column) {
        double sum = 0, widest = 0;
        for (int64_t i = 0; i < shape[1] * shape[3]; ++i) {
          const int64_t at =
              ((column / shape[2] * shape[1] + i / shape[3]) * shape[2] + column % shape[2]) *
                  shape[3] +
              i % shape[3];
          EXPECT_LT(std::abs(x[at] - y[at]), narrow.spacing(x[at]));
          sum += x[at] - y[at];
          widest = std::max(widest, narrow.spacing(x[at]));
        }
        EXPECT_LE(std::abs(sum), 0.5001 * widest);
      }
    }
}

TEST_F(DiffusedCastTest, SpecialValues) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double beyond = 1e6;  // of FP16
  const std::vector<double> special = {0.0,     -0.0, 1.5,  kInfinity, -kInfinity, beyond,
                                       -beyond, 1e-7, 1e-9, 2.5,       -1e-9,      std::nan("")};
  const Values x = {{1, static_cast<int64_t>(special.size()), 1, 1}, special};
  const Values y = run_cast(x, DataType::kHALF);
  const double least = std::ldexp(1, -24);
  for (const int i : {0, 1, 2, 3, 4, 9}) EXPECT_EQ(y[i], special[i]);
  EXPECT_EQ(std::signbit(y[0]), false);
  EXPECT_EQ(std::signbit(y[1]), true);
  EXPECT_EQ(y[5], kInfinity);
  EXPECT_EQ(y[6], -kInfinity);
  EXPECT_TRUE(y[7] == least || y[7] == 2 * least);
  EXPECT_TRUE(y[8] == 0 || y[8] == least);
  EXPECT_TRUE(y[10] == 0 || y[10] == -least);
  EXPECT_TRUE(std::isnan(y[11]));
}

}  // namespace
}  // namespace opwright::testing
