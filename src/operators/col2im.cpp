#include "operators/col2im.h"

#include "operators/infer.h"

namespace opwright {

std::vector<OutputInfo> Col2Im::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"columns", "image"}, 2);
  inference.require_floating(0);
  inference.require_rank(0, 3, 3);
  const std::vector<Expr>& image = inference.shape_values(1);
  const int spatial = static_cast<int>(image.size());
  inference.require(spatial >= 1 && spatial <= 3, inference.port(1),
                    " must have 1 to 3 extents, but has ", spatial);
  const std::string& who = inference.who();
  const Ints block = per_axis(who, "block", params().block, spatial, 1, 1);
  const Ints stride = per_axis(who, "stride", params().stride, spatial, 1, 1);
  const Ints dilation = per_axis(who, "dilation", params().dilation, spatial, 1, 1);
  const Ints pre = per_axis(who, "pre_padding", params().pre_padding, spatial, 0, 0);
  const Ints post = per_axis(who, "post_padding", params().post_padding, spatial, 0, 0);
  const TensorInfo& x = inference.input(0);
  constexpr int64_t kMostInBlock = 4096;
  int64_t elements = 1;
  Expr blocks = 1;
  for (size_t i = 0; i < image.size(); ++i) {
    inference.require(block[i] <= kMostInBlock && (elements *= block[i]) <= kMostInBlock,
                      "blocks have at most ", kMostInBlock, " elements, but are ", str(block));
    blocks =
        blocks *
        (floor_div(image[i] + pre[i] + post[i] - (block[i] - 1) * dilation[i] - 1, stride[i]) + 1);
  }
  inference.require_extent(0, 2, blocks, "the blocks of the image");
  if (x.dims[1].is_constant())
    inference.require(x.dims[1].constant() % elements == 0, inference.port(0), " has ",
                      x.dims[1].constant(), " rows, which are no whole blocks of ", elements);
  SymShape shape = {x.dims[0], floor_div(x.dims[1], elements)};
  shape.insert(shape.end(), image.begin(), image.end());
  require_valid_shape(who, shape);
  return {make_output(x.dtype, std::move(shape))};
}

}  // namespace opwright
