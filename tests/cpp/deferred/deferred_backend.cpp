#include "deferred/deferred_backend.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/aligned_memory.h"
#include "base/error.h"

namespace opwright {
namespace {

/// Code is the name of a function, and says so.
class DeferredCodeFormat final : public CodeFormat {
 public:
  std::string fault(const CodeObject& object) const override {
    return object.bytes.size() > 0 ? "" : "no name of a function";
  }
  std::string served(std::span<const CodeObject> code) const override {
    const bool has_code =
        std::any_of(code.begin(), code.end(), [](const CodeObject& each) { return !each.host; });
    return has_code ? "deferred devices" : "";
  }
  std::string portable_form() const override { return "the name of a function"; }
};

class DeferredBackend final : public Backend {
 public:
  const CodeFormat& code_format() const override { return code_format_; }
  std::string_view name() const override { return "deferred"; }
  DeviceType type() const override { return DeviceType::kGPU; }
  int device_count() const override { return static_cast<int>(devices_.size()); }
  const Device& device(int ordinal) const override {
    return devices_[static_cast<size_t>(std::max(ordinal, 0))];
  }

 private:
  const DeferredCodeFormat code_format_{};
  const std::array<DeferredDevice, 2> devices_{DeferredDevice(0), DeferredDevice(1)};
};

[[maybe_unused]] const bool is_registered = [] {
  static const DeferredBackend backend;
  register_backend(backend);
  return true;
}();

/// Recorded as work like any other.
class DeferredEvent final : public Event {
 public:
  explicit DeferredEvent(const DeferredDevice& device) : device_(device) {}
  void record(Queue) override {
    device_.give([time = time_] { *time = Clock::now(); });
  }
  void synchronize() override { device_.synchronize(nullptr); }
  void make_wait(Queue) override {}  // there is one order
  float milliseconds_since(Event& earlier) override {
    synchronize();
    const auto begin = *static_cast<DeferredEvent&>(earlier).time_;
    return std::chrono::duration<float, std::milli>(*time_ - begin).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  const DeferredDevice& device_;
  const std::shared_ptr<Clock::time_point> time_ = std::make_shared<Clock::time_point>();
};

/// "negate": out[i] = -in[i] for the elements of the grid.
class Negate final : public DeviceFunction {
 public:
  explicit Negate(const DeferredDevice& device) : device_(device) {}
  int num_parameters() const override { return 2; }
  void allow_shared_memory(uint32_t bytes) const override {
    require(bytes == 0, "there is no shared memory");
  }
  void launch(const LaunchShape& shape, void* const* arguments, Queue) const override {
    const auto* in = *static_cast<const float* const*>(arguments[0]);
    auto* out = *static_cast<float* const*>(arguments[1]);
    device_.give([=, count = shape.grid[0]] {
      std::transform(in, in + count, out, [](float x) { return -x; });
    });
  }

 private:
  const DeferredDevice& device_;
};

}  // namespace

void* DeferredDevice::allocate(size_t bytes) const {
  void* const memory = allocate_aligned(bytes);
  if (memory == nullptr) fail_with(ErrorCode::kFAILED_ALLOCATION, "no ", bytes, " bytes");
  const std::lock_guard lock(mutex_);
  memory_[static_cast<std::byte*>(memory)] = bytes;
  return memory;
}

void DeferredDevice::free(void* memory) const noexcept {
  if (memory == nullptr) return;
  synchronize(nullptr);
  const std::lock_guard lock(mutex_);
  memory_.erase(static_cast<std::byte*>(memory));
  std::free(memory);
}

bool DeferredDevice::has(const void* address, size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(address);
  const std::lock_guard lock(mutex_);
  const auto behind = memory_.upper_bound(begin);
  if (behind == memory_.begin()) return false;
  const auto& [first, size] = *std::prev(behind);
  return begin + bytes <= first + size;
}

void DeferredDevice::copy(void* to, const void* from, size_t bytes, Queue queue) const {
  if (bytes == 0) return;
  if (has(from, bytes)) {
    give([=] { std::memcpy(to, from, bytes); });
  } else {
    const auto* const begin = static_cast<const std::byte*>(from);
    give([to, read = std::vector(begin, begin + bytes)] {
      std::memcpy(to, read.data(), read.size());
    });
  }
  if (!has(to, bytes)) synchronize(queue);
}

void DeferredDevice::synchronize(Queue) const {
  const std::lock_guard lock(mutex_);
  for (const std::function<void()>& each : work_) each();
  work_.clear();
}

bool DeferredDevice::wait_for(Event*) const noexcept {
  synchronize(nullptr);
  return true;
}

std::unique_ptr<Event> DeferredDevice::make_event(bool) const {
  return std::make_unique<DeferredEvent>(*this);
}

void DeferredDevice::check_address(const void* address, size_t bytes, std::string_view what) const {
  require(has(address, bytes), what, " is not memory of the deferred device");
}

std::shared_ptr<const DeviceFunction> DeferredDevice::load_function(const CodeObject& code,
                                                                    const std::string& name) const {
  require(std::string_view(code.bytes.as<char>(), code.bytes.size()) == name && name == "negate",
          "'", code.name, "' has no function '", name, "'");
  return std::make_shared<Negate>(*this);
}

std::vector<Candidate> DeferredDevice::candidates(const Operator& op,
                                                  const CandidateQuery& query) const {
  Candidate candidate;
  for (const PortDesc& port : query.inputs) candidate.inputs.push_back(port.type);
  for (const PortDesc& port : query.outputs) candidate.outputs.push_back(port.type);
  KernelArgs args;
  args.inputs = query.inputs, args.outputs = query.outputs, args.device = this;
  if (make_deferred_kernel(op, args) == nullptr) return {};
  return {candidate};
}

void DeferredDevice::check_operator(const Operator& op, const KernelArgs& args) const {
  require(make_deferred_kernel(op, args) != nullptr, "the deferred device has no such ", op.kind());
}

std::unique_ptr<Kernel> DeferredDevice::make_kernel(const Operator& op,
                                                    const KernelArgs& args) const {
  check_operator(op, args);
  return make_deferred_kernel(op, args);
}

double DeferredDevice::time(Kernel& kernel, void const* const* inputs, void* const* outputs,
                            void* workspace, int iterations, const CacheScene&) const {
  DeferredEvent begin(*this), end(*this);
  begin.record(nullptr);
  for (int i = 0; i < iterations; ++i) kernel.enqueue(inputs, outputs, workspace, nullptr);
  end.record(nullptr);
  return end.milliseconds_since(begin) / std::max(iterations, 1);
}

void DeferredDevice::give(std::function<void()> work) const {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
}

size_t DeferredDevice::waiting() const {
  const std::lock_guard lock(mutex_);
  return work_.size();
}

size_t DeferredDevice::allocations() const {
  const std::lock_guard lock(mutex_);
  return memory_.size();
}

}  // namespace opwright
