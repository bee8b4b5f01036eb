// Devices and contexts.

#include <array>
#include <cstring>
#include <type_traits>

#include "driver/state.h"

namespace emulation {
namespace {

/// The stack of contexts that a thread made current. It has no destructor: that would empty the
/// stack while destructors of the program's own (mainly static) variables still call the driver.
class ContextStack {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == contexts_.size(); }
  Context* back() const { return contexts_[count_ - 1]; }
  void push_back(Context* context) { contexts_[count_++] = context; }
  void pop_back() { --count_; }

 private:
  std::array<Context*, 256> contexts_;
  size_t count_;
};
static_assert(std::is_trivially_destructible_v<ContextStack>);
constinit thread_local ContextStack current = {};

int attribute_of(CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return state().architecture / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return state().architecture % 10;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 0x7fffffff;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 48 * 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return 227 * 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return 228 * 1024;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 50 << 20;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1980000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 2619000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 5120;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 3;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return 0x7fffffff;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
      return 1;
    default:
      return 0;
  }
}

/// Calls the body if there is such a device.
CUresult with_device(const char* name, CUdevice device, const std::function<CUresult()>& body) {
  return call(name, Needs::kInitialization,
              [&] { return is_device(device) ? body() : CUDA_ERROR_INVALID_DEVICE; });
}

}  // namespace

Context* current_context() { return current.empty() ? nullptr : current.back(); }

Context* make_context(CUdevice device, unsigned flags) {
  auto made = std::make_unique<Context>();
  made->device = device;
  made->flags = flags;
  made->id = state().next_id++;
  made->legacy.context = made->per_thread.context = made.get();
  made->streams = {&made->legacy, &made->per_thread};
  return state().contexts.add(std::move(made));
}

void destroy_context(Context* context) {
  wait_for_context(context);
  release_modules(context);
  release_all(context);
  for (Stream* stream : context->streams) {
    if (state().streams.find(stream)) state().streams.remove(stream);
  }
  state().contexts.remove(context);
}

}  // namespace emulation

using namespace emulation;

extern "C" {

CUresult cuInit(unsigned flags) {
  return call(__func__, Needs::kNothing, [&] {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (state().devices.empty()) return CUDA_ERROR_NO_DEVICE;
    state().initialized = true;
    return CUDA_SUCCESS;
  });
}

CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return call(__func__, Needs::kNothing, [] { return CUDA_SUCCESS; });
}

CUresult cuDeviceGetCount(int* count) {
  return call(__func__, Needs::kInitialization, [&] {
    *count = state().devices.size();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_device(__func__, ordinal, [&] {
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return with_device(__func__, device, [&] {
    std::snprintf(name, length, "Emulated device %d", device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return with_device(__func__, device, [&] {
    std::memcpy(uuid->bytes, "emulated-device", 16);
    uuid->bytes[15] = static_cast<char>(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  return with_device(__func__, device, [&] {
    *bytes = state().memory_limit;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return with_device(__func__, device, [&] {
    if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    *value = attribute_of(attribute);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return with_device(__func__, device, [&] {
    std::snprintf(text, length, "0000:%02x:00.0", device + 1);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return with_device(__func__, device, [&] {
    if (!is_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned) {
  return call(__func__, [&] {
    const Context* peer = state().contexts.find(handle);
    if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
    current_context()->peers.push_back(peer->device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice device) {
  return with_device(__func__, device, [&] {
    Device& owner = state().devices[device];
    if (!owner.primary) {
      owner.primary = make_context(device, owner.primary_flags);
      owner.primary->primary = true;
    }
    ++owner.primary_uses;
    *handle = reinterpret_cast<CUcontext>(owner.primary);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return with_device(__func__, device, [&] {
    Device& owner = state().devices[device];
    if (!owner.primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (--owner.primary_uses == 0) {
      destroy_context(owner.primary);
      owner.primary = nullptr;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return with_device(__func__, device, [&] {
    Device& owner = state().devices[device];
    if (owner.primary) destroy_context(owner.primary);
    owner.primary = nullptr;
    owner.primary_uses = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return with_device(__func__, device, [&] {
    *flags = state().devices[device].primary_flags;
    *active = state().devices[device].primary != nullptr;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return with_device(__func__, device, [&] {
    state().devices[device].primary_flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxCreate_v2(CUcontext* handle, unsigned flags, CUdevice device) {
  return with_device(__func__, device, [&] {
    if (current.full()) return CUDA_ERROR_OUT_OF_MEMORY;
    Context* context = make_context(device, flags);
    current.push_back(context);
    *handle = reinterpret_cast<CUcontext>(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxCreate(CUcontext* handle, CUctxCreateParams*, unsigned flags, CUdevice device) {
  return cuCtxCreate_v2(handle, flags, device);
}

CUresult cuCtxDestroy(CUcontext handle) {
  return call(__func__, Needs::kInitialization, [&] {
    Context* context = state().contexts.find(handle);
    if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    destroy_context(context);
    if (current_context() == context) current.pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
  return call(__func__, Needs::kInitialization, [&] {
    *handle = reinterpret_cast<CUcontext>(current_context());
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  return call(__func__, Needs::kInitialization, [&] {
    Context* context = state().contexts.find(handle);
    if (handle && !context) return CUDA_ERROR_INVALID_CONTEXT;
    if (!current.empty()) current.pop_back();
    if (context) current.push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent(CUcontext handle) {
  return call(__func__, Needs::kInitialization, [&] {
    Context* context = state().contexts.find(handle);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (current.full()) return CUDA_ERROR_OUT_OF_MEMORY;
    current.push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPopCurrent(CUcontext* handle) {
  return call(__func__, Needs::kInitialization, [&] {
    if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (handle) *handle = reinterpret_cast<CUcontext>(current.back());
    current.pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return call(__func__, Needs::kInitialization, [&] {
    Context* context = current_context();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    *device = context->device;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return call(__func__, Needs::kInitialization, [&] {
    Context* context = handle ? state().contexts.find(handle) : current_context();
    if (!context) return handle ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    *id = context->id;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetFlags(unsigned* flags) {
  return call(__func__, [&] {
    *flags = current_context()->flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return call(__func__, [&] {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
