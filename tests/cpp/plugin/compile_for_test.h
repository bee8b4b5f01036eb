#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/file.h"
#include "network/operator.h"

namespace opwright {

#if defined(__x86_64__)
inline constexpr const char* kHostTarget = "x86-64";
#else
inline constexpr const char* kHostTarget = "aarch64";
#endif

/// A shared object that the system's C++ compiler makes from the source.
inline CodeObject compile_for_test(const std::string& source) {
  const std::string stem = testing::TempDir() + "/opwright_kernel_" + std::to_string(getpid());
  std::ofstream(stem + ".cpp") << "#include <cstdint>\n" << source;
  const std::string command = "c++ -O1 -shared -fPIC -o " + stem + ".so " + stem + ".cpp";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  CodeObject object{"test kernel", kHostTarget, read_file(stem + ".so"), true};
  unlink((stem + ".cpp").c_str());
  unlink((stem + ".so").c_str());
  return object;
}

}  // namespace opwright
