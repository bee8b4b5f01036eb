#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <utility>

#include "compile/passes.h"
#include "graph_run.h"
#include "operators/attention_parts.h"
#include "operators/fused_attention.h"
#include "operators/source.h"

namespace opwright {
namespace {

using Op = ElementWiseOperation;

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int64_t kMaskedLength = 6, kMaskedHeads = 3, kMaskedSize = 8;

/// Queries, keys and values that come from one tensor, and the masks that a test gives them.
class Masked {
 public:
  explicit Masked(bool is_open, int64_t queries = kMaskedLength) : is_open_(is_open) {
    const int64_t length = is_open ? -1 : kMaskedLength;
    Tensor* x = network_.add_input("x", DataType::kFLOAT,
                                   {is_open ? -1 : 2, length, kMaskedHeads * kMaskedSize});
    Tensor* of_queries = x;
    if (queries != kMaskedLength)
      of_queries =
          network_.add_input("q", DataType::kFLOAT, {2, queries, kMaskedHeads * kMaskedSize});
    heads_ = {split_heads(writer_, of_queries, kMaskedHeads, ""),
              split_heads(writer_, x, kMaskedHeads, ""), split_heads(writer_, x, kMaskedHeads, "")};
    flags_ = network_.add_input("flags", DataType::kBOOL, {is_open ? -1 : 2, 1, 1, length});
    if (!is_open) return;
    x->set_dimension_name(0, "batch"), x->set_dimension_name(1, "length");
    flags_->set_dimension_name(0, "batch"), flags_->set_dimension_name(3, "length");
  }
  LayerWriter& writer() { return writer_; }
  /// Data that forbids keys.
  Tensor* flags() { return flags_; }
  /// Positions of queries, [length, 1], and of keys, [length].
  Tensor* queries(int64_t first = 0) {
    Tensor* places = writer_.count_up(heads_.query->dims()[2]);
    if (first != 0) places = writer_.elementwise(Op::kSUM, places, static_cast<double>(first));
    return writer_.unsqueeze(places, {1});
  }
  Tensor* keys() { return writer_.count_up(heads_.key->dims()[2]); }
  /// A fixed mask of these extents. `rule` tells from batch, query and key whether it is true.
  Tensor* fixed(const Shape& shape, const std::function<bool(int64_t, int64_t, int64_t)>& rule) {
    const int64_t rows = shape[shape.rank() - 2], columns = shape[shape.rank() - 1];
    std::vector<char> truths;
    for (int64_t i = 0; i < shape.numel(); ++i)
      truths.push_back(rule(i / (rows * columns), i / columns % rows, i % columns) ? 1 : 0);
    return network_.add_constant(DataType::kBOOL, shape, Blob::copy(truths.data(), truths.size()));
  }
  Tensor* number(float value) { return writer_.scalar(value, DataType::kFLOAT); }

  struct Found {
    CausalMaskKind kind = CausalMaskKind::kNONE;
    std::string masks;  ///< shapes of the masks that are left
    bool operator==(const Found&) const = default;
  };
  /// What the fused attention has after all passes.
  Found recognized(Mask mask) {
    network_.mark_output(*attend(writer_, heads_, mask, {}));
    return find();
  }
  /// The same where the scores of forbidden keys become that number.
  Found recognized_with(Tensor* allowed, float masked_score) {
    Tensor* scores = writer_.multiply_matrices(heads_.query, heads_.key, MatrixOperation::kNONE,
                                               MatrixOperation::kTRANSPOSE);
    scores = writer_.select(allowed, scores, number(masked_score));
    Tensor* weights = writer_.add<Softmax>({int64_t{1} << 3, false}, {scores});
    network_.mark_output(*writer_.multiply_matrices(weights, heads_.value, MatrixOperation::kNONE,
                                                    MatrixOperation::kNONE));
    return find();
  }

 private:
  Found find() {
    OptimizationProfile profile;
    if (is_open_) {
      profile.set_shape("x", {1, 1, kMaskedHeads * kMaskedSize}, {2, 6, kMaskedHeads * kMaskedSize},
                        {3, 9, kMaskedHeads * kMaskedSize});
      profile.set_shape("flags", {1, 1, 1, 1}, {2, 1, 1, 6}, {3, 1, 1, 9});
    }
    const ProfileRanges ranges(network_, is_open_ ? &profile : nullptr);
    const BuilderConfig config{DeviceId{"cpu"}};
    const PassContext context{get_device(DeviceType::kCPU), config, ranges};
    Graph graph(network_);
    run_passes(graph, context);
    Found found;
    int count = 0;
    for (const GraphNode* node : graph.nodes()) {
      const auto* attention = node->as<FusedAttention>();
      if (attention == nullptr) continue;
      ++count;
      found.kind = attention->params().causal_kind;
      for (size_t i = 3; i < node->inputs.size(); ++i)
        if (node->inputs[i] != nullptr) found.masks += str(node->inputs[i]->info.dims);
    }
    EXPECT_EQ(count, 1) << kinds(graph);
    return found;
  }

