#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string>

// Compiles kernels of emulated libraries with the emulated NVRTC and driver that the process has
// loaded.
namespace opwright::emulation {

template <class F>
F function_of(const char* variable, const char* name) {
  const char* file = std::getenv(variable);
  void* library = file != nullptr ? dlopen(file, RTLD_NOW) : nullptr;
  return library == nullptr ? nullptr : reinterpret_cast<F>(dlsym(library, name));
}

/// The kernel `name` of a source, which is called `file`; null if it cannot be made.
inline CUfunction make_kernel(const char* source, const char* file, const char* name) {
  constexpr char kNvrtc[] = "OPWRIGHT_NVRTC", kDriver[] = "OPWRIGHT_CUDA_DRIVER";
  using Create = int(void**, const char*, const char*, int, const char* const*, const char* const*);
  const auto create = function_of<Create*>(kNvrtc, "nvrtcCreateProgram");
  const auto compile =
      function_of<int (*)(void*, int, const char* const*)>(kNvrtc, "nvrtcCompileProgram");
  const auto size = function_of<int (*)(void*, size_t*)>(kNvrtc, "nvrtcGetPTXSize");
  const auto get = function_of<int (*)(void*, char*)>(kNvrtc, "nvrtcGetPTX");
  const auto load = function_of<CUresult (*)(CUmodule*, const void*)>(kDriver, "cuModuleLoadData");
  const auto find =
      function_of<CUresult (*)(CUfunction*, CUmodule, const char*)>(kDriver, "cuModuleGetFunction");
  if (!create || !compile || !size || !get || !load || !find) return nullptr;
  void* program = nullptr;
  const char* const options[] = {"--gpu-architecture=compute_80"};
  size_t bytes = 0;
  if (create(&program, source, file, 0, nullptr, nullptr) != 0 ||
      compile(program, 1, options) != 0 || size(program, &bytes) != 0)
    return nullptr;
  std::string ptx(bytes, 0);
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  const bool made = get(program, ptx.data()) == 0 && load(&module, ptx.data()) == CUDA_SUCCESS &&
                    find(&kernel, module, name) == CUDA_SUCCESS;
  return made ? kernel : nullptr;
}

}  // namespace opwright::emulation
