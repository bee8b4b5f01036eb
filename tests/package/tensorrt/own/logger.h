#pragma once

// A project's own header of a name that one of Opwright's has.

#include <cstdio>

#include "NvInfer.h"

class ProjectLogger : public nvinfer1::ILogger {
  void log(Severity severity, char const* msg) noexcept override {
    if (severity <= Severity::kWARNING) std::printf("%s\n", msg);
  }
};
