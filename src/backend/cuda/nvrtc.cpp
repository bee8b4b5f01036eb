#include "backend/cuda/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cuda/libraries.h"
#include "base/error.h"

namespace opwright::cuda {

// Functions of NVRTC, unchanged since CUDA 11.2. They are declared here because NVRTC's header
// comes in a package of its own. Results are of an enumeration whose 0 is success.
struct Nvrtc::Functions {
  using Program = struct NvrtcProgram*;
  int (*nvrtcVersion)(int* major, int* minor);
  const char* (*nvrtcGetErrorString)(int result);
  int (*nvrtcGetNumSupportedArchs)(int* count);
  int (*nvrtcGetSupportedArchs)(int* architectures);
  int (*nvrtcCreateProgram)(Program*, const char* source, const char* name, int num_headers,
                            const char* const* headers, const char* const* names);
  int (*nvrtcDestroyProgram)(Program*);
  int (*nvrtcCompileProgram)(Program, int num_options, const char* const* options);
  int (*nvrtcGetProgramLogSize)(Program, size_t*);
  int (*nvrtcGetProgramLog)(Program, char*);
  int (*nvrtcGetCUBINSize)(Program, size_t*);
  int (*nvrtcGetCUBIN)(Program, char*);
  int (*nvrtcGetPTXSize)(Program, size_t*);
  int (*nvrtcGetPTX)(Program, char*);
  /// Null before CUDA 13. NVRTC calls `callback` now and then while it compiles the program, and
  /// stops compiling where that returns 1.
  int (*nvrtcSetFlowCallback)(Program, int (*callback)(void* payload, void* reserved),
                              void* payload);
};

namespace {

constexpr char kInstall[] =
    "install it (python -m pip install nvidia-cuda-nvrtc, or the CUDA toolkit), or name its file "
    "with the environment variable OPWRIGHT_NVRTC";

void* open_nvrtc() {
  std::string reason;
  if (void* library = open_library(
          "OPWRIGHT_NVRTC", library_files_for_driver({"libnvrtc.so.13", "libnvrtc.so.12"}), reason))
    return library;
  fail_with(ErrorCode::kFAILED_INITIALIZATION,
            "kernels for the GPU are compiled with NVRTC, NVIDIA's compiler library, which cannot "
            "be loaded (",
            reason, "); ", kInstall);
}

std::filesystem::path file_of(const void* function) {
  Dl_info info{};
  dladdr(function, &info);
  std::error_code error;
  return std::filesystem::canonical(info.dli_fname != nullptr ? info.dli_fname : "", error);
}

/// Size and time of a file: any replacement of the file changes them.
std::string state_of(const std::filesystem::path& file) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file, error);
  const auto written = std::filesystem::last_write_time(file, error).time_since_epoch().count();
  return str(bytes, " bytes of ", written);
}

}  // namespace

const Nvrtc& Nvrtc::get() {
  static const Nvrtc nvrtc;
  return nvrtc;
}

Nvrtc::Nvrtc() {
  void* library = open_nvrtc();
  auto functions = std::make_unique<Functions>();
  const auto find = [&](auto& function, const char* name) {
    if (!find_function(library, name, function))
      fail_with(ErrorCode::kFAILED_INITIALIZATION, "NVRTC is too old, it has no ", name,
                "; that of CUDA 12 or newer is needed: ", kInstall);
  };
#define OPWRIGHT_FIND(name) find(functions->name, #name)
  OPWRIGHT_FIND(nvrtcVersion);
  OPWRIGHT_FIND(nvrtcGetErrorString);
  OPWRIGHT_FIND(nvrtcGetNumSupportedArchs);
  OPWRIGHT_FIND(nvrtcGetSupportedArchs);
  OPWRIGHT_FIND(nvrtcCreateProgram);
  OPWRIGHT_FIND(nvrtcDestroyProgram);
  OPWRIGHT_FIND(nvrtcCompileProgram);
  OPWRIGHT_FIND(nvrtcGetProgramLogSize);
  OPWRIGHT_FIND(nvrtcGetProgramLog);
  OPWRIGHT_FIND(nvrtcGetCUBINSize);
  OPWRIGHT_FIND(nvrtcGetCUBIN);
  OPWRIGHT_FIND(nvrtcGetPTXSize);
  OPWRIGHT_FIND(nvrtcGetPTX);
#undef OPWRIGHT_FIND
  functions->nvrtcSetFlowCallback = reinterpret_cast<decltype(functions->nvrtcSetFlowCallback)>(
      dlsym(library, "nvrtcSetFlowCallback"));
  int major = 0, minor = 0;
  functions->nvrtcVersion(&major, &minor);
  const std::filesystem::path file =
      file_of(reinterpret_cast<const void*>(functions->nvrtcVersion));
  name_ = str("NVRTC ", major, ".", minor, ", ", file.string());
  identity_ = str(name_, ", ", state_of(file));
  knows_minimal_ = std::pair(major, minor) >= std::pair(12, 4);
  functions_ = functions.release();
}

