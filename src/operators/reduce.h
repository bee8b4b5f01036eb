#pragma once

#include "operators/builtin.h"

namespace opwright {

template <>
inline constexpr auto kEnumeration<ReduceOperation> =
    enumeration<ReduceOperation>("ReduceOperation", "What becomes of the elements along axes.",
                                 {
                                     {"SUM", ReduceOperation::kSUM, "Their sum."},
                                     {"PROD", ReduceOperation::kPROD, "Their product."},
                                     {"MAX", ReduceOperation::kMAX, "The largest."},
                                     {"MIN", ReduceOperation::kMIN, "The smallest."},
                                     {"AVG", ReduceOperation::kAVG, "Their mean."},
                                     {"NONE", ReduceOperation::kNONE,
                                      "Of collective operations; a reduce layer with it cannot "
                                      "be built."},
                                 });

struct ReduceParams {
  ReduceOperation op = ReduceOperation::kSUM;
  int64_t axes = 0;  ///< bit i is set for axis i
  bool keep_dims = false;
  template <class V>
  void visit(V& v) {
    v("op", op), v("axes", axes), v("keep_dims", keep_dims);
  }
};
class Reduce final : public BuiltinOperator<Reduce, ReduceParams> {
 public:
  static constexpr std::string_view kKind = "Reduce";
  static constexpr LayerClass<class IReduceLayer> kLayer{
      LayerType::kREDUCE, "IReduceLayer", "Reduces over the axes whose bits are set."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

struct SoftmaxParams {
  int64_t axes = 0;  ///< bit i is set for axis i; one bit
  bool log = false;  ///< logarithm of the softmax
  template <class V>
  void visit(V& v) {
    v("axes", axes), v.internal("log", log);
  }
};
class Softmax final : public BuiltinOperator<Softmax, SoftmaxParams> {
 public:
  static constexpr std::string_view kKind = "Softmax";
  static constexpr LayerClass<class ISoftMaxLayer> kLayer{
      LayerType::kSOFTMAX, "ISoftMaxLayer", "Softmax over the axis whose bit is set."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

template <>
inline constexpr auto kEnumeration<CumulativeOperation> = enumeration<CumulativeOperation>(
    "CumulativeOperation", "What becomes of the elements up to one.",
    {{"SUM", CumulativeOperation::kSUM, "Their sum."}});

struct CumulativeParams {
  CumulativeOperation op = CumulativeOperation::kSUM;
  bool exclusive = false;  ///< an element does not count in its own sum
  bool reverse = false;    ///< sums begin at the end
  int64_t axis = -1;       ///< used without a second input
  bool product = false;    ///< multiplies the elements instead of adding them
  template <class V>
  void visit(V& v) {
    v("op", op), v("exclusive", exclusive), v("reverse", reverse), v.internal("axis", axis),
        v.internal("product", product);
  }
};
/// Sums along an axis. The axis is a second input, a constant, which the compiler turns into a
/// parameter.
class Cumulative final : public BuiltinOperator<Cumulative, CumulativeParams> {
 public:
  static constexpr std::string_view kKind = "Cumulative";
  static constexpr LayerClass<class ICumulativeLayer> kLayer{
      LayerType::kCUMULATIVE, "ICumulativeLayer",
      "Each element along an axis is the sum of those up to it."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 1; }
  OperatorPtr without_shape_inputs(std::span<const TensorInfo* const> inputs) const override;
};

template <>
inline constexpr auto kEnumeration<TopKOperation> = enumeration<TopKOperation>(
    "TopKOperation", "Which elements are selected.",
    {
        {"MAX", TopKOperation::kMAX, "The largest, in descending order."},
        {"MIN", TopKOperation::kMIN, "The smallest, in ascending order."},
    });

struct TopKParams {
  TopKOperation op = TopKOperation::kMAX;
  int64_t k = 1;
  int64_t axes = 0;  ///< one bit
  DataType indices_type = DataType::kINT32;
  template <class V>
  void visit(V& v) {
    v("op", op), v("k", k), v("axes", axes), v("indices_type", indices_type);
  }
};
/// Outputs: the k largest (smallest) elements along the axis in order, and their indices (equal
/// elements: lower index first). An optional second input (one integer) replaces `k`.
class TopK final : public BuiltinOperator<TopK, TopKParams> {
 public:
  static constexpr std::string_view kKind = "TopK";
  static constexpr LayerClass<class ITopKLayer> kLayer{
      LayerType::kTOPK, "ITopKLayer",
      "The k largest or smallest elements along an axis, and their indices."};
  using BuiltinOperator::BuiltinOperator;
  std::optional<int> num_outputs() const override { return 2; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 1; }
};

}  // namespace opwright
