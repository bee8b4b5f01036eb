#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/error.h"

namespace opwright {

/// The product of numbers that are not negative. Throws Error, with `what` the product counts, when
/// it does not fit 63 bits.
inline int64_t checked_product(std::string_view what, std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors)
    if (factor < 0 || __builtin_mul_overflow(product, factor, &product))
      fail(what, " does not fit 63 bits");
  return product;
}

}  // namespace opwright
