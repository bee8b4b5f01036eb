#include "operators/rotary_embedding.h"

#include <gtest/gtest.h>

#include "compile/passes.h"
#include "graph_run.h"
#include "operators/attention_parts.h"
#include "operators/fused_attention.h"

namespace opwright {
namespace {

using Op = ElementWiseOperation;

constexpr int64_t kBatch = 2, kHeads = 3, kLength = 5, kSize = 8, kHalf = kSize / 2;

/// The ways in which a model may write the embedding, and what makes it another function.
struct Form {
  bool heads_apart = true;  ///< whether heads are transposed before
  bool interleaved = false;
  bool swapped_sums = false, swapped_products = false;
  bool negates_first = false;   ///< near miss: the sign is at the other half
  bool keeps_order = false;     ///< near miss: halves are not exchanged
  bool other_half = false;      ///< near miss: one element of the second half differs
  bool angles_by_head = false;  ///< near miss: heads have angles of their own
  bool is_computed = false;     ///< tables are computed in the network from angles of pairs
  bool adds = true;             ///< near miss: the products are subtracted
  int64_t turned = kSize;
};

class Turned {
 public:
  Tensor* build(const Form& form) {
    const Shape shape = form.heads_apart ? Shape{kBatch, kLength, kHeads, kSize}
                                         : Shape{kBatch, kHeads, kLength, kSize};
    Tensor* x = network_.add_input("x", DataType::kFLOAT, shape);
    inputs_.push_back(random_floats(shape.numel(), 1));
    if (form.heads_apart) x = writer_.transpose(x, {0, 2, 1, 3});
    return turn(x, form);
  }
  Tensor* turn(Tensor* x, const Form& form) {
    Tensor* whole = x;
    if (form.turned < kSize) x = writer_.slice_axis(x, 3, 0, form.turned);
    const auto product = [&](Tensor* a, Tensor* b) {
      return form.swapped_products ? writer_.elementwise(Op::kPROD, b, a)
                                   : writer_.elementwise(Op::kPROD, a, b);
    };
    Tensor* plain = product(x, table(form, 2));
    Tensor* exchanged = product(exchange(x, form), table(form, 3));
    Tensor* y = !form.adds          ? writer_.elementwise(Op::kSUB, plain, exchanged)
                : form.swapped_sums ? writer_.elementwise(Op::kSUM, exchanged, plain)
                                    : writer_.elementwise(Op::kSUM, plain, exchanged);
    if (form.turned == kSize) return y;
    return writer_.concatenate({y, writer_.slice_axis(whole, 3, form.turned, kSize - form.turned)},
                               3);
  }

  /// Runs all passes, and compares the result with that of the layers one by one.
  std::string kinds_of(Tensor* output) {
    network_.mark_output(*output);
    const ProfileRanges ranges(network_, nullptr);
    const BuilderConfig config{DeviceId{"cpu"}};
    const PassContext context{get_device(DeviceType::kCPU), config, ranges};
    Graph plain(network_);
    fold_shapes(plain);
    lower(plain);
    plain.remove_dead();
    Graph graph(network_);
    run_passes(graph, context);
    const auto values = GraphRun(graph)(inputs_), expected = GraphRun(plain)(inputs_);
    expect_near(values[0], expected[0], 1e-5f);
    for (const GraphNode* node : graph.nodes())
      if (const auto* op = node->as<RotaryEmbedding>()) params_ = op->params();
    return kinds(graph);
  }
  const RotaryEmbeddingParams& params() const { return params_; }
  LayerWriter& writer() { return writer_; }

 private:
  Tensor* exchange(Tensor* x, const Form& form) {
    const int64_t half = form.turned / 2;
    const auto part = [&](int64_t number) {
      if (!form.interleaved) return writer_.slice_axis(x, 3, number * half, half);
      SymShape dims = x->dims();
      dims.back() = half;
      return writer_.slice(x, {Expr(0), Expr(0), Expr(0), Expr(number)}, dims, {1, 1, 1, 2});
    };
    Tensor *first = part(form.keeps_order ? 1 : 0), *second = part(form.keeps_order ? 0 : 1);
    if (form.negates_first)
      first = writer_.unary(UnaryOperation::kNEG, first);
    else
      second = writer_.unary(UnaryOperation::kNEG, second);
    if (!form.interleaved) return writer_.concatenate({second, first}, 3);
    SymShape dims = x->dims();
    return writer_.reshape(
        writer_.concatenate({writer_.unsqueeze(second, {4}), writer_.unsqueeze(first, {4})}, 4),
        dims);
  }
  Tensor* table(const Form& form, uint32_t seed) {
    const int64_t half = form.turned / 2, heads = form.angles_by_head ? kHeads : 1;
    if (form.is_computed) {
      const Shape shape{kBatch, 1, kLength, half};
      Tensor* angles = network_.add_input("angles" + std::to_string(seed), DataType::kFLOAT, shape);
      inputs_.push_back(random_floats(shape.numel(), seed));
      Tensor* twice = writer_.concatenate({angles, angles}, 3);
      return writer_.unary(UnaryOperation::kEXP, twice);
    }
    const std::vector<float> of_pairs = random_floats(heads * kLength * half, seed);
    std::vector<float> all;
    for (int64_t row = 0; row < heads * kLength; ++row)
      for (int64_t i = 0; i < form.turned; ++i)
        all.push_back(
            of_pairs[static_cast<size_t>(row * half + (form.interleaved ? i / 2 : i % half))]);
    if (form.other_half) all[static_cast<size_t>(form.turned) * 2 - 1] += 0.5f;
    return network_.add_constant(DataType::kFLOAT, {1, heads, kLength, form.turned}, blob_of(all));
  }

