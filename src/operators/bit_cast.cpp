#include "operators/bit_cast.h"

#include <algorithm>

#include "base/types.h"
#include "operators/infer.h"

namespace opwright {

bool are_bit_castable(DataType from, DataType to) {
  const int least = std::min(bits(from), bits(to)), most = std::max(bits(from), bits(to));
  return least == most || (least == 4 && most == 8);
}

std::vector<OutputInfo> BitCast::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const TensorInfo& x = inference.input(0);
  const DataType to = params().to;
  const int from_bits = bits(x.dtype), to_bits = bits(to);
  inference.require(are_bit_castable(x.dtype, to), inference.port(0), " is ", name(x.dtype),
                    ", whose elements have ", from_bits, " bits; those of ", name(to), " have ",
                    to_bits);
  if (from_bits == to_bits) return {make_output(to, x.dims)};
  inference.require(!x.dims.empty() && x.dims.back().is_constant() &&
                        x.dims.back().constant() * from_bits % to_bits == 0,
                    inference.port(0), " has the shape ", str(x.dims),
                    "; expected whole bytes along the last axis, whose extent is constant");
  SymShape dims = x.dims;
  dims.back() = dims.back().constant() * from_bits / to_bits;
  return {make_output(to, std::move(dims))};
}

}  // namespace opwright
