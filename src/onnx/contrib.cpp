// Operators of ONNX Runtime's domain, com.microsoft, that exporters and optimizers of transformers
// write.

#include <cstring>

#include "base/half.h"
#include "onnx/importer.h"
#include "operators/attention_parts.h"
#include "operators/normalization.h"

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

/// The norm of input + skip + bias. The mean and the deviation, which training reads, are not made.
void skip_normalization(NodeImporter& node, bool rms) {
  if (node.has_output(1) || node.has_output(2))
    node.error("the outputs of mean and deviation are not supported; only training reads them");
  // Without a mean there is no beta.
  Tensor* beta = rms ? nullptr : node.optional_input(3);
  Tensor* x = sum(node, sum(node, node.input(0), node.input(1)), node.optional_input(rms ? 3 : 4));
  node.set_output(3, x);
  node.set_output(0, normalized(node, x, node.input(2), beta,
                                node.get_float("epsilon", rms ? 1e-6f : 1e-12f), rms));
}

/// The norm of the sum of the embeddings of words, places and segments.
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
  // How many words each row has.
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

/// Words beyond each row's length, or where a mask of [batch, keys] or more axes is 0, get a score
/// that is lower by `mask_filter_value`.
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

/// Attention over what one matrix projects to queries, keys and values.
void projected_attention(NodeImporter& node) {
  Tensor *x = node.input(0), *weights = node.input(1);
  node.require_rank(x, 3, 3);
  node.require_rank(weights, 2, 2);
  if (node.get_int("do_rotary", 0) != 0) node.error("do_rotary=1 is not supported");
  const int64_t count = node.get_int("num_heads", 0);
  Tensor* all = sum(node, node.multiply_matrices(x, weights), node.optional_input(2));
  const Ints sizes = node.get_ints("qkv_hidden_sizes");
  if (!sizes.empty() && sizes.size() != 3)
    node.error("qkv_hidden_sizes has ", sizes.size(), " values; expected 3");
  Tensor* parts[3];
  Expr from = 0;
  for (int i = 0; i < 3; ++i) {
    const Expr size = sizes.empty() ? floor_div(weights->dims()[1], 3) : Expr(sizes[i]);
    parts[i] = split_heads(node, node.slice_axis(all, 2, from, size), count, "num_heads");
    from = from + size;
  }
  Heads heads{parts[0], parts[1], parts[2]};
  Tensor* past = node.optional_input(4);
  if (past != nullptr) {
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
  mask.bias = padding_bias(node, node.optional_input(3), heads);
  if (Tensor* bias = node.optional_input(5))
    mask.bias = mask.bias == nullptr ? bias : sum(node, mask.bias, bias);
  node.set_output(0, join_heads(node, attend(node, heads, mask, options_of(node, heads))));
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
  Tensor *x = node.input(0), *positions = node.input(1);
  node.require_rank(x, 3, 4);
  const bool is_joined = x->rank() == 3;
  Tensor *cosine = node.input(2), *sine = node.input(3);
  node.require_rank(cosine, 2, 2);
  const int64_t given = node.get_int("rotary_embedding_dim", 0);
  if (is_joined) {
    int64_t heads = node.get_int("num_heads", 0);
    const Expr size = cosine->dims()[1] * 2;  // of a head, where all of it is turned
    if (heads == 0 && x->dims()[2].is_constant() && size.is_constant() && size.constant() > 0)
      heads = x->dims()[2].constant() / size.constant();
    x = split_heads(node, x, heads, "num_heads");
  }
  if (positions->rank() == 1)  // where the first word stands
    positions = sum(node, node.unsqueeze(node.count_up(x->dims()[2]), {0}),
                    node.cast(positions, DataType::kINT64));
  const auto at_positions = [&](Tensor* table) {
    return node.unsqueeze(node.add<Gather>({}, {table, positions}), {1});
  };
  Tensor* y = rotate(node, x, at_positions(cosine), at_positions(sine),
                     given > 0 ? Expr(given) : x->dims()[3], node.get_int("interleaved", 0) != 0);
  node.set_output(0, is_joined ? join_heads(node, y) : y);
}

/// A product with weights of a few bits, which become floating-point numbers here.
void matrix_product_of_bits(NodeImporter& node) {
  const int64_t rows = node.get_int("N", 0), columns = node.get_int("K", 0);
  const int64_t bits = node.get_int("bits", 4), block = node.get_int("block_size", 0);
  constexpr int64_t kMost = int64_t{1} << 31;
  if (rows < 1 || columns < 1 || rows > kMost || columns > kMost)
    node.error("N and K are ", rows, " and ", columns, "; expected at least 1");
  if ((bits != 2 && bits != 4 && bits != 8) || block < 16 || (block & (block - 1)) != 0 ||
      block > kMost)
    node.error("bits and block_size are ", bits, " and ", block,
               "; expected 2, 4 or 8, and a power of two from 16 on");
  if (node.optional_input(4) != nullptr) node.error("the input g_idx is not supported");
  const int64_t blocks = (columns + block - 1) / block, per_byte = 8 / bits;
  const int64_t bytes_of_block = block / per_byte, zero_bytes = (blocks + per_byte - 1) / per_byte;
  Tensor *packed = node.input(1), *scales = node.input(2), *zeros = node.optional_input(3);
  const auto require_constant = [&](Tensor* x, std::string_view what, int64_t count) {
    if (!x->info().constant || !(numel(x->dims()) == Expr(count)))
      node.error(what, " must be a constant of ", count, " elements");
  };
  require_constant(packed, "B", rows * blocks * bytes_of_block);
  require_constant(scales, "scales", rows * blocks);
  const bool has_packed_zeros = zeros != nullptr && zeros->dtype() == DataType::kUINT8;
  if (zeros != nullptr)
    require_constant(zeros, "zero_points", rows * (has_packed_zeros ? zero_bytes : blocks));
  if (packed->dtype() != DataType::kUINT8) node.error("B must be UINT8");
  const Floats factors = node.constant_floats(scales, "scales");
  const Floats float_zeros =
      zeros != nullptr && !has_packed_zeros ? node.constant_floats(zeros, "zero_points") : Floats();
  const auto* const codes =
      reinterpret_cast<const uint8_t*>(packed->info().constant.bytes().data());
  const auto* const zero_codes =
      has_packed_zeros ? reinterpret_cast<const uint8_t*>(zeros->info().constant.bytes().data())
                       : nullptr;
  const int mask = (1 << bits) - 1;
  const auto code = [&](const uint8_t* from, int64_t i) {
    return from[i / per_byte] >> (i % per_byte * bits) & mask;
  };
  const DataType type = node.input(0)->dtype();
  Blob data = Blob::make(bytes_of(type, rows * columns), [&](void* out) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t b = r * blocks + c / block;
        double zero = static_cast<double>(1 << (bits - 1));
        if (zero_codes != nullptr)
          zero = code(zero_codes + r * zero_bytes, c / block);
        else if (!float_zeros.empty())
          zero = float_zeros[static_cast<size_t>(b)];
        row[static_cast<size_t>(c)] = static_cast<float>(
            (code(codes + b * bytes_of_block, c % block) - zero) * factors[static_cast<size_t>(b)]);
      }
      convert(row.data(), DataType::kFLOAT,
              static_cast<std::byte*>(out) + bytes_of(type, r * columns), type, columns);
    }
  });
  Tensor* weights = node.network().add_constant(type, Shape{rows, columns}, std::move(data));
  Tensor* y = node.multiply_matrices(node.input(0), weights, MatrixOperation::kNONE,
                                     MatrixOperation::kTRANSPOSE);
  node.set_output(0, sum(node, y, node.optional_input(5)));
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
  table["MatMulNBits"] = matrix_product_of_bits;
}

}  // namespace opwright::onnx
