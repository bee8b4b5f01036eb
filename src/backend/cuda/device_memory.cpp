#include <algorithm>
#include <array>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/relaxed_capture.h"

namespace opwright::cuda {
namespace {

CUdeviceptr to_device(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

/// Whether the memory is ordinary host memory, which CUDA does not know.
bool is_pageable(const void* memory) {
  unsigned type = 0;
  const CUresult result =
      driver().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, to_device(memory));
  if (result == CUDA_ERROR_INVALID_VALUE) return true;
  check(result, "asking where memory is");
  return false;
}

bool is_capture_error(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
         result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/// CUDA's description of the memory at an address.
struct Memory {
  bool is_known = false;   ///< false: ordinary host memory
  bool is_pinned = false;  ///< host memory that CUDA has pinned
  CUdeviceptr usable = 0;  ///< address for the current context; 0: not accessible
  int ordinal = -1;        ///< of the memory's GPU
  CUdeviceptr end = 0;     ///< end of the allocation
};

Memory look_up(CUdeviceptr address) {
  Memory memory;
  unsigned type = 0;
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  std::array attributes = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                           CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                           CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, attributes.size()> values = {&type, &memory.usable, &memory.ordinal, &begin,
                                                 &bytes};
  check(
      driver().cuPointerGetAttributes(attributes.size(), attributes.data(), values.data(), address),
      "asking where memory is");
  memory.is_known = type != 0;
  memory.is_pinned = type == CU_MEMORYTYPE_HOST;
  memory.end = begin + bytes;
  return memory;
}

/// Memory that this thread found to be usable. It is checked first, since callers use the same few
/// allocations again and again.
struct KnownRange {
  const Device* device = nullptr;
  CUdeviceptr begin = 0, end = 0;
};
KnownRange& known_range(CUdeviceptr address) {
  constexpr int kGranularity = 21;  // log2 of the granularity of large allocations
  static thread_local std::array<KnownRange, 16> ranges;
  return ranges[(address >> kGranularity) % ranges.size()];
}

}  // namespace

void CudaDevice::set_up_pool() const {
  CUmemoryPool pool = nullptr;
  check(driver().cuDeviceGetDefaultMemPool(&pool, device_), "asking for the memory pool of ",
        name_);
  // By default, the pool gives all memory back at each synchronization. Here it keeps a share and
  // leaves the rest to the process's other allocators.
  constexpr size_t kKeptShare = 16;
  size_t total = 0;
  check(driver().cuDeviceTotalMem(&total, device_), "asking for the memory of ", name_);
  cuuint64_t kept = 0;
  check(driver().cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept),
        "asking what the memory pool of ", name_, " keeps");
  kept = std::max<cuuint64_t>(kept, total / kKeptShare);
  check(driver().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept),
        "setting up the memory pool of ", name_);
}

uint64_t CudaDevice::free_memory() const {
  const DeviceScope scope(*this);
  size_t free = 0, total = 0;
  check(driver().cuMemGetInfo(&free, &total), "asking ", name_, " for its free memory");
  return free;
}

void* CudaDevice::allocate(size_t bytes) const {
  const DeviceScope scope(*this);
  const RelaxedCapture relaxed;
  CUdeviceptr memory = 0;
  const size_t wanted = std::max<size_t>(bytes, 1);
  CUresult result = has_pools_ ? driver().cuMemAllocAsync(&memory, wanted, allocating_stream_)
                               : driver().cuMemAlloc(&memory, wanted);
  // After this the memory is usable on any stream. Where the pool gives memory whose free has not
  // run yet, the allocating stream waits for that free. It does not wait for other frees, which are
  // on another stream.
  if (has_pools_ && result == CUDA_SUCCESS)
    result = driver().cuStreamSynchronize(allocating_stream_);
  if (result == CUDA_SUCCESS) return reinterpret_cast<void*>(memory);
  size_t free = 0, total = 0;
  driver().cuMemGetInfo(&free, &total);
  fail_cuda(result, str(name_, " could not allocate ", bytes, " bytes; ", free, " of its ", total,
                        " are free"));
}

void CudaDevice::free(void* memory) const noexcept {
  if (memory == nullptr) return;
  const std::lock_guard lock(unused_mutex_);
  unused_.push_back(to_device(memory));
  free_unused();
}

/// The pool gets the memory back on a stream that first waits for the event. All work that uses the
/// memory comes before the event in the order of its own stream, so it is done when the pool gives
/// the memory to somebody else. The host waits for nothing, since that would break captures.
void CudaDevice::free_after(void* memory, Event& last_use) const noexcept {
  if (memory == nullptr) return;
  if (!has_pools_) return free(memory);
  try {
    const DeviceScope scope(*this);
    const RelaxedCapture relaxed;
    last_use.make_wait(freeing_stream_);
    driver().cuMemFreeAsync(to_device(memory), freeing_stream_);
  } catch (const Error&) {
    // The context is gone, and its memory with it.
  }
}

