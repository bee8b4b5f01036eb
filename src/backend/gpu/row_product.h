#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/gpu/numbered.h"
#include "backend/gpu/product.h"

namespace opwright::gpu {

/// The number of the first tactic of ProductUnit::kRows and kStreamedRows, which are row_tiles() in
/// order.
inline constexpr int64_t kFirstRowTactic = 60;
/// Numbers up to which there may be tiles of both units.
inline constexpr int64_t kRowTacticsEnd = 100;
/// Rows of a at most for which they are worth timing.
inline constexpr int64_t kMostRows = 16;

/// The tiles of both units.
std::span<const Numbered<ProductTile>> row_tiles();
/// Numbers of tactics for rows of a that are `a_along_k`, those worth timing or all.
std::vector<int64_t> row_product_tactics(DataType a, DataType b, const ProductSize& size,
                                         bool a_along_k, bool b_along_k, bool b_is_constant,
                                         int architecture, bool all);

/// That of products of few rows with so many large constant matrices along k, whose rows may be
/// normalized before; none where separate steps are as good. Or all that can.
std::vector<int64_t> chain_tactics(DataType type, const ProductSize& size, int matrices,
                                   bool normalizes, int architecture, bool all);

}  // namespace opwright::gpu
