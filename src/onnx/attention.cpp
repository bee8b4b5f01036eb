// Attention and related operators of transformers.

#include <cmath>
#include <limits>

#include "onnx/attention.h"
#include "operators/convolution.h"
#include "operators/rotary_embedding.h"

namespace opwright::onnx {
namespace {

using Op = ElementWiseOperation;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

void rotate(NodeImporter& node, Tensor* x, Tensor* cosines, Tensor* sines, Tensor* positions,
            int64_t heads) {
  RotaryEmbeddingParams params;
  params.interleaved = node.get_int("interleaved", 0) != 0;
  params.rotary_embedding_dim = node.get_int("rotary_embedding_dim", 0);
  params.sequence_first = x->rank() == 3;
  const SymShape shape = x->dims();
  if (params.sequence_first) x = node.reshape(x, heads_apart(node, x, heads, "num_heads"));
  // An odd last element stays as it is.
  const Expr size = x->dims()[3];
  if (params.rotary_embedding_dim == 0 && size.is_constant() && size.constant() % 2 != 0)
    params.rotary_embedding_dim = size.constant();
  params.rotary_embedding_dim -= params.rotary_embedding_dim % 2;
  std::vector<Tensor*> inputs = {x, cosines, sines};
  if (positions != nullptr) inputs.push_back(positions);
  Tensor* y = node.add<RotaryEmbedding>(params, inputs);
  node.set_output(0, params.sequence_first ? node.reshape(y, shape) : y);
}

namespace {

/// The mask, which may end before the last key: the keys behind it are masked. It must not have
/// more elements than there are keys.
Tensor* padded_mask(NodeImporter& node, Tensor* mask, const Expr& keys) {
  const Expr given = mask->dims().back();
  if (given == keys || given == Expr(1)) return mask;
  if (given.is_constant() && keys.is_constant() && given.constant() > keys.constant())
    node.error("rows of the mask have ", given.constant(), " elements, but there are ",
               keys.constant(), " keys; expected at most as many");
  SymShape size = mask->dims();
  size.back() = max(keys, given);
  Tensor* fill = node.scalar(mask->dtype() == DataType::kBOOL ? 0 : -kInfinity, mask->dtype());
  Tensor* padded =
      node.slice(mask, std::vector<Expr>(size.size(), 0), size, {}, SampleMode::kFILL, fill);
  // A run whose mask is longer than the keys is refused, because the mask has too many elements.
  size.back() = keys;
  return node.reshape(padded, size);
}

Mask attention_mask(NodeImporter& node, const Heads& heads, Tensor* past) {
  const Expr queries = heads.query->dims()[2], keys = heads.key->dims()[2];
  Tensor* lengths = node.optional_input(6);
  Mask mask;
  if (Tensor* given = node.optional_input(3)) {
    given = padded_mask(node, given, keys);
    (given->dtype() == DataType::kBOOL ? mask.allowed : mask.bias) = given;
  }
  if (lengths != nullptr) {
    const SymShape per_batch = {lengths->dims()[0], 1, 1, 1};
    lengths = node.reshape(node.cast(lengths, DataType::kINT64), per_batch);
    mask.allowed =
        both_allowed(node, mask.allowed, node.elementwise(Op::kLESS, node.count_up(keys), lengths));
  }
  const bool is_causal = node.get_int("is_causal", 0) != 0;
  const int64_t left = node.get_int("left_window_size", -1);
  const int64_t right = node.get_int("right_window_size", -1);
  if (left < -1 || right < -1)
    node.error("window sizes are ", left, " and ", right, "; expected -1 or more");
  if (!is_causal && left < 0 && right < 0) return mask;
  // The place of each query among the keys: the queries follow earlier keys.
  Tensor* place = node.unsqueeze(node.count_up(queries), {1});
  if (past != nullptr)
    place = node.elementwise(Op::kSUM, place, node.scalar_of(past->dims()[2]));
  else if (lengths != nullptr)
    place = node.elementwise(Op::kSUM, place,
                             node.elementwise(Op::kSUB, lengths, node.scalar_of(queries)));
  Tensor* key = node.unsqueeze(node.count_up(keys), {0});
  if (is_causal) mask.allowed = both_allowed(node, mask.allowed, not_greater(node, key, place));
  const auto shifted = [&](int64_t by) {
    return node.elementwise(Op::kSUM, place, static_cast<double>(by));
  };
  if (left >= 0)
    mask.allowed = both_allowed(node, mask.allowed, not_greater(node, shifted(-left), key));
  if (right >= 0)
    mask.allowed = both_allowed(node, mask.allowed, not_greater(node, key, shifted(right)));
  return mask;
}

Heads heads_of(NodeImporter& node) {
  Heads heads{node.input(0), node.input(1), node.input(2)};
  const int rank = heads.query->rank();
  node.require_rank(heads.query, 3, 4);
  node.require_rank(heads.key, rank, rank);
  node.require_rank(heads.value, rank, rank);
  if (rank == 3) {
    const int64_t shared = node.get_int("kv_num_heads", 0);
    heads.query = split_heads(node, heads.query, node.get_int("q_num_heads", 0), "q_num_heads");
    heads.key = split_heads(node, heads.key, shared, "kv_num_heads");
    heads.value = split_heads(node, heads.value, shared, "kv_num_heads");
  }
  heads.value = node.cast(heads.value, heads.query->dtype());
  return heads;
}

void attention(NodeImporter& node) {
  Heads heads = heads_of(node);
  const bool is_joined = node.input(0)->rank() == 3;
  Tensor *past_key = node.optional_input(4), *past_value = node.optional_input(5);
  if ((past_key == nullptr) != (past_value == nullptr))
    node.error("past_key and past_value must be given together");
  if (past_key != nullptr) {
    if (node.optional_input(6) != nullptr)
      node.error("nonpad_kv_seqlen cannot be given together with past_key");
    heads.key = node.concatenate({past_key, heads.key}, 2);
    heads.value = node.concatenate({node.cast(past_value, heads.value->dtype()), heads.value}, 2);
  }
  node.set_output(1, heads.key);
  node.set_output(2, heads.value);
  AttentionOptions options;
  options.scale = node.attribute("scale", AttributeProto::Type::kFloat) != nullptr
                      ? node.get_float("scale", 1)
                      : default_scale(node, heads.query->dims()[3]);
  options.cap = node.get_float("softcap", 0);
  if (node.attribute("softmax_precision", AttributeProto::Type::kInt) != nullptr)
    options.precision =
        node.element_type("softmax_precision", node.get_int("softmax_precision", 1));
  // TensorRT's name, and those of DistCollective.
  options.ranks =
      node.get_int("nbRanks", node.get_int("nb_rank", node.get_int("num_ranks", options.ranks)));
  if (options.ranks > 1 &&
      (node.get_int("is_causal", 0) != 0 || node.get_int("left_window_size", -1) >= 0 ||
       node.get_int("right_window_size", -1) >= 0))
    node.error("is causal or has a window, and its keys are split over ", options.ranks,
               " ranks: a rank does not know where its keys begin among all; give each rank its "
               "part of the mask");
  const int64_t shown = node.get_int("qk_matmul_output_mode", 0);
  if (shown < 0 || shown > 3) node.error("qk_matmul_output_mode is ", shown, "; expected 0 to 3");
  options.show = [&](AttentionStage stage, Tensor* scores) {
    if (static_cast<int64_t>(stage) == shown)
      node.set_output(3, node.cast(scores, heads.query->dtype()));
  };
  Tensor* y = attend(node, heads, attention_mask(node, heads, past_key), options);
  node.set_output(0, is_joined ? join_heads(node, y) : y);
}

void rotary_embedding(NodeImporter& node) {
  Tensor* x = node.input(0);
  node.require_rank(x, 3, 4);
  rotate(node, x, node.input(1), node.input(2), node.optional_input(3),
         node.get_int("num_heads", 0));
}

/// The recurrence of ONNX's LinearAttention, step by step: S' = exp(g) S + k (beta (v - (exp(g)
/// S)^T k))^T, o = scale q^T S'.
void linear_attention(NodeImporter& node) {
  const std::string rule = node.get_text("update_rule", "gated_delta");
  const bool is_gated = rule == "gated" || rule == "gated_delta";
  const bool is_delta = rule == "delta" || rule == "gated_delta";
  if (!is_gated && !is_delta && rule != "linear")
    node.error("update_rule is '", rule, "'; expected linear, gated, delta or gated_delta");
  for (int i = 0; i < 3; ++i) node.require_rank(node.input(i), 3);
  const int64_t query_heads = node.get_int("q_num_heads", 0);
  const int64_t heads = node.get_int("kv_num_heads", 0);
  const DataType type = node.input(0)->dtype();
  const auto split = [&](int input, int64_t count, std::string_view attribute) {
    return split_heads(node, node.cast(node.input(input), DataType::kFLOAT), count, attribute);
  };
  Tensor* query = split(0, query_heads, "q_num_heads");
  Tensor* key = split(1, heads, "kv_num_heads");
  Tensor* value = split(2, heads, "kv_num_heads");
  const int64_t group = heads_per_group(node, query_heads, heads);
  const Expr length = query->dims()[2], key_size = key->dims()[3];
  // Each step becomes layers of its own.
  constexpr int64_t kMaxSteps = 1024;
  if (!length.is_constant() || length.constant() > kMaxSteps)
    node.error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC, "the sequence has ",
                  length.str(), " elements; expected a constant of at most ", kMaxSteps,
                  ": give the inputs fixed shapes");
  Tensor *decay = nullptr, *beta = nullptr;
  if (is_gated) {
    decay = node.cast(node.input(4), DataType::kFLOAT);
    const bool is_per_head = decay->dims()[2] == Expr(heads);
    decay = split_heads(node, decay, heads, "kv_num_heads");
    if (!is_per_head && !(decay->dims()[3] == key_size))
      node.error("decay has ", decay->dims()[3].str(), " elements for a head; expected 1 or ",
                 key_size.str());
    // [batch, heads, length, key size, 1]
    decay = node.unsqueeze(node.unary(UnaryOperation::kEXP, decay), {4});
  }
  if (is_delta) {
    beta = node.cast(node.input(5), DataType::kFLOAT);
    beta = node.unsqueeze(node.transpose(beta, {0, 2, 1}), {3});
  }
  const float given = node.get_float("scale", 0);
  const double scale = given != 0 ? given : default_scale(node, key_size);
  const SymShape state_dims = {key->dims()[0], heads, key_size, value->dims()[3]};
  Tensor* past = node.optional_input(3);
  const DataType state_type = past != nullptr ? past->dtype() : type;
  Tensor* state =
      past != nullptr ? node.cast(past, DataType::kFLOAT) : node.fill(FillParams{}, state_dims);
  std::vector<Tensor*> results;
  const auto product = [&](Tensor* a, Tensor* b) { return node.elementwise(Op::kPROD, a, b); };
  for (int64_t t = 0; t < length.constant(); ++t) {
    const auto at = [&](Tensor* x) { return node.slice_axis(x, 2, t, 1); };
    Tensor *k = at(key), *v = at(value);
    if (is_gated) state = product(state, node.squeeze(at(decay), {2}));
    if (is_delta)
      v = product(at(beta), node.elementwise(Op::kSUB, v, node.multiply_matrices(k, state)));
    state = node.elementwise(Op::kSUM, state,
                             node.multiply_matrices(k, v, MatrixOperation::kTRANSPOSE));
    results.push_back(multiply_grouped(node, at(query), state, MatrixOperation::kNONE, group));
  }
  SymShape none = {query->dims()[0], query_heads, 0, value->dims()[3]};
  Tensor* y = results.empty() ? node.fill(FillParams{}, none) : node.concatenate(results, 2);
  node.set_output(0, node.cast(join_heads(node, scaled(node, y, scale)), type));
  node.set_output(1, node.cast(state, state_type));
}

/// A depthwise convolution over the elements up to and including each element. A state has the
/// elements before the first one.
void causal_convolution(NodeImporter& node) {
  Tensor *x = node.input(0), *kernel = node.input(1), *past = node.optional_input(3);
  node.require_rank(x, 3, 3);
  node.require_rank(kernel, 3, 3);
  const std::string activation = node.get_text("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    node.error("activation is '", activation, "'; expected none, silu or swish");
  const Expr width = kernel->dims()[2] - 1;
  if (past == nullptr) {
    FillParams zeros;
    zeros.to_type = x->dtype();
    const SymShape dims = {x->dims()[0], x->dims()[1], width};
    past = node.fill(zeros, dims);
  }
  Tensor* padded = node.concatenate({past, x}, 2);
  const Expr channels = kernel->dims()[0];
  if (!channels.is_constant()) node.error("the number of channels is not constant");
  ConvolutionParams params;
  params.groups = channels.constant();
  std::vector<Tensor*> inputs = {padded, kernel};
  if (Tensor* bias = node.optional_input(2)) inputs.push_back(bias);
  Tensor* y = node.add<Convolution>(params, inputs);
  if (activation != "none") y = node.swish(y, 1);
  node.set_output(0, y);
  node.set_output(1, node.slice_axis(padded, 2, x->dims()[2], width));
}

}  // namespace

void add_attention(NodeTable& table) {
  table["Attention"] = attention;
  table["RotaryEmbedding"] = rotary_embedding;
  table["LinearAttention"] = linear_attention;
  table["CausalConvWithState"] = causal_convolution;
}

}  // namespace opwright::onnx
