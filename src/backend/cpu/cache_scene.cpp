#include "backend/cpu/cache_scene.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>

#include "base/error.h"
#include "base/parallel.h"

namespace opwright {
namespace {

constexpr size_t kLine = 64;
constexpr int64_t kLinesPerTask = 256;

struct CacheSizes {
  size_t inner, outer;  // bytes of one core's cache, and of the cache that several cores share
};

/// Bytes of the cache, from Linux: sysconf() adds up caches that no core can use together.
size_t size_of_cache(int level, size_t otherwise) {
  std::ifstream file(str("/sys/devices/system/cpu/cpu0/cache/index", level, "/size"));
  size_t kibibytes = 0;
  char unit = 0;
  constexpr size_t kMost = size_t{1} << 20;
  if (!(file >> kibibytes >> unit) || unit != 'K' || kibibytes == 0 || kibibytes > kMost)
    return otherwise;
  return kibibytes << 10;
}

const CacheSizes& cache_sizes() {
  static const CacheSizes sizes = [] {
    const size_t inner = size_of_cache(2, size_t{1} << 20);
    return CacheSizes{inner, std::max(inner, size_of_cache(3, size_t{1} << 25))};
  }();
  return sizes;
}

/// Reads other memory on each core until the contents of its inner cache have moved to the outer
/// one.
void displace_inner_caches() {
  const int threads = thread_count();
  const size_t size = cache_sizes().inner + cache_sizes().inner / 2;
  static thread_local std::unique_ptr<std::byte[]> others;
  static thread_local size_t held = 0;
  if (const size_t wanted = size * static_cast<size_t>(threads); held < wanted) {
    others = std::make_unique<std::byte[]>(wanted);
    held = wanted;
  }
  std::byte* const memory = others.get();
  parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    unsigned sum = 0;
    for (size_t i = static_cast<size_t>(begin) * size; i < static_cast<size_t>(end) * size;
         i += kLine)
      sum += static_cast<unsigned>(memory[i]);
    static std::atomic<unsigned> result;  // keeps the compiler from dropping the loop
    result.store(sum, std::memory_order_relaxed);
  });
}

/// Writes each line's own contents back to it, on the core that runs this part of a loop.
void touch(std::span<std::byte> memory) {
  std::byte* const data = memory.data();
  const auto lines = static_cast<int64_t>((memory.size() + kLine - 1) / kLine);
  parallel_for(lines, kLinesPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      volatile std::byte& byte = data[line * static_cast<int64_t>(kLine)];
      byte = byte;
    }
  });
}

#if defined(__x86_64__)
bool has_clflushopt() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & bit_CLFLUSHOPT) != 0;
}

/// Takes a fiftieth of the time of clflush, which waits for the line before.
__attribute__((target("clflushopt"))) void flush_unordered(std::span<const std::byte> memory) {
  for (size_t i = 0; i < memory.size(); i += kLine)
    _mm_clflushopt(const_cast<std::byte*>(memory.data() + i));
}
#endif

void flush(std::span<const std::byte> memory) {
#if defined(__x86_64__)
  static const bool is_unordered = has_clflushopt();
  if (is_unordered)
    flush_unordered(memory);
  else
    for (size_t i = 0; i < memory.size(); i += kLine) _mm_clflush(memory.data() + i);
  _mm_mfence();
#else
  (void)memory;  // stays in the cache that the inner caches' contents moved to
#endif
}

}  // namespace

CacheLevel cpu_cache_level(uint64_t bytes) {
  const CacheSizes& sizes = cache_sizes();
  if (bytes <= sizes.inner / 2) return CacheLevel::kInner;
  // Other cores share the outer cache, and their load is not known. Engines of 7 MB were found to
  // run from memory where the outer cache has 32 MB.
  return bytes <= sizes.outer / 8 ? CacheLevel::kOuter : CacheLevel::kMemory;
}

double cpu_scene_milliseconds(const CacheScene::Levels& levels) {
  if (levels.constants == CacheLevel::kInner) return 0;
  static const double least = [] {
    using Clock = std::chrono::steady_clock;
    double milliseconds = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 4; ++i) {
      const Clock::time_point start = Clock::now();
      displace_inner_caches();
      milliseconds = std::min(
          milliseconds, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    return milliseconds;
  }();
  return least;
}

void set_cpu_scene(const CacheScene& scene) {
  if (scene.levels.constants == CacheLevel::kInner) return;
  if (scene.levels.constants == CacheLevel::kMemory)
    for (const auto& constant : scene.constants) flush(constant);
  const bool is_large = scene.levels.tensors == CacheLevel::kMemory;
  if (is_large) {
    for (const auto& operand : scene.operands) flush(operand);
    for (const auto& result : scene.results) flush(result);
  }
  displace_inner_caches();
  size_t left = is_large ? cache_sizes().inner * static_cast<size_t>(thread_count()) : SIZE_MAX;
  for (const auto& operand : scene.operands) {
    const auto end = operand.last(std::min(left, operand.size()));
    touch(end);
    left -= end.size();
  }
}

}  // namespace opwright
