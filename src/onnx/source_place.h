#pragma once

namespace opwright {

/// A place in the library's source. std::source_location is not there with every compiler that has
/// C++20.
struct SourcePlace {
  const char* file = "";
  const char* function = "";
  int line = 0;
  /// That of the caller.
  static constexpr SourcePlace current(const char* file = __builtin_FILE(),
                                       const char* function = __builtin_FUNCTION(),
                                       int line = __builtin_LINE()) {
    return {file, function, line};
  }
};

}  // namespace opwright
