#pragma once

#include "operators/builtin.h"

namespace opwright {

/// A function of one byte, y = table[x]. Inputs: x, INT8 or UINT8 of any shape; table, 256 elements
/// of INT8 or UINT8, in the order of x's bits: those of INT8 -1 are 255. The output has the table's
/// type and x's shape. The compiler makes it from element-wise layers between two quantizations.
class ByteLookup final : public BuiltinOperator<ByteLookup, NoParams> {
 public:
  static constexpr std::string_view kKind = "ByteLookup";
  static constexpr int kTable = 1;
  static constexpr int64_t kTableSize = 256;
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool may_overwrite(int input, int) const override { return input == 0; }
};

}  // namespace opwright
