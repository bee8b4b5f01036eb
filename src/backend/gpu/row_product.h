#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/gpu/numbered.h"
#include "backend/gpu/product_tiles.h"

namespace opwright::gpu {

/// The number of the first tactic of ProductUnit::kRows and kStreamedRows. Their tactics are
/// numbered in the order of row_tiles().
inline constexpr int64_t kFirstRowTactic = 60;
/// The end of the numbers that both units may use.
inline constexpr int64_t kRowTacticsEnd = 100;
/// The most rows of a for which the tactics of both units are worth timing.
inline constexpr int64_t kMostRows = 16;

/// The tiles of both units.
std::span<const Numbered<ProductTile>> row_tiles();
/// Numbers of the tactics of both units that are worth timing, or, with `all`, of all that can
/// multiply. Both units need neighbours of a along k (`a_along_k`).
std::vector<int64_t> row_product_tactics(DataType a, DataType b, const ProductSize& size,
                                         bool a_along_k, bool b_along_k, bool b_is_constant,
                                         int architecture, bool all);

/// Numbers of the tactics of streamed products of a few rows with `matrices` large constant
/// matrices along k. `normalizes`: the rows are normalized first. Returns at most one tactic, and
/// none if separate steps are as fast; with `all`, returns all tactics that can multiply.
std::vector<int64_t> chain_tactics(DataType type, const ProductSize& size, int matrices,
                                   bool normalizes, int architecture, bool all);

}  // namespace opwright::gpu
