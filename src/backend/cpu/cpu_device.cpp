#include "backend/cpu/cpu_device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <unordered_map>

#include "backend/backend.h"
#include "backend/cpu/cache_scene.h"
#include "backend/cpu/dnnl_kernel.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/processor.h"
#include "base/aligned_memory.h"
#include "base/error.h"
#include "base/library.h"
#include "base/parallel.h"
#include "network/domain_guard.h"

namespace opwright {
namespace {

/// Kernels by kind of operator. RegisteredKernels fill the table while the library is loaded.
struct KernelTable : std::unordered_map<std::string_view, KernelEntry> {};

/// Null where the CPU has no kernels for that kind of operator.
const KernelEntry* find_entry(std::string_view kind) {
  const auto& table = Library::part<KernelTable>();
  const auto found = table.find(kind);
  return found == table.end() ? nullptr : &found->second;
}

/// The processor's name from the system. x86 has a name, Arm has numbers that identify it.
std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line, arm;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer") && arm.empty()) arm = "Arm " + value;
    if (line.starts_with("CPU part") && arm.starts_with("Arm ")) return str(arm, " ", value);
  }
  return "unknown processor";
}

/// An event of the CPU. Calls return when their work is done, so a point in their order is a point
/// in time.
class CpuEvent final : public Event {
 public:
  void record(Queue) override { time_ = Clock::now(); }
  void synchronize() override {}
  float milliseconds_since(Event& earlier) override {
    return std::chrono::duration<float, std::milli>(time_ - static_cast<CpuEvent&>(earlier).time_)
        .count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point time_;
};

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  DeviceType type() const override { return DeviceType::kCPU; }
  const Device& device(int) const override { return cpu_device(); }
  std::vector<KernelTactics> kernel_tactics() const override {
    return tactics_of(Library::part<KernelTable>());
  }
};

const CpuBackend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

[[maybe_unused]] const bool is_registered = (register_backend(cpu_backend()), true);

}  // namespace

void register_kernels(std::string_view kind, const KernelEntry& entry) {
  Library::part<KernelTable>().emplace(kind, entry);
}

CpuDevice::CpuDevice()
    : features_(processor_features()),
      processor_(str(processor_model(), ", ", instruction_set())) {}

const Backend& CpuDevice::backend() const { return cpu_backend(); }

std::string CpuDevice::identity() const {
  return str(processor_, ", ", thread_count(), " threads, ", product_library());
}

std::string CpuDevice::architecture() const {
#if defined(__x86_64__)
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#else
#error "unknown architecture"
#endif
}

void* CpuDevice::allocate(size_t bytes) const {
  void* memory = allocate_aligned(bytes);
  if (!memory)
    fail_with(ErrorCode::kFAILED_ALLOCATION, "The CPU could not allocate ", bytes, " bytes.");
  return memory;
}

void CpuDevice::free(void* memory) const noexcept { std::free(memory); }

void CpuDevice::copy(void* to, const void* from, size_t bytes, Queue) const {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void CpuDevice::synchronize(Queue) const {}

std::unique_ptr<Event> CpuDevice::make_event(bool) const { return std::make_unique<CpuEvent>(); }

std::vector<Candidate> CpuDevice::candidates(const Operator& op,
                                             const CandidateQuery& query) const {
  const KernelEntry* entry = find_entry(op.kind());
  if (!entry) return {};
  return with_dnnl_errors(query.layer, [&] { return entry->candidates(op, query); });
}

void CpuDevice::check_operator(const Operator& op, const KernelArgs& args) const {
  const KernelEntry* entry = find_entry(op.kind());
  require(entry != nullptr, "the CPU has no kernel for ", op.kind());
  PortRules(op, args).require_sound(entry->packed_input, entry->other_packed_input);
  entry->check(op, args);
}

std::unique_ptr<Kernel> CpuDevice::make_kernel(const Operator& op, const KernelArgs& args) const {
  const KernelEntry* entry = find_entry(op.kind());
  if (!entry)
    fail_with(ErrorCode::kUNSUPPORTED_STATE, "Layer '", args.layer, "': the CPU has no kernel for ",
              op.kind(), ".");
  return with_dnnl_errors(args.layer, [&] { return entry->make(op, args); });
}

std::vector<TensorFormat> CpuDevice::formats(int rank) const {
  std::vector<TensorFormat> formats = {TensorFormat::kHWC};
  if (features_.avx512) formats.push_back(TensorFormat::kCHW16);
  std::erase_if(formats, [&](TensorFormat format) { return !is_valid(format, rank); });
  return formats;
}

CacheLevel CpuDevice::cache_level(uint64_t bytes) const { return cpu_cache_level(bytes); }

double CpuDevice::scene_milliseconds(const CacheScene::Levels& levels) const {
  return cpu_scene_milliseconds(levels);
}

double CpuDevice::time(Kernel& kernel, void const* const* inputs, void* const* outputs,
                       void* workspace, int iterations, const CacheScene& scene) const {
  using Clock = std::chrono::steady_clock;
  const DomainGuard guard(kernel.domain(), nullptr);
  kernel.enqueue(inputs, outputs, workspace, nullptr);
  std::vector<double> milliseconds(std::max(iterations, 1));
  for (double& measured : milliseconds) {
    // A kernel that calls Python holds its lock, and takes long compared with the effect of caches,
    // so the caches are left as they are.
    if (kernel.domain() == nullptr) set_cpu_scene(scene);
    const Clock::time_point start = Clock::now();
    kernel.enqueue(inputs, outputs, workspace, nullptr);
    measured = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }
  const auto middle = milliseconds.begin() + milliseconds.size() / 2;
  std::nth_element(milliseconds.begin(), middle, milliseconds.end());
  return *middle;
}

void require_byte_instructions(const KernelArgs& args) {
  if (!cpu_device().features().int8)
    fail_with(ErrorCode::kUNSUPPORTED_STATE, "Layer '", args.layer,
              "': the engine was built for a ",
              "processor that multiplies bytes (AVX512-VNNI, AVX-VNNI), which this one does not; ",
              "build it here");
}

const CpuDevice& cpu_device() {
  static const CpuDevice device;
  return device;
}

}  // namespace opwright
