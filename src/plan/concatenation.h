#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/shape.h"
#include "network/operator.h"

namespace opwright {

/// A part of a concatenation's result.
struct Block {
  uint64_t offset = 0, bytes = 0;
};

/// Where the inputs of a concatenation along `axis` lie in its result, each as it would lie in
/// memory of its own. Empty where they do not: where rows of one alternate with rows of another, or
/// a block of channels holds some of two.
std::vector<Block> concatenated_blocks(int64_t axis, std::span<const Shape> inputs, PortType type);

}  // namespace opwright
