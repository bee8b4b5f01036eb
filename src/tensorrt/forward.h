#pragma once

#include <dlfcn.h>

/// \file
/// The libraries under TensorRT's link names have only functions that forward calls to
/// libopwright.so. They define these themselves, rather than only depend on that library, because
/// linkers take no symbols from the libraries that a library depends on.

namespace opwright::tensorrt {

// Only for this library: `static` keeps the functions from being exported.
static inline void* library() noexcept {
  static void* const handle = dlopen("libopwright.so", RTLD_LAZY | RTLD_LOCAL);
  return handle;
}

/// libopwright.so's function of that name, with the signature `Function` of the function that
/// forwards to it. Null where libopwright.so is older than this library and lacks the function.
template <class Function>
static Function* find(const char* name) noexcept {
  return library() == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library(), name));
}

}  // namespace opwright::tensorrt

/// Calls libopwright.so's function of that name. Returns `absent` where there is none.
#define OPWRIGHT_FORWARD(absent, name, ...)                                        \
  do {                                                                             \
    static auto* const target = opwright::tensorrt::find<decltype(::name)>(#name); \
    return target == nullptr ? absent : target(__VA_ARGS__);                       \
  } while (false)
