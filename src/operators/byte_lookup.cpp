#include "operators/byte_lookup.h"

#include "operators/infer.h"
#include "operators/type_rules.h"

namespace opwright {

std::vector<OutputInfo> ByteLookup::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "table"}, 2);
  for (const int input : {0, kTable})
    inference.require_type(input, is_byte(inference.input(input).dtype), "INT8 or UINT8");
  inference.require_rank(kTable, 1, 1);
  inference.require_extent(kTable, 0, Expr(kTableSize), "number of values of a byte");
  return {make_output(inference.input(kTable).dtype, inference.input(0).dims)};
}

}  // namespace opwright
