#pragma once

#include <cstdint>
#include <string>

#include "backend/gpu/product.h"

namespace opwright::gpu {

/// The shared memory of products of ProductUnit::kWarpGroup, in bytes: the stages, room for what
/// warps store, and the stages' barriers.
struct WarpGroupMemory {
  int64_t stages = 0, stored = 0, total = 0;
  int columns = 0;  ///< columns that a warp stores at once
  int blocks = 1;   ///< blocks for which a multiprocessor has room, at most two

  /// `is_packed`: warps store results of at most 16 bits, else sums of 32 bits.
  WarpGroupMemory(const ProductTile& tile, DataType type, bool is_packed = false);
};

/// The code of the static function `multiply_matrices<adds>(Sum (&sums)[n / 2], unsigned long long
/// a, unsigned long long b)`. It multiplies 64 rows of a by n columns of b, 32 bytes along k of
/// each. It adds the products to the sums, or replaces the sums by them.
std::string warp_group_instruction(int n, const ProductOperand& a, const ProductOperand& b);

}  // namespace opwright::gpu
