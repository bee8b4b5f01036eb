#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/memory.h"
#include "base/error.h"

namespace opwright {

/// The GPU of the tests: the emulated one where no other driver is chosen. The CPU stays the
/// default device, so that tests that want none do without it.
inline const Device& test_gpu() {
  static const Device& device = []() -> const Device& {
    const std::string folder = OPWRIGHT_EMULATION_DIR;
    setenv("OPWRIGHT_CUDA_DRIVER", (folder + "/libcuda.so.1").c_str(), 0);
    setenv("OPWRIGHT_NVRTC", (folder + "/libnvrtc.so.13").c_str(), 0);
    setenv("OPWRIGHT_DEVICE", "cpu", 0);
    return get_device(DeviceType::kGPU);
  }();
  return device;
}

/// A function of a library that is loaded already, or can be.
template <class Function>
Function* symbol_of(const char* library_variable, const char* name) {
  test_gpu();
  void* library = dlopen(std::getenv(library_variable), RTLD_NOW);
  require(library != nullptr, library_variable, ": ", library == nullptr ? dlerror() : "");
  auto* function = reinterpret_cast<Function*>(dlsym(library, name));
  require(function != nullptr, std::getenv(library_variable), " has no ", name);
  return function;
}

/// How often the driver's function was called since reset_driver_calls(); emulated driver only.
inline long driver_calls(const char* function) {
  static auto* const count =
      symbol_of<long(const char*)>("OPWRIGHT_CUDA_DRIVER", "opwright_emulation_calls");
  return count(function);
}
inline void reset_driver_calls() {
  static auto* const reset =
      symbol_of<void()>("OPWRIGHT_CUDA_DRIVER", "opwright_emulation_reset_calls");
  reset();
}

/// Whether the stream has work left; the emulated driver does none of it for the question.
inline bool is_busy(Queue queue) {
  static auto* const query = symbol_of<int(void*)>("OPWRIGHT_CUDA_DRIVER", "cuStreamQuery");
  const DeviceScope scope(test_gpu());
  return query(queue) != 0;
}

/// CUDA C++ compiled for the test's GPU.
inline CodeObject compile_cuda(const std::string& source, const std::string& name) {
  using Program = void*;
  static auto* const create =
      symbol_of<int(Program*, const char*, const char*, int, const char* const*,
                    const char* const*)>("OPWRIGHT_NVRTC", "nvrtcCreateProgram");
  static auto* const compile =
      symbol_of<int(Program, int, const char* const*)>("OPWRIGHT_NVRTC", "nvrtcCompileProgram");
  static auto* const log_size =
      symbol_of<int(Program, size_t*)>("OPWRIGHT_NVRTC", "nvrtcGetProgramLogSize");
  static auto* const get_log =
      symbol_of<int(Program, char*)>("OPWRIGHT_NVRTC", "nvrtcGetProgramLog");
  static auto* const size = symbol_of<int(Program, size_t*)>("OPWRIGHT_NVRTC", "nvrtcGetCUBINSize");
  static auto* const get = symbol_of<int(Program, char*)>("OPWRIGHT_NVRTC", "nvrtcGetCUBIN");
  static auto* const destroy = symbol_of<int(Program*)>("OPWRIGHT_NVRTC", "nvrtcDestroyProgram");
  Program program = nullptr;
  EXPECT_EQ(create(&program, source.c_str(), name.c_str(), 0, nullptr, nullptr), 0);
  const std::string architecture = "--gpu-architecture=" + test_gpu().architecture();
  const char* const options[] = {architecture.c_str()};
  if (compile(program, 1, options) != 0) {
    size_t bytes = 0;
    log_size(program, &bytes);
    std::string log(bytes, ' ');
    get_log(program, log.data());
    fail(log);
  }
  CodeObject code;
  code.name = name;
  code.target = test_gpu().architecture();
  size_t bytes = 0;
  EXPECT_EQ(size(program, &bytes), 0);
  code.bytes = Blob::make(bytes, [&](void* memory) { get(program, static_cast<char*>(memory)); });
  destroy(&program);
  return code;
}

/// An array in the memory of the GPU.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    memory_.grow(test_gpu(), std::max<size_t>(1, count * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { set(values); }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  void set(const std::vector<T>& values) {
    test_gpu().copy(memory_.data(), values.data(), values.size() * sizeof(T), nullptr);
    test_gpu().synchronize(nullptr);
  }
  /// The elements once the queue has done its work.
  std::vector<T> get(Queue queue = nullptr) const {
    std::vector<T> values(count_);
    test_gpu().synchronize(queue);
    test_gpu().copy(values.data(), memory_.data(), count_ * sizeof(T), queue);
    return values;
  }

 private:
  size_t count_;
  DeviceMemory memory_;
};

/// A stream that does not wait for the default one.
class TestStream {
 public:
  TestStream() {
    static auto* const create =
        symbol_of<int(void**, unsigned)>("OPWRIGHT_CUDA_DRIVER", "cuStreamCreate");
    const DeviceScope scope(test_gpu());
    EXPECT_EQ(create(&stream_, 1), 0);
  }
  ~TestStream() { destroy(); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  void destroy() {
    static auto* const destroy =
        symbol_of<int(void*)>("OPWRIGHT_CUDA_DRIVER", "cuStreamDestroy_v2");
    const DeviceScope scope(test_gpu());
    if (stream_ != nullptr) destroy(stream_);
    stream_ = nullptr;
  }
  Queue queue() const { return stream_; }

 private:
  void* stream_ = nullptr;
};

}  // namespace opwright
