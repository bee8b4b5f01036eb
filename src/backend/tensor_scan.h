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

/// The elements of a tensor that a scan found; padding of vectorized formats does not count.
struct Found {
  int64_t count = 0;
  int64_t first = -1;  ///< as an index into the memory
};

/// Elements that are as Use::kWritten left them. Where that consists of random bytes,
/// which an element may be by chance, only kLeastRun of them in a row count.
inline constexpr int64_t kLeastRun = 4;
Found find_unwritten(const TensorView& tensor);
/// Elements of `bytes` bytes of the tensor that are as the pattern has them, as indices into the
/// memory: of 4-bit elements the first of each byte. `part` is what byte `begin` of the tensor on
/// holds, and `begin` is a multiple of kPatternBytes.
std::vector<int64_t> find_pattern(const TensorView& tensor, const std::byte* part, int64_t begin,
                                  int64_t bytes, std::span<const std::byte, kPatternBytes> pattern);
/// NaN and infinity; none in types that have neither.
Found find_non_finite(const TensorView& tensor);
/// Elements whose bytes differ from those at `other`.
Found find_different(const TensorView& tensor, const std::byte* other);

/// Where the element with this index into the memory is, "[1, 0, 5]".
std::string position(const TensorView& tensor, int64_t element);
/// The value of an element of memory of the type at `data`, which may lie before it.
std::string value_at(const std::byte* data, DataType type, int64_t element);

}  // namespace opwright
