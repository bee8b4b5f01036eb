#pragma once

#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/error_report.h"
#include "base/parallel.h"
#include "opwright/allocator.h"

namespace opwright {

/// What is the user's, which lives as long as it must.
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

}  // namespace opwright
