#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "cpu/run_kernel.h"

/// Profiles that leave extents open, for tests of kernels whose code depends on them.
namespace opwright::testing {

/// An axis whose extent is fixed, or anything in [min, max].
struct TestAxis {
  int64_t min = 1, max = 1;
};

inline PortDesc port_of(const std::vector<TestAxis>& axes, DataType type) {
  PortDesc port;
  port.type.dtype = type;
  for (const TestAxis& axis : axes) {
    port.min.push_back(axis.min);
    // Large, so that every way to run an operator is listed.
    port.opt.push_back(axis.max);
    port.max.push_back(axis.max);
  }
  return port;
}

/// How many tensor maps the emulated driver was asked for; on a GPU -1.
inline long tensor_maps() {
  const char* file = std::getenv("OPWRIGHT_CUDA_DRIVER");
  void* library = dlopen(file == nullptr ? "libcuda.so.1" : file, RTLD_NOW);
  using Calls = long (*)(const char*);
  const auto calls = reinterpret_cast<Calls>(
      library == nullptr ? nullptr : dlsym(library, "opwright_emulation_calls"));
  if (calls == nullptr) return -1;
  return calls("cuTensorMapEncodeTiled") + calls("cuTensorMapEncodeIm2col");
}

}  // namespace opwright::testing
