#pragma once

#include <cstdint>

#include "onnx/importer.h"

namespace opwright::onnx {

/// A discrete Fourier transform, or its inverse with the factor 1 / length.
struct FourierTransform {
  int64_t from = 0;    ///< elements of the axis; those from `length` on are not used
  int64_t length = 0;  ///< of the transform; elements that lack are 0
  int64_t parts = 1;   ///< numbers of an element: 1 if it is real, 2 if it is complex
  bool inverse = false;
  bool onesided = false;  ///< the spectrum of real numbers: its first length / 2 + 1 elements

  /// The inverse of one half is real.
  int64_t result_parts() const { return inverse && onesided ? 1 : 2; }
  int64_t to() const { return onesided && !inverse ? length / 2 + 1 : length; }
};

/// The transform of x [..., from, parts] along its last axis but one: [..., to, result parts], of
/// x's type. It is computed in FP32.
Tensor* fourier_transform(NodeImporter& node, Tensor* x, const FourierTransform& t);

}  // namespace opwright::onnx
