#include "tensorrt/abi/entry.h"

#include <string>

#include "opwright/builder.h"
#include "opwright/onnx_parser.h"
#include "opwright/onnx_refitter.h"
#include "opwright/registry.h"
#include "tensorrt/abi/own.h"
#include "tensorrt/abi/plugin_v2.h"
#include "tensorrt/abi/slot.h"

namespace opwright::tensorrt {
namespace {

/// The major version in TensorRT's number; 0 for a version whose tables are not known.
int major_of(int32_t version) {
  const int major = version / 10000;
  return major == 10 || major == 11 ? major : 0;
}

int known_major(int32_t version) {
  const int major = major_of(version);
  if (major == 0) {
    const std::string text = "a program compiled for TensorRT version number " +
                             std::to_string(version) +
                             " cannot run: Opwright has the binary interfaces of versions 10 and "
                             "11; compile it for one of these";
    if (ILogger* const logger = OPWRIGHT_OWN(getLogger)())
      logger->log(ILogger::Severity::kERROR, text.c_str());
  }
  return major;
}

template <class T>
Facade* owned(T* object, int major) {
  return object == nullptr ? nullptr : Facade::owned(object, kind_of(*object), major);
}

template <class T>
T* behind(void* face) {
  return face == nullptr ? nullptr : static_cast<T*>(static_cast<Facade*>(face)->object());
}

}  // namespace
}  // namespace opwright::tensorrt

using namespace opwright;
using namespace opwright::tensorrt;

void* opwrightTensorrtBuilder(void* logger, int32_t version) noexcept {
  const int major = known_major(version);
  if (major == 0) return nullptr;
  ILogger* const ours = Adapter<ILogger>::adapt(logger, major);
  return owned(
      static_cast<IBuilder*>(OPWRIGHT_OWN(createInferBuilder_INTERNAL)(ours, NV_TENSORRT_VERSION)),
      major);
}

void* opwrightTensorrtRuntime(void* logger, int32_t version) noexcept {
  const int major = known_major(version);
  if (major == 0) return nullptr;
  ILogger* const ours = Adapter<ILogger>::adapt(logger, major);
  return owned(
      static_cast<IRuntime*>(OPWRIGHT_OWN(createInferRuntime_INTERNAL)(ours, NV_TENSORRT_VERSION)),
      major);
}

void* opwrightTensorrtRefitter(void* engine, void* logger, int32_t version) noexcept {
  const int major = known_major(version);
  if (major == 0) return nullptr;
  ILogger* const ours = Adapter<ILogger>::adapt(logger, major);
  return owned(static_cast<IRefitter*>(OPWRIGHT_OWN(createInferRefitter_INTERNAL)(
                   behind<ICudaEngine>(engine), ours, NV_TENSORRT_VERSION)),
               major);
}

void* opwrightTensorrtParser(void* network, void* logger) noexcept {
  if (network == nullptr) return nullptr;
  const int major = static_cast<Facade*>(network)->major();
  ILogger* const ours = Adapter<ILogger>::adapt(logger, major);
  void* const parser = OPWRIGHT_OWN(createNvOnnxParser_INTERNAL)(
      behind<INetworkDefinition>(network), ours, static_cast<int>(NV_TENSORRT_VERSION));
  return parser == nullptr ? nullptr : Facade::owned(parser, parser_kind, major)->part();
}

void* opwrightTensorrtParserRefitter(void* refitter, void* logger) noexcept {
  if (refitter == nullptr) return nullptr;
  const int major = static_cast<Facade*>(refitter)->major();
  ILogger* const ours = Adapter<ILogger>::adapt(logger, major);
  void* const made = OPWRIGHT_OWN(createNvOnnxParserRefitter_INTERNAL)(
      behind<IRefitter>(refitter), ours, static_cast<int>(NV_TENSORRT_VERSION));
  return made == nullptr ? nullptr : Facade::owned(made, parser_refitter_kind, major)->part();
}

namespace {
/// The process's registries live as long as the process, and so do their faces.
void* registry_face(IPluginRegistry* registry, int major) {
  if (registry == nullptr || major != 11) return registry;
  static Facade* const face = Facade::owned(registry, registry_kind, 11);
  return face->object() == registry ? face->part()
                                    : Facade::of(registry, registry_kind, *face)->part();
}
}  // namespace

void* opwrightTensorrtRegistry(int32_t major) noexcept {
  return registry_face(OPWRIGHT_OWN(getPluginRegistry)(), major);
}

void* opwrightTensorrtBuilderRegistry(int32_t major, int32_t capability) noexcept {
  return registry_face(
      OPWRIGHT_OWN(getBuilderPluginRegistry)(static_cast<EngineCapability>(capability)), major);
}

void* opwrightTensorrtLogger(int32_t major) noexcept {
  return Adapter<ILogger>::original(OPWRIGHT_OWN(getLogger)(), major);
}

void* opwrightTensorrtCreator(void* creator, int32_t major) noexcept {
  return adapted_creator(static_cast<IPluginCreatorInterface*>(creator), major);
}

void* opwrightTensorrtLoggerFinder(int32_t major) noexcept { return logger_finder(major); }

bool opwrightTensorrtInitPlugins(void* logger, char const* space, int32_t major) noexcept {
  return OPWRIGHT_OWN(initLibNvInferPlugins)(Adapter<ILogger>::adapt(logger, major), space);
}

char const* opwrightTensorrtTables(int32_t major) noexcept {
  static std::string text;
  text = described_tables(major);
  return text.c_str();
}
