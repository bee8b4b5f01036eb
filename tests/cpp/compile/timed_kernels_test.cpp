#include "compile/timed_kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "backend/backend.h"

namespace opwright {
namespace {

/// Notes what each run is given.
class NotingKernel final : public Kernel {
 public:
  void on_shape_change(std::span<const Shape>, std::span<const Shape>) override {}
  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    runs.push_back({inputs[0], inputs[1], inputs[2], outputs[0], workspace});
    sizes.push_back(*static_cast<const int64_t*>(outputs[0]));
  }
  std::vector<std::array<const void*, 5>> runs;
  std::vector<int64_t> sizes;
};

TEST(WithCopies, RunsTakeTheCopiesInTurnsAndAllElseAsItIs) {
  NotingKernel kernel;
  const std::array<char, 8> memory = {};
  const auto at = [&](size_t i) -> const void* { return &memory[i]; };
  const void* const given[] = {at(0), at(1), at(2)};
  WithCopies with_copies(kernel, given);
  with_copies.add(0, {at(3), at(4)});
  with_copies.add(2, {at(5), at(6), at(7)});
  int64_t output = 0;
  void* const outputs[] = {&output};
  void* const workspace = &output;
  for (int run = 0; run < 6; ++run) with_copies.enqueue(nullptr, outputs, workspace, nullptr);
  ASSERT_EQ(kernel.runs.size(), 6u);
  for (size_t run = 0; run < 6; ++run) {
    EXPECT_EQ(kernel.runs[run][0], at(3 + run % 2)) << run;
    EXPECT_EQ(kernel.runs[run][1], at(1)) << run;
    EXPECT_EQ(kernel.runs[run][2], at(5 + run % 3)) << run;
    EXPECT_EQ(kernel.runs[run][3], &output) << run;
    EXPECT_EQ(kernel.runs[run][4], workspace) << run;
  }
}

TEST(WithSizes, SizeTensorsAreZeroWhenARunBegins) {
  NotingKernel kernel;
  const int64_t zero = 0;
  WithSizes with_sizes(kernel, get_device(DeviceType::kCPU), &zero);
  with_sizes.add(0, DataType::kINT64);
  int64_t size = 5;
  void* const outputs[] = {&size};
  const void* const inputs[] = {nullptr, nullptr, nullptr};
  for (int run = 0; run < 2; ++run) {
    with_sizes.enqueue(inputs, outputs, nullptr, nullptr);
    size = 5;
  }
  EXPECT_EQ(kernel.sizes, (std::vector<int64_t>{0, 0}));
}

TEST(CountCopies, TogetherTheyAreMoreThanTheCachesHold) {
  const Device& device = get_device(DeviceType::kCPU);
  EXPECT_EQ(count_copies(device, uint64_t{1} << 40), 1u) << "what no cache holds needs none";
  uint64_t bytes = 1 << 20;
  while (device.cache_level(bytes) != CacheLevel::kMemory) bytes *= 2;
  for (const uint64_t part : {bytes / 4, bytes / 16}) {
    const size_t count = count_copies(device, part);
    EXPECT_EQ(device.cache_level((count - count / 3) * part), CacheLevel::kMemory) << part;
    EXPECT_LE(count, 64u);
  }
  EXPECT_LE(count_copies(device, 1), 64u);
}

}  // namespace
}  // namespace opwright
