#pragma once

#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/error_report.h"
#include "base/parallel.h"
#include "opwright/allocator.h"
#include "opwright/logger.h"
#include "opwright/version.h"

namespace opwright {

/// A pointer that does not own the user's object. The user keeps the object alive.
template <class T>
std::shared_ptr<T> unowned(T* object) {
  return {std::shared_ptr<void>(), object};
}

inline constexpr Dims kNoDims{-1, {}};

/// A name as C++ programs give it. Throws Error for null.
inline std::string_view checked_name(const char* name) {
  require(name != nullptr, "the tensor's name is null");
  return name;
}

/// Makes an object of the public API with `make` for a C++ program. Returns null on failure, and
/// the logger hears the reason: the logger or another argument is null (`needs` says so), the
/// program was compiled for another level of the API, or `make` threw.
template <class Make>
void* create_face(void* logger, bool has_others, const char* needs, int32_t version,
                  Make&& make) noexcept {
  auto* const user = static_cast<ILogger*>(logger);
  const ErrorReport errors{user == nullptr ? Log() : Log(user)};
  return errors.guard<void*>(nullptr, [&]() -> void* {
    require(user != nullptr && has_others, needs);
    require(version / 10000 == NV_TENSORRT_MAJOR, "the program was compiled for API level ",
            version / 10000, ", the library has ", NV_TENSORRT_MAJOR);
    return make(user);
  });
}

}  // namespace opwright
