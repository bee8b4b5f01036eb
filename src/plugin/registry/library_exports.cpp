#include "plugin/registry/library_exports.h"

#include "base/error.h"
#include "opwright/plugin.h"
#include "opwright/registry.h"
#include "plugin/registry/tensorrt_libraries.h"

namespace opwright {

namespace {

/// Gives plugins the logger of the engine that calls them.
class LoggerFinder final : public ILoggerFinder {
 public:
  ILogger* findLogger() override { return ::getLogger(); }
};

}  // namespace

std::vector<IPluginCreatorInterface*> exported_creators(
    const std::function<void*(const char*)>& symbol, const std::string& name, int tensorrt) {
  static LoggerFinder logger_finder;
  if (void* set = symbol("setLoggerFinder")) {
    ILoggerFinder* const finder =
        tensorrt == 0 ? static_cast<ILoggerFinder*>(&logger_finder)
                      : static_cast<ILoggerFinder*>(tensorrt_logger_finder(tensorrt));
    reinterpret_cast<void (*)(ILoggerFinder*)>(set)(finder);
  }

  int32_t count = 0;
  std::vector<IPluginCreatorInterface*> creators;
  if (void* get = symbol("getCreators")) {
    auto* const* list = reinterpret_cast<IPluginCreatorInterface* const* (*)(int32_t&)>(get)(count);
    if (list != nullptr) creators.assign(list, list + count);
  } else if (void* get_v1 = symbol("getPluginCreators")) {
    auto* const* list = reinterpret_cast<IPluginCreator* const* (*)(int32_t&)>(get_v1)(count);
    if (list != nullptr) creators.assign(list, list + count);
  }
  for (IPluginCreatorInterface*& creator : creators) {
    require(creator != nullptr, "plugin library '", name, "' returned a null creator");
    if (tensorrt != 0) creator = tensorrt_creator(creator, tensorrt);
  }
  return creators;
}

}  // namespace opwright
