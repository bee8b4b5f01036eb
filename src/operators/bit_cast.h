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
/// The same bits as elements of another type of the same size. A cast between 4-bit and 8-bit types
/// changes the last extent.
class BitCast final : public BuiltinOperator<BitCast, BitCastParams> {
 public:
  static constexpr std::string_view kKind = "BitCast";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// Whether the types have one size, or one has 4 bits and the other 8.
bool are_bit_castable(DataType from, DataType to);

}  // namespace opwright
