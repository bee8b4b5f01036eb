#include "operators/window_reduction.h"

#include "operators/infer.h"

namespace opwright {

std::vector<OutputInfo> IndexedMaxPooling::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  inference.require(params().pooling.type == PoolingType::kMAX,
                    "only a maximum has an index, not pooling of type ",
                    static_cast<int32_t>(params().pooling.type));
  std::vector<OutputInfo> outputs = Pooling(params().pooling).infer(context);
  outputs.push_back(make_output(DataType::kINT64, outputs[0].dims));
  return outputs;
}

std::vector<OutputInfo> LpPooling::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  inference.require(params().p > 0, "p must be positive, but is ", params().p);
  inference.require_floating(0);
  return Pooling(params().pooling).infer(context);
}

}  // namespace opwright
