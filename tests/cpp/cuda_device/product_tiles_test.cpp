#include "backend/gpu/product_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace opwright::gpu {
namespace {

/// The tiles that are timed for an FP16 product of that size on compute capability 9.0.
std::vector<ProductTile> timed_tiles(const ProductSize& size) {
  std::vector<ProductTile> tiles;
  for (const int64_t tactic :
       product_tactics(DataType::kHALF, ProductUnit::kTensor, size, 90, false))
    tiles.push_back(product_tactic(tactic).tile);
  return tiles;
}

bool has_large_tile(const std::vector<ProductTile>& tiles) {
  return std::ranges::any_of(tiles, [](const ProductTile& tile) {
    return tile.unit == ProductUnit::kWarpGroup && tile.m * tile.n >= 128 * 64;
  });
}

// Convolutions 1x1 of few channels, as in MobileNet, have such products.
TEST(ProductTiles, ManyRowsOfAShortKHaveLargeTiles) {
  for (const int64_t k : {16, 24, 32, 40, 64})
    EXPECT_TRUE(has_large_tile(timed_tiles({32 * 112 * 112, 96, k, 1, true}))) << k;
}

TEST(ProductTiles, FewResultsHaveNoTileThatIsMostlyZeros) {
  for (const ProductTile& tile : timed_tiles({48, 48, 512, 1, true}))
    EXPECT_LE(tile.m * tile.n, 64 * 64) << tile.name();
}

}  // namespace
}  // namespace opwright::gpu
