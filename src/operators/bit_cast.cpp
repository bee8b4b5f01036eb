#include "operators/bit_cast.h"

#include "base/types.h"
#include "operators/infer.h"

namespace opwright {

std::vector<OutputInfo> BitCast::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const TensorInfo& x = inference.input(0);
  const DataType to = params().to;
  inference.require(bits(to) == bits(x.dtype) && bits(to) >= 8, inference.port(0), " is ",
                    name(x.dtype), ", whose elements have ", bits(x.dtype), " bits; those of ",
                    name(to), " have ", bits(to));
  return {make_output(to, x.dims)};
}

}  // namespace opwright
