#pragma once

#include <cstdint>

namespace opwright {

/// y[i] = table[x[i]] for a table of 256 bytes. y may be x.
void look_up_bytes(const uint8_t* x, const uint8_t* table, int64_t count, uint8_t* y);

}  // namespace opwright
