#include <algorithm>
#include <cstring>
#include <random>

#include "base/half.h"
#include "base/types.h"
#include "compile/tuner.h"

namespace opwright {
namespace {

constexpr int64_t kPatternElements = 16384;

// Elements that are repeated through a buffer.
Blob pattern(DataType type) {
  std::mt19937 generator(20240607);
  const bool floating = is_floating(type);
  if (bits(type) < 8 || (!floating && !is_integer(type) && type != DataType::kBOOL))
    return Blob::make(kPatternElements,
                      [](void* memory) { std::memset(memory, 0, kPatternElements); });
  std::vector<float> values(kPatternElements);
  std::normal_distribution<float> normal;
  for (float& value : values)
    value = floating ? normal(generator) : static_cast<float>(generator() & 1);
  return Blob::make(bytes_of(type, kPatternElements), [&](void* memory) {
    convert(values.data(), DataType::kFLOAT, memory, type, kPatternElements);
  });
}

}  // namespace

TimingMemory::~TimingMemory() {
  for (auto& entry : operands_) device_.free(entry.second.data);
  for (auto& entry : scratch_) device_.free(entry.second.data);
}

bool TimingMemory::grow(Buffer& buffer, size_t bytes) {
  bytes = std::max<size_t>(bytes, 64);
  if (buffer.size >= bytes) return false;
  if (buffer.data) device_.free(buffer.data);
  buffer = {};
  buffer.data = device_.allocate(bytes);
  buffer.size = bytes;
  return true;
}

void* TimingMemory::operand(int slot, DataType type, size_t bytes) {
  Buffer& buffer = operands_[{slot, static_cast<int>(type)}];
  if (grow(buffer, bytes)) {
    const Blob source = pattern(type);
    for (size_t at = 0; at < buffer.size; at += source.size())
      std::memcpy(static_cast<std::byte*>(buffer.data) + at, source.data(),
                  std::min(source.size(), buffer.size - at));
  }
  return buffer.data;
}

void* TimingMemory::scratch(int slot, size_t bytes) {
  Buffer& buffer = scratch_[slot];
  grow(buffer, bytes);
  return buffer.data;
}

}  // namespace opwright
