#include "backend/cpu/copy.h"

#include <cstring>

#include "backend/cpu/copy_tile.h"
#include "base/parallel.h"

namespace opwright {

void parallel_copy(void* to, const void* from, int64_t bytes) {
  if (to == from) return;
  parallel_for(bytes, kCopyGrainBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                end - begin);
  });
}

namespace {

template <class T>
void fill(std::byte* to, const std::byte* value, int64_t count) {
  T element;
  std::memcpy(&element, value, sizeof element);
  T* out = reinterpret_cast<T*>(to);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)  // the compiler vectorizes this loop at -O2
    for (int j = 0; j < 16; ++j) out[i + j] = element;
  for (; i < count; ++i) out[i] = element;
}

template <class T>
void gather(std::byte* to, const std::byte* from, int64_t stride, int64_t count) {
  // Elements that stand for several shorter ones may lie anywhere.
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * kBytes, from + i * stride, kBytes);
}

}  // namespace

void fill_elements(std::byte* to, const std::byte* value, int element_size, int64_t count) {
  switch (element_size) {
    case 1:
      return fill<uint8_t>(to, value, count);
    case 2:
      return fill<uint16_t>(to, value, count);
    case 4:
      return fill<uint32_t>(to, value, count);
    default:
      return fill<uint64_t>(to, value, count);
  }
}

void gather_elements(std::byte* to, const std::byte* from, int64_t element_size, int64_t stride,
                     int64_t count) {
  if (element_size == 4 && stride == 8)
    return every_second(reinterpret_cast<const uint32_t*>(from), count,
                        reinterpret_cast<uint32_t*>(to));
  switch (element_size) {
    case 1:
      return gather<uint8_t>(to, from, stride, count);
    case 2:
      return gather<uint16_t>(to, from, stride, count);
    case 4:
      return gather<uint32_t>(to, from, stride, count);
    case 8:
      return gather<uint64_t>(to, from, stride, count);
    default:
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * element_size, from + i * stride, element_size);
  }
}

namespace {

template <class T>
void pick(std::byte* to, const std::byte* from, const int64_t* index, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    reinterpret_cast<T*>(to)[i] = reinterpret_cast<const T*>(from)[index[i]];
}

}  // namespace

void pick_elements(std::byte* to, const std::byte* from, int64_t element_size, const int64_t* index,
                   int64_t count) {
  switch (element_size) {
    case 1:
      return pick<uint8_t>(to, from, index, count);
    case 2:
      return pick<uint16_t>(to, from, index, count);
    case 4:
      return pick<uint32_t>(to, from, index, count);
    case 8:
      return pick<uint64_t>(to, from, index, count);
    default:
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * element_size, from + index[i] * element_size, element_size);
  }
}

namespace {

template <class T>
void repeat(std::byte* to, const std::byte* from, int64_t times, int64_t count) {
  T* out = reinterpret_cast<T*>(to);
  const T* in = reinterpret_cast<const T*>(from);
  if (times == 2) {  // the common upsampling
    for (int64_t i = 0; i < count; ++i) {
      const T pair[2] = {in[i], in[i]};
      std::memcpy(out + 2 * i, pair, sizeof pair);  // one store instruction
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < times; ++j) *out++ = in[i];
}

}  // namespace

void repeat_elements(std::byte* to, const std::byte* from, int64_t element_size, int64_t times,
                     int64_t count) {
  if (element_size == 4 && times == 2)
    return repeat_twice(reinterpret_cast<const uint32_t*>(from), count,
                        reinterpret_cast<uint32_t*>(to));
  switch (element_size) {
    case 1:
      return repeat<uint8_t>(to, from, times, count);
    case 2:
      return repeat<uint16_t>(to, from, times, count);
    case 4:
      return repeat<uint32_t>(to, from, times, count);
    case 8:
      return repeat<uint64_t>(to, from, times, count);
    default:
      for (int64_t i = 0; i < count * times; ++i)
        std::memcpy(to + i * element_size, from + i / times * element_size, element_size);
  }
}

}  // namespace opwright
