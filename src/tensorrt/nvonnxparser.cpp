// libnvonnxparser.so: the functions of onnx_parser.h and onnx_config.h.

#include "opwright/onnx_config.h"
#include "opwright/onnx_parser.h"
#include "tensorrt/forward.h"

extern "C" OPWRIGHT_API void* createNvOnnxParserRefitter_INTERNAL(void* refitter, void* logger,
                                                                  int version) noexcept;

void* createNvOnnxParser_INTERNAL(void* network, void* logger, int version) noexcept {
  OPWRIGHT_FORWARD(nullptr, createNvOnnxParser_INTERNAL, network, logger, version);
}
void* createNvOnnxParserRefitter_INTERNAL(void* refitter, void* logger, int version) noexcept {
  OPWRIGHT_FORWARD(nullptr, createNvOnnxParserRefitter_INTERNAL, refitter, logger, version);
}
int getNvOnnxParserVersion() noexcept { OPWRIGHT_FORWARD(0, getNvOnnxParserVersion); }

namespace opwright::onnxparser {

IOnnxConfig* createONNXConfig() {
  static auto* const target =
      tensorrt::find<decltype(createONNXConfig)>("_ZN8opwright10onnxparser16createONNXConfigEv");
  return target == nullptr ? nullptr : target();
}

}  // namespace opwright::onnxparser
