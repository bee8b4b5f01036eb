// libnvinfer_plugin.so.10 and .11.

#include "tensorrt/abi/entry.h"

extern "C" OPWRIGHT_API bool initLibNvInferPlugins(void* logger, char const* space) {
  return opwrightTensorrtInitPlugins(logger, space, OPWRIGHT_TENSORRT_MAJOR);
}
