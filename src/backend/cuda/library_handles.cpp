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

/// The functions of a library's handle. They have not changed for many versions.
/// They are declared here because each library's headers come in a package of their own. They
/// return 0 for success.
template <class Handle>
struct HandleLibrary {
  const char* const name;
  int (*create)(Handle** handle) = nullptr;
  int (*destroy)(Handle* handle) = nullptr;
  int (*set_stream)(Handle* handle, CUstream stream) = nullptr;
  std::string fault;  ///< why the functions are missing

  HandleLibrary(const char* library_name, std::vector<std::string> files, const char* create_name,
                const char* destroy_name, const char* set_stream_name)
      : name(library_name) {
    std::string reason;
    void* const library = open_library(library_files_for_driver(std::move(files)), reason);
    if (library == nullptr) {
      fault = str(name, " cannot be loaded (", reason, ")");
      return;
    }
    create = reinterpret_cast<decltype(create)>(dlsym(library, create_name));
    destroy = reinterpret_cast<decltype(destroy)>(dlsym(library, destroy_name));
    set_stream = reinterpret_cast<decltype(set_stream)>(dlsym(library, set_stream_name));
    if (create == nullptr || destroy == nullptr || set_stream == nullptr) {
      create = nullptr;
      fault = str(name, " lacks ", create_name, ", ", destroy_name, " or ", set_stream_name);
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

  void use_stream(Handle* handle, CUstream stream) const {
    if (handle == nullptr) return;
    const int status = set_stream(handle, stream);
    require(status == 0, name, "'s handle does not take the run's stream: status ", status);
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
      "cuBLAS", {"libcublas.so.13", "libcublas.so.12"}, "cublasCreate_v2", "cublasDestroy_v2",
      "cublasSetStream_v2");
  return library;
}

const HandleLibrary<cudnnContext>& cudnn_library() {
  static const HandleLibrary<cudnnContext> library("cuDNN", {"libcudnn.so.9"}, "cudnnCreate",
                                                   "cudnnDestroy", "cudnnSetStream");
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

  void use_queue(Queue queue) const override {
    if (queue == queue_) return;
    const DeviceScope scope(device_);
    cudnn_library().use_stream(cudnn, static_cast<CUstream>(queue));
    cublas_library().use_stream(cublas, static_cast<CUstream>(queue));
    queue_ = queue;
  }

 private:
  const Device& device_;
  mutable Queue queue_ = nullptr;  ///< the runs of a context follow each other
};

}  // namespace

std::unique_ptr<const LibraryHandles> make_library_handles(const Device& device) {
  return std::make_unique<const Handles>(device);
}

}  // namespace opwright::cuda
