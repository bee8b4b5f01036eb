#include "plan/concatenation.h"

#include "base/types.h"

namespace opwright {
namespace {

/// Whether only the axis itself gives the shape more than one row: all axes before it in memory
/// have one extent.
bool is_outermost(int64_t axis, const Shape& shape, TensorFormat format) {
  const FormatLayout layout = layout_of(format);
  const int rank = shape.rank();
  const auto place = [&](int64_t each) {  // channels, axis 1, may be the last axis in memory
    return layout.channels_last && each == 1 ? rank : each;
  };
  for (int each = 0; each < rank; ++each) {
    if (each == axis || place(each) > place(axis)) continue;
    const int64_t block = each == 1 ? layout.block : 1;
    if (shape[each] > block) return false;
  }
  return true;
}

}  // namespace

std::vector<Block> concatenated_blocks(int64_t axis, std::span<const Shape> inputs, PortType type) {
  const int block = layout_of(type.format).block;
  std::vector<Block> blocks;
  uint64_t offset = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = inputs[i];
    if (axis < 0 || axis >= shape.rank() || !is_outermost(axis, shape, type.format)) return {};
    const bool is_last = i + 1 == inputs.size();
    if (axis == 1 && !is_last && shape[1] % block != 0) return {};
    const auto bytes = static_cast<uint64_t>(tensor_bytes(shape, type.dtype, type.format));
    blocks.push_back({offset, bytes});
    if (__builtin_add_overflow(offset, bytes, &offset)) return {};
  }
  return blocks;
}

}  // namespace opwright
