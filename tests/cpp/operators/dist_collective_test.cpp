// Collective operations: shapes by ranks, types, and parameters that do not fit.

#include "operators/dist_collective.h"

#include "operators/context.h"

namespace opwright::testing {
namespace {

using enum CollectiveOperation;

DistCollectiveParams params_of(CollectiveOperation op, int64_t ranks) {
  DistCollectiveParams params;
  params.op = op;
  params.num_ranks = ranks;
  if (params.reduces()) params.reduce_op = ReduceOperation::kSUM;
  if (params.has_root()) params.root = 0;
  return params;
}

TEST(DistCollective, ShapesFollowFromTheRanks) {
  for (const CollectiveOperation op : {kALL_REDUCE, kBROADCAST, kREDUCE, kALL_TO_ALL})
    EXPECT_EQ(shape_of<DistCollective>(params_of(op, 4), {tensor({8, 3})}), (Shape{8, 3}));
  for (const CollectiveOperation op : {kALL_GATHER, kGATHER})
    EXPECT_EQ(shape_of<DistCollective>(params_of(op, 4), {tensor({8, 3})}), (Shape{32, 3}));
  for (const CollectiveOperation op : {kREDUCE_SCATTER, kSCATTER})
    EXPECT_EQ(shape_of<DistCollective>(params_of(op, 4), {tensor({8, 3})}), (Shape{2, 3}));
  EXPECT_EQ(shape_of<DistCollective>(params_of(kALL_REDUCE, 4), {tensor({})}), Shape{});
  EXPECT_EQ(shape_at<DistCollective>(params_of(kALL_GATHER, 3), {tensor({s(0), s(1)})}, {5, 2}),
            (Shape{15, 2}));
  EXPECT_EQ(shape_at<DistCollective>(params_of(kSCATTER, 3), {tensor({s(0), 2})}, {6}),
            (Shape{2, 2}));
}

TEST(DistCollective, GroupsCountInPlaceOfTheRanks) {
  DistCollectiveParams params = params_of(kALL_GATHER, 1);
  params.groups = {5, 2, 7};
  EXPECT_EQ(shape_of<DistCollective>(params, {tensor({8, 3})}), (Shape{24, 3}));
  params.num_ranks = 3;
  EXPECT_EQ(shape_of<DistCollective>(params, {tensor({8, 3})}), (Shape{24, 3}));
  params.num_ranks = 8;
  expect_contains(error_of<DistCollective>(params, {tensor({8})}),
                  {"groups has 3 ranks, and num_ranks is 8"});
}

TEST(DistCollective, RefusesParametersThatDoNotFit) {
  const auto refuses = [](const DistCollectiveParams& params, const char* text) {
    expect_contains(error_of<DistCollective>(params, {tensor({8, 3})}), {text});
  };
  DistCollectiveParams params = params_of(kALL_REDUCE, 2);
  params.reduce_op = ReduceOperation::kNONE;
  refuses(params, "ALL_REDUCE reduces, and its reduce_op is NONE");
  params.reduce_op = static_cast<ReduceOperation>(9);
  refuses(params, "there is no ReduceOperation 9");
  params.op = static_cast<CollectiveOperation>(-1);
  refuses(params, "there is no CollectiveOperation -1");
  params = params_of(kALL_GATHER, 2);
  params.reduce_op = ReduceOperation::kMAX;
  refuses(params, "ALL_GATHER does not reduce; expected the reduce_op NONE, not MAX");
  for (const int64_t ranks : {int64_t{0}, int64_t{-3}, kMaxRanks + 1})
    refuses(params_of(kALL_REDUCE, ranks), "num_ranks is");
  params = params_of(kBROADCAST, 4);
  params.root = -1;
  refuses(params, "BROADCAST needs a root");
  params.root = 4;
  refuses(params, "the root 4 of BROADCAST is none of the 4 ranks");
  params.groups = {2, 4, 2, 1};
  refuses(params, "groups has the rank 2 twice");
  params.groups = {2, -4, 3, 1};
  refuses(params, "groups has the rank -4");
  params.groups = {0, 1, 2, 3};
  refuses(params, "the root 4 of BROADCAST is none of the 4 ranks");
  for (const CollectiveOperation op : {kREDUCE_SCATTER, kSCATTER, kALL_TO_ALL})
    refuses(params_of(op, 3), "expected a multiple of 3 along the first axis");
  expect_contains(error_of<DistCollective>(params_of(kALL_GATHER, 2), {tensor({})}), {"rank"});
}

TEST(DistCollective, TypesThatCanBeReducedAndMoved) {
  const auto takes = [](const DistCollectiveParams& params, DataType type) {
    return error_of<DistCollective>(params, {tensor({8}, type)}).empty();
  };
  using enum DataType;
  DistCollectiveParams reduced = params_of(kALL_REDUCE, 2);
  const DistCollectiveParams moved = params_of(kALL_GATHER, 2);
  for (const DataType type : {kFLOAT, kHALF, kBF16, kINT8, kUINT8, kINT32, kINT64}) {
    EXPECT_TRUE(takes(reduced, type));
    EXPECT_TRUE(takes(moved, type));
  }
  for (const DataType type : {kFP8, kBOOL, kE8M0}) {
    EXPECT_FALSE(takes(reduced, type));
    EXPECT_TRUE(takes(moved, type));
  }
  for (const DataType type : {kINT4, kFP4}) EXPECT_FALSE(takes(moved, type));
  reduced.reduce_op = ReduceOperation::kMAX;
  EXPECT_TRUE(takes(reduced, kBOOL));
}

TEST(DistCollective, KernelsCheckShapesThatAreKnownAtRunTime) {
  const auto error = [](CollectiveOperation op, const Shape& input, const Shape& output) {
    try {
      check_collective_shapes(params_of(op, 3), "layer_7", input, output);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error(kALL_GATHER, {2, 5}, {6, 5}), "");
  EXPECT_EQ(error(kSCATTER, {6, 5}, {2, 5}), "");
  expect_contains(error(kSCATTER, {7, 5}, {2, 5}), {"expected a multiple of 3"});
  expect_contains(error(kALL_TO_ALL, {7, 5}, {7, 5}), {"expected a multiple of 3"});
  expect_contains(error(kALL_GATHER, {2, 5}, {5, 5}), {"expected"});
  expect_contains(error(kALL_REDUCE, {2, 5}, {2, 4}), {"expected"});
  expect_contains(error(kALL_GATHER, {int64_t{1} << 62}, {4}), {"too many elements"});
}

}  // namespace
}  // namespace opwright::testing
