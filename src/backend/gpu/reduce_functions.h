#pragma once

#include <string>

#include "operators/reduce.h"

namespace opwright::gpu {

/// Source of what a reduction's kernel is made of: `Value`, in which elements are combined;
/// `Total`, what a thread collects, with `neutral()`, `add(total, value)` and `merge(total,
/// total)`; `combine(value, value)` of few neighbours; `exchange(total, distance)`, the total of
/// the lane that many away (exclusive or); and `finish(total, count)`, the register value of the
/// output when `count` elements were reduced. Floats are summed with the rounding errors kept, so
/// that long sums are as exact as short ones.
std::string reduce_functions(ReduceOperation op, DataType input, DataType output);

}  // namespace opwright::gpu