  Network network_;
  LayerWriter writer_{network_, "layer"};
  std::vector<std::vector<float>> inputs_;
  RotaryEmbeddingParams params_;
};

TEST(RotaryPattern, FormsOfExportersBecomeOneEmbedding) {
  for (const bool interleaved : {false, true})
    for (const bool swaps : {false, true})
      for (const int64_t turned : {kSize, kHalf}) {
        Form form;
        form.interleaved = interleaved, form.swapped_sums = swaps, form.swapped_products = !swaps;
        form.turned = turned;
        Turned apart;
        EXPECT_EQ(apart.kinds_of(apart.build(form)), "RotaryEmbedding Transpose");
        EXPECT_TRUE(apart.params().sequence_first);
        EXPECT_EQ(apart.params().interleaved, interleaved);
        EXPECT_EQ(apart.params().rotary_embedding_dim, turned < kSize ? turned : 0);
        form.heads_apart = false;
        Turned first;
        EXPECT_EQ(first.kinds_of(first.build(form)), "RotaryEmbedding");
        EXPECT_FALSE(first.params().sequence_first);
      }
}

TEST(RotaryPattern, TablesThatAreComputedAreComputedOfPairs) {
  Form form;
  form.is_computed = true;
  Turned turned;
  EXPECT_EQ(turned.kinds_of(turned.build(form)),
            "Pointwise Pointwise Reshape Reshape RotaryEmbedding Transpose");
}

TEST(RotaryPattern, OtherFunctionsStay) {
  std::vector<Form> forms(5);
  forms[0].negates_first = true;
  forms[1].keeps_order = true;
  forms[2].other_half = true;
  forms[3].angles_by_head = true;
  forms[4].adds = false;
  for (Form form : forms)
    for (const bool interleaved : {false, true}) {
      form.interleaved = interleaved;
      Turned turned;
      EXPECT_EQ(turned.kinds_of(turned.build(form)).find("RotaryEmbedding"), std::string::npos)
          << &form - forms.data() << interleaved;
    }
}

/// Queries and keys of Llama. Two heads of queries share one of keys.
TEST(RotaryPattern, EmbeddingsBecomePartOfJoinedProjections) {
  for (const bool with_bias : {false, true}) {
    Network network;
    LayerWriter writer(network, "layer");
    constexpr int64_t kWidth = 24, kShared = 2, kAll = 4;
    Tensor* x = network.add_input("x", DataType::kFLOAT, {kBatch, kLength, kWidth});
    uint32_t seed = 0;
    const auto constant = [&](const Shape& shape) {
      return network.add_constant(DataType::kFLOAT, shape,
                                  blob_of(random_floats(shape.numel(), ++seed)));
    };
    const auto project = [&](int64_t heads) {
      Tensor* y = writer.multiply_matrices(x, constant({1, kWidth, heads * kSize}),
                                           MatrixOperation::kNONE, MatrixOperation::kNONE);
      if (with_bias) y = writer.elementwise(Op::kSUM, y, constant({1, 1, heads * kSize}));
      return split_heads(writer, y, heads, "");
    };
    std::vector<float> tables[2];
    for (std::vector<float>& table : tables) {
      const std::vector<float> of_pairs = random_floats(kLength * kHalf, ++seed);
      for (int64_t row = 0; row < kLength; ++row)
        for (int64_t i = 0; i < kSize; ++i)
          table.push_back(of_pairs[static_cast<size_t>(row * kHalf + i % kHalf)]);
    }
    Tensor* angles[2];
    for (int i = 0; i < 2; ++i)
      angles[i] =
          network.add_constant(DataType::kFLOAT, {1, 1, kLength, kSize}, blob_of(tables[i]));
    const auto turn = [&](Tensor* y) {
      Tensor *first = writer.slice_axis(y, 3, 0, kHalf),
             *second = writer.slice_axis(y, 3, kHalf, kHalf);
      Tensor* other = writer.concatenate({writer.unary(UnaryOperation::kNEG, second), first}, 3);
      return writer.elementwise(Op::kSUM, writer.elementwise(Op::kPROD, y, angles[0]),
                                writer.elementwise(Op::kPROD, other, angles[1]));
    };
    const Heads heads = {turn(project(kAll)), turn(project(kShared)), project(kShared)};
    network.mark_output(*join_heads(writer, attend(writer, heads, {}, {.scale = 0.5})));
    const ProfileRanges ranges(network, nullptr);
    const BuilderConfig config{DeviceId{"cpu"}};
    const PassContext context{get_device(DeviceType::kCPU), config, ranges};
    Graph plain(network);
    fold_shapes(plain);
    lower(plain);
    plain.remove_dead();
    Graph graph(network);
    run_passes(graph, context);
    EXPECT_EQ(kinds(graph), "MatrixMultiply Reshape RotaryEmbedding Reshape FusedAttention");
    const std::vector<std::vector<float>> inputs = {random_floats(kBatch * kLength * kWidth, 100)};
    expect_near(GraphRun(graph)(inputs)[0], GraphRun(plain)(inputs)[0]);
  }
}

}  // namespace
}  // namespace opwright
