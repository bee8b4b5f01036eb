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
/// The same bits as elements of another type of the same size. Of types with 4 and with 8 bits the
/// last extent changes with them.
class BitCast final : public BuiltinOperator<BitCast, BitCastParams> {
 public:
  static constexpr std::string_view kKind = "BitCast";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// Whether the types have one size, or 4 bits and a byte.
bool are_bit_castable(DataType from, DataType to);

}  // namespace opwright
