// Modules and libraries that the emulated NVRTC made, as a cubin or in PTX.

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "driver/state.h"

namespace emulation {
namespace {

struct Library;

struct Kernel {
  Library* library;
  std::string name;
};

struct Library {
  std::string image;
  std::map<Context*, Module*> modules;
  std::map<std::string, Kernel> kernels;
};

Handles<Library>& libraries() {
  static auto* libraries = new Handles<Library>;
  return *libraries;
}

std::map<const void*, Kernel*>& kernels() {
  static auto* kernels = new std::map<const void*, Kernel*>;
  return *kernels;
}

std::map<const void*, Function*>& functions() {
  static auto* functions = new std::map<const void*, Function*>;
  return *functions;
}

/// A kernel library and the architecture it was compiled for.
struct Image {
  std::string library;
  int architecture = 0;
};

CUresult foreign_image(const char* kind) {
  std::fprintf(
      stderr, "emulated CUDA: the emulation runs what its own NVRTC compiled, and this %s is not\n",
      kind);
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult read_cubin(const char* data, Image& image) {
  CubinHeader header;
  std::memcpy(&header, data, sizeof(header));
  if (header.machine != kMachineCuda) return CUDA_ERROR_INVALID_IMAGE;
  image.architecture = header.flags & 0xff;
  int present = state().architecture;
  if (image.architecture / 10 != present / 10 || image.architecture > present) {
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (std::memcmp(header.identification + 9, "opwrigh", 7)) return foreign_image("cubin");
  image.library.assign(data + sizeof(header), header.section_headers - sizeof(header));
  return CUDA_SUCCESS;
}

CUresult read_ptx(std::string_view text, Image& image) {
  size_t target = text.find(".target sm_");
  if (target == text.npos) return CUDA_ERROR_INVALID_PTX;
  image.architecture = std::atoi(text.data() + target + 11);
  if (image.architecture > state().architecture) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  size_t line = text.find(kPtxPayload);
  if (line == text.npos) return foreign_image("PTX");
  auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (; line != text.npos; line = text.find(kPtxPayload, line)) {
    line += sizeof(kPtxPayload) - 1;
    for (; line + 1 < text.size() && text[line] != '\n'; line += 2) {
      image.library += static_cast<char>(digit(text[line]) << 4 | digit(text[line + 1]));
    }
  }
  return CUDA_SUCCESS;
}

CUresult read_image(const void* data, Image& image) {
  auto* bytes = static_cast<const char*>(data);
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!std::memcmp(bytes,
                   "\x7f"
                   "ELF",
                   4))
    return read_cubin(bytes, image);
  if (!std::memcmp(bytes, "\x50\xed\x55\xba", 4)) return foreign_image("fat binary");
  // PTX is text that ends in a zero byte.
  for (const char* c = bytes; *c; ++c) {
    if (static_cast<unsigned char>(*c) < 9) return CUDA_ERROR_INVALID_IMAGE;
  }
  std::string_view text(bytes);
  if (text.find(".version") == text.npos) return CUDA_ERROR_INVALID_IMAGE;
  return read_ptx(text, image);
}

/// Loads a library through a file descriptor. The descriptor stays open, since the loader knows
/// libraries by name and the name contains the descriptor.
void* load_library(const std::string& bytes) {
  int file = memfd_create("emulated kernels", MFD_CLOEXEC);
  size_t written = 0;
  while (written < bytes.size()) {
    ssize_t count = write(file, bytes.data() + written, bytes.size() - written);
    if (count <= 0) break;
    written += count;
  }
  std::string path = "/proc/self/fd/" + std::to_string(file);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) std::fprintf(stderr, "emulated CUDA: %s\n", dlerror());
  return library;
}

/// Bytes of shared memory of a block: without cuFuncSetAttribute, and at most.
constexpr int kSharedWithoutAsking = 48 * 1024, kMostShared = 227 * 1024;

/// Finds the library's static shared memory, which is one range of thread-local memory.
void find_static_shared(Module& module) {
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& module = *static_cast<Module*>(data);
        const auto* const table = reinterpret_cast<const char*>(module.table);
        bool has_table = false;
        size_t bytes = 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& header = info->dlpi_phdr[i];
          const auto* const begin = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
          has_table |= header.p_type == PT_LOAD && table >= begin && table < begin + header.p_memsz;
          if (header.p_type == PT_TLS) bytes = header.p_memsz;
        }
        if (!has_table) return 0;
        module.static_shared = bytes, module.thread_local_id = info->dlpi_tls_modid;
        return 1;
      },
      &module);
}

