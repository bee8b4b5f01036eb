#include "runtime/device_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "base/error.h"
#include "runtime/engine.h"

namespace opwright {
namespace {

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

alignas(64) std::byte host_empty[64];

}  // namespace

DeviceWeights::DeviceWeights(const Plan& plan, const Device& device,
                             const std::shared_ptr<IGpuAllocator>& allocator)
    : empty_(host_empty) {
  if (device.is_host()) return;
  std::vector<std::pair<Blob, size_t>> pieces;  // and where they go
  std::unordered_map<const void*, size_t> known;
  size_t size = kAlignment;  // the tensor without elements
  for (const Schedule& schedule : plan.schedules) {
    for (const PlanTensor& tensor : schedule.tensors) {
      if (tensor.location != PlanTensor::Location::kWeight || tensor.data.empty()) continue;
      if (!known.emplace(tensor.data.data(), size).second) continue;
      pieces.emplace_back(tensor.data, size);
      size += aligned(tensor.data.size());
    }
  }
  last_use_ = std::make_shared<LastUse>(device);
  try {
    memory_.grow(device, size, allocator, last_use_);
  } catch (const Error& error) {
    fail_with(error.code(), engine_name(plan), " has ", size, " bytes of weights: ", error.what());
  }
  empty_ = memory_.data();
  for (const auto& [piece, offset] : pieces) {
    void* const to = memory_.data() + offset;
    device.copy(to, piece.data(), piece.size(), nullptr);
    moved_.emplace(piece.data(), to);
  }
  device.synchronize(nullptr);
}

void* DeviceWeights::address(const PlanTensor& tensor) const {
  if (tensor.data.empty()) return empty_;
  if (moved_.empty()) return const_cast<std::byte*>(tensor.data.data());
  return moved_.at(tensor.data.data());
}

}  // namespace opwright
