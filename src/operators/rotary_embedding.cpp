#include "operators/rotary_embedding.h"

#include "operators/infer.h"

namespace opwright {

std::vector<OutputInfo> RotaryEmbedding::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "cosines", "sines", "positions"}, 3);
  inference.require_floating(0);
  inference.require_rank(0, 4, 4);
  const TensorInfo& x = inference.input(0);
  const Expr batch = x.dims[0], length = x.dims[params().sequence_first ? 1 : 2], size = x.dims[3];
  const int64_t given = params().rotary_embedding_dim;
  inference.require(given >= 0, "rotary_embedding_dim must not be negative, but is ", given);
  const Expr turned = given > 0 ? Expr(given) : size;
  if (turned.is_constant())
    inference.require(turned.constant() % 2 == 0,
                      given > 0 ? "rotary_embedding_dim" : "a head's size", " is ",
                      turned.constant(), "; expected an even number, as pairs are turned");
  if (turned.is_constant() && size.is_constant())
    inference.require(turned.constant() <= size.constant(), "of a head ", turned.constant(),
                      " elements are to be turned, but it has ", size.constant());
  inference.be_at_least(0, 3, turned);
  const Expr& heads = x.dims[params().sequence_first ? 2 : 1];
  const int64_t turned_heads = params().turned_heads;
  inference.require(turned_heads == 0 || (turned_heads > 0 && heads.is_constant() &&
                                          turned_heads <= heads.constant()),
                    turned_heads, " heads are to be turned, but there are ", heads);
  const TensorInfo* positions = inference.optional(3);
  const auto require_batch = [&](int i) {
    if (!(inference.input(i).dims[0] == Expr(1)))
      inference.require_extent(i, 0, batch, "the batch");
    inference.require_extent(i, 1, length, "the length");
  };
  const int rank = positions != nullptr ? 2 : 3;
  for (const int i : {1, 2}) {
    inference.require_same_type(i, 0);
    inference.require_rank(i, rank, rank);
    inference.require_extent(i, rank - 1, floor_div(turned, 2), "the pairs of a head");
    if (positions == nullptr) require_batch(i);
  }
  if (positions != nullptr) {
    inference.require_extent(2, 0, inference.input(1).dims[0], "the rows of the cosines");
    const DataType type = positions->dtype;
    inference.require_type(3, type == DataType::kINT32 || type == DataType::kINT64,
                           "INT32 or INT64");
    inference.require_rank(3, 2, 2);
    require_batch(3);
  }
  return {make_output(x.dtype, x.dims)};
}

}  // namespace opwright
