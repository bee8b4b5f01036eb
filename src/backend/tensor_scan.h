#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/guarded_memory.h"
#include "network/operator.h"

namespace opwright {

/// A tensor in memory of the host.
struct TensorView {
  const std::byte* data = nullptr;
  PortType type;
  Shape shape;
};

/// Elements of a tensor that a scan found. Padding of vectorized formats does not count.
struct Found {
  int64_t count = 0;
  int64_t first = -1;  ///< index into the memory; -1: none was found
};

/// Finds elements that still have the pattern of Use::kWritten. Where the pattern is random bytes,
/// an element may equal it by chance, so only kLeastRun elements in a row count.
inline constexpr int64_t kLeastRun = 4;
Found find_unwritten(const TensorView& tensor);
/// Elements of part of a tensor that equal the pattern, as indices into the memory; for 4-bit
/// elements, the first of each byte. `part` holds `bytes` bytes of the tensor from byte `begin` on,
/// and `begin` is a multiple of kPatternBytes.
std::vector<int64_t> find_pattern(const TensorView& tensor, const std::byte* part, int64_t begin,
                                  int64_t bytes, std::span<const std::byte, kPatternBytes> pattern);
/// Finds NaN and infinity; none in types that have neither.
Found find_non_finite(const TensorView& tensor);
/// Finds elements whose bytes differ from those at `other`.
Found find_different(const TensorView& tensor, const std::byte* other);

/// Coordinates of the element with this index into the memory, "[1, 0, 5]".
std::string position(const TensorView& tensor, int64_t element);
/// Text of the element with this index from `data`. The index may be negative.
std::string value_at(const std::byte* data, DataType type, int64_t element);

}  // namespace opwright
