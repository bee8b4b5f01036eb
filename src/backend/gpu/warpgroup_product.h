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

  /// `is_packed`: results of 16 bits are stored, else sums of 32.
  WarpGroupMemory(const ProductTile& tile, DataType type, bool is_packed = false);
};

/// The function `multiply_matrices<adds>(Sum (&sums)[n / 2], unsigned long long a, unsigned long
/// long b)` of the code: 64 rows of a, of which 32 bytes, times n columns of b, added to the sums
/// or in their place. Bytes are along k.
std::string warp_group_instruction(int n, const ProductOperand& a, const ProductOperand& b);

/// Code of results of 8 or 16 bits, behind packed_results.cuh.
struct PackedResults {
  /// Reads what lies along the tile's columns, from `first_column` on: in front of the products,
  /// which hide how long that takes.
  std::string columns;
  /// Makes results of the sums `product.sums[block]` that a warp's lanes have of 16 rows, from row
  /// `warp_m` of the tile on, and of kWarpN columns, from column `warp_n` on, and stores them
  /// through shared memory at `shared`.
  std::string text;
};
/// `staged`: the input that comes from stages as `behind`; -1: none. `find_row` is a function of
/// the code: where row i of the 16 begins in the output, null for none.
PackedResults write_packed_results(const KernelArgs& args, const ProductEpilogue& epilogue,
                                   int staged, std::string_view find_row);

}  // namespace opwright::gpu
