#include "plugin/kernel/tensor_maps.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/types.h"

namespace opwright {
namespace {

/// Alignment of an input's address and of strides.
constexpr int64_t kAlignment = 16;
constexpr int64_t kMostExtent = int64_t{1} << 32;
constexpr int64_t kMostStride = (int64_t{1} << 40) - 1;

}  // namespace

TensorMaps::TensorMaps(LaunchValues& values, const KernelArgs& args)
    : values_(values),
      device_(*args.device),
      last_use_(args.services != nullptr ? args.services->last_use : nullptr),
      maps_(values.launch().maps.size()) {}

void TensorMaps::prepare() {
  for (size_t i = 0; i < maps_.size(); ++i) {
    maps_[i].address = nullptr;
    evaluate(values_.launch().maps[i], maps_[i]);
  }
}

void TensorMaps::evaluate(const KernelLaunch::TensorMap& from, Map& to) const {
  const auto check = [&](bool condition, const auto&... what) {
    if (!condition) [[unlikely]]
      fail(values_.who(), "its tensor map of input ", from.input, ' ', what...);
  };
  const int64_t size = bits(from.type) / 8;
  TensorMapShape& shape = to.shape;
  shape = {.type = from.type, .box = from.box, .steps = from.steps};
  const int64_t count = values_.elements(from.input);
  to.is_empty = false;
  // Place of the last element. The type holds any sum of products of an extent and a stride.
  __int128 last = 0;
  for (size_t axis = 0; axis < from.extents.size(); ++axis) {
    const int64_t extent = values_.value(from.extents[axis]);
    const bool is_empty = extent == 0 && count == 0;
    check((extent >= 1 || is_empty) && extent <= kMostExtent, "has an extent of ", extent,
          "; expected 1 to 2^32");
    to.is_empty = to.is_empty || is_empty;
    shape.extents.push_back(static_cast<uint64_t>(extent));
    int64_t stride = 1;
    if (axis > 0) {
      stride = values_.value(from.strides[axis - 1]);
      check(stride >= 0 && stride <= kMostStride / size && stride * size % kAlignment == 0,
            "has a stride of ", stride, " elements; expected a multiple of ", kAlignment / size);
      shape.strides.push_back(static_cast<uint64_t>(stride * size));
    }
    last += __int128{extent - 1} * stride;
  }
  if (to.is_empty) {
    // The driver makes no map of nothing. It makes one of memory that no kernel reads.
    std::ranges::fill(shape.extents, 1);
    std::ranges::fill(shape.strides, kAlignment);
  } else {
    check(last < count, "reaches beyond its ", count, " elements");
  }
  to.bytes = static_cast<size_t>(to.is_empty ? kAlignment : count * size);
  const auto corner = [&](int32_t instruction) {
    const int64_t place = values_.value(instruction);
    check(std::in_range<int16_t>(place), "has a corner at ", place);
    return static_cast<int32_t>(place);
  };
  for (const int32_t instruction : from.lower) shape.lower.push_back(corner(instruction));
  for (const int32_t instruction : from.upper) shape.upper.push_back(corner(instruction));
}

void TensorMaps::bind(void const* const* inputs, Queue queue) {
  for (size_t i = 0; i < maps_.size(); ++i) {
    Map& map = maps_[i];
    const void* address = inputs[values_.launch().maps[i].input];
    if (map.is_empty || reinterpret_cast<uintptr_t>(address) % kAlignment != 0) [[unlikely]] {
      map.copy.grow(device_, map.bytes, nullptr, last_use_);
      if (!map.is_empty) device_.copy(map.copy.data(), address, map.bytes, queue);
      address = map.copy.data();
    }
    if (address == map.address) continue;
    try {
      device_.make_tensor_map(map.shape, address, values_.tensor_map(i));
    } catch (const Error& error) {
      throw Error(error.code(), values_.who() + error.what());
    }
    map.address = address;
  }
}

}  // namespace opwright
