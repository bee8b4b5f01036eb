#include "backend/cpu/cache_scene.h"

#include <gtest/gtest.h>

#include <numeric>

namespace opwright {
namespace {

TEST(CacheScene, LargerEnginesAreFartherAway) {
  EXPECT_EQ(cpu_cache_level(0), CacheLevel::kInner);
  EXPECT_EQ(cpu_cache_level(uint64_t{1} << 40), CacheLevel::kMemory);
  for (int shift = 1; shift < 64; ++shift)
    EXPECT_LE(cpu_cache_level(uint64_t{1} << (shift - 1)), cpu_cache_level(uint64_t{1} << shift));
}

TEST(CacheScene, LeavesContentsAsTheyAre) {
  // None of them ends where a cache line does; the last one is larger than the inner caches.
  for (const size_t size :
       {size_t{1}, size_t{63}, size_t{65}, size_t{100'001}, size_t{5'000'003}}) {
    std::vector<std::byte> memory(3 * size + 1);
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7);
    const std::vector<std::byte> before = memory;
    const std::span<std::byte> all = memory;
    CacheScene scene;
    scene.constants = {all.subspan(1, size)};
    scene.operands = {all.subspan(1 + size, size), {}};
    scene.results = {all.subspan(1 + 2 * size, size)};
    for (const CacheLevel level : {CacheLevel::kInner, CacheLevel::kOuter, CacheLevel::kMemory}) {
      scene.levels = {level, level};
      set_cpu_scene(scene);
    }
    EXPECT_TRUE(memory == before) << size;
  }
}

}  // namespace
}  // namespace opwright
