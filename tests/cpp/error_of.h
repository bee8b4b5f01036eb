#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
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

inline void expect_contains(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

}  // namespace opwright
