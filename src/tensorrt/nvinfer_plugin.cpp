// libnvinfer_plugin.so: the function that sources call before they use TensorRT's own plugins.

#include "opwright/registry.h"
#include "tensorrt/forward.h"

bool initLibNvInferPlugins(void* logger, char const* libNamespace) {
  OPWRIGHT_FORWARD(false, initLibNvInferPlugins, logger, libNamespace);
}
