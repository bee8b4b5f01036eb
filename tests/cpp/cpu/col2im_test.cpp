#include "operators/col2im.h"

#include <gtest/gtest.h>

#include "cpu/run_kernel.h"

namespace opwright::testing {
namespace {

/// Walks over all elements of all blocks of up to three axes.
void check(const Shape& image, const Col2ImParams& params, int64_t channels = 3) {
  SCOPED_TRACE(::testing::Message() << image << " in blocks of " << params.block.size() << " axes");
  const int spatial = image.rank();
  const auto of = [](const Ints& values, int i, int64_t otherwise) {
    return values.empty() ? otherwise : values[static_cast<size_t>(i)];
  };
  Shape blocks, window;
  int64_t elements = 1, count = 1;
  for (int i = 0; i < spatial; ++i) {
    const int64_t room = image[i] + of(params.pre_padding, i, 0) + of(params.post_padding, i, 0) -
                         (params.block[static_cast<size_t>(i)] - 1) * of(params.dilation, i, 1) - 1;
    blocks.push_back(room / of(params.stride, i, 1) + 1);
    window.push_back(params.block[static_cast<size_t>(i)]);
    elements *= window[i], count *= blocks[i];
  }
  const Values x = random_values({2, channels * elements, count}, 1);
  Shape shape = {2, channels};
  for (const int64_t extent : image) shape.push_back(extent);
  Values expected = make_values(shape, [](int64_t) { return 0.0; });
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t block = i % count, element = i / count % elements, at = 0, stride = 1;
    bool inside = true;
    for (int axis = spatial - 1; axis >= 0; --axis) {
      const int64_t place = block % blocks[axis] * of(params.stride, axis, 1) +
                            element % window[axis] * of(params.dilation, axis, 1) -
                            of(params.pre_padding, axis, 0);
      inside &= place >= 0 && place < image[axis];
      at += place * stride;
      block /= blocks[axis], element /= window[axis], stride *= image[axis];
    }
    if (inside) expected[i / (count * elements) * stride + at] += x[i];
  }
  const Values extents = make_values(
      {spatial}, [&](int64_t i) { return static_cast<double>(image[static_cast<int>(i)]); });
  const std::vector<TestInput> inputs = {{x}, {extents, DataType::kINT64, true}};
  const std::vector<TestOutput> outputs = {{shape}};
  const Col2Im op(params);
  for (const Candidate& candidate : candidates_of(op, inputs, outputs))
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], expected, 1e-5);
}

TEST(Col2Im, BlocksOfEveryKind) {
  check({28, 28}, {{3, 3}, {}, {}, {1, 1}, {1, 1}});
  check({5, 37}, {{2, 3}, {}, {}, {}, {}});
  check({9, 23}, {{3, 2}, {2, 3}, {1, 2}, {1, 0}, {0, 2}});
  check({9, 23}, {{1, 5}, {1, 1}, {1, 4}, {0, 7}, {2, 3}});
  check({40}, {{4}, {2}, {}, {3}, {}});
  check({3, 4, 19}, {{2, 2, 2}, {1, 2, 1}, {1, 1, 3}, {1, 0, 1}, {0, 1, 1}});
}

TEST(Col2Im, BlocksInThePaddingAlone) {
  check({2, 2}, {{3, 3}, {4, 4}, {}, {6, 6}, {6, 6}});
  check({1, 1}, {{1, 1}, {}, {}, {2, 20}, {2, 20}});
}

TEST(Col2Im, NoChannels) { check({4, 4}, {{2, 2}, {}, {}, {}, {}}, 0); }

}  // namespace
}  // namespace opwright::testing
