#include "operators/diffused_cast.h"

#include "base/types.h"
#include "operators/infer.h"

namespace opwright {

std::vector<OutputInfo> DiffusedCast::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const DataType to = params().to;
  inference.require_type(0, inference.input(0).dtype == DataType::kFLOAT, "FP32");
  inference.require(to == DataType::kHALF || to == DataType::kBF16,
                    "the result must be FP16 or BF16, but is ", name(to));
  inference.require_rank(0, 4, 4);
  return {make_output(to, inference.input(0).dims)};
}

}  // namespace opwright
