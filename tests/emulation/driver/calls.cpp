// The frame of every exported function: the lock, counters, injected faults and preconditions of a
// call. Also the names of errors and functions.

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "driver/lock.h"
#include "driver/state.h"

namespace emulation {
namespace {

struct Fault {
  CUresult result;
  int after;
};

std::map<std::string, Fault>& faults() {
  static std::map<std::string, Fault>* faults = [] {
    auto* read = new std::map<std::string, Fault>;
    const char* text = std::getenv("OPWRIGHT_EMULATED_FAULT");
    std::istringstream stream(text ? text : "");
    for (std::string item; std::getline(stream, item, ',');) {
      char name[128];
      int result = 0, after = 0;
      if (std::sscanf(item.c_str(), "%127[^=]=%d@%d", name, &result, &after) >= 2) {
        (*read)[name] = {static_cast<CUresult>(result), after};
      }
    }
    return read;
  }();
  return *faults;
}

std::map<std::string, long>& counts() {
  static auto* counts = new std::map<std::string, long>;
  return *counts;
}

/// The name without its version: counters and faults of cuMemAlloc_v2 are those of cuMemAlloc.
std::string plain_name(const char* name) {
  std::string plain = name;
  size_t version = plain.rfind("_v");
  if (version != std::string::npos && version + 3 == plain.size()) plain.resize(version);
  return plain == "cuGraphInstantiateWithFlags" ? "cuGraphInstantiate" : plain;
}

long environment(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtol(text, nullptr, 10) : otherwise;
}

thread_local bool in_host_function = false;

CUresult checked(const char* name, Needs needs, const std::function<CUresult()>& body) {
  std::string plain = plain_name(name);
  ++counts()[plain];
  auto fault = faults().find(plain);
  if (fault != faults().end() && fault->second.after-- <= 0) {
    CUresult result = fault->second.result;
    faults().erase(fault);
    return result;
  }
  if (needs == Needs::kNothing) return body();
  if (!state().initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (needs == Needs::kContext) {
    Context* context = current_context();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (!state().contexts.find(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context->error) return context->error;
  }
  return body();
}

}  // namespace

std::mutex& driver_lock() {
  static auto* lock = new std::mutex;
  return *lock;
}

State& state() {
  static State* state = [] {
    auto* made = new State;
    made->devices.resize(environment("OPWRIGHT_EMULATED_DEVICES", 1));
    made->architecture = environment("OPWRIGHT_EMULATED_ARCHITECTURE", 90);
    made->memory_limit = environment("OPWRIGHT_EMULATED_MEMORY", 512l << 20);
    return made;
  }();
  return *state;
}

CUresult call(const char* name, Needs needs, const std::function<CUresult()>& body) {
  if (in_host_function) return CUDA_ERROR_NOT_PERMITTED;
  std::lock_guard lock(driver_lock());
  return checked(name, needs, body);
}

CUresult run_host_function(CUhostFn function, void* user) {
  driver_lock().unlock();
  in_host_function = true;
  function(user);
  in_host_function = false;
  driver_lock().lock();
  return CUDA_SUCCESS;
}

namespace {

struct ErrorText {
  CUresult code;
  const char *name, *text;
};
#define ERROR(code, text) \
  { code, #code, text }
constexpr ErrorText kErrors[] = {
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    ERROR(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
          "the provided PTX was compiled with an unsupported toolchain."),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
          "part or all of the requested memory range is already mapped"),
    ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
          "pointer does not correspond to a registered memory region"),
    ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
          "system has unsupported display driver / cuda driver combination"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          "operation not permitted when stream is capturing"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
          "operation failed due to a previous error during capture"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
          "capture was not ended in the same stream as it began"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
          "dependency created on uncaptured work in another stream"),
    ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(CUDA_ERROR_CAPTURED_EVENT,
          "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
          "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
          "the graph update was not performed because it included changes which violated "
          "constraints specific "
          "to instantiated graph update"),
    ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef ERROR

const ErrorText* find_error(CUresult error) {
  for (const ErrorText& known : kErrors) {
    if (known.code == error) return &known;
  }
  return nullptr;
}

/// A function that has an older form for programs built with an older toolkit.
struct Version {
  const char *name, *symbol;
  int since;
};
constexpr Version kVersions[] = {
    {"cuEventElapsedTime", "cuEventElapsedTime_v2", 12080},
    {"cuEventElapsedTime", "cuEventElapsedTime", 0},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3", 12030},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2", 0},
    {"cuCtxCreate", "cuCtxCreate_v4", 12050},
    {"cuCtxCreate", "cuCtxCreate_v2", 0},
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 0},
};

}  // namespace
}  // namespace emulation

using emulation::call;
using emulation::Needs;

extern "C" {

CUresult cuGetErrorName(CUresult error, const char** text) {
  const emulation::ErrorText* known = emulation::find_error(error);
  *text = known ? known->name : nullptr;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const emulation::ErrorText* known = emulation::find_error(error);
  *text = known ? known->text : nullptr;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetProcAddress(const char* symbol, void** address, int version, cuuint64_t,
                          CUdriverProcAddressQueryResult* status) {
  return call(__func__, Needs::kNothing, [&] {
    Dl_info self;
    dladdr(reinterpret_cast<void*>(&cuInit), &self);
    void* library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *address = nullptr;
    for (const emulation::Version& known : emulation::kVersions) {
      if (!*address && !std::strcmp(known.name, symbol) && version >= known.since) {
        *address = dlsym(library, known.symbol);
      }
    }
    for (const char* suffix : {"_v4", "_v3", "_v2", ""}) {
      if (!*address) *address = dlsym(library, (std::string(symbol) + suffix).c_str());
    }
    dlclose(library);
    if (status) {
      *status = *address ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return *address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  });
}

/// NVIDIA's own libraries call this: NVRTC does if a driver is loaded, and works without tables.
CUresult cuGetExportTable(const void** table, const CUuuid*) {
  return call(__func__, Needs::kNothing, [&] {
    *table = nullptr;
    return CUDA_ERROR_NOT_FOUND;
  });
}

/// Lets a call of `function` return `result` once, after `after_calls` more calls.
void opwright_emulation_fail(const char* function, int result, int after_calls) {
  std::lock_guard lock(emulation::driver_lock());
  emulation::faults()[emulation::plain_name(function)] = {static_cast<CUresult>(result),
                                                          after_calls};
}

/// The number of calls of `function` since the start or the last opwright_emulation_reset_calls().
long opwright_emulation_calls(const char* function) {
  std::lock_guard lock(emulation::driver_lock());
  return emulation::counts()[emulation::plain_name(function)];
}

void opwright_emulation_reset_calls() {
  std::lock_guard lock(emulation::driver_lock());
  emulation::counts().clear();
}

}  // extern "C"
