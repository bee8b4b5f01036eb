#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpu/run_kernel.h"
#include "operators/movement.h"

namespace opwright::testing {
namespace {

struct ShuffledCase {
  std::string name;
  Shape x;                       ///< without the number of channels, which is 0
  std::vector<int64_t> extents;  ///< channels of the inputs
  int64_t groups, start, count;
  DataType type;
};

/// Every candidate against the definition: pixels that fill vectors and others, inputs of one and
/// of many channels, parts at the start, inside and at the end.
TEST(ShuffledConcatenation, EveryCandidateTakesTheRightChannels) {
  const ShuffledCase cases[] = {
      {"halves", {2, 0, 4, 8}, {12, 12}, 2, 0, 12, DataType::kHALF},
      {"odd pixels", {1, 0, 5, 7}, {3, 8, 1, 6}, 3, 4, 14, DataType::kFLOAT},
      {"bytes", {3, 0, 16}, {20}, 4, 7, 6, DataType::kINT8},
      {"all of a volume", {1, 0, 2, 4, 8}, {1, 5}, 6, 0, 6, DataType::kBF16},
      {"nothing", {2, 0, 3, 3}, {4, 4}, 2, 8, 0, DataType::kFLOAT},
  };
  for (const ShuffledCase& c : cases) {
    std::vector<TestInput> inputs;
    int64_t channels = 0;
    for (const int64_t extent : c.extents) {
      Shape shape = c.x;
      shape[1] = extent;
      inputs.push_back(
          {rounded(random_values(shape, static_cast<int>(channels), -8, 8), c.type), c.type});
      channels += extent;
    }
    const int64_t pixels = c.x.numel(2, c.x.rank());
    Shape shape = c.x;
    shape[1] = c.count;
    const Values expected = make_values(shape, [&](int64_t i) {
      const int64_t to = c.start + i / pixels % c.count, image = i / (pixels * c.count);
      int64_t from = to % c.groups * (channels / c.groups) + to / c.groups;
      size_t input = 0;
      while (from >= c.extents[input]) from -= c.extents[input++];
      return inputs[input].values[(image * c.extents[input] + from) * pixels + i % pixels];
    });
    const std::vector<TestOutput> outputs = {{expected.shape, c.type}};
    const ShuffledConcatenation op({c.groups, c.start, c.count});
    QueryOptions options;
    options.all_tactics = true;
    for (const Candidate& candidate : candidates_of(op, inputs, outputs, options)) {
      SCOPED_TRACE(c.name + " " + describe(candidate));
      TestKernel kernel(op, candidate, inputs, outputs);
      for (const int shift : {0, 1})
        expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, 0);
    }
  }
}

}  // namespace
}  // namespace opwright::testing
