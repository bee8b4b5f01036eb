#pragma once

#include "operators/builtin.h"

namespace opwright {

struct BitCastParams {
  DataType to = DataType::kFLOAT;
  template <class V>
  void visit(V& v) {
    v("to_type", to);
  }
};
/// The same bits as elements of another type of the same size.
class BitCast final : public BuiltinOperator<BitCast, BitCastParams> {
 public:
  static constexpr std::string_view kKind = "BitCast";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
