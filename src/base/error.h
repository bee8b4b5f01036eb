#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "opwright/types.h"

namespace opwright {

/// Every failure inside the library. `what()` says who failed, where, what was expected, what came
/// instead and how to mend it. `code()` classifies it for the API border.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// Streams the parts one after another into a string.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Throws Error with ErrorCode::kINVALID_ARGUMENT: the caller passed something wrong.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(ErrorCode::kINVALID_ARGUMENT, str(parts...));
}

/// Throws Error with `code`.
template <class... Parts>
[[noreturn]] void fail_with(ErrorCode code, const Parts&... parts) {
  throw Error(code, str(parts...));
}

/// Throws like fail() unless `condition` holds. The parts are only formatted on failure.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(parts...);
}

}  // namespace opwright