std::string Nvrtc::target_for(int architecture) const {
  const int known = newest_known(architecture);
  return str(known == architecture ? "sm_" : "compute_", known);
}

std::string Nvrtc::portable_target_for(int architecture) const {
  return str("compute_", newest_known(architecture));
}

int Nvrtc::newest_known(int architecture) const {
  int count = 0;
  functions_->nvrtcGetNumSupportedArchs(&count);
  std::vector<int> known(static_cast<size_t>(std::max(count, 0)));
  functions_->nvrtcGetSupportedArchs(known.data());
  int best = 0;
  for (const int each : known)
    if (each <= architecture) best = std::max(best, each);
  require(best != 0, "this NVRTC (", name_, ") compiles for no GPU as old as sm_", architecture,
          "; ", kInstall);
  return best;
}

Blob Nvrtc::compile(const std::string& source, const std::string& name, const std::string& target,
                    std::span<const gpu::DeviceSource> headers,
                    std::span<const std::string> options,
                    const std::function<bool()>* gives_up) const {
  const Functions& nvrtc = *functions_;
  const auto check = [&](int result, const char* what) {
    if (result != 0) fail(name, ": ", what, ": ", nvrtc.nvrtcGetErrorString(result));
  };
  Functions::Program program = nullptr;
  std::vector<const char*> texts, names;
  for (const gpu::DeviceSource& header : headers)
    texts.push_back(header.text), names.push_back(header.name);
  check(nvrtc.nvrtcCreateProgram(&program, source.c_str(), (name + ".cu").c_str(),
                                 static_cast<int>(headers.size()), texts.data(), names.data()),
        "starting NVRTC");
  const auto destroy = [&nvrtc](Functions::Program made) { nvrtc.nvrtcDestroyProgram(&made); };
  const std::unique_ptr<struct NvrtcProgram, decltype(destroy)> owner(program, destroy);

  const std::string architecture = "--gpu-architecture=" + target;
  std::vector<const char*> arguments = {architecture.c_str()};
  for (const std::string& option : options) arguments.push_back(option.c_str());
  // Kernels use no textures and nothing of CUDA's runtime. Reading its declarations takes a third
  // of the time of the smallest kernels.
  if (knows_minimal_) arguments.push_back("--minimal");
  if (gives_up != nullptr && nvrtc.nvrtcSetFlowCallback != nullptr) {
    const auto ask = [](void* payload, void*) -> int {
      return (*static_cast<const std::function<bool()>*>(payload))() ? 1 : 0;
    };
    check(nvrtc.nvrtcSetFlowCallback(program, ask,
                                     const_cast<void*>(static_cast<const void*>(gives_up))),
          "watching NVRTC");
  }
  const int result =
      nvrtc.nvrtcCompileProgram(program, static_cast<int>(arguments.size()), arguments.data());
  if (result != 0) {
    size_t size = 0;
    nvrtc.nvrtcGetProgramLogSize(program, &size);
    std::string log(size, '\0');
    nvrtc.nvrtcGetProgramLog(program, log.data());
    fail(name, " does not compile for ", target, " (", nvrtc.nvrtcGetErrorString(result), "; ",
         name_, "):\n", log.c_str());
  }
  const bool is_ptx = target.starts_with("compute_");
  size_t size = 0;
  check(is_ptx ? nvrtc.nvrtcGetPTXSize(program, &size) : nvrtc.nvrtcGetCUBINSize(program, &size),
        "reading compiled code");
  return Blob::make(size, [&](void* memory) {
    auto* code = static_cast<char*>(memory);
    check(is_ptx ? nvrtc.nvrtcGetPTX(program, code) : nvrtc.nvrtcGetCUBIN(program, code),
          "reading compiled code");
  });
}

}  // namespace opwright::cuda