  Network network_;
  LayerWriter writer_{network_, "layer"};
  bool is_open_;
  Heads heads_{};
  Tensor* flags_ = nullptr;
};

const Masked::Found kCausal{CausalMaskKind::kUPPER_LEFT, ""},
    kLowerRight{CausalMaskKind::kLOWER_RIGHT, ""}, kAll{CausalMaskKind::kNONE, ""};

bool is_causal(int64_t, int64_t query, int64_t key) { return key <= query; }

TEST(AttentionMasks, FixedTrianglesAreCausal) {
  for (const Shape& shape :
       {Shape{kMaskedLength, kMaskedLength}, Shape{1, 1, kMaskedLength, kMaskedLength},
        Shape{2, 1, kMaskedLength, kMaskedLength},
        Shape{2, kMaskedHeads, kMaskedLength, kMaskedLength}}) {
    Masked masked(false);
    EXPECT_EQ(masked.recognized({masked.fixed(shape, is_causal)}), kCausal) << shape;
  }
  Masked longer(false, 4);
  EXPECT_EQ(longer.recognized({longer.fixed(
                {4, kMaskedLength}, [](int64_t, int64_t q, int64_t k) { return k <= q + 2; })}),
            kLowerRight);
  Masked upper(false, 4);
  EXPECT_EQ(upper.recognized({upper.fixed({4, kMaskedLength}, is_causal)}), kCausal);
  Masked all(false);
  EXPECT_EQ(all.recognized(
                {all.fixed({2, 1, kMaskedLength, kMaskedLength}, [](auto...) { return true; })}),
            kAll);
}

TEST(AttentionMasks, OtherFixedMasksStay) {
  const std::function<bool(int64_t, int64_t, int64_t)> rules[] = {
      [](int64_t b, int64_t q, int64_t k) { return k <= q && !(b == 1 && q == 4 && k == 2); },
      [](int64_t b, int64_t q, int64_t k) { return k <= q || (b == 0 && q == 0 && k == 5); },
      [](int64_t, int64_t q, int64_t k) { return k < q; },
      [](int64_t, int64_t q, int64_t k) { return k <= q + 1; },
      [](int64_t, int64_t q, int64_t k) { return k >= q; },
      [](int64_t, int64_t q, int64_t k) { return k <= q && k > q - 3; },
      [](int64_t b, int64_t q, int64_t k) { return k <= q + b; },
  };
  for (const auto& rule : rules) {
    Masked masked(false);
    const Masked::Found found =
        masked.recognized({masked.fixed({2, 1, kMaskedLength, kMaskedLength}, rule)});
    EXPECT_EQ(found, (Masked::Found{CausalMaskKind::kNONE, "(2, 1, 6, 6)"}));
  }
  // Extents may fit another axis than they seem to.
  Masked turned(false, 4);
  EXPECT_EQ(turned.recognized({turned.fixed({4, 1}, is_causal)}).kind, CausalMaskKind::kNONE);
}

/// Comparisons of positions, in the forms that exporters write.
Tensor* comparison(Masked& masked, int form) {
  LayerWriter& w = masked.writer();
  Tensor *q = masked.queries(), *k = masked.keys();
  switch (form) {
    case 0:  // not k > q
      return not_greater(w, k, q);
    case 1:  // k < q or k = q
      return w.elementwise(Op::kOR, w.elementwise(Op::kLESS, k, q),
                           w.elementwise(Op::kEQUAL, k, q));
    case 2:  // q - k > -1
      return w.elementwise(Op::kGREATER, w.elementwise(Op::kSUB, q, k), -1.0);
    case 3:  // k < q + 1
      return w.elementwise(Op::kLESS, k, masked.queries(1));
    case 4:  // not k - q > 0, and what is always true
      return w.elementwise(Op::kAND,
                           w.unary(UnaryOperation::kNOT, w.elementwise(Op::kGREATER, k, q)),
                           w.elementwise(Op::kGREATER, w.elementwise(Op::kSUM, k, 1.0), -1.0));
    case 5: {  // documents: sums of places where neighbours differ by something else than 1
      Tensor* all = w.unsqueeze(masked.keys(), {0});
      const Expr length = all->dims()[1];
      Tensor* before = w.elementwise(Op::kSUB, w.slice_axis(all, 1, 0, 1), 1.0);
      Tensor* places = w.concatenate({before, all}, 1);
      Tensor* steps = w.elementwise(Op::kSUB, w.slice_axis(places, 1, 1, length),
                                    w.slice_axis(places, 1, 0, length));
      Tensor* breaks = w.cast(w.unary(UnaryOperation::kNOT, w.elementwise(Op::kEQUAL, steps, 1.0)),
                              DataType::kINT64);
      Tensor* documents = w.add<Cumulative>({.axis = 1}, {breaks});
      Tensor *of_query = w.add<Gather>({.axis = 1}, {documents, masked.keys()}),
             *of_key = w.add<Gather>({.axis = 1}, {documents, masked.keys()});
      Tensor* same =
          w.elementwise(Op::kEQUAL, w.unsqueeze(of_query, {2}), w.unsqueeze(of_key, {1}));
      return w.unsqueeze(w.elementwise(Op::kAND, not_greater(w, k, q), same), {1});
    }
    default:  // a triangle of an array of ones
      return w.select(w.elementwise(Op::kGREATER, k, q),
                      w.cast(w.scalar(0, DataType::kINT32), DataType::kBOOL),
                      w.cast(w.scalar(1, DataType::kINT32), DataType::kBOOL));
  }
}
constexpr int kForms = 7;

TEST(AttentionMasks, ComparisonsOfPositionsAreCausal) {
  for (const bool is_open : {false, true})
    for (int form = 0; form < kForms; ++form) {
      Masked masked(is_open);
      EXPECT_EQ(masked.recognized({comparison(masked, form)}), kCausal) << form << is_open;
    }
}

TEST(AttentionMasks, OtherComparisonsStay) {
  for (const bool is_open : {false, true})
    for (int form = 0; form < 5; ++form) {
      Masked masked(is_open);
      LayerWriter& w = masked.writer();
      Tensor *q = masked.queries(), *k = masked.keys();
      Tensor* mask = form == 0   ? w.elementwise(Op::kLESS, k, q)
                     : form == 1 ? not_greater(w, q, k)
                     : form == 2 ? not_greater(w, k, masked.queries(1))
                     : form == 3 ? not_greater(w, w.elementwise(Op::kPROD, k, 2.0), q)
                                 : w.elementwise(Op::kEQUAL, k, q);
      const Masked::Found found = masked.recognized({mask});
      EXPECT_EQ(found.kind, CausalMaskKind::kNONE) << form;
      EXPECT_NE(found.masks, "") << form;
    }
}

TEST(AttentionMasks, DataIsSeparatedFromPositions) {
  for (const bool is_open : {false, true})
    for (int form = 0; form < kForms; ++form) {
      Masked masked(is_open);
      LayerWriter& w = masked.writer();
      const Masked::Found found =
          masked.recognized({w.elementwise(Op::kAND, masked.flags(), comparison(masked, form))});
      EXPECT_EQ(found.kind, CausalMaskKind::kUPPER_LEFT) << form;
      if (!is_open) {
        EXPECT_EQ(found.masks, "(2, 1, 1, 6)");
      }
    }
  // A score that data forbids gives the mean of all keys in rows that meet none.
  for (const float score : {kNothing, -1e9f}) {
    Masked masked(false);
    LayerWriter& w = masked.writer();
    const bool excludes = score == kNothing;
    EXPECT_EQ(masked.recognized_with(w.elementwise(Op::kAND, masked.flags(), comparison(masked, 0)),
                                     score),
              (Masked::Found{excludes ? CausalMaskKind::kUPPER_LEFT : CausalMaskKind::kNONE,
                             excludes ? "(2, 1, 1, 6)" : "(2, 1, 6, 6)"}));
  }
  Masked alone(false);
  EXPECT_EQ(alone.recognized_with(comparison(alone, 0), -1e9f), kCausal);
}

TEST(AttentionMasks, AddedMasksAreCausal) {
  for (const bool is_open : {false, true})
    for (const float score : {kNothing, -65504.0f}) {
      Masked masked(is_open);
      LayerWriter& w = masked.writer();
      Tensor* bias = w.select(comparison(masked, 0), masked.number(0), masked.number(score));
      EXPECT_EQ(masked.recognized({nullptr, bias}), kCausal);
    }
  for (const float score : {-9.0f, 1.0f}) {
    Masked masked(true);
    LayerWriter& w = masked.writer();
    Tensor* bias = w.select(comparison(masked, 0), masked.number(0), masked.number(score));
    EXPECT_EQ(masked.recognized({nullptr, bias}).kind, CausalMaskKind::kNONE);
  }
}

}  // namespace
}  // namespace opwright
