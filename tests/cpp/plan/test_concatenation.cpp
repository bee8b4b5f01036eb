#include <gtest/gtest.h>

#include "plan/concatenation.h"

namespace opwright {
namespace {

using TF = TensorFormat;

std::vector<std::pair<uint64_t, uint64_t>> blocks(int64_t axis, std::vector<Shape> shapes,
                                                  TF format) {
  std::vector<std::pair<uint64_t, uint64_t>> result;
  for (const Block& block : concatenated_blocks(axis, shapes, {DataType::kFLOAT, format}))
    result.emplace_back(block.offset, block.bytes);
  return result;
}

using Blocks = std::vector<std::pair<uint64_t, uint64_t>>;

TEST(ConcatenatedBlocks, ChannelsOfOneImage) {
  const Blocks expected = {{0, 4 * 16 * 6}, {4 * 16 * 6, 4 * 32 * 6}};
  const std::vector<Shape> shapes = {{1, 16, 2, 3}, {1, 32, 2, 3}};
  EXPECT_EQ(blocks(1, shapes, TF::kLINEAR), expected);
  EXPECT_EQ(blocks(1, shapes, TF::kCHW16), expected);
  EXPECT_EQ(blocks(1, shapes, TF::kHWC), Blocks()) << "channels of a pixel lie together";
  EXPECT_EQ(blocks(1, {{1, 16, 1, 1}, {1, 32, 1, 1}}, TF::kHWC), (Blocks{{0, 64}, {64, 128}}));
}

TEST(ConcatenatedBlocks, RowsOfSeveralImagesAlternate) {
  const std::vector<Shape> shapes = {{2, 16, 2, 3}, {2, 16, 2, 3}};
  for (const TF format : {TF::kLINEAR, TF::kCHW16, TF::kHWC}) {
    EXPECT_EQ(blocks(1, shapes, format), Blocks());
    EXPECT_EQ(blocks(2, shapes, format), Blocks());
    EXPECT_EQ(blocks(0, shapes, format), (Blocks{{0, 768}, {768, 768}}));
  }
}

TEST(ConcatenatedBlocks, SpatialAxes) {
  const std::vector<Shape> shapes = {{1, 16, 2, 3}, {1, 16, 4, 3}};
  EXPECT_EQ(blocks(2, shapes, TF::kLINEAR), Blocks());
  EXPECT_EQ(blocks(2, shapes, TF::kHWC), (Blocks{{0, 384}, {384, 768}}));
  EXPECT_EQ(blocks(2, shapes, TF::kCHW16), (Blocks{{0, 384}, {384, 768}})) << "one block";
  EXPECT_EQ(blocks(2, {{1, 32, 2, 3}, {1, 32, 4, 3}}, TF::kCHW16), Blocks());
}

TEST(ConcatenatedBlocks, BlocksOfChannelsAreNotShared) {
  EXPECT_EQ(blocks(1, {{1, 8, 2, 2}, {1, 16, 2, 2}}, TF::kCHW16), Blocks());
  EXPECT_EQ(blocks(1, {{1, 16, 2, 2}, {1, 8, 2, 2}}, TF::kCHW16), (Blocks{{0, 256}, {256, 256}}));
}

TEST(ConcatenatedBlocks, WhatIsNoAxisOrTooLargeHasNone) {
  EXPECT_EQ(blocks(2, {{1, 2}}, TF::kLINEAR), Blocks());
  EXPECT_EQ(blocks(-1, {{1, 2}}, TF::kLINEAR), Blocks());
  EXPECT_EQ(blocks(0, {}, TF::kLINEAR), Blocks());
}

}  // namespace
}  // namespace opwright
