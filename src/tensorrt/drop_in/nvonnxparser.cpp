// libnvonnxparser.so.10 and .11.

#include "tensorrt/abi/entry.h"

extern "C" {

OPWRIGHT_API void* createNvOnnxParser_INTERNAL(void* network, void* logger, int) noexcept {
  return opwrightTensorrtParser(network, logger);
}
OPWRIGHT_API void* createNvOnnxParserRefitter_INTERNAL(void* refitter, void* logger, int) noexcept {
  return opwrightTensorrtParserRefitter(refitter, logger);
}
/// The parser's own version, 0.1.0, is the same for all of TensorRT 10 and 11.
OPWRIGHT_API int getNvOnnxParserVersion() noexcept { return 100; }
}
