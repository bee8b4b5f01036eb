#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/shape.h"
#include "opwright/types.h"

namespace opwright {

/// Extents or strides in elements of a tensor's axes in the order in which they lie in memory.
struct Axes {
  static constexpr int kMax = Dims::MAX_DIMS + 1;  ///< one more for a split channel axis
  int count = 0;
  std::array<int64_t, kMax> value{};

  void push_back(int64_t v) { value[count++] = v; }
  int64_t operator[](int i) const { return value[i]; }
  int64_t& operator[](int i) { return value[i]; }
};

/// The extents of a tensor in memory order, channels padded to whole blocks: [N, C, H, W] in HWC is
/// [N, H, W, C], in CHW16 [N, C/16, H, W, 16].
Axes physical_extents(const Shape& shape, TensorFormat format);
/// Where the logical axis lies in physical_extents; the block of a split channel comes last.
int physical_axis(int axis, int rank, TensorFormat format);
/// Strides, in the order of physical_extents(shape, format), of a LINEAR tensor that is broadcast
/// to `shape` by NumPy's rules; 0 where it is repeated. The channel must fill whole blocks.
Axes broadcast_strides(const Shape& tensor, const Shape& shape, TensorFormat format);

/// A tensor repeated over the axes of a larger one and seen as one row of its elements.
class BroadcastView {
 public:
  BroadcastView() = default;
  BroadcastView(const Axes& extents, const Axes& strides);

  /// Elements lie in memory as they are counted.
  bool is_dense() const { return dense_; }
  bool is_scalar() const { return period_ <= 1; }
  /// Element i equals element i % period(); numel() when nothing is repeated as a whole.
  int64_t period() const { return period_; }
  int64_t numel() const { return numel_; }
  /// Elements that begin at a multiple of this are equal up to the next one; 1 where neighbours
  /// differ.
  int64_t run() const {
    return strides_[extents_.count - 1] == 0 ? extents_[extents_.count - 1] : 1;
  }

  /// Elements [first, first + count): in the tensor itself where they lie together there, otherwise
  /// gathered in `buffer`.
  const void* elements(const void* data, int element_size, int64_t first, int64_t count,
                       void* buffer) const;

 private:
  Axes extents_, strides_;  // adjacent axes merged where possible; never empty
  int64_t numel_ = 1, period_ = 1;
  bool dense_ = true;
};

}  // namespace opwright
