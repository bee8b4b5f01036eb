// A library that loads the library beside it, and itself, from within getCreators().

#include <dlfcn.h>

#include <string>

#include "NvInfer.h"

namespace {

using nvinfer1::PluginFieldCollection;

class BundleCreator final : public nvinfer1::IPluginCreatorV3One {
 public:
  nvinfer1::IPluginV3* createPlugin(char const*, PluginFieldCollection const*,
                                    nvinfer1::TensorRTPhase) noexcept override {
    return nullptr;
  }
  PluginFieldCollection const* getFieldNames() noexcept override { return &no_fields_; }
  char const* getPluginName() const noexcept override { return "bundle_plugin"; }
  char const* getPluginVersion() const noexcept override { return "1"; }
  char const* getPluginNamespace() const noexcept override { return ""; }

 private:
  PluginFieldCollection no_fields_{};
};

}  // namespace

extern "C" __attribute__((visibility("default"))) nvinfer1::IPluginCreatorInterface* const*
getCreators(int32_t& count) {
  Dl_info info{};
  dladdr(reinterpret_cast<void const*>(&getCreators), &info);
  std::string const self = info.dli_fname;
  std::string const other = self.substr(0, self.rfind('/')) + "/shared_counter_plugin.so";
  for (std::string const& path : {self, other}) getPluginRegistry()->loadLibrary(path.c_str());
  static BundleCreator creator;
  static nvinfer1::IPluginCreatorInterface* const creators[] = {&creator};
  count = 1;
  return creators;
}
