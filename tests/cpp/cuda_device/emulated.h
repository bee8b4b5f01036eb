#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/compile_cuda.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/driver.h"

extern "C" const opwright::Backend* opwright_backend();

namespace opwright::cuda {

constexpr char kEmulatedDriver[] = OPWRIGHT_EMULATION_DIR "/libcuda.so.1";

/// The emulated driver's own function.
template <class Function>
Function* emulation(const char* name) {
  static void* library = dlopen(kEmulatedDriver, RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

/// The call of a function of the driver after `after` more gets that result.
inline void fail_call(const char* function, CUresult result, int after = 0) {
  emulation<void(const char*, int, int)>("opwright_emulation_fail")(function, result, after);
}
/// How often it was called.
inline long calls(const char* function) {
  return emulation<long(const char*)>("opwright_emulation_calls")(function);
}

inline const CudaDevice& gpu(int ordinal = 0) {
  return static_cast<const CudaDevice&>(opwright_backend()->device(ordinal));
}

/// A context of one's own that is current while the object lives.
class OwnContext {
 public:
  explicit OwnContext(int ordinal = 0) {
    driver();  // starts it
    check(emulation<decltype(cuCtxCreate)>("cuCtxCreate_v4")(&context_, nullptr, 0, ordinal),
          "making a context");
  }
  ~OwnContext() { emulation<decltype(cuCtxDestroy)>("cuCtxDestroy_v2")(context_); }
  OwnContext(const OwnContext&) = delete;
  OwnContext& operator=(const OwnContext&) = delete;
  CUcontext get() const { return context_; }

 private:
  CUcontext context_ = nullptr;
};

/// A stream as a program makes one.
class Stream {
 public:
  explicit Stream(const CudaDevice& device, unsigned flags = CU_STREAM_NON_BLOCKING)
      : device_(device) {
    const DeviceScope scope(device_);
    check(driver().cuStreamCreate(&stream_, flags), "making a stream");
  }
  ~Stream() { destroy(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  Queue get() const { return stream_; }
  void destroy() {
    const DeviceScope scope(device_);
    if (!is_destroyed_) driver().cuStreamDestroy(stream_);
    is_destroyed_ = true;
  }

 private:
  const CudaDevice& device_;
  CUstream stream_ = nullptr;
  bool is_destroyed_ = false;
};

/// Memory of a device that holds these elements.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const CudaDevice& device, std::vector<T> values)
      : device_(device), size_(values.size()), data_(device.allocate(size_ * sizeof(T))) {
    device_.copy(data_, values.data(), size_ * sizeof(T), nullptr);
    device_.synchronize(nullptr);
  }
  ~DeviceArray() { device_.free(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* data() const { return static_cast<T*>(data_); }
  /// What it holds once the queue is done.
  std::vector<T> read(Queue queue) const {
    std::vector<T> values(size_);
    device_.copy(values.data(), data_, size_ * sizeof(T), queue);
    return values;
  }

 private:
  const CudaDevice& device_;
  const size_t size_;
  void* const data_;
};

/// What the function throws, or nothing.
template <class Function>
std::string message(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// out[i] = factor * in[i] for n elements, in one block.
constexpr char kScale[] = R"(
extern "C" __global__ void scale(const float* in, float factor, int n, float* out) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = factor * in[i];
}
)";

/// A launch of kScale.
struct Scale {
  explicit Scale(const CudaDevice& device)
      : function(device.load_function(compile_cuda(device, kScale, "test"), "scale")) {}
  void operator()(const float* in, float factor, int n, float* out, Queue queue) const {
    void* arguments[] = {&in, &factor, &n, &out};
    function->launch({.grid = {1, 1, 1}, .block = {32, 1, 1}, .shared_memory = 0}, arguments,
                     queue);
  }
  std::shared_ptr<const DeviceFunction> function;
};

}  // namespace opwright::cuda
