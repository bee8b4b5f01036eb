#include "operators/byte_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "backend/cpu/byte_lookup_tile.h"
#include "cpu/run_kernel.h"

namespace opwright::testing {
namespace {

/// The place of a byte of the type in a table.
int64_t place_of(double byte) { return (static_cast<int64_t>(byte) + 256) % 256; }

Values random_bytes(const Shape& shape, DataType type, int seed) {
  const double low = type == DataType::kINT8 ? -128 : 0;
  Values values = random_values(shape, seed, low, low + 255);
  for (double& value : values.data) value = std::rint(value);
  return values;
}

TEST(ByteLookup, EveryTypeAndFormat) {
  constexpr DataType kTypes[] = {DataType::kINT8, DataType::kUINT8};
  int seed = 0;
  std::set<TensorFormat> formats;
  for (const DataType from : kTypes)
    for (const DataType to : kTypes)
      for (const Shape& shape : {Shape{2, 32, 9, 7}, Shape{1, 5, 3, 3}, Shape{1}, Shape{0, 3},
                                 Shape{}, Shape{3, 70001}}) {
        const Values x = random_bytes(shape, from, ++seed);
        const Values table = random_bytes({ByteLookup::kTableSize}, to, ++seed);
        const std::vector<TestInput> inputs = {{x, from}, {table, to, true}};
        const std::vector<TestOutput> outputs = {{shape, to}};
        for (const Candidate& candidate : candidates_of(ByteLookup(), inputs, outputs)) {
          SCOPED_TRACE(describe(candidate));
          formats.insert(candidate.inputs[0].format);
          TestKernel kernel(ByteLookup(), candidate, inputs, outputs);
          for (const int in_place : {-1, 0})
            for (const int shift : {0, 3}) {
              const Values y = kernel.run(inputs, outputs, in_place, shift)[0];
              for (int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], table[place_of(x[i])]);
            }
        }
      }
  EXPECT_TRUE(formats.contains(TensorFormat::kLINEAR) && formats.contains(TensorFormat::kHWC));
}

TEST(ByteLookupTile, EveryByteAtEveryLength) {
  std::vector<uint8_t> table(256), x(256 + 65), y(x.size());
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint8_t>(i * 167 + 13);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i);
  for (size_t count = 0; count <= x.size(); ++count) {
    std::fill(y.begin(), y.end(), 0);
    look_up_bytes(x.data(), table.data(), static_cast<int64_t>(count), y.data());
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], i < count ? table[x[i]] : 0);
  }
}

}  // namespace
}  // namespace opwright::testing
