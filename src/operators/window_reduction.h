#pragma once

#include "operators/pooling.h"

namespace opwright {

struct IndexedMaxPoolingParams {
  PoolingParams pooling;
  bool column_major = false;  ///< counts the first spatial axis fastest
  template <class V>
  void visit(V& v) {
    pooling.visit(v), v("column_major", column_major);
  }
};
/// Outputs: the maximum over windows, and its INT64 index among all elements of the input.
class IndexedMaxPooling final : public BuiltinOperator<IndexedMaxPooling, IndexedMaxPoolingParams> {
 public:
  static constexpr std::string_view kKind = "IndexedMaxPooling";
  using BuiltinOperator::BuiltinOperator;
  std::optional<int> num_outputs() const override { return 2; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

struct LpPoolingParams {
  PoolingParams pooling;
  double p = 2;
  template <class V>
  void visit(V& v) {
    pooling.visit(v), v("p", p);
  }
};
/// The p-norm over windows; padding is zero.
class LpPooling final : public BuiltinOperator<LpPooling, LpPoolingParams> {
 public:
  static constexpr std::string_view kKind = "LpPooling";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
