// Layers that programs add: what is inferred, and what is refused.

#include "operators/assertion.h"
#include "operators/attention.h"
#include "operators/boundary.h"
#include "operators/context.h"
#include "operators/einsum.h"
#include "operators/kv_cache.h"
#include "operators/matmul_nbits.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/rotary_embedding.h"

namespace opwright::testing {
namespace {

using enum DataType;

TEST(Squeeze, TakesAxesAway) {
  EXPECT_EQ(shape_of<Squeeze>({}, {tensor({1, 3, 1}), vector_of({0, -1})}), (Shape{3}));
  EXPECT_EQ(shape_at<Squeeze>({}, {tensor({s(0), 3, s(1)}), vector_of({0})}, {1, 4}),
            (Shape{3, 4}));
  // Elements that shapes decide stay known.
  TensorInfo row = vector_of({s(0)});
  EXPECT_EQ(values_at(infer_one<Squeeze>({}, {row, vector_of({0})}), {7}),
            (std::vector<int64_t>{7}));
  expect_contains(error_of<Squeeze>({}, {tensor({2, 3}), vector_of({0})}),
                  {"Squeeze", "axis 0", "extent 2", "only an axis of extent 1"});
  expect_contains(error_of<Squeeze>({}, {tensor({1, 3}), vector_of({2})}), {"the axis 2"});
  expect_contains(error_of<Squeeze>({}, {tensor({1, 3}), vector_of({0, -2})}), {"twice"});
  expect_contains(error_of<Squeeze>({}, {tensor({1, 3}), vector_of({s(0)})}), {"must be constant"});
  expect_contains(error_of<Squeeze>({}, {tensor({1, 3}), tensor({1}, kINT64)}), {"input 1"});
}

TEST(Unsqueeze, AddsAxes) {
  EXPECT_EQ(shape_of<Unsqueeze>({}, {tensor({2, 3}), vector_of({0, -1})}), (Shape{1, 2, 3, 1}));
  EXPECT_EQ(shape_of<Unsqueeze>({}, {tensor({}), scalar_of(0)}), (Shape{1}));
  EXPECT_EQ(values_at(infer_one<Unsqueeze>({}, {scalar_of(s(0)), vector_of({0})}), {9}),
            (std::vector<int64_t>{9}));
  expect_contains(error_of<Unsqueeze>({}, {tensor({2}), vector_of({3})}), {"the axis 3"});
  expect_contains(error_of<Unsqueeze>({}, {tensor({1, 1, 1, 1, 1, 1, 1}), vector_of({0, 1})}),
                  {"9 axes"});
}

TEST(Assertion, LooksAtTruth) {
  EXPECT_TRUE(infer<Assertion>({"text"}, {tensor({3}, kBOOL)}).empty());
  expect_contains(error_of<Assertion>({"text"}, {tensor({3})}), {"input 0", "BOOL"});
  expect_contains(error_of<Assertion>({"text"}, {tensor({1, 1}, kBOOL)}), {"rank"});
  expect_contains(error_of<Assertion>({"sizes differ"}, {vector_of({1, 0}, kBOOL)}),
                  {"its condition is false: sizes differ"});
}

TEST(Einsum, FollowsTheEquation) {
  EXPECT_EQ(shape_of<Einsum>({"bij,bjk->bik"}, {tensor({2, 3, 4}), tensor({2, 4, 5})}),
            (Shape{2, 3, 5}));
  EXPECT_EQ(shape_of<Einsum>({"ii"}, {tensor({4, 4})}), (Shape{}));
  EXPECT_EQ(shape_at<Einsum>({"...ij,...jk->...ik"},
                             {tensor({s(0), s(1), 4}), tensor({s(0), 4, 5})}, {2, 3}),
            (Shape{2, 3, 5}));
  expect_contains(error_of<Einsum>({"ij->ij"}, {tensor({2, 3}), tensor({2, 3})}),
                  {"Einsum", "1 terms for 2 inputs"});
  expect_contains(error_of<Einsum>({"i%->i"}, {tensor({2, 3})}), {"has '%'"});
  expect_contains(error_of<Einsum>({"i->i"}, {tensor({2, 3})}), {"input 0 has rank 2"});
  expect_contains(error_of<Einsum>({"i,i->i"}, {tensor({2}), tensor({2}, kHALF)}),
                  {"FP32 and FP16", "one type"});
}

TEST(Attention, HasTheShapeOfTheQuery) {
  const TensorInfo query = tensor({2, 4, 3, 8}), keys = tensor({2, 2, 5, 8});
  EXPECT_EQ(shape_of<Attention>({}, {query, keys, tensor({2, 2, 5, 6})}), (Shape{2, 4, 3, 6}));
  EXPECT_EQ(
      shape_at<Attention>(
          {}, {tensor({s(0), 4, s(1), 8}), tensor({s(0), 4, s(2), 8}), tensor({s(0), 4, s(2), 8})},
          {2, 3, 5}),
      (Shape{2, 4, 3, 8}));
  const auto refused = [&](AttentionParams params, Tensors inputs,
                           std::initializer_list<const char*> texts) {
    expect_contains(error_of<Attention>(params, inputs), texts);
  };
  refused({}, {query, keys}, {"2 inputs"});
  refused({}, {query, tensor({2, 2, 5, 7}), keys}, {"input 1 (key)", "extent 7", "expected 8"});
  refused({}, {query, tensor({2, 3, 5, 8}), tensor({2, 3, 5, 8})},
          {"4 heads", "constant multiple"});
  refused({}, {query, keys, tensor({2, 2, 5, 8}, kHALF)}, {"input 2 (value)", "FP16"});
  AttentionParams causal;
  causal.causal_kind = CausalMaskKind::kUPPER_LEFT;
  refused(causal, {query, keys, keys, tensor({1, 1, 3, 5}, kBOOL)}, {"has a mask and is causal"});
  AttentionParams packed;
  packed.query_form = AttentionIOForm::kPACKED_NHD;
  refused(packed, {query, keys, keys}, {"PACKED_NHD", "PADDED_BHND"});
  AttentionParams quantized;
  quantized.quantize_to = kINT8;
  refused(quantized, {query, keys, keys}, {"normalization_quantize_scale"});
}

TEST(RotaryEmbedding, TurnsPartsOfHeads) {
  const TensorInfo x = tensor({2, 4, 3, 8}), cosines = tensor({2, 3, 4});
  EXPECT_EQ(shape_of<RotaryEmbedding>({}, {x, cosines, cosines}), (Shape{2, 4, 3, 8}));
  EXPECT_EQ(shape_of<RotaryEmbedding>({true, 4},
                                      {x, tensor({9, 2}), tensor({9, 2}), tensor({2, 3}, kINT64)}),
            (Shape{2, 4, 3, 8}));
  expect_contains(error_of<RotaryEmbedding>({false, 3}, {x, cosines, cosines}),
                  {"rotary_embedding_dim is 3", "even"});
  expect_contains(error_of<RotaryEmbedding>({}, {x, tensor({2, 3, 8}), cosines}), {"cosines", "4"});
  expect_contains(error_of<RotaryEmbedding>({false, 0, false, 5}, {x, cosines, cosines}),
                  {"5 heads", "there are 4"});
  expect_contains(error_of<RotaryEmbedding>({false, 0, false, -1}, {x, cosines, cosines}),
                  {"-1 heads"});
}

TEST(MatMulNBits, TakesTensorsOfTheRightNumberOfElements) {
  const TensorInfo a = tensor({2, 3, 40}), codes = tensor({5, 2, 16}, kUINT8);
  const TensorInfo scales = tensor({10}), zeros = tensor({5, 1}, kUINT8), bias = tensor({5});
  const MatMulNBitsParams params = {5, 40, 4, 32};
  EXPECT_EQ(shape_of<MatMulNBits>(params, {a, codes, scales}), (Shape{2, 3, 5}));
  EXPECT_EQ(shape_of<MatMulNBits>(params, {a, codes, scales, zeros, bias}), (Shape{2, 3, 5}));
  EXPECT_EQ(shape_of<MatMulNBits>(params, {a, codes, scales, scales}), (Shape{2, 3, 5}));
  EXPECT_EQ(shape_at<MatMulNBits>(params, {tensor({s(0), 40}), codes, scales}, {7}), (Shape{7, 5}));
  expect_contains(error_of<MatMulNBits>(params, {tensor({2, 41}), codes, scales}),
                  {"input 0 (a)", "40"});
  expect_contains(error_of<MatMulNBits>(params, {a, tensor({5, 2, 15}, kUINT8), scales}),
                  {"input 1 (codes)", "160 elements"});
  expect_contains(error_of<MatMulNBits>(params, {a, codes, tensor({9})}),
                  {"input 2 (scales)", "10 elements"});
  expect_contains(error_of<MatMulNBits>(params, {a, codes, scales, tensor({10}, kUINT8)}),
                  {"input 3 (zero points)", "5 elements"});
  expect_contains(error_of<MatMulNBits>({5, 40, 3, 32}, {a, codes, scales}), {"2, 4 or 8"});
  expect_contains(error_of<MatMulNBits>({5, 40, 4, 24}, {a, codes, scales}), {"power of two"});
  expect_contains(error_of<MatMulNBits>({0, 40, 4, 32}, {a, codes, scales}), {"expected 1 to"});
}

TEST(RaggedSoftmax, HasBoundsPerRow) {
  EXPECT_EQ(shape_of<RaggedSoftmax>({}, {tensor({3, 4, 5}), tensor({3, 4, 1}, kINT32)}),
            (Shape{3, 4, 5}));
  expect_contains(error_of<RaggedSoftmax>({}, {tensor({3, 4, 5}), tensor({3, 4, 5}, kINT32)}),
                  {"input 1 (bounds)", "expected 1"});
}

TEST(Moe, NeedsItsWeights) {
  const TensorInfo x = tensor({2, 3, 8}), chosen = tensor({2, 3, 2}, kINT32);
  const TensorInfo scores = tensor({2, 3, 2}), gate = tensor({4, 8, 6}), down = tensor({4, 6, 8});
  EXPECT_EQ(shape_of<Moe>({}, {x, chosen, scores, gate, gate, down}), (Shape{2, 3, 8}));
  expect_contains(error_of<Moe>({}, {x, chosen, scores}), {"no weights", "set_gated_weights"});
  expect_contains(error_of<Moe>({}, {x, chosen, scores, gate, gate, gate}),
                  {"input 5 (weights)", "extent 8", "expected 6"});
  MoeParams blocks;
  blocks.quantization_block_shape = {1, 16};
  expect_contains(error_of<Moe>(blocks, {x, chosen, scores, gate, gate, down}), {"FP4"});
}

TEST(KvCacheUpdate, LiesInTheCache) {
  const TensorInfo cache = tensor({2, 3, 16, 4}), where = tensor({2}, kINT32);
  const OutputInfo output = infer_one<KvCacheUpdate>({}, {cache, tensor({2, 3, s(0), 4}), where});
  EXPECT_EQ(output.aliased_input, 0);
  EXPECT_EQ(constant_shape(output.dims), (Shape{2, 3, 16, 4}));
  expect_contains(error_of<KvCacheUpdate>({}, {cache, tensor({2, 2, 1, 4}), where}),
                  {"input 1 (update)", "heads"});
  expect_contains(error_of<KvCacheUpdate>({}, {cache, tensor({2, 3, 1, 4}), tensor({3}, kINT32)}),
                  {"input 2 (write indices)"});
  EXPECT_EQ(infer_one<KvCacheWrite>({}, {cache, tensor({2, 3, s(0), 4}), where}).aliased_input, -1);
  const TensorInfo room = scalar_of(Expr(20));
  EXPECT_EQ(shape_of<KvCacheWrite>({}, {cache, tensor({2, 3, 1, 4}), where, room}),
            (Shape{2, 3, 20, 4}));
  KvCacheUpdateParams packed;
  packed.update_form = AttentionIOForm::kPACKED_NHD;
  EXPECT_EQ(shape_of<KvCacheUpdate>(packed, {cache, tensor({7, 3, 4}), where, tensor({3}, kINT32)}),
            (Shape{2, 3, 16, 4}));
  expect_contains(error_of<KvCacheUpdate>(packed, {cache, tensor({7, 3, 4}), where}), {"input"});
}

TEST(Normalization, GroupsHaveFactorsOfTheirOwn) {
  NormalizationParams params;
  params.num_groups = 2, params.axes = 0b1100;
  const TensorInfo x = tensor({1, 6, 4, 4}), groups = tensor({1, 2, 1, 1});
  EXPECT_EQ(shape_of<Normalization>(params, {x, groups, groups}), (Shape{1, 6, 4, 4}));
  params.is_v2 = true;
  expect_contains(error_of<Normalization>(params, {x, groups, groups}), {"scale"});
  const TensorInfo channels = tensor({1, 6, 1, 1});
  EXPECT_EQ(shape_of<Normalization>(params, {x, channels, channels}), (Shape{1, 6, 4, 4}));
}

TEST(LoopLayers, HaveWhatGoesInAndOut) {
  IteratorParams iterator;
  iterator.axis = 1;
  EXPECT_EQ(shape_of<IteratorBoundary>(iterator, {tensor({2, 3, 4})}), (Shape{2, 4}));
  iterator.axis = 3;
  expect_contains(error_of<IteratorBoundary>(iterator, {tensor({2, 3, 4})}), {"axis"});
  LoopOutputParams output;
  output.kind = LoopOutput::kCONCATENATE, output.axis = 1;
  EXPECT_EQ(shape_of<LoopOutputBoundary>(output, {tensor({2, 4}), scalar_of(5)}), (Shape{2, 5, 4}));
  expect_contains(error_of<LoopOutputBoundary>(output, {tensor({2, 4})}), {"set_input(1, length)"});
  expect_contains(error_of<LoopOutputBoundary>(output, {tensor({2, 4}), scalar_of(-1)}),
                  {"expected a number of iterations"});
  output.kind = LoopOutput::kLAST_VALUE;
  EXPECT_EQ(shape_of<LoopOutputBoundary>(output, {tensor({2, 4})}), (Shape{2, 4}));
  TripLimitParams limit;
  expect_contains(error_of<TripLimitBoundary>(limit, {tensor({})}), {"INT32 or INT64"});
  expect_contains(error_of<TripLimitBoundary>(limit, {tensor({2}, kINT32)}), {"one element"});
  limit.kind = TripLimit::kWHILE;
  expect_contains(error_of<TripLimitBoundary>(limit, {tensor({}, kINT32)}), {"BOOL"});
  expect_contains(error_of<ConditionalOutputBoundary>({}, {tensor({2}), tensor({2}, kHALF)}),
                  {"input 1"});
  expect_contains(error_of<ConditionalOutputBoundary>({}, {tensor({2}), tensor({2, 1})}),
                  {"same rank"});
}

}  // namespace
}  // namespace opwright::testing
