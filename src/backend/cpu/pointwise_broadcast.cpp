#include "backend/cpu/pointwise_broadcast.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/copy.h"
#include "base/types.h"

namespace opwright {

Axes physical_extents(const Shape& shape, TensorFormat format) {
  const FormatLayout layout = layout_of(format);
  Axes axes;
  if (!layout.channels_last && layout.block == 1) {
    for (const int64_t extent : shape) axes.push_back(extent);
    return axes;
  }
  const int64_t blocks = (shape[1] + layout.block - 1) / layout.block;
  axes.push_back(shape[0]);
  if (!layout.channels_last) axes.push_back(blocks);
  for (int i = 2; i < shape.rank(); ++i) axes.push_back(shape[i]);
  axes.push_back(layout.channels_last ? blocks * layout.block : layout.block);
  return axes;
}

int physical_axis(int axis, int rank, TensorFormat format) {
  if (!layout_of(format).channels_last || axis == 0) return axis;
  return axis == 1 ? rank - 1 : axis - 1;
}

Axes broadcast_strides(const Shape& tensor, const Shape& shape, TensorFormat format) {
  int64_t logical[Dims::MAX_DIMS] = {};
  const int missing = shape.rank() - tensor.rank();
  int64_t stride = 1;
  for (int i = tensor.rank() - 1; i >= 0; --i) {
    logical[i + missing] = tensor[i] == 1 ? 0 : stride;
    stride *= tensor[i];
  }
  const FormatLayout layout = layout_of(format);
  Axes axes;
  if (!layout.channels_last && layout.block == 1) {
    for (int i = 0; i < shape.rank(); ++i) axes.push_back(logical[i]);
    return axes;
  }
  axes.push_back(logical[0]);
  if (!layout.channels_last) axes.push_back(logical[1] * layout.block);
  for (int i = 2; i < shape.rank(); ++i) axes.push_back(logical[i]);
  axes.push_back(logical[1]);
  return axes;
}

BroadcastView::BroadcastView(const Axes& extents, const Axes& strides) {
  for (int i = 0; i < extents.count; ++i) {
    numel_ *= extents[i];
    if (extents[i] == 1) continue;
    const int last = extents_.count - 1;
    // This condition also merges runs of broadcast axes, whose strides are 0.
    if (last >= 0 && strides_[last] == strides[i] * extents[i]) {
      extents_[last] *= extents[i];
      strides_[last] = strides[i];
    } else {
      extents_.push_back(extents[i]);
      strides_.push_back(strides[i]);
    }
  }
  if (extents_.count == 0) {
    extents_.push_back(1);
    strides_.push_back(0);
  }
  dense_ = extents_.count == 1 && (strides_[0] == 1 || extents_[0] == 1);
  period_ = numel_;
  for (int i = 0; i < extents_.count && strides_[i] == 0 && period_ > 0; ++i)
    period_ /= extents_[i];
}

namespace {

template <class T>
void gather(const T* data, const Axes& extents, const Axes& strides, Axes index, int64_t count,
            T* out) {
  const int last = extents.count - 1;
  const int64_t inner = strides[last];
  int64_t offset = 0;
  for (int i = 0; i <= last; ++i) offset += index[i] * strides[i];
  while (true) {
    const int64_t run = std::min(count, extents[last] - index[last]);
    const T* from = data + offset;
    if (inner == 0)
      fill_elements(reinterpret_cast<std::byte*>(out), reinterpret_cast<const std::byte*>(from),
                    sizeof(T), run);
    else if (inner == 1)
      std::memcpy(out, from, run * sizeof(T));
    else
      for (int64_t i = 0; i < run; ++i) out[i] = from[i * inner];
    out += run;
    count -= run;
    if (count == 0) return;
    // The run ended at the end of the last axis, so the next row follows.
    offset -= index[last] * inner;
    index[last] = 0;
    for (int i = last - 1; i >= 0; --i) {
      offset += strides[i];
      if (++index[i] < extents[i]) break;
      offset -= extents[i] * strides[i];
      index[i] = 0;
    }
  }
}

}  // namespace

const void* BroadcastView::elements(const void* data, int element_size, int64_t first,
                                    int64_t count, void* buffer) const {
  if (dense_) return static_cast<const std::byte*>(data) + first * element_size;
  if (count == 0) return buffer;
  const int last = extents_.count - 1;
  Axes index;
  int64_t rest = first, offset = 0;
  for (int i = last; i >= 0; --i) {
    index[i] = rest % extents_[i];
    rest /= extents_[i];
    offset += index[i] * strides_[i];
  }
  if (count == 1 || (strides_[last] == 1 && index[last] + count <= extents_[last]))
    return static_cast<const std::byte*>(data) + offset * element_size;
  switch (element_size) {
    case 1:
      gather(static_cast<const uint8_t*>(data), extents_, strides_, index, count,
             static_cast<uint8_t*>(buffer));
      break;
    case 2:
      gather(static_cast<const uint16_t*>(data), extents_, strides_, index, count,
             static_cast<uint16_t*>(buffer));
      break;
    case 4:
      gather(static_cast<const uint32_t*>(data), extents_, strides_, index, count,
             static_cast<uint32_t*>(buffer));
      break;
    default:
      gather(static_cast<const uint64_t*>(data), extents_, strides_, index, count,
             static_cast<uint64_t*>(buffer));
  }
  return buffer;
}

}  // namespace opwright
