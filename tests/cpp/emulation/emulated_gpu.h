#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace opwright {

/// The emulated libraries, opened as a program opens NVIDIA's.
inline void* emulated_library(const char* name) {
  void* library = dlopen((std::string(OPWRIGHT_EMULATION_DIR "/") + name).c_str(), RTLD_NOW);
  EXPECT_NE(library, nullptr) << dlerror();
  return library;
}

template <typename F>
F* driver_function(const char* name) {
  static void* library = emulated_library("libcuda.so.1");
  auto* function = reinterpret_cast<F*>(dlsym(library, name));
  EXPECT_NE(function, nullptr) << name;
  return function;
}

template <typename F>
F* nvrtc_function(const char* name) {
  static void* library = emulated_library("libnvrtc.so.13");
  auto* function = reinterpret_cast<F*>(dlsym(library, name));
  EXPECT_NE(function, nullptr) << name;
  return function;
}

#define OPWRIGHT_STRING_OF(name) #name
#define OPWRIGHT_NAME_OF(name) OPWRIGHT_STRING_OF(name)
/// The driver's function, by the versioned name that the header gives it.
#define CU(name) (::opwright::driver_function<decltype(::name)>(OPWRIGHT_NAME_OF(name)))

/// What nvrtcCompileProgram made of the source.
struct Compiled {
  int result = -1;
  std::string log, image, lowered;
};

inline Compiled compile(const std::string& source, std::vector<std::string> options = {},
                        const char* expression = nullptr, bool ptx = false) {
  if (options.empty()) options = {"--gpu-architecture=sm_90"};
  std::vector<const char*> given;
  for (const std::string& option : options) given.push_back(option.c_str());
  using Sized = int(void*, size_t*);
  using Text = int(void*, char*);
  Compiled compiled;
  void* program = nullptr;
  nvrtc_function<int(void**, const char*, const char*, int, const char* const*,
                     const char* const*)>("nvrtcCreateProgram")(&program, source.c_str(), "test.cu",
                                                                0, nullptr, nullptr);
  if (expression)
    nvrtc_function<int(void*, const char*)>("nvrtcAddNameExpression")(program, expression);
  compiled.result = nvrtc_function<int(void*, int, const char* const*)>("nvrtcCompileProgram")(
      program, static_cast<int>(given.size()), given.data());
  size_t bytes = 0;
  nvrtc_function<Sized>("nvrtcGetProgramLogSize")(program, &bytes);
  compiled.log.resize(bytes);
  nvrtc_function<Text>("nvrtcGetProgramLog")(program, compiled.log.data());
  if (compiled.result == 0) {
    nvrtc_function<Sized>(ptx ? "nvrtcGetPTXSize" : "nvrtcGetCUBINSize")(program, &bytes);
    compiled.image.resize(bytes);
    nvrtc_function<Text>(ptx ? "nvrtcGetPTX" : "nvrtcGetCUBIN")(program, compiled.image.data());
    const char* lowered = nullptr;
    if (expression) {
      nvrtc_function<int(void*, const char*, const char**)>("nvrtcGetLoweredName")(
          program, expression, &lowered);
      compiled.lowered = lowered;
    }
  }
  nvrtc_function<int(void**)>("nvrtcDestroyProgram")(&program);
  return compiled;
}

/// A context and a stream that are new for each test.
class EmulatedGpu : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuDevicePrimaryCtxReset)(0), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }

  CUfunction load(const std::string& source, const char* name) {
    Compiled compiled = compile(source);
    EXPECT_EQ(compiled.result, 0) << compiled.log;
    return load_image(compiled.image, name);
  }

  CUfunction load_image(const std::string& image, const char* name) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    EXPECT_EQ(CU(cuModuleLoadData)(&module, image.data()), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuModuleGetFunction)(&function, module, name), CUDA_SUCCESS);
    return function;
  }

  template <typename T>
  CUdeviceptr upload(const std::vector<T>& values) {
    CUdeviceptr address = 0;
    EXPECT_EQ(CU(cuMemAlloc)(&address, values.size() * sizeof(T)), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuMemcpyHtoD)(address, values.data(), values.size() * sizeof(T)), CUDA_SUCCESS);
    return address;
  }

  template <typename T>
  std::vector<T> download(CUdeviceptr address, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(CU(cuMemcpyDtoH)(values.data(), address, count * sizeof(T)), CUDA_SUCCESS);
    return values;
  }

  /// Launches blocks of `threads`.
  template <typename... Args>
  CUresult launch(CUfunction function, unsigned blocks, unsigned threads, unsigned shared,
                  Args... args) {
    void* addresses[] = {&args..., nullptr};
    return CU(cuLaunchKernel)(function, blocks, 1, 1, threads, 1, 1, shared, stream, addresses,
                              nullptr);
  }

  CUresult synchronize() { return CU(cuStreamSynchronize)(stream); }

  CUcontext context = nullptr;
  CUstream stream = nullptr;
};

}  // namespace opwright
