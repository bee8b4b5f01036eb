#include "tensorrt/abi/driver_context.h"

#include <dlfcn.h>

namespace opwright::tensorrt {
namespace {

/// What is needed of CUDA's driver. Results are 0 for success.
struct Driver {
  template <class Function>
  static Function* find(void* library, const char* name) {
    return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
  }
  explicit Driver(void* library)
      : init(find<int(unsigned)>(library, "cuInit")),
        get_current(find<int(void**)>(library, "cuCtxGetCurrent")),
        set_current(find<int(void*)>(library, "cuCtxSetCurrent")),
        get_device(find<int(int*, int)>(library, "cuDeviceGet")),
        retain_primary(find<int(void**, int)>(library, "cuDevicePrimaryCtxRetain")) {}
  bool is_whole() const {
    return init && get_current && set_current && get_device && retain_primary;
  }

  int (*init)(unsigned);
  int (*get_current)(void**);
  int (*set_current)(void*);
  int (*get_device)(int*, int);
  int (*retain_primary)(void**, int);
};

}  // namespace

void make_context_current() noexcept {
  const Driver driver(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD));
  void* context = nullptr;
  if (!driver.is_whole() || driver.init(0) != 0 || driver.get_current(&context) != 0 ||
      context != nullptr)
    return;
  int device = 0;
  // The context stays retained for the rest of the process.
  if (driver.get_device(&device, 0) == 0 && driver.retain_primary(&context, device) == 0)
    driver.set_current(context);
}

}  // namespace opwright::tensorrt