CUresult load_module(const void* data, Module** module) {
  Image image;
  if (CUresult error = read_image(data, image)) return error;
  void* library = load_library(image.library);
  auto* table = library ? static_cast<const Table*>(dlsym(library, kTableSymbol)) : nullptr;
  if (!table) return CUDA_ERROR_INVALID_IMAGE;
  auto made = std::make_unique<Module>();
  made->context = current_context();
  made->library = library;
  made->table = table;
  find_static_shared(*made);
  made->architecture = image.architecture;
  for (int i = 0; i < table->count; ++i) {
    Dl_info symbol = {};
    dladdr(table->entries[i].function, &symbol);
    Function function;
    function.module = made.get();
    function.entry = &table->entries[i];
    function.max_dynamic_shared = made->dynamic_shared(kSharedWithoutAsking);
    function.name =
        symbol.dli_saddr == table->entries[i].function ? symbol.dli_sname : table->entries[i].name;
    made->functions.push_back(function);
    Function* kept = &made->functions.back();
    functions()[kept] = kept;
  }
  *module = state().modules.add(std::move(made));
  return CUDA_SUCCESS;
}

CUresult get_function(Module* module, const char* name, CUfunction* handle) {
  for (Function& function : module->functions) {
    if (function.name != name) continue;
    *handle = reinterpret_cast<CUfunction>(&function);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

void unload(Module* module) {
  for (Function& function : module->functions) functions().erase(&function);
  dlclose(module->library);
  state().modules.remove(module);
}

/// The kernel's function in the current context.
CUresult function_of(Kernel* kernel, CUfunction* function) {
  Module*& module = kernel->library->modules[current_context()];
  if (!module || !state().modules.find(module)) {
    if (CUresult error = load_module(kernel->library->image.data(), &module)) return error;
  }
  return get_function(module, kernel->name.c_str(), function);
}

/// The bytes of the image. Text ends in a zero byte.
size_t size_of_image(const void* data) {
  CubinHeader header;
  if (std::memcmp(data,
                  "\x7f"
                  "ELF",
                  4))
    return std::strlen(static_cast<const char*>(data)) + 1;
  std::memcpy(&header, data, sizeof(header));
  return header.section_headers;
}

CUresult with_function(const char* name, CUfunction handle,
                       const std::function<CUresult(Function*)>& body) {
  return call(name, [&] {
    Function* function = find_function(handle);
    return function ? body(function) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult parameter_info(const Function& function, size_t index, size_t* offset, size_t* size) {
  if (index >= static_cast<size_t>(function.entry->parameter_count)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *offset = function.entry->parameters[index].offset;
  if (size) *size = function.entry->parameters[index].size;
  return CUDA_SUCCESS;
}

}  // namespace

Function* find_function(CUfunction handle) {
  auto kernel = kernels().find(handle);
  if (kernel != kernels().end() && function_of(kernel->second, &handle)) return nullptr;
  auto function = functions().find(handle);
  return function == functions().end() ? nullptr : function->second;
}

void release_modules(const Context* context) {
  for (Module* module : state().modules.all()) {
    if (module->context == context) unload(module);
  }
}

}  // namespace emulation

using namespace emulation;

extern "C" {

CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
  return call(__func__, [&] {
    if (CUresult error = check_unsafe_call()) return error;
    return load_module(image, reinterpret_cast<Module**>(handle));
  });
}

CUresult cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned, CUjit_option*, void**) {
  return call(__func__, [&] {
    if (CUresult error = check_unsafe_call()) return error;
    return load_module(image, reinterpret_cast<Module**>(handle));
  });
}

CUresult cuModuleUnload(CUmodule handle) {
  return call(__func__, [&] {
    Module* module = state().modules.find(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_unsafe_call()) return error;
    CUresult result = wait_for_context(module->context);
    unload(module);
    return result;
  });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  return call(__func__, [&] {
    Module* module = state().modules.find(handle);
    return module ? get_function(module, name, function) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  return call(__func__, [&] {
    Module* module = state().modules.find(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    *count = module->functions.size();
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule handle) {
  return call(__func__, [&] {
    Module* module = state().modules.find(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    unsigned i = 0;
    for (Function& function : module->functions) {
      if (i < count) functions[i++] = reinterpret_cast<CUfunction>(&function);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal(CUdeviceptr*, size_t*, CUmodule, const char*) {
  // Variables of a kernel library are host memory here, so they have no device address.
  return call(__func__, [] { return CUDA_ERROR_NOT_FOUND; });
}

CUresult cuLibraryLoadData(CUlibrary* handle, const void* data, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  return call(__func__, Needs::kInitialization, [&] {
    Image image;
    if (CUresult error = read_image(data, image)) return error;
    auto made = std::make_unique<Library>();
    made->image.assign(static_cast<const char*>(data), size_of_image(data));
    *handle = reinterpret_cast<CUlibrary>(libraries().add(std::move(made)));
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryUnload(CUlibrary handle) {
  return call(__func__, Needs::kInitialization, [&] {
    Library* library = libraries().find(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    for (auto& [name, kernel] : library->kernels) kernels().erase(&kernel);
    for (auto [context, module] : library->modules) {
      if (!module || !state().modules.find(module)) continue;
      wait_for_context(context);
      unload(module);
    }
    libraries().remove(library);
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetKernel(CUkernel* handle, CUlibrary library_handle, const char* name) {
  return call(__func__, [&] {
    Library* library = libraries().find(library_handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    Kernel kernel{library, name};
    CUfunction function;
    if (CUresult error = function_of(&kernel, &function)) return error;
    Kernel* kept = &library->kernels.try_emplace(name, kernel).first->second;
    kernels()[kept] = kept;
    *handle = reinterpret_cast<CUkernel>(kept);
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) {
  return call(__func__, [&] {
    auto kernel = kernels().find(handle);
    if (kernel == kernels().end()) return CUDA_ERROR_INVALID_HANDLE;
    return function_of(kernel->second, function);
  });
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* size) {
  return with_function(__func__, reinterpret_cast<CUfunction>(handle), [&](Function* function) {
    return parameter_info(*function, index, offset, size);
  });
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  return with_function(__func__, handle, [&](Function* function) {
    return parameter_info(*function, index, offset, size);
  });
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  return with_function(__func__, handle, [&](Function* function) {
    *name = function->name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
  return with_function(__func__, handle, [&](Function* function) {
    *module = reinterpret_cast<CUmodule>(function->module);
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return with_function(__func__, handle, [&](Function* function) {
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = function->entry->max_threads;
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = function->module->architecture;
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = static_cast<int>(function->module->static_shared);
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = function->max_dynamic_shared;
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
        *value = function->entry->cluster;
        return CUDA_SUCCESS;
      default:
        *value = 0;
        return attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return with_function(__func__, handle, [&](Function* function) {
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
      if (value < 0 || value > function->module->dynamic_shared(kMostShared))
        return CUDA_ERROR_INVALID_VALUE;
      function->max_dynamic_shared = value;
    }
    if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
      function->allows_large_cluster = value != 0;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
