#include "backend/cuda/library_handles.h"

#include <dlfcn.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/libraries.h"
#include "base/error.h"
#include "base/log.h"

namespace opwright::cuda {
namespace {

/// The functions that make and destroy a library's handle. They have not changed for many versions.
/// They are declared here because each library's headers come in a package of their own. They
/// return 0 for success.
template <class Handle>
struct HandleLibrary {
  const char* const name;
  int (*create)(Handle** handle) = nullptr;
  int (*destroy)(Handle* handle) = nullptr;
  std::string fault;  ///< why the functions are missing

  HandleLibrary(const char* library_name, std::vector<std::string> files, const char* create_name,
                const char* destroy_name)
      : name(library_name) {
    std::string reason;
    void* const library = open_library(library_files_for_driver(std::move(files)), reason);
    if (library == nullptr) {
      fault = str(name, " cannot be loaded (", reason, ")");
      return;
    }
    create = reinterpret_cast<decltype(create)>(dlsym(library, create_name));
    destroy = reinterpret_cast<decltype(destroy)>(dlsym(library, destroy_name));
    if (create == nullptr || destroy == nullptr) {
      create = nullptr;
      fault = str(name, " has no ", create_name);
    }
  }

  /// A new handle, or null where the library is missing.
  Handle* make() const {
    Handle* handle = nullptr;
    if (create == nullptr) {
      warn(fault);
      return nullptr;
    }
    const int status = create(&handle);
    if (status == 0) return handle;
    warn(str("making a handle of ", name, " failed with status ", status));
    return nullptr;
  }

 private:
  /// Warns once, since plugins that need no handle run all the same.
  void warn(const std::string& reason) const {
    std::call_once(warned_, [&] {
      Log().warning("V2 plugins get no handle of ", name, " in attachToContext(): ", reason);
    });
  }

  mutable std::once_flag warned_;
};

const HandleLibrary<cublasContext>& cublas_library() {
  static const HandleLibrary<cublasContext> library(
      "cuBLAS", {"libcublas.so.13", "libcublas.so.12"}, "cublasCreate_v2", "cublasDestroy_v2");
  return library;
}

const HandleLibrary<cudnnContext>& cudnn_library() {
  static const HandleLibrary<cudnnContext> library("cuDNN", {"libcudnn.so.9"}, "cudnnCreate",
                                                   "cudnnDestroy");
  return library;
}

class Handles final : public LibraryHandles {
 public:
  explicit Handles(const Device& device) : device_(device) {
    const DeviceScope scope(device_);
    cudnn = cudnn_library().make();
    cublas = cublas_library().make();
  }
  ~Handles() override {
    const DeviceScope scope(device_);
    if (cudnn != nullptr) cudnn_library().destroy(cudnn);
    if (cublas != nullptr) cublas_library().destroy(cublas);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

 private:
  const Device& device_;
};

}  // namespace

std::unique_ptr<const LibraryHandles> make_library_handles(const Device& device) {
  return std::make_unique<const Handles>(device);
}

}  // namespace opwright::cuda
