#pragma once

#include <cstdint>
#include <string>

#include "backend/gpu/product.h"

namespace opwright::gpu {

/// How products of ProductUnit::kWarpGroup lie in shared memory: the stages, each as large as the
/// tiles, what warps store, and the stages' barriers.
struct WarpGroupMemory {
  int64_t stages = 0, stored = 0, total = 0;
  int columns = 0;  ///< that a warp stores at once
  int blocks = 1;   ///< for which a multiprocessor has room, two at most

  WarpGroupMemory(const ProductTile& tile, DataType type);
};

/// The function `multiply_matrices<adds>(Sum (&sums)[n / 2], unsigned long long a, unsigned long
/// long b)` of the code: 64 rows of a, of which 32 bytes, times n columns of b, added to the sums
/// or in their place. Bytes are along k.
std::string warp_group_instruction(int n, const ProductOperand& a, const ProductOperand& b);

}  // namespace opwright::gpu
