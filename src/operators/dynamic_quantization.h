#pragma once

#include "operators/composed.h"

namespace opwright {

struct DynamicQuantizeParams {
  int64_t axis = -1;        ///< the axis that is cut into blocks, if there is no block shape
  int64_t block_size = 16;  ///< elements of a block along the axis
  Ints block_shape;         ///< of x's rank; -1: all of the axis
  DataType to = DataType::kFP4;
  DataType scale_type = DataType::kFP8;
  template <class V>
  void visit(V& v) {
    v("axis", axis), v("block_size", block_size), v("block_shape", block_shape), v("to_type", to),
        v("scale_type", scale_type);
  }
};

/// Each block of x divided by a scale that follows from its largest element, as FP4, FP8 or INT8,
/// and the scales. Inputs: x of FP32, FP16 or BF16, and optionally a scalar by which FP8 scales are
/// divided. The scale is max |block| / (6, 448 or 127). An FP8 scale is rounded half to even, an
/// E8M0 scale up to a power of two, so that no element is cut off.
class DynamicQuantize final : public ComposedOperator<DynamicQuantize, DynamicQuantizeParams> {
 public:
  static constexpr std::string_view kKind = "DynamicQuantize";
  static constexpr LayerClass<class IDynamicQuantizeLayer> kLayer{
      LayerType::kDYNAMIC_QUANTIZE, "IDynamicQuantizeLayer",
      "Divides each block by a scale that follows from its largest element: the elements as FP4, "
      "FP8 or INT8, and the scales. Input 1 may be set: the scalar that scales of FP8 are divided "
      "by."};
  using ComposedOperator::ComposedOperator;
  std::optional<int> num_outputs() const override { return 2; }
  std::vector<Tensor*> compose(Network& network, std::span<Tensor* const> inputs,
                               const std::string& layer) const override;
};

}  // namespace opwright
