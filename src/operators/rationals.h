#pragma once

#include <functional>
#include <optional>
#include <span>

#include "network/operator.h"

/// \file
/// Shape arithmetic that goes through FP32: exporters compute extents as floor(extent * scale).
namespace opwright {

/// The numbers of an FP32 tensor that carries them or is a small constant; null otherwise.
RationalsPtr rationals_of(const TensorInfo& tensor);
/// Number `i`, broadcast where there is only one.
const Rational& rational_at(const std::vector<Rational>& numbers, int64_t i);
/// Rationals from `element(i)`, or null when a tensor of these extents cannot carry any, one is not
/// known, or its arithmetic would overflow.
RationalsPtr make_rationals(std::span<const Expr> dims,
                            const std::function<std::optional<Rational>(int64_t)>& element);
/// What FP32 arithmetic gives: rounded where both are constant; where one has symbols, exactly, and
/// nothing for a constant that takes so many bits that rounding may matter.
std::optional<Rational> rounded(const Rational& a, const Rational& b,
                                const std::function<float(float, float)>& of_constants,
                                const std::function<std::optional<Rational>()>& of_symbols);
/// Adds to the output of an operator that moves elements those of the FP32 inputs that it has.
OutputInfo with_moved_rationals(InferContext& context, const Operation& op, OutputInfo output);

}  // namespace opwright
