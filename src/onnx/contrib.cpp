// Operators of ONNX Runtime's domain, com.microsoft, that exporters and optimizers of transformers
// write.

#include <cstring>
#include <limits>

#include "base/half.h"
#include "onnx/attention.h"
#include "onnx/importer.h"
#include "operators/attention_parts.h"
#include "operators/kv_cache.h"
#include "operators/matmul_nbits.h"
#include "operators/normalization.h"
#include "operators/rotary_embedding.h"

namespace opwright::onnx {
namespace {

using Op = ElementWiseOperation;

Tensor* sum(NodeImporter& node, Tensor* a, Tensor* b) {
  return b == nullptr ? a : node.elementwise(Op::kSUM, a, b);
}

template <ActivationType type>
void biased(NodeImporter& node) {
  node.set_output(0, node.activation(type, sum(node, node.input(0), node.optional_input(1))));
}

Tensor* normalized(NodeImporter& node, Tensor* x, Tensor* scale, Tensor* bias, float epsilon,
                   bool rms) {
  NormalizationParams params;
  params.axes = int64_t{1} << (x->rank() - 1);
  params.epsilon = epsilon;
  params.rms = rms;
  std::vector<Tensor*> inputs = {x, scale};
  if (bias != nullptr) inputs.push_back(bias);
  return node.add<Normalization>(params, inputs);
}

/// Normalizes input + skip + bias. Does not compute the mean and the deviation, which training
/// reads.
void skip_normalization(NodeImporter& node, bool rms) {
  if (node.has_output(1) || node.has_output(2))
    node.error("the outputs of mean and deviation are not supported; only training reads them");
  // An RMS normalization has no beta.
  Tensor* beta = rms ? nullptr : node.optional_input(3);
  Tensor* x = sum(node, sum(node, node.input(0), node.input(1)), node.optional_input(rms ? 3 : 4));
  node.set_output(3, x);
  node.set_output(0, normalized(node, x, node.input(2), beta,
                                node.get_float("epsilon", rms ? 1e-6f : 1e-12f), rms));
}

/// Normalizes the sum of the embeddings of words, places and segments.
void embed_normalization(NodeImporter& node) {
  Tensor* ids = node.input(0);
  node.require_rank(ids, 2, 2);
  const auto embedded = [&](Tensor* indices, Tensor* table) {
    return node.add<Gather>({}, {table, indices});
  };
  Tensor* places = node.optional_input(8);
  if (places == nullptr) places = node.unsqueeze(node.count_up(ids->dims()[1]), {0});
  Tensor* x = sum(node, embedded(ids, node.input(2)), embedded(places, node.input(3)));
  Tensor *segments = node.optional_input(1), *table = node.optional_input(4);
  if ((segments == nullptr) != (table == nullptr))
    node.error("segment ids and their embeddings must be given together");
  if (segments != nullptr) x = sum(node, x, embedded(segments, table));
  node.set_output(2, x);
  node.set_output(0, normalized(node, x, node.input(5), node.input(6),
                                node.get_float("epsilon", 1e-12f), false));
  if (!node.has_output(1)) return;
  // The number of words in each row.
  Tensor* mask = node.optional_input(7);
  if (mask != nullptr)
    return node.set_output(
        1, node.reduce(ReduceOperation::kSUM, node.cast(mask, DataType::kINT32), {1}, false));
  FillParams zeros;
  zeros.to_type = DataType::kINT32;
  const SymShape dims = {ids->dims()[0]};
  node.set_output(1, node.fill(zeros, dims));
}

void fused_matrix_product(NodeImporter& node) {
  if (node.get_int("transBatchA", 0) != 0 || node.get_int("transBatchB", 0) != 0)
    node.error("transBatchA and transBatchB are not supported: transpose in front of the node");
  const auto operation = [&](const Tensor* x, std::string_view attribute) {
    if (x->rank() == 1) return MatrixOperation::kVECTOR;
    return node.get_int(attribute, 0) != 0 ? MatrixOperation::kTRANSPOSE : MatrixOperation::kNONE;
  };
  Tensor *a = node.input(0), *b = node.input(1);
  Tensor* y = node.multiply_matrices(a, b, operation(a, "transA"), operation(b, "transB"));
  const float alpha = node.get_float("alpha", 1);
  node.set_output(0, alpha == 1 ? y : node.elementwise(Op::kPROD, y, alpha));
}

/// A bias that lowers the score of words beyond each row's length, or where a mask of [batch, keys]
/// or more axes is 0, by `mask_filter_value`.
Tensor* padding_bias(NodeImporter& node, Tensor* mask, const Heads& heads) {
  if (mask == nullptr) return nullptr;
  Tensor* is_word = nullptr;
  if (mask->rank() == 1) {
    if (!(mask->dims()[0] == heads.query->dims()[0]))
      node.error("a mask of one axis has ", mask->dims()[0].str(),
                 " elements; expected a length for each of the ", heads.query->dims()[0].str(),
                 " rows");
    const SymShape dims = {mask->dims()[0], 1, 1, 1};
    is_word = node.elementwise(Op::kLESS, node.count_up(heads.key->dims()[2]),
                               node.cast(node.reshape(mask, dims), DataType::kINT64));
  } else {
    is_word = node.cast(mask, DataType::kBOOL);
    if (mask->rank() == 2) is_word = node.unsqueeze(is_word, {1, 2});
    if (mask->rank() == 3) is_word = node.unsqueeze(is_word, {1});
  }
  const DataType type = heads.query->dtype();
  return node.select(is_word, node.scalar(0, type),
                     node.scalar(node.get_float("mask_filter_value", -10000), type));
}

Tensor* unidirectional(NodeImporter& node, const Heads& heads) {
  if (node.get_int("unidirectional", 0) == 0) return nullptr;
  return causal_mask(node, heads, heads.key->dims()[2] - heads.query->dims()[2]);
}

AttentionOptions options_of(NodeImporter& node, const Heads& heads) {
  AttentionOptions options;
  const float scale = node.get_float("scale", 0);
  options.scale = scale != 0 ? scale : default_scale(node, heads.query->dims()[3]);
  return options;
}

}  // namespace

void attend_projected(NodeImporter& node, Tensor* all, const ProjectedInputs& given) {
  node.require_rank(all, 3, 3);
  if (node.get_int("do_rotary", 0) != 0) node.error("do_rotary=1 is not supported");
  const int64_t count = node.get_int("num_heads", 0);
  const Ints sizes = node.get_ints("qkv_hidden_sizes");
  if (!sizes.empty() && sizes.size() != 3)
    node.error("qkv_hidden_sizes has ", sizes.size(), " values; expected 3");
  Tensor* parts[3];
  Expr from = 0;
  for (int i = 0; i < 3; ++i) {
    const Expr size = sizes.empty() ? floor_div(all->dims()[2], 3) : Expr(sizes[i]);
    parts[i] = split_heads(node, node.slice_axis(all, 2, from, size), count, "num_heads");
    from = from + size;
  }
  Heads heads{parts[0], parts[1], parts[2]};
  if (Tensor* past = given.past) {
    node.require_rank(past, 5, 5);
    heads.key = node.concatenate({node.squeeze(node.slice_axis(past, 0, 0, 1), {0}), heads.key}, 2);
    heads.value =
        node.concatenate({node.squeeze(node.slice_axis(past, 0, 1, 1), {0}), heads.value}, 2);
  }
  if (node.has_output(1))
    node.set_output(
        1, node.concatenate({node.unsqueeze(heads.key, {0}), node.unsqueeze(heads.value, {0})}, 0));
  Mask mask;
  mask.allowed = unidirectional(node, heads);
  mask.bias = padding_bias(node, given.mask, heads);
  if (given.bias != nullptr)
    mask.bias = mask.bias == nullptr ? given.bias : sum(node, mask.bias, given.bias);
  node.set_output(0, join_heads(node, attend(node, heads, mask, options_of(node, heads))));
}

namespace {

/// Attention whose queries, keys and values one matrix projects.
void projected_attention(NodeImporter& node) {
  Tensor *x = node.input(0), *weights = node.input(1);
  node.require_rank(x, 3, 3);
  node.require_rank(weights, 2, 2);
  attend_projected(node, sum(node, node.multiply_matrices(x, weights), node.optional_input(2)),
                   {node.optional_input(3), node.optional_input(4), node.optional_input(5)});
}

void multi_head_attention(NodeImporter& node) {
  const int64_t count = node.get_int("num_heads", 0);
  Tensor* query = node.input(0);
  node.require_rank(query, 3, 3);
  Tensor* inputs[3] = {query, node.optional_input(1), node.optional_input(2)};
  if (inputs[1] == nullptr || inputs[2] == nullptr)
    node.error("packed queries, keys and values are not supported: give three inputs");
  if (Tensor* bias = node.optional_input(3)) {
    Expr from = 0;
    for (Tensor*& input : inputs) {
      if (input->rank() != 3)
        node.error("a bias needs keys and values of [batch, length, hidden size]");
      const Expr size = input->dims()[2];
      input = sum(node, input, node.slice_axis(bias, 0, from, size));
      from = from + size;
    }
  }
  const auto split = [&](Tensor* x) {
    return x->rank() == 4 ? x : split_heads(node, x, count, "num_heads");
  };
  Heads heads{split(inputs[0]), split(inputs[1]), split(inputs[2])};
  Tensor *past_key = node.optional_input(6), *past_value = node.optional_input(7);
  if ((past_key == nullptr) != (past_value == nullptr))
    node.error("past_key and past_value must be given together");
  if (past_key != nullptr) {
    heads.key = node.concatenate({past_key, heads.key}, 2);
    heads.value = node.concatenate({past_value, heads.value}, 2);
  }
  node.set_output(1, heads.key);
  node.set_output(2, heads.value);
  Mask mask;
  mask.allowed = unidirectional(node, heads);
  mask.bias = padding_bias(node, node.optional_input(4), heads);
  if (Tensor* bias = node.optional_input(5))
    mask.bias = mask.bias == nullptr ? bias : sum(node, mask.bias, bias);
  node.set_output(0, join_heads(node, attend(node, heads, mask, options_of(node, heads))));
}

void contrib_rotary_embedding(NodeImporter& node) {
  Tensor *x = node.input(0), *positions = node.input(1), *cosines = node.input(2);
  node.require_rank(x, 3, 4);
  node.require_rank(cosines, 2, 2);
  int64_t heads = node.get_int("num_heads", 0);
  if (heads == 0 && x->rank() == 3) {
    const Expr size = cosines->dims()[1] * 2;  // of a head that is turned as a whole
    if (x->dims()[2].is_constant() && size.is_constant() && size.constant() > 0)
      heads = x->dims()[2].constant() / size.constant();
  }
  if (positions->rank() == 1)  // the place of the first word
    positions = sum(node, node.unsqueeze(node.count_up(x->dims()[x->rank() - 2]), {0}),
                    node.cast(positions, DataType::kINT64));
  rotate(node, x, cosines, node.input(3), positions, heads);
}

/// A cache with its new elements: [batch, heads, extent, size] of `past`, whose first `lengths`
/// elements count, and of `now`, [batch, heads, length, size], which follow them. A run that has
/// both caches in one place writes only the new elements.
Tensor* extended_cache(NodeImporter& node, Tensor* past, Tensor* now, Tensor* lengths,
                       const Expr& extent) {
  const SymShape dims = now->dims();
  if (past == nullptr && extent == dims[2]) return now;
  const SymShape room = {dims[0], dims[1], extent, dims[3]};
  if (past == nullptr) {
    FillParams zeros;
    zeros.to_type = now->dtype();
    past = node.fill(zeros, room);
  }
  if (past->dims()[2] == extent) return node.add<KvCacheWrite>({}, {past, now, lengths});
  return node.add<KvCacheWrite>({}, {past, now, lengths, node.scalar_of(extent)});
}

/// Attention whose heads share keys and values, with a cache in which each row of the batch fills
/// its own length ("GQA", Ainslie et al., 2023).
void group_query_attention(NodeImporter& node) {
  const int64_t count = node.get_int("num_heads", 0), shared = node.get_int("kv_num_heads", 0);
  if (count < 1 || shared < 1 || count % shared != 0)
    node.error("num_heads and kv_num_heads are ", count, " and ", shared,
               "; expected a positive multiple of a positive number");
  for (const std::string_view attribute : {"k_quant_type", "v_quant_type"})
    if (const std::string type = node.get_text(attribute, "NONE"); type != "NONE")
      node.error(attribute, " is '", type, "', which is not supported; expected NONE");
  Tensor *query = node.input(0), *key = node.optional_input(1), *value = node.optional_input(2);
  node.require_rank(query, 3, 3);
  if ((key == nullptr) != (value == nullptr)) node.error("key and value must be given together");
  if (key == nullptr) {  // packed
    const Expr size = floor_div(query->dims()[2], count + 2 * shared);
    key = node.slice_axis(query, 2, size * count, size * shared);
    value = node.slice_axis(query, 2, size * (count + shared), size * shared);
    query = node.slice_axis(query, 2, 0, size * count);
  }
  node.require_rank(key, 3, 3);
  node.require_rank(value, 3, 3);
  Heads heads{split_heads(node, query, count, "num_heads"),
              split_heads(node, key, shared, "kv_num_heads"),
              split_heads(node, value, shared, "kv_num_heads")};
  const Expr batch = query->dims()[0], length = query->dims()[1];
  Tensor *past_key = node.optional_input(3), *past_value = node.optional_input(4);
  if ((past_key == nullptr) != (past_value == nullptr))
    node.error("past_key and past_value must be given together");
  for (Tensor* past : {past_key, past_value})
    if (past != nullptr) node.require_rank(past, 4, 4);

  // The number of elements in each row, now and before this node. A prompt comes first.
  const Expr total = node.single_value(node.input(6), "total_sequence_length");
  Tensor* lengths = node.cast(node.input(5), DataType::kINT64);
  const SymShape flat = {batch};
  lengths = node.elementwise(Op::kSUM, node.reshape(lengths, flat), 1.0);
  Tensor* before = node.elementwise(Op::kSUB, lengths, node.unsqueeze(node.scalar_of(length), {0}));
  const Expr follows = Expr::select(Expr::make(ExprOp::kEqual, length, total), 0, 1);
  if (!(follows == Expr(1)))
    before = node.elementwise(Op::kPROD, before, node.unsqueeze(node.scalar_of(follows), {0}));

  // The places of the new elements, [batch, length].
  const SymShape column = {batch, 1};
  Tensor* places = node.elementwise(Op::kSUM, node.reshape(before, column),
                                    node.unsqueeze(node.count_up(length), {0}));
  if (node.get_int("do_rotary", 0) != 0) {
    Tensor* turned_by = node.optional_input(9);
    Tensor *cosine = node.input(7), *sine = node.input(8);
    node.require_rank(cosine, 2, 2);
    const Expr rotated = cosine->dims()[1] * 2;
    if (turned_by == nullptr) {
      // Elements behind a row's last one may have any place that the tables have.
      Tensor* last =
          node.elementwise(Op::kSUB, node.unsqueeze(node.scalar_of(cosine->dims()[0]), {0}), 1.0);
      turned_by = node.elementwise(Op::kMIN, node.elementwise(Op::kMAX, places, 0.0), last);
    }
    RotaryEmbeddingParams turning;
    turning.interleaved = node.get_int("rotary_interleaved", 0) != 0;
    if (rotated.is_constant()) turning.rotary_embedding_dim = rotated.constant();
    for (Tensor** x : {&heads.query, &heads.key})
      *x = node.add<RotaryEmbedding>(turning, {*x, cosine, sine, turned_by});
  }
  const Expr extent = past_key == nullptr ? total : max(past_key->dims()[2], total);
  heads.key = extended_cache(node, past_key, heads.key, before, extent);
  heads.value = extended_cache(node, past_value, heads.value, before, extent);
  node.set_output(1, heads.key);
  node.set_output(2, heads.value);

  // A query meets the keys up to its own place, or only those in a window before it.
  Tensor* own = node.unsqueeze(places, {1, 3});
  Tensor* key_place = node.reshape(node.count_up(extent), SymShape{1, 1, 1, extent});
  Mask mask;
  mask.allowed = node.unary(UnaryOperation::kNOT, node.elementwise(Op::kGREATER, key_place, own));
  const int64_t window = node.get_int("local_window_size", -1);
  if (window < -1 || window == 0)
    node.error("local_window_size is ", window, "; expected -1 or a positive number");
  if (window > 0)
    mask.allowed = both_allowed(
        node, mask.allowed,
        node.elementwise(Op::kGREATER, key_place,
                         node.elementwise(Op::kSUB, own, static_cast<double>(window))));
  if (Tensor* bias = node.optional_input(10)) mask.bias = bias;
  AttentionOptions options = options_of(node, heads);
  options.cap = node.get_float("softcap", 0);
  if (Tensor* sink = node.optional_input(11)) {
    options.sink = node.reshape(sink, SymShape{1, Expr(count), 1, 1});
  } else if (node.get_int("smooth_softmax", 0) != 0) {
    const SymShape one = {1, 1, 1, 1};
    options.sink = node.reshape(node.scalar(0, heads.query->dtype()), one);
  }
  const int64_t shown = node.get_int("qk_output", 0);
  if (shown != 0 || node.has_output(3))
    node.error("qk_output is ", shown, ", which is not supported; expected 0");
  node.set_output(0, join_heads(node, attend(node, heads, mask, options)));
}

void bias_split_gelu(NodeImporter& node) {
  Tensor* x = sum(node, node.input(0), node.input(1));
  const int last = x->rank() - 1;
  const Expr half = floor_div(x->dims()[static_cast<size_t>(last)], 2);
  Tensor* gate = node.activation(ActivationType::kGELU_ERF, node.slice_axis(x, last, half, half));
  node.set_output(0, node.elementwise(Op::kPROD, node.slice_axis(x, last, 0, half), gate));
}

/// Applies an activation behind a fused product or convolution.
Tensor* activated(NodeImporter& node, Tensor* x, std::string_view attribute,
                  std::vector<float> params) {
  const std::string type = node.get_text(attribute, "");
  const auto param = [&](size_t i, float otherwise) {
    return i < params.size() ? params[i] : otherwise;
  };
  if (type.empty()) return x;
  if (type == "Relu") return node.activation(ActivationType::kRELU, x);
  if (type == "Tanh") return node.activation(ActivationType::kTANH, x);
  if (type == "Sigmoid") return node.activation(ActivationType::kSIGMOID, x);
  if (type == "LeakyRelu") return node.activation(ActivationType::kLEAKY_RELU, x, param(0, 0.01f));
  if (type == "Clip")
    return node.activation(ActivationType::kCLIP, x, param(0, std::numeric_limits<float>::lowest()),
                           param(1, std::numeric_limits<float>::max()));
  if (type == "HardSigmoid")
    return node.activation(ActivationType::kHARD_SIGMOID, x, param(0, 0.2f), param(1, 0.5f));
  if (type == "Gelu") return node.activation(ActivationType::kGELU_ERF, x);
  node.error(attribute, " is '", type,
             "', which is not supported; expected Relu, Tanh, Sigmoid, LeakyRelu, Clip, "
             "HardSigmoid or Gelu");
}

void fused_convolution(NodeImporter& node, bool channels_last) {
  Tensor* x = node.input(0);
  Tensor *kernel = node.input(1), *z = node.optional_input(3);
  if (channels_last) {
    x = with_channels_first(node, x);
    if (z != nullptr) z = with_channels_first(node, z);
  }
  const ConvolutionParams params = convolution_params(node, x);
  std::vector<Tensor*> inputs = {x, kernel};
  if (Tensor* bias = node.optional_input(2)) inputs.push_back(bias);
  const auto* given = node.attribute("activation_params", AttributeProto::Type::kFloats);
  Tensor* y = activated(node, sum(node, node.add<Convolution>(params, inputs), z), "activation",
                        given != nullptr ? given->floats : std::vector<float>());
  node.set_output(0, channels_last ? with_channels_last(node, y) : y);
}

void fused_gemm(NodeImporter& node) {
  const auto operation = [&](std::string_view attribute) {
    return node.get_int(attribute, 0) != 0 ? MatrixOperation::kTRANSPOSE : MatrixOperation::kNONE;
  };
  node.require_rank(node.input(0), 2, 2);
  node.require_rank(node.input(1), 2, 2);
  const auto scaled = [&](Tensor* x, float factor) {
    return factor == 1 ? x : node.elementwise(Op::kPROD, x, factor);
  };
  Tensor* y = scaled(node.multiply_matrices(node.input(0), node.input(1), operation("transA"),
                                            operation("transB")),
                     node.get_float("alpha", 1));
  if (Tensor* c = node.optional_input(2)) y = sum(node, y, scaled(c, node.get_float("beta", 1)));
  std::vector<float> params;
  for (const std::string_view name : {"activation_alpha", "activation_beta"})
    if (node.attribute(name, AttributeProto::Type::kFloat) != nullptr)
      params.push_back(node.get_float(name, 0));
  node.set_output(0, activated(node, y, "activation", params));
}

/// Group normalization of diffusion models, of images with channels last or first.
void group_norm(NodeImporter& node, bool skips) {
  const bool last = node.get_int("channels_last", 1) != 0;
  const int64_t groups = node.get_int("groups", 0), activation = node.get_int("activation", 0);
  Tensor *x = node.input(0), *gamma = node.input(1), *beta = node.input(2);
  node.require_rank(x, 3);
  const Expr channels = x->dims()[last ? static_cast<size_t>(x->rank()) - 1 : 1];
  if (groups < 1) node.error("groups is ", groups, "; expected at least 1");
  if (activation != 0 && activation != 1)
    node.error("activation is ", activation, "; expected 0, or 1 for SiLU");
  if (skips) {
    Tensor* skip = node.input(3);
    if (skip->rank() == 2) skip = node.unsqueeze(skip, last ? Ints{1, 2} : Ints{2, 3});
    x = sum(node, sum(node, x, skip), node.optional_input(4));
    node.set_output(1, x);
  }
  const SymShape whole = x->dims();
  Tensor* first = last ? with_channels_first(node, x) : x;
  const SymShape dims = first->dims();
  const SymShape grouped = {dims[0], groups,
                            floor_div(channels, groups) * numel(std::span(dims).subspan(2))};
  Tensor* flat = node.cast(node.reshape(first, grouped), DataType::kFLOAT);
  Tensor* mean = node.reduce(ReduceOperation::kAVG, flat, {2}, true);
  Tensor* centered = node.elementwise(Op::kSUB, flat, mean);
  Tensor* variance = node.reduce(ReduceOperation::kAVG,
                                 node.elementwise(Op::kPROD, centered, centered), {2}, true);
  Tensor* deviation =
      node.unary(UnaryOperation::kSQRT,
                 node.elementwise(Op::kSUM, variance, node.get_float("epsilon", 1e-5f)));
  Tensor* y = node.reshape(node.elementwise(Op::kDIV, centered, deviation), dims);
  SymShape along(dims.size(), Expr(1));
  along[1] = channels;
  y = node.elementwise(Op::kPROD, y, node.reshape(node.cast(gamma, DataType::kFLOAT), along));
  y = node.elementwise(Op::kSUM, y, node.reshape(node.cast(beta, DataType::kFLOAT), along));
  if (activation == 1) y = node.swish(y, 1);
  y = node.cast(y, x->dtype());
  node.set_output(0, last ? with_channels_last(node, y) : y);
}

/// A product with weights of a few bits, which stay packed.
void matrix_product_of_bits(NodeImporter& node) {
  MatMulNBitsParams params;
  params.rows = node.get_int("N", 0), params.columns = node.get_int("K", 0);
  params.bits = node.get_int("bits", 4), params.block = node.get_int("block_size", 0);
  if (const std::string problem = params.problem(); !problem.empty()) node.error(problem);
  if (node.optional_input(4) != nullptr) node.error("the input g_idx is not supported");
  Tensor *a = node.input(0), *codes = node.input(1), *zeros = node.optional_input(3);
  if (codes->dtype() != DataType::kUINT8) node.error("B must be UINT8");
  const auto require_elements = [&](const Tensor* x, std::string_view what, int64_t count) {
    if (!(numel(x->dims()) == Expr(count)))
      node.error(what, " has the shape ", x->dims(), "; expected ", count, " elements");
  };
  const bool has_packed_zeros = zeros != nullptr && zeros->dtype() == DataType::kUINT8;
  require_elements(codes, "B", params.rows * params.blocks() * params.bytes_per_block());
  require_elements(node.input(2), "scales", params.rows * params.blocks());
  if (zeros != nullptr)
    require_elements(zeros, "zero_points",
                     params.rows * (has_packed_zeros ? params.zero_bytes() : params.blocks()));
  std::vector<Tensor*> inputs = {a, codes, node.cast(node.input(2), a->dtype()), zeros,
                                 node.optional_input(5)};
  if (zeros != nullptr && !has_packed_zeros) inputs[3] = node.cast(zeros, a->dtype());
  if (inputs[4] != nullptr) inputs[4] = node.cast(inputs[4], a->dtype());
  while (inputs.back() == nullptr) inputs.pop_back();
  node.set_output(0, node.add<MatMulNBits>(params, inputs));
}

}  // namespace

void add_contrib(NodeTable& table) {
  table["BiasGelu"] = biased<ActivationType::kGELU_ERF>;
  table["Gelu"] = biased<ActivationType::kGELU_ERF>;
  table["FastGelu"] = biased<ActivationType::kGELU_TANH>;
  table["QuickGelu"] = [](NodeImporter& node) {
    node.set_output(0, node.swish(node.input(0), node.get_float("alpha", 1.702f)));
  };
  table["SkipLayerNormalization"] = [](NodeImporter& node) { skip_normalization(node, false); };
  table["SkipSimplifiedLayerNormalization"] = [](NodeImporter& node) {
    skip_normalization(node, true);
  };
  table["EmbedLayerNormalization"] = embed_normalization;
  table["FusedMatMul"] = fused_matrix_product;
  table["Attention"] = projected_attention;
  table["MultiHeadAttention"] = multi_head_attention;
  table["RotaryEmbedding"] = contrib_rotary_embedding;
  table["GroupQueryAttention"] = group_query_attention;
  table["TransposeMatMul"] = fused_matrix_product;
  table["FusedConv"] = [](NodeImporter& node) { fused_convolution(node, false); };
  table["NhwcConv"] = [](NodeImporter& node) { fused_convolution(node, true); };
  table["NhwcFusedConv"] = table["NhwcConv"];
  table["FusedGemm"] = fused_gemm;
  table["BiasSplitGelu"] = bias_split_gelu;
  table["BiasAdd"] = [](NodeImporter& node) {
    node.set_output(0, sum(node, sum(node, node.input(0), node.input(1)), node.input(2)));
  };
  table["GroupNorm"] = [](NodeImporter& node) { group_norm(node, false); };
  table["SkipGroupNorm"] = [](NodeImporter& node) { group_norm(node, true); };
  table["MatMulNBits"] = matrix_product_of_bits;
}

}  // namespace opwright::onnx
