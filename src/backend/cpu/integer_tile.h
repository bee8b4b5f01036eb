#pragma once

#include <cstdint>

namespace opwright {

/// Some rows of an INT32 product whose sums wrap around. Distances are in elements.
struct IntegerTile {
  static constexpr int kMostRows = 4;

  const int32_t* a = nullptr;  ///< rows x k
  int64_t a_row = 0, a_step = 1;
  const int32_t* b = nullptr;  ///< k x columns; each row is dense
  int64_t b_row = 0;
  int32_t* y = nullptr;  ///< rows x columns, dense
  int rows = 0;          ///< at most kMostRows
  int64_t columns = 0, k = 0;
};
void multiply_integers(const IntegerTile& tile);

}  // namespace opwright
