#include "plugin/registry/tensorrt_libraries.h"

#include <dlfcn.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/library_folder.h"
#include "opwright/registry.h"
#include "plugin/registry/shared_object.h"

namespace opwright {

namespace {

/// Whether the library was compiled with Opwright's headers, though it needs a library of
/// TensorRT's name: it was linked by an older Opwright, whose libraries for sources recorded such
/// names. Then it names classes of the namespace `opwright`, in place of `nvinfer1`.
bool has_own_tables(const Blob& shared_object) {
  const std::string_view all(shared_object.as<char>(), shared_object.size());
  return all.find("8opwright") != std::string_view::npos;
}

/// Loads Opwright's library for one of TensorRT's. Never closed: what needs it may stay.
/// \throws Error if the process has another library of that name.
void provide(const std::string& theirs, const std::string& ours) {
  void* const loaded = dlopen(theirs.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (loaded == nullptr) {
    dlopen((library_folder() / ours).c_str(), RTLD_LAZY | RTLD_LOCAL);
    return;
  }
  require(dlsym(loaded, "opwrightTensorrtTables") != nullptr, "plugin library needs ", theirs,
          ", and the process has another library of that name: TensorRT's own, or Opwright's for "
          "programs that are compiled with its headers");
}

/// A function of the library that has TensorRT's tables; null without that library.
template <class Function>
Function* function(const char* name) {
  static void* const tables =
      dlopen((library_folder() / "libopwright_tensorrt.so").c_str(), RTLD_LAZY | RTLD_LOCAL);
  return tables == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(tables, name));
}

/// Calls a function whose declared result may be a pointer to another class: TensorRT's headers and
/// Opwright's name the registry's class differently. UBSan reports such a call.
#ifdef __clang__
__attribute__((no_sanitize("function")))
#endif
void* call_untyped(void* function) {
  return reinterpret_cast<void* (*)()>(function)();
}

}  // namespace

int provide_tensorrt_libraries(const Blob& shared_object) {
  const std::vector<std::string> libraries = needed_libraries(shared_object);
  int needed = 0;
  // Without a path to them the loader finds Opwright's libraries for sources if they are loaded.
  for (const char* name : {"nvinfer", "nvinfer_plugin", "nvonnxparser"}) {
    const std::string own = std::string("lib") + name + "_opwright.so.11";
    if (std::ranges::find(libraries, own) != libraries.end())
      dlopen((library_folder() / ".." / "tensorrt" / "lib" / own).c_str(), RTLD_LAZY | RTLD_LOCAL);
  }
  for (const int major : {10, 11}) {
    for (const char* name : {"nvinfer", "nvinfer_plugin", "nvonnxparser"}) {
      const std::string number = std::to_string(major);
      const std::string theirs = std::string("lib") + name + ".so." + number;
      if (std::ranges::find(libraries, theirs) == libraries.end()) continue;
      if (has_own_tables(shared_object)) return 0;
      needed = major;
      provide(theirs, std::string("libopwright_") + name + "_" + number + ".so");
    }
  }
  return needed;
}

bool gets_another_registry(int tensorrt) {
  void* const process = dlopen(nullptr, RTLD_LAZY);
  void* const found = dlsym(process, "getPluginRegistry");
  dlclose(process);
  if (found == nullptr) return false;
  const auto theirs =
      tensorrt == 0 ? nullptr : function<void*(int32_t)>("opwrightTensorrtRegistry");
  return call_untyped(found) != (theirs == nullptr ? getPluginRegistry() : theirs(tensorrt));
}

void* tensorrt_logger_finder(int major) {
  const auto make = function<void*(int32_t)>("opwrightTensorrtLoggerFinder");
  return make == nullptr ? nullptr : make(major);
}

IPluginCreatorInterface* tensorrt_creator(IPluginCreatorInterface* creator, int major) {
  const auto adapt = function<void*(void*, int32_t)>("opwrightTensorrtCreator");
  return adapt == nullptr ? creator : static_cast<IPluginCreatorInterface*>(adapt(creator, major));
}

}  // namespace opwright
