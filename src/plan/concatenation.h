#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/shape.h"
#include "network/operator.h"

namespace opwright {

/// One input's part of a concatenation's result.
struct Block {
  uint64_t offset = 0, bytes = 0;
};

/// The places of a concatenation's inputs in its result along `axis`. Each input lies there as it
/// would in memory of its own. Empty if that is not possible: rows of two inputs alternate, or a
/// block of channels has channels of two inputs.
std::vector<Block> concatenated_blocks(int64_t axis, std::span<const Shape> inputs, PortType type);

}  // namespace opwright
