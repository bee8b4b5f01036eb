#pragma once

#include "operators/builtin.h"

namespace opwright {

struct Col2ImParams {
  Ints block;                      ///< extents of a block, one for each spatial axis
  Ints stride, dilation;           ///< 1 where they are empty
  Ints pre_padding, post_padding;  ///< 0 where they are empty
  template <class V>
  void visit(V& v) {
    v("block", block), v("stride", stride), v("dilation", dilation);
    v("pre_padding", pre_padding), v("post_padding", post_padding);
  }
};
/// The opposite of taking the blocks of an image apart (im2col). Inputs: columns [N, C * elements
/// of a block, blocks] and the image's extents, INT32 or INT64 of 1 to 3 axes. Output: [N, C,
/// image]. Adds up elements of several blocks and leaves out elements in the padding.
class Col2Im final : public BuiltinOperator<Col2Im, Col2ImParams> {
 public:
  static constexpr std::string_view kKind = "Col2Im";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 1; }
};

}  // namespace opwright
