#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/backend.h"
#include "backend/memory.h"

namespace opwright {
namespace {

/// Counts what is allocated and freed.
class CountingDevice final : public Device {
 public:
  const Backend& backend() const override { return get_backend("cpu"); }
  DeviceType type() const override { return DeviceType::kCPU; }
  std::string identity() const override { return "counting"; }
  std::string architecture() const override { return "none"; }
  void* allocate(size_t bytes) const override {
    ++live;
    return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  void free(void* memory) const noexcept override {
    --live;
    std::free(memory);
  }
  void copy(void*, const void*, size_t, Queue) const override {}
  void synchronize(Queue) const override {}
  std::unique_ptr<Event> make_event(bool) const override { return nullptr; }
  std::vector<Candidate> candidates(const Operator&, const CandidateQuery&) const override {
    return {};
  }
  std::unique_ptr<Kernel> make_kernel(const Operator&, const KernelArgs&) const override {
    return nullptr;
  }
  std::vector<TensorFormat> formats(int) const override { return {}; }
  double time(Kernel&, void const* const*, void* const*, void*, int,
              const CacheScene&) const override {
    return 0;
  }
  mutable int live = 0;
};

TEST(DeviceMemory, GrowsAndIsFreed) {
  const CountingDevice device;
  {
    DeviceMemory memory;
    EXPECT_EQ(memory.data(), nullptr);
    EXPECT_TRUE(memory.grow(device, 100));
    std::byte* first = memory.data();
    EXPECT_FALSE(memory.grow(device, 50));
    EXPECT_EQ(memory.data(), first);
    EXPECT_EQ(memory.size(), 100u);
    EXPECT_TRUE(memory.grow(device, 200));
    EXPECT_EQ(device.live, 1);
  }
  EXPECT_EQ(device.live, 0);
}

TEST(DeviceMemory, StaysWhileItIsHeld) {
  const CountingDevice device;
  DeviceMemory memory, other;
  memory.grow(device, 128);
  other.grow(device, 128);
  std::byte* data = memory.data();
  std::shared_ptr<const void> held = hold_memory(data + 127), again = hold_memory(data);
  ASSERT_NE(held, nullptr);
  memory.reset();
  other.reset();
  EXPECT_EQ(device.live, 1);
  data[127] = std::byte{1};
  held.reset();
  EXPECT_EQ(device.live, 1);
  again.reset();
  EXPECT_EQ(device.live, 0);
}

TEST(DeviceMemory, HoldsNothingElse) {
  const CountingDevice device;
  DeviceMemory memory;
  int local = 0;
  memory.grow(device, 64);
  std::byte* data = memory.data();
  EXPECT_EQ(hold_memory(data + 64), nullptr);
  EXPECT_EQ(hold_memory(&local), nullptr);
  EXPECT_EQ(hold_memory(nullptr), nullptr);
  memory.reset();
  EXPECT_EQ(hold_memory(data), nullptr);
}

}  // namespace
}  // namespace opwright
