#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/library.h"
#include "base/types.h"

namespace opwright::cuda {

class CudaDevice;

/// Files where NVIDIA's libraries of these names may lie, the best first: where the loader finds
/// them, in a folder of OPWRIGHT_CUDA_PATH (separated by colons), in the CUDA toolkit.
std::vector<std::string> library_files(const std::vector<std::string>& names);
/// The files of a library's versions for CUDA 13 and earlier, the newest first. A driver runs
/// libraries of its own major version and of earlier ones.
std::vector<std::string> library_files_for_driver(std::vector<std::string> names);

/// The first of the files that can be opened; it is never closed. Null where there is none; then
/// `reason` says why the first file cannot be opened.
void* open_library(std::span<const std::string> files, std::string& reason);
/// The same for the file that the environment variable names, if it is set.
void* open_library(const char* variable, std::span<const std::string> files, std::string& reason);

/// Sets the pointer to the library's function. Returns false and sets null where the library has no
/// function of that name.
template <class F>
bool find_function(void* library, const char* name, F& function) {
  function = reinterpret_cast<std::remove_reference_t<F>>(dlsym(library, name));
  return function != nullptr;
}

/// "13.1.0" of 130100, as cuBLASLt and cuDNN number themselves.
std::string version_text(size_t number);

/// A library's handles, one for each device. Never destroyed: the library may be gone when the
/// process ends.
template <class Handle>
struct DeviceHandles {
  LibraryLock mutex{LockOrder::kLibraryHandles};
  std::map<const CudaDevice*, Handle*> of;
};
/// The device's handle. `make(Handle*&)` makes it at the first call.
template <class Handle, class Make>
Handle* handle_of(const CudaDevice& device, Make make) {
  auto& handles = Library::part<DeviceHandles<Handle>>();
  const std::lock_guard lock(handles.mutex);
  Handle*& handle = handles.of[&device];
  if (handle == nullptr) make(handle);
  return handle;
}

/// A tactic of a library that is a tactic source: the place of its algorithm in the library's list,
/// and whether FP32 may be rounded to TF32.
struct LibraryTactic {
  int place = 0;
  bool is_tf32 = false;
};
/// Numbers of a library's tactics: from `first` on, for `places` algorithms.
struct LibraryTactics {
  int64_t first = 0;
  int places = 0;
  int64_t number(LibraryTactic tactic) const {
    return first + int64_t{2} * tactic.place + (tactic.is_tf32 ? 1 : 0);
  }
  std::optional<LibraryTactic> find(int64_t number) const;
};
/// Whether such libraries are asked for tensors of the type: FP32, FP16, BF16.
bool is_library_type(DataType type);

/// Names of a library that is a tactic source, for messages.
struct LibraryName {
  std::string_view name, variable, source;  ///< "cuDNN", "OPWRIGHT_CUDNN", "CUDNN"
};
/// The library that the layer needs. Throws Error where it cannot be used.
template <class L>
const L& library_for(std::string_view layer) {
  std::string reason;
  const L* const library = L::find(reason);
  if (library == nullptr)
    fail_with(ErrorCode::kFAILED_INITIALIZATION, "Layer '", layer, "': ", reason);
  return *library;
}
/// Throws Error unless the library is there in that version. Its algorithms, and with them the bits
/// of results, depend on the version.
template <class L>
void require_version(std::string_view layer, const LibraryName& of, const std::string& version) {
  std::string reason;
  const L* const library = L::find(reason);
  if (library != nullptr && library->version() == version) return;
  fail_with(ErrorCode::kFAILED_INITIALIZATION, "layer '", layer, "' needs ", of.name, " ", version,
            ", with which the engine was built, ",
            library != nullptr ? str("and the one here is ", library->version(),
                                     "; install that version, or name its file with the "
                                     "environment variable ",
                                     of.variable)
                               : "and " + reason,
            "; or build the engine again, without TacticSource.", of.source, " to need no library");
}

}  // namespace opwright::cuda
