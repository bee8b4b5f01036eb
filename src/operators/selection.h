#pragma once

#include "operators/builtin.h"

namespace opwright {

// Operators that compute their number of elements. Their last output is that number, a size tensor,
// INT64 unless said otherwise. Memory is planned for the largest number that the inputs' shapes
// allow. The elements lie densely for the computed number.

struct NonZeroParams {
  DataType indices_type = DataType::kINT32;
  template <class V>
  void visit(V& v) {
    v("indices_type", indices_type);
  }
};
/// Outputs: the indices of all elements that are not zero, [rank of x, count] in the order of the
/// elements, and the count.
class NonZero final : public BuiltinOperator<NonZero, NonZeroParams> {
 public:
  static constexpr std::string_view kKind = "NonZero";
  static constexpr LayerClass<class INonZeroLayer> kLayer{
      LayerType::kNON_ZERO, "INonZeroLayer",
      "The indices of elements that are not zero, and how many there are."};
  using BuiltinOperator::BuiltinOperator;
  std::optional<int> num_outputs() const override { return 2; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

template <>
inline constexpr auto kEnumeration<BoundingBoxFormat> = enumeration<BoundingBoxFormat>(
    "BoundingBoxFormat", "What the four numbers of a bounding box are.",
    {
        {"CORNER_PAIRS", BoundingBoxFormat::kCORNER_PAIRS, "Two opposite corners."},
        {"CENTER_SIZES", BoundingBoxFormat::kCENTER_SIZES, "The center and the extents."},
    });

struct NmsParams {
  BoundingBoxFormat bounding_box_format = BoundingBoxFormat::kCORNER_PAIRS;
  int64_t topk_box_limit = 0;  ///< boxes of a class that are considered; 0: all
  DataType indices_type = DataType::kINT32;
  bool is_bounded = false;  ///< whether the number of boxes that a class may keep is known when
                            ///< shapes are
  template <class V>
  void visit(V& v) {
    v("bounding_box_format", bounding_box_format), v("topk_box_limit", topk_box_limit),
        v("indices_type", indices_type), v.internal("is_bounded", is_bounded);
  }
};
/// Inputs: boxes [batch, boxes, 4] or [batch, boxes, classes, 4], scores [batch, boxes, classes],
/// the number of boxes that a class of an image may keep (one integer), and optionally the overlap
/// above which a box is dropped (default 0) and the score above which one is taken (default: any).
/// Outputs: [count, 3] of batch, class and box, with the best of each class first, and the INT32
/// count.
class Nms final : public BuiltinOperator<Nms, NmsParams> {
 public:
  static constexpr std::string_view kKind = "NMS";
  static constexpr LayerClass<class INMSLayer> kLayer{
      LayerType::kNMS, "INMSLayer", "Boxes that overlap no better one, and how many there are."};
  using BuiltinOperator::BuiltinOperator;
  std::optional<int> num_outputs() const override { return 2; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 2 && params().is_bounded; }
};

struct UniqueParams {
  bool flatten = true;  ///< compares elements, not slices along `axis`
  int64_t axis = 0;
  bool sorted = true;  ///< ascending, not in the order of first occurrence
  template <class V>
  void visit(V& v) {
    v("flatten", flatten), v("axis", axis), v("sorted", sorted);
  }
};
/// Outputs: the different elements or slices, the INT64 index where each occurs first, for each of
/// the input the index of its equal, how often each occurs, and their number.
class Unique final : public BuiltinOperator<Unique, UniqueParams> {
 public:
  static constexpr std::string_view kKind = "Unique";
  using BuiltinOperator::BuiltinOperator;
  std::optional<int> num_outputs() const override { return 5; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

struct DataExtentParams {
  int64_t element = 0;  ///< the place in input 0 of the element that becomes an extent
  template <class V>
  void visit(V& v) {
    v.internal("element", element);
  }
};
/// Turns an element of an INT32 or INT64 tensor into an extent of other tensors: the output is the
/// size tensor. Input 1, one integer that decides shapes, is its upper bound.
class DataExtent final : public BuiltinOperator<DataExtent, DataExtentParams> {
 public:
  static constexpr std::string_view kKind = "DataExtent";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 1; }
};

}  // namespace opwright
