#include "runtime/device_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "base/error.h"
#include "runtime/engine.h"

namespace opwright {
namespace {

constexpr size_t kWeightAlignment = 256;

alignas(64) std::byte host_empty[64];

/// The bytes of all weights. The longest weight at an address contains all others there.
struct Pieces {
  std::vector<Blob> fixed, streamable;
};

Pieces pieces_of(const Plan& plan) {
  using Location = PlanTensor::Location;
  std::vector<Blob> all;
  std::vector<bool> is_fixed;
  std::unordered_map<const void*, size_t> known;  // index of the piece by its address
  for (const Schedule& schedule : plan.schedules) {
    const auto is_weight = [](const PlanTensor& tensor) {
      return tensor.location == Location::kWeight && !tensor.data.empty();
    };
    for (const PlanTensor& tensor : schedule.tensors) {
      if (!is_weight(tensor)) continue;
      const auto [entry, is_new] = known.emplace(tensor.data.data(), all.size());
      if (is_new) {
        all.push_back(tensor.data);
        is_fixed.push_back(!plan.weight_streaming);
      } else if (Blob& piece = all[entry->second]; piece.size() < tensor.data.size()) {
        piece = tensor.data;
      }
    }
    // Output copies and debug tensors read their weights outside of steps, so these weights are
    // always on the device.
    const auto fix = [&](int32_t index) {
      const PlanTensor& tensor = schedule.tensors[index];
      if (is_weight(tensor)) is_fixed[known.at(tensor.data.data())] = true;
    };
    for (const OutputCopy& copy : schedule.copies) fix(copy.tensor);
    for (const DebugTensor& debug : schedule.debug) fix(debug.tensor);
  }
  Pieces pieces;
  for (size_t i = 0; i < all.size(); ++i)
    (is_fixed[i] ? pieces.fixed : pieces.streamable).push_back(all[i]);
  return pieces;
}

}  // namespace

size_t DeviceWeights::aligned(size_t bytes) {
  return (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}

size_t DeviceWeights::streamable(const Plan& plan) {
  size_t size = 0;
  for (const Blob& piece : pieces_of(plan).streamable) size += aligned(piece.size());
  return size;
}

DeviceWeights::DeviceWeights(const Plan& plan, const Device& device,
                             const std::shared_ptr<IGpuAllocator>& allocator, size_t budget)
    : empty_(host_empty) {
  if (device.is_host()) return;
  Pieces pieces = pieces_of(plan);
  std::ranges::stable_sort(pieces.streamable, {}, &Blob::size);
  size_t size = kWeightAlignment;  // room for the tensor without elements
  size_t on_host = 0;
  std::vector<size_t> offsets;  // first those on the device, then those on the host
  for (const Blob& piece : pieces.fixed) {
    offsets.push_back(size);
    size += aligned(piece.size());
  }
  const size_t fixed = pieces.fixed.size();
  for (const Blob& piece : pieces.streamable) {
    const size_t bytes = aligned(piece.size());
    const bool fits = on_host == 0 && bytes <= budget - resident_;
    offsets.push_back(fits ? size : on_host);
    if (fits) pieces.fixed.push_back(piece);
    (fits ? size : on_host) += bytes;
    if (fits) resident_ += bytes;
  }
  last_use_ = std::make_shared<LastUse>(device);
  try {
    memory_.grow(device, size, allocator, last_use_);
  } catch (const Error& error) {
    fail_with(error.code(), engine_name(plan), " has ", size, " bytes of weights: ", error.what());
  }
  empty_ = memory_.data();
  const size_t on_device = pieces.fixed.size();
  for (size_t i = 0; i < on_device; ++i) {
    const Blob& piece = pieces.fixed[i];
    void* const to = memory_.data() + offsets[i];
    device.copy(to, piece.data(), piece.size(), nullptr);
    moved_.emplace(piece.data(), to);
  }
  if (on_host > 0) host_ = std::make_unique<PinnedMemory>(device, on_host);
  for (size_t i = on_device; i < offsets.size(); ++i) {
    const Blob& piece = pieces.streamable[i - fixed];
    std::byte* const to = host_->data() + offsets[i];
    std::memcpy(to, piece.data(), piece.size());
    streamed_.emplace(piece.data(), to);
  }
  device.synchronize(nullptr);
}

const std::byte* DeviceWeights::streamed(const PlanTensor& tensor) const {
  if (tensor.location != PlanTensor::Location::kWeight || streamed_.empty()) return nullptr;
  const auto found = streamed_.find(tensor.data.data());
  return found == streamed_.end() ? nullptr : found->second;
}

void* DeviceWeights::address(const PlanTensor& tensor) const {
  if (tensor.data.empty()) return empty_;
  if (moved_.empty()) return const_cast<std::byte*>(tensor.data.data());
  return moved_.at(tensor.data.data());
}

}  // namespace opwright
