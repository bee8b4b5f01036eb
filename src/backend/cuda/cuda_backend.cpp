#include <map>
#include <memory>
#include <mutex>

#include "backend/backend.h"
#include "backend/cuda/code_format.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/library_handles.h"
#include "backend/cuda/nccl.h"
#include "backend/cuda/nccl_communicator.h"
#include "backend/gpu/kernels.h"
#include "base/library.h"

extern "C" const opwright::Backend* opwright_backend();

namespace opwright::cuda {
namespace {

constexpr char kFailedWork[] = "work with the execution context's communicator failed";

class CudaBackend final : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }
  DeviceType type() const override { return DeviceType::kGPU; }
  const CodeFormat& code_format() const override { return cuda::code_format(); }
  std::unique_ptr<const LibraryHandles> make_library_handles(const Device& device) const override {
    return cuda::make_library_handles(device);
  }
  std::string obstacle() const override { return driver().obstacle; }
  std::vector<KernelTactics> kernel_tactics() const override { return gpu::kernel_tactics(); }
  void check_communicator(void* communicator) const override {
    if (const std::shared_ptr<Communicator> own = Communicator::find(communicator)) {
      own->on_device()->require_well(kFailedWork);
      return;
    }
    const Nccl* const library = Nccl::loaded();
    if (library == nullptr) return;
    auto* const given = static_cast<Nccl::Communicator>(communicator);
    int rank = 0, ranks = 0;
    library->functions().ncclCommUserRank(given, &rank);
    library->functions().ncclCommCount(given, &ranks);
    library->require_well(given, str(kFailedWork, " on rank ", rank, " of ", ranks));
  }
  CommunicatorUse use_communicator(void* communicator) const override {
    const Nccl& library = this->library();
    const auto use = std::make_shared<const NcclUse>(library, communicator, kFailedWork);
    CommunicatorUse made{use->get(), 0, 1, use};
    const char* const what = "asking for a communicator's ranks";
    const Nccl::Functions& nccl = library.functions();
    library.check(nccl.ncclCommUserRank(use->get(), &made.rank), use->get(), what);
    library.check(nccl.ncclCommCount(use->get(), &made.ranks), use->get(), what);
    return made;
  }
  void check_collectives() const override { library(); }
  std::unique_ptr<DeviceCommunicator> make_communicator(const Device& device,
                                                        HostCommunicator& host) const override {
    return std::make_unique<NcclCommunicator>(static_cast<const CudaDevice&>(device), host);
  }

  int device_count() const override {
    int count = 0;
    if (obstacle().empty())
      check(driver().cuDeviceGetCount(&count), "asking for the number of GPUs");
    return count;
  }

  const Device& device(int ordinal) const override {
    CUcontext context = nullptr;
    check(driver().cuCtxGetCurrent(&context), "asking for the current CUDA context");
    CUdevice current = -1;
    if (context != nullptr)
      check(driver().cuCtxGetDevice(&current), "asking for the current CUDA device");
    if (ordinal == -1) ordinal = context != nullptr ? ordinal_of(current) : 0;
    if (context == nullptr || ordinal_of(current) != ordinal) context = primary_context(ordinal);
    return device(ordinal, context);
  }

 private:
  /// Throws Error, with what to install, where there is no NCCL.
  static const Nccl& library() {
    std::string reason;
    const Nccl* const library = Nccl::find(reason);
    if (library == nullptr) fail_with(ErrorCode::kFAILED_INITIALIZATION, reason);
    return *library;
  }
  static int ordinal_of(CUdevice device) { return static_cast<int>(device); }

  /// The GPU's primary context, retained once for the rest of the process.
  CUcontext primary_context(int ordinal) const {
    const std::lock_guard lock(mutex_);
    CUcontext& context = primary_[ordinal];
    if (context != nullptr) return context;
    CUdevice device = 0;
    check(driver().cuDeviceGet(&device, ordinal), "asking for GPU ", ordinal);
    check(driver().cuDevicePrimaryCtxRetain(&context, device), "starting GPU ", ordinal);
    return context;
  }

  const Device& device(int ordinal, CUcontext context) const {
    check(driver().cuCtxPushCurrent(context), "making the context of GPU ", ordinal, " current");
    const std::unique_ptr<const void, void (*)(const void*)> pop(context, [](const void*) {
      CUcontext popped = nullptr;
      driver().cuCtxPopCurrent(&popped);
    });
    // A new context may have the address of a destroyed one, so the key is its ID.
    unsigned long long id = 0;
    check(driver().cuCtxGetId(context, &id), "asking for the context of GPU ", ordinal);
    const std::lock_guard lock(mutex_);
    std::unique_ptr<const CudaDevice>& device = devices_[id];
    if (device == nullptr) device = std::make_unique<const CudaDevice>(ordinal, context);
    return *device;
  }

  mutable std::mutex mutex_;
  mutable std::map<int, CUcontext> primary_;
  mutable std::map<unsigned long long, std::unique_ptr<const CudaDevice>> devices_;
};

}  // namespace

const Backend& CudaDevice::backend() const { return *opwright_backend(); }

}  // namespace opwright::cuda

extern "C" const opwright::Backend* opwright_backend() {
  return &opwright::Library::part<opwright::cuda::CudaBackend>();
}
