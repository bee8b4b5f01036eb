#include "operators/activation.h"

#include <cmath>

#include "operators/infer.h"
#include "operators/type_rules.h"

namespace opwright {

std::vector<OutputInfo> Activation::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const TensorInfo& x = inference.input(0);
  const ActivationType type = params().type;
  inference.require(accepts(type, DataType::kFLOAT), "unknown activation type ",
                    static_cast<int32_t>(type));
  const bool for_integers = accepts(type, DataType::kINT32);
  inference.require_type(
      0, accepts(type, x.dtype),
      for_integers ? "a floating-point or integer type" : "FP32, FP16, BF16 or FP8");
  inference.require(std::isfinite(params().alpha) || type == ActivationType::kCLIP,
                    "alpha must be finite, but is ", params().alpha);
  ValuesPtr values;
  if (x.values && type == ActivationType::kRELU)
    values = make_values(x.dtype, x.dims, [&](int64_t i) { return max(value_at(x, i), Expr(0)); });
  return {make_output(x.dtype, x.dims, std::move(values))};
}

}  // namespace opwright
