#pragma once

#include <string_view>

namespace opwright::gpu {

/// Code that counts negative indices from the end; -1 where an index is out of range.
inline constexpr std::string_view kFindIndex = R"(
template <class T>
__device__ inline Index find(T index, Index extent) {
  const auto at = index + (index < 0 ? extent : (Index)0);
  return at >= 0 && at < extent ? (Index)at : (Index)-1;
}
)";

}  // namespace opwright::gpu