bool CudaDevice::wait_for(Event* event) const noexcept {
  try {
    const DeviceScope scope(*this);
    const RelaxedCapture relaxed;
    if (event != nullptr) {
      event->synchronize();
      return true;
    }
    const std::lock_guard lock(unused_mutex_);
    return captures_ == 0 && !is_capture_error(driver().cuCtxSynchronize());
  } catch (const Error&) {
    return true;  // failed work has ended, too
  }
}

/// Frees memory that no work can use any more. Called with the lock held.
void CudaDevice::free_unused() const noexcept {
  // Freeing a pool's memory waits for no stream, and any stream may be using it, so the context is
  // synchronized first. Synchronizing breaks captures: during one, memory is kept for a later call.
  if (captures_ > 0 || unused_.empty()) return;
  try {
    const DeviceScope scope(*this);
    const RelaxedCapture relaxed;
    if (is_capture_error(driver().cuCtxSynchronize())) return;
    for (const CUdeviceptr address : unused_)
      has_pools_ ? driver().cuMemFreeAsync(address, freeing_stream_) : driver().cuMemFree(address);
  } catch (const Error&) {
    // The context is gone, and its memory with it.
  }
  unused_.clear();
}

void* CudaDevice::allocate_host(size_t bytes) const {
  const DeviceScope scope(*this);
  const RelaxedCapture relaxed;
  void* memory = nullptr;
  const CUresult result =
      driver().cuMemHostAlloc(&memory, std::max<size_t>(bytes, 1), CU_MEMHOSTALLOC_PORTABLE);
  check(result, "the host could not allocate ", bytes, " bytes that ", name_, " copies from");
  return memory;
}

void CudaDevice::free_host(void* memory) const noexcept {
  if (memory == nullptr) return;
  try {
    const DeviceScope scope(*this);
    const RelaxedCapture relaxed;
    driver().cuMemFreeHost(memory);  // waits for the work that uses it
  } catch (const Error&) {
  }
}

void CudaDevice::copy(void* to, const void* from, size_t bytes, Queue queue) const {
  if (bytes == 0) return;
  const DeviceScope scope(*this);
  const bool reads_pageable = is_pageable(from), writes_pageable = is_pageable(to);
  require(!(reads_pageable || writes_pageable) || !is_capturing(queue), "a copy of ", bytes,
          " bytes ", reads_pageable ? "from" : "to",
          " ordinary host memory cannot be captured: it is done while the call lasts, and a replay "
          "would not repeat it; use memory of the GPU or pinned memory");
  check(driver().cuMemcpyAsync(to_device(to), to_device(from), bytes, static_cast<CUstream>(queue)),
        "copying ", bytes, " bytes on ", name_);
  // The driver copies up to this many bytes into the command itself.
  constexpr size_t kTakenAlong = 64 * 1024;
  if (writes_pageable || (reads_pageable && bytes > kTakenAlong)) synchronize(queue);
}

void CudaDevice::check_address(const void* address, size_t bytes, std::string_view what) const {
  if (bytes == 0) return;
  const CUdeviceptr begin = to_device(address), end = begin + bytes;
  KnownRange& known = known_range(begin);
  if (known.device == this && known.begin <= begin && end <= known.end) return;
  const DeviceScope scope(*this);
  CUdeviceptr usable_end = begin;
  bool is_lasting = true;
  // Memory that was mapped piece by piece consists of several allocations.
  do {
    const Memory memory = look_up(usable_end);
    if (usable_end != begin && (!memory.is_known || memory.usable == 0))
      fail(what, " is given ", end - begin, " bytes at ", address,
           ", but the memory there ends after ", usable_end - begin,
           "; allocate what its shape needs");
    require(memory.is_known, what, " is given ", address,
            ", which is memory of the host; copy it to the GPU first (", name_,
            "), or allocate it as pinned or managed memory");
    require(memory.usable != 0, what, " is given ", address, ", which is memory of GPU ",
            memory.ordinal, " that GPU ", ordinal_,
            " has no access to; copy it, or enable peer access");
    if (memory.end <= usable_end) return;  // CUDA does not say where the memory ends
    usable_end = memory.end;
    is_lasting &= !memory.is_pinned;
  } while (usable_end < end);
  // Pinned memory may be ordinary memory the next time.
  if (is_lasting) known = {this, begin, usable_end};
}

void CudaDevice::check_host_address(const void* address, std::string_view what) const {
  const DeviceScope scope(*this);
  unsigned type = 0, is_managed = 0;
  int ordinal = -1;
  std::array attributes = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                           CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::array<void*, attributes.size()> values = {&type, &is_managed, &ordinal};
  check(driver().cuPointerGetAttributes(attributes.size(), attributes.data(), values.data(),
                                        to_device(address)),
        "asking where memory is");
  // CUDA knows nothing of ordinary memory.
  require(type == 0 || type == CU_MEMORYTYPE_HOST || is_managed != 0, what, " is given ", address,
          ", which is memory of GPU ", ordinal,
          ", but it is read by the host: give the address of a copy in the host's memory "
          "(PyTorch's x.cpu().data_ptr(), CuPy's x.get().ctypes.data), or of managed memory");
}

}  // namespace opwright::cuda
