#include "runtime/device_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "base/error.h"
#include "runtime/engine.h"

namespace opwright {
namespace {

constexpr size_t kWeightAlignment = 256;

size_t aligned(size_t bytes) {
  return (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}

alignas(64) std::byte host_empty[64];

}  // namespace

DeviceWeights::DeviceWeights(const Plan& plan, const Device& device,
                             const std::shared_ptr<IGpuAllocator>& allocator)
    : empty_(host_empty) {
  if (device.is_host()) return;
  std::vector<Blob> pieces;
  std::unordered_map<const void*, size_t> known;  // by address: which piece
  for (const Schedule& schedule : plan.schedules) {
    for (const PlanTensor& tensor : schedule.tensors) {
      if (tensor.location != PlanTensor::Location::kWeight || tensor.data.empty()) continue;
      const auto [entry, is_new] = known.emplace(tensor.data.data(), pieces.size());
      if (is_new) {
        pieces.push_back(tensor.data);
      } else if (Blob& piece = pieces[entry->second]; piece.size() < tensor.data.size()) {
        // Of weights that begin at one address the longest one has them all.
        piece = tensor.data;
      }
    }
  }
  size_t size = kWeightAlignment;  // the tensor without elements
  std::vector<size_t> offsets;
  for (const Blob& piece : pieces) {
    offsets.push_back(size);
    size += aligned(piece.size());
  }
  last_use_ = std::make_shared<LastUse>(device);
  try {
    memory_.grow(device, size, allocator, last_use_);
  } catch (const Error& error) {
    fail_with(error.code(), engine_name(plan), " has ", size, " bytes of weights: ", error.what());
  }
  empty_ = memory_.data();
  for (size_t i = 0; i < pieces.size(); ++i) {
    void* const to = memory_.data() + offsets[i];
    device.copy(to, pieces[i].data(), pieces[i].size(), nullptr);
    moved_.emplace(pieces[i].data(), to);
  }
  device.synchronize(nullptr);
}

void* DeviceWeights::address(const PlanTensor& tensor) const {
  if (tensor.data.empty()) return empty_;
  if (moved_.empty()) return const_cast<std::byte*>(tensor.data.data());
  return moved_.at(tensor.data.data());
}

}  // namespace opwright
