#include "plugin/registry/plugin_library.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/library.h"
#include "opwright/plugin_v2.h"
#include "plugin/registry/shared_object.h"
#include "plugin/registry/tensorrt_libraries.h"

namespace opwright {

namespace {

/// The open libraries of open(), by the system's handle.
struct OpenLibraries {
  LibraryLock mutex;
  std::map<void*, std::weak_ptr<PluginLibrary>> libraries;

  std::shared_ptr<PluginLibrary> find(void* handle) {
    const auto found = libraries.find(handle);
    return found != libraries.end() ? found->second.lock() : nullptr;
  }
};
OpenLibraries& open_libraries() { return Library::part<OpenLibraries>(); }

/// The shared object that has the class of the (polymorphic) object; null for the program itself.
/// With glibc a link map is the result of dlopen().
link_map* owner_of(const void* object) {
  const void* const vtable = *static_cast<const void* const*>(object);
  Dl_info info{};
  link_map* owner = nullptr;
  if (dladdr1(vtable, &info, reinterpret_cast<void**>(&owner), RTLD_DL_LINKMAP) == 0 ||
      owner == nullptr || owner->l_name == nullptr || *owner->l_name == '\0')
    return nullptr;
  return owner;
}

/// Whether HostCode loaded it from memory. HostCode manages such code, whose name may be reused
/// later.
bool is_in_memory(const link_map* owner) {
  return std::string_view(owner->l_name).starts_with("/proc/self/fd/");
}

std::shared_ptr<const void> keep(link_map* owner) {
  if (owner == nullptr) return nullptr;
  {
    OpenLibraries& open = open_libraries();
    const std::lock_guard lock(open.mutex);
    if (std::shared_ptr<PluginLibrary> known = open.find(owner)) return known;
  }
  if (is_in_memory(owner)) return nullptr;
  // The library was opened by other means than a registry.
  void* const handle = dlopen(owner->l_name, RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  return {handle, [](void* opened) { dlclose(opened); }};
}

/// Sets the version of TensorRT for which the library was compiled, 0 for none.
void* open_file(const std::string& path, int& tensorrt) {
  // The system's search for a bare file name would leave out the current folder.
  const bool is_bare = path.find('/') == std::string::npos;
  const std::string file = is_bare ? "./" + path : path;
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(file, ignored);
  if (std::filesystem::is_regular_file(status)) {
    const Blob bytes = map_file(file);
    const std::string fault = shared_object_fault(bytes);
    require(fault.empty(), "plugin library '", path, "' cannot be opened: ", fault);
    tensorrt = provide_tensorrt_libraries(bytes);
  } else {
    // Opening a pipe would wait.
    require(!std::filesystem::is_other(status), "plugin library '", path,
            "' cannot be opened: it is not a regular file");
  }
  int how = RTLD_NOW | RTLD_LOCAL;
  // Then the library finds the functions of those that it needs before the program's.
  if (gets_another_registry(tensorrt)) how |= RTLD_DEEPBIND;
  void* handle = dlopen(file.c_str(), how);
  if (handle == nullptr && is_bare) handle = dlopen(path.c_str(), how);
  if (handle == nullptr) {
    const char* reason = dlerror();
    fail("plugin library '", path, "' cannot be opened: ", reason ? reason : "unknown reason");
  }
  return handle;
}

}  // namespace

std::shared_ptr<PluginLibrary> PluginLibrary::open(const std::string& path) {
  int tensorrt = 0;
  void* const handle = open_file(path, tensorrt);
  OpenLibraries& open = open_libraries();
  const std::lock_guard lock(open.mutex);
  if (std::shared_ptr<PluginLibrary> known = open.find(handle)) {
    dlclose(handle);  // one reference is enough
    return known;
  }
  std::shared_ptr<PluginLibrary> library(new PluginLibrary(handle, tensorrt));
  open.libraries[handle] = library;
  return library;
}

PluginLibrary::~PluginLibrary() {
  OpenLibraries& open = open_libraries();
  {
    const std::lock_guard lock(open.mutex);
    // Another thread may have opened it again.
    if (open.find(handle_) == nullptr) open.libraries.erase(handle_);
  }
  dlclose(handle_);
}

void* PluginLibrary::symbol(const char* name) const { return dlsym(handle_, name); }

bool PluginLibrary::implements(const IVersionedInterface& object) const {
  return owner_of(&object) == handle_;
}

std::shared_ptr<const void> keep_code(const IVersionedInterface& object) {
  // Classes of a language binding live as long as the binding.
  return object.getAPILanguage() == APILanguage::kCPP ? keep(owner_of(&object)) : nullptr;
}

std::shared_ptr<const void> keep_code(const IPluginV2& plugin) { return keep(owner_of(&plugin)); }

std::string code_file(const IVersionedInterface& object) {
  if (object.getAPILanguage() != APILanguage::kCPP) return {};
  const link_map* const owner = owner_of(&object);
  if (owner == nullptr || is_in_memory(owner)) return {};
  return std::filesystem::absolute(owner->l_name);
}

}  // namespace opwright
