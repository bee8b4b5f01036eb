#pragma once

#include <string>

#include "base/error.h"

namespace opwright {

/// The message of the Error that `function` throws, or "no error".
template <class F>
std::string error_of(F&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace opwright
