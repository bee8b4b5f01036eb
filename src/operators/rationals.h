#pragma once

#include <functional>
#include <optional>
#include <span>

#include "network/operator.h"

/// \file
/// Shape arithmetic that goes through FP32: exporters compute extents as floor(extent * scale).
namespace opwright {

/// The numbers of an FP32 tensor that carries them or is a small constant; null for other tensors.
RationalsPtr rationals_of(const TensorInfo& tensor);
/// Number `i`. A single number is broadcast.
const Rational& rational_at(const std::vector<Rational>& numbers, int64_t i);
/// Rationals from `element(i)`. Null when a tensor of these extents cannot carry rationals, one is
/// not known, or its arithmetic would overflow.
RationalsPtr make_rationals(std::span<const Expr> dims,
                            const std::function<std::optional<Rational>(int64_t)>& element);
/// The result of FP32 arithmetic. It is rounded where both numbers are constant, and exact where
/// one has symbols. Nothing for a constant, beside symbols, with so many bits that rounding may
/// matter.
std::optional<Rational> rounded(const Rational& a, const Rational& b,
                                const std::function<float(float, float)>& of_constants,
                                const std::function<std::optional<Rational>()>& of_symbols);
/// Adds to the output of an operator that moves elements the rationals of its FP32 inputs.
OutputInfo with_moved_rationals(InferContext& context, const Operation& op, OutputInfo output);

}  // namespace opwright
