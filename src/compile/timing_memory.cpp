#include "compile/timing_memory.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/half.h"
#include "base/types.h"

namespace opwright {
namespace {

constexpr int64_t kPatternElements = 16384;
// FP32 has all integers up to here.
constexpr int64_t kMostIndices = 1 << 24;
// Kernels are promised an address even for tensors without elements.
constexpr size_t kLeastBytes = 64;
constexpr size_t kMargin = TimingMemory::kMargin;

// The elements that are repeated through a buffer. Integers are below `limit`.
Blob pattern(DataType type, TimingNumbers numbers, int64_t limit = 2) {
  std::mt19937 generator(20240607);
  const bool floating = is_floating(type);
  if (bits(type) < 8 || (!floating && !is_integer(type) && type != DataType::kBOOL))
    return Blob::make(kPatternElements,
                      [](void* memory) { std::memset(memory, 0, kPatternElements); });
  std::vector<float> values(kPatternElements);
  std::normal_distribution<float> normal;
  // Rounding to a shorter type stays below 1.
  std::uniform_real_distribution<float> fraction(0, 0.99F);
  const auto count = static_cast<uint32_t>(std::clamp<int64_t>(limit, 1, kMostIndices));
  for (float& value : values)
    value = !floating                           ? static_cast<float>(generator() % count)
            : numbers == TimingNumbers::kNormal ? normal(generator)
                                                : fraction(generator);
  return Blob::make(bytes_of(type, kPatternElements), [&](void* memory) {
    convert(values.data(), DataType::kFLOAT, memory, type, kPatternElements);
  });
}

bool grow(DeviceMemory& memory, const Device& device, size_t bytes) {
  return memory.grow(device, std::max(bytes, kLeastBytes) + 2 * kMargin);
}

void fill(const DeviceMemory& memory, const Device& device, const Blob& source) {
  size_t filled = std::min(source.size(), memory.size());
  device.copy(memory.data(), source.data(), filled, nullptr);
  while (filled < memory.size()) {
    const size_t bytes = std::min(filled, memory.size() - filled);
    device.copy(memory.data() + filled, memory.data(), bytes, nullptr);
    filled += bytes;
  }
}

}  // namespace

void* TimingMemory::input(int number, DataType type, size_t bytes, TimingNumbers numbers) {
  DeviceMemory& memory = places_[{Use::kInput, number, type, numbers}];
  if (grow(memory, device_, bytes)) fill(memory, device_, pattern(type, numbers));
  return memory.data() + kMargin;
}

void* TimingMemory::indices(int number, DataType type, size_t bytes, int64_t limit) {
  const Place place = {Use::kIndices, number, type, {}};
  DeviceMemory& memory = places_[place];
  int64_t& filled = limits_[place];
  if (grow(memory, device_, bytes) || filled != limit)
    fill(memory, device_, pattern(type, {}, filled = limit));
  return memory.data() + kMargin;
}

void* TimingMemory::changed_input(int number, DataType type, size_t bytes, TimingNumbers numbers) {
  DeviceMemory& memory = places_[{Use::kChangedInput, number, type, numbers}];
  grow(memory, device_, bytes);
  fill(memory, device_, pattern(type, numbers));
  return memory.data() + kMargin;
}

const void* TimingMemory::input(int number, const Blob& elements) {
  void* const memory = plain(Use::kGivenInput, number, elements.size());
  device_.copy(memory, elements.data(), elements.size(), nullptr);
  return memory;
}

void* TimingMemory::output(int number, size_t bytes) { return plain(Use::kOutput, number, bytes); }

void* TimingMemory::workspace(size_t bytes) { return plain(Use::kWorkspace, 0, bytes); }

const void* TimingMemory::zero() {
  constexpr int64_t kZero = 0;
  void* const memory = plain(Use::kZero, 0, sizeof(kZero));
  device_.copy(memory, &kZero, sizeof(kZero), nullptr);
  return memory;
}

void* TimingMemory::plain(Use use, int number, size_t bytes) {
  DeviceMemory& memory = places_[{use, number, DataType::kUINT8, {}}];
  grow(memory, device_, bytes);
  return memory.data() + kMargin;
}

const void* TimingMemory::constant(const Blob& elements) {
  if (device_.is_host()) return elements.data();
  auto& [kept, memory] = constants_[elements.data()];
  if (grow(memory, device_, elements.size())) {
    kept = elements;  // keeps the address from being given to another constant
    device_.copy(memory.data() + kMargin, elements.data(), elements.size(), nullptr);
  }
  return memory.data() + kMargin;
}

std::vector<const void*> TimingMemory::copies(const Blob& elements, size_t count) {
  std::vector<const void*> places = {constant(elements)};
  std::vector<DeviceMemory>& made = copies_[elements.data()];
  try {
    while (made.size() + 1 < count) {
      DeviceMemory memory;
      grow(memory, device_, elements.size());
      device_.copy(memory.data() + kMargin, places[0], elements.size(), nullptr);
      made.push_back(std::move(memory));
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kFAILED_ALLOCATION) throw;
  }
  for (const DeviceMemory& memory : made) places.push_back(memory.data() + kMargin);
  return places;
}

void TimingMemory::keep_copies(std::span<const Blob> elements) {
  std::erase_if(copies_, [&](const auto& entry) {
    return std::none_of(elements.begin(), elements.end(),
                        [&](const Blob& kept) { return kept.data() == entry.first; });
  });
}

uint64_t TimingMemory::size() const {
  uint64_t bytes = 0;
  for (const auto& each : places_) bytes += each.second.size();
  return bytes;
}

void TimingMemory::clear() {
  places_.clear(), limits_.clear();
  release_constants();
}

}  // namespace opwright
