#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "operators/composed.h"

namespace opwright {

struct FourierTransformParams {
  int64_t length = 1;        ///< of the transform; elements beyond it are not used, others are 0
  bool is_inverse = false;   ///< whether angles are positive
  bool is_onesided = false;  ///< the spectrum of real numbers has its first length / 2 + 1 elements
  bool has_planes = false;   ///< whether the axis of the parts is in front of the transformed one
  double scale = 1;          ///< a factor of the result
  template <class V>
  void visit(V& v) {
    v("length", length), v("inverse", is_inverse), v("onesided", is_onesided),
        v("planes", has_planes), v("scale", scale);
  }
  /// Numbers of a result's element. The inverse of one half of a spectrum is real.
  int64_t result_parts() const { return is_inverse && is_onesided ? 1 : 2; }
  /// Elements of the result.
  int64_t results() const { return is_onesided && !is_inverse ? length / 2 + 1 : length; }
};

/// The discrete Fourier transform of real (one part) or complex numbers (two parts), computed in
/// FP32. Input: [..., elements, parts], or [..., parts, elements] with planes, of FP32, FP16 or
/// BF16. The last two extents are constant. Output: the same axes with the results' extents.
class FourierTransform final : public ComposedOperator<FourierTransform, FourierTransformParams> {
 public:
  static constexpr std::string_view kKind = "FourierTransform";
  using ComposedOperator::ComposedOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  std::vector<Tensor*> compose(Network& network, std::span<Tensor* const> inputs,
                               const std::string& layer) const override;
};

}  // namespace opwright
