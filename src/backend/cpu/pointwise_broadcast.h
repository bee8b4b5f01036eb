#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/shape.h"
#include "opwright/types.h"

namespace opwright {

/// Extents, or strides in elements, of a tensor's axes in memory order.
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
/// Index of the logical axis in physical_extents(). For a split channel axis it is the axis of
/// blocks, and the axis within blocks is the last one.
int physical_axis(int axis, int rank, TensorFormat format);
/// Strides, in the order of physical_extents(shape, format), of a LINEAR tensor that is broadcast
/// to `shape` by NumPy's rules; 0 where it is repeated. The channel must fill whole blocks.
Axes broadcast_strides(const Shape& tensor, const Shape& shape, TensorFormat format);

/// A tensor that is repeated over the axes of a larger one and seen as one row of the larger one's
/// elements.
class BroadcastView {
 public:
  BroadcastView() = default;
  BroadcastView(const Axes& extents, const Axes& strides);

  /// Whether the memory order of the elements is the order in which they are counted.
  bool is_dense() const { return dense_; }
  bool is_scalar() const { return period_ <= 1; }
  /// Element i equals element i % period(). The period is numel() when the tensor is not repeated
  /// as a whole.
  int64_t period() const { return period_; }
  int64_t numel() const { return numel_; }
  /// Length of runs of equal elements, which begin at multiples of it; 1 where neighbours differ.
  int64_t run() const {
    return strides_[extents_.count - 1] == 0 ? extents_[extents_.count - 1] : 1;
  }

  /// Elements [first, first + count): in place where they are contiguous in the tensor, otherwise
  /// gathered in `buffer`.
  const void* elements(const void* data, int element_size, int64_t first, int64_t count,
                       void* buffer) const;

 private:
  Axes extents_, strides_;  // adjacent axes merged where possible; never empty
  int64_t numel_ = 1, period_ = 1;
  bool dense_ = true;
};

}  // namespace opwright
