// A V2 plugin laid out as many existing ones are: classes within nvinfer1::plugin, static state in
// the creator, REGISTER_TENSORRT_PLUGIN at the end. y = x * factor, INT32 field `offset` added.

#include <cstring>
#include <string>
#include <vector>

#include "NvInfer.h"
#include "NvInferPlugin.h"

namespace nvinfer1 {
namespace plugin {

namespace {
const char* SCALE_PLUGIN_VERSION{"1"};
const char* SCALE_PLUGIN_NAME{"ScalePluginV2"};

template <typename T>
void writeToBuffer(char*& buffer, const T& val) {
  std::memcpy(buffer, &val, sizeof(T));
  buffer += sizeof(T);
}

template <typename T>
T readFromBuffer(const char*& buffer) {
  T val;
  std::memcpy(&val, buffer, sizeof(T));
  buffer += sizeof(T);
  return val;
}
}  // namespace

class ScalePluginV2 : public nvinfer1::IPluginV2DynamicExt {
 public:
  ScalePluginV2(float factor, int offset) : mFactor(factor), mOffset(offset) {}
  ScalePluginV2(const void* data, size_t length) {
    const char *d = reinterpret_cast<const char*>(data), *a = d;
    mFactor = readFromBuffer<float>(d);
    mOffset = readFromBuffer<int>(d);
    if (d != a + length) mFactor = 0;
  }
  ScalePluginV2() = delete;

  int getNbOutputs() const noexcept override { return 1; }
  DimsExprs getOutputDimensions(int, const nvinfer1::DimsExprs* inputs, int,
                                nvinfer1::IExprBuilder&) noexcept override {
    return inputs[0];
  }
  int initialize() noexcept override { return 0; }
  void terminate() noexcept override {}
  size_t getWorkspaceSize(const PluginTensorDesc*, int, const PluginTensorDesc*,
                          int) const noexcept override {
    return 0;
  }
  int enqueue(const PluginTensorDesc* inputDesc, const PluginTensorDesc* /*outputDesc*/,
              const void* const* inputs, void* const* outputs, void* /*workspace*/,
              cudaStream_t /*stream*/) noexcept override {
    int64_t volume = 1;
    for (int i = 0; i < inputDesc[0].dims.nbDims; ++i) volume *= inputDesc[0].dims.d[i];
    const auto* in = static_cast<const float*>(inputs[0]);
    auto* out = static_cast<float*>(outputs[0]);
    for (int64_t i = 0; i < volume; ++i) out[i] = in[i] * mFactor + static_cast<float>(mOffset);
    return 0;
  }
  size_t getSerializationSize() const noexcept override { return sizeof(float) + sizeof(int); }
  void serialize(void* buffer) const noexcept override {
    char* d = reinterpret_cast<char*>(buffer);
    writeToBuffer(d, mFactor);
    writeToBuffer(d, mOffset);
  }
  bool supportsFormatCombination(int pos, const PluginTensorDesc* inOut, int nbInputs,
                                 int nbOutputs) noexcept override {
    if (nbInputs != 1 || nbOutputs != 1) return false;
    return inOut[pos].type == DataType::kFLOAT && inOut[pos].format == PluginFormat::kLINEAR;
  }
  const char* getPluginType() const noexcept override { return SCALE_PLUGIN_NAME; }
  const char* getPluginVersion() const noexcept override { return SCALE_PLUGIN_VERSION; }
  void destroy() noexcept override { delete this; }
  IPluginV2DynamicExt* clone() const noexcept override {
    auto* plugin = new ScalePluginV2(mFactor, mOffset);
    plugin->setPluginNamespace(mPluginNamespace.c_str());
    return plugin;
  }
  void setPluginNamespace(const char* libNamespace) noexcept override {
    mPluginNamespace = libNamespace;
  }
  const char* getPluginNamespace() const noexcept override { return mPluginNamespace.c_str(); }
  DataType getOutputDataType(int, const nvinfer1::DataType* inputType,
                             int) const noexcept override {
    return inputType[0];
  }
  void attachToContext(cudnnContext*, cublasContext*, nvinfer1::IGpuAllocator*) noexcept override {}
  void detachFromContext() noexcept override {}
  void configurePlugin(const DynamicPluginTensorDesc*, int, const DynamicPluginTensorDesc*,
                       int) noexcept override {}

 private:
  float mFactor{};
  int mOffset{};
  std::string mPluginNamespace;
};

class ScalePluginV2Creator : public nvinfer1::IPluginCreator {
 public:
  ScalePluginV2Creator() {
    mPluginAttributes.clear();
    mPluginAttributes.emplace_back(PluginField("factor", nullptr, PluginFieldType::kFLOAT32, 1));
    mPluginAttributes.emplace_back(PluginField("offset", nullptr, PluginFieldType::kINT32, 1));
    mFC.nbFields = static_cast<int>(mPluginAttributes.size());
    mFC.fields = mPluginAttributes.data();
  }
  ~ScalePluginV2Creator() override = default;

  const char* getPluginName() const noexcept override { return SCALE_PLUGIN_NAME; }
  const char* getPluginVersion() const noexcept override { return SCALE_PLUGIN_VERSION; }
  const PluginFieldCollection* getFieldNames() noexcept override { return &mFC; }
  IPluginV2DynamicExt* createPlugin(const char* /*name*/,
                                    const nvinfer1::PluginFieldCollection* fc) noexcept override {
    float factor = 1;
    int offset = 0;
    const PluginField* fields = fc->fields;
    for (int i = 0; i < fc->nbFields; ++i) {
      const char* attrName = fields[i].name;
      if (!strcmp(attrName, "factor")) factor = *static_cast<const float*>(fields[i].data);
      if (!strcmp(attrName, "offset")) offset = *static_cast<const int*>(fields[i].data);
    }
    auto* plugin = new ScalePluginV2(factor, offset);
    plugin->setPluginNamespace(mNamespace.c_str());
    return plugin;
  }
  IPluginV2DynamicExt* deserializePlugin(const char* /*name*/, const void* serialData,
                                         size_t serialLength) noexcept override {
    auto* plugin = new ScalePluginV2(serialData, serialLength);
    plugin->setPluginNamespace(mNamespace.c_str());
    return plugin;
  }
  void setPluginNamespace(const char* libNamespace) noexcept override { mNamespace = libNamespace; }
  const char* getPluginNamespace() const noexcept override { return mNamespace.c_str(); }

 private:
  static PluginFieldCollection mFC;
  static std::vector<PluginField> mPluginAttributes;
  std::string mNamespace;
};

PluginFieldCollection ScalePluginV2Creator::mFC{};
std::vector<PluginField> ScalePluginV2Creator::mPluginAttributes;

REGISTER_TENSORRT_PLUGIN(ScalePluginV2Creator);

}  // namespace plugin
}  // namespace nvinfer1
