// Sources in the manner of existing TensorRT plugins must compile as they are: classes within
// namespace nvinfer1, `override` everywhere, TensorRT's macros, both spellings of pointers to
// const.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <type_traits>

#include "NvInferRuntime.h"

#if NV_TENSORRT_MAJOR < 10 || NV_TENSORRT_VERSION < NV_TENSORRT_VERSION_INT(10, 0, 0)
#error "the API level is too low"
#endif

namespace nvinfer1 {
namespace plugin {

class ScalePlugin : public nvinfer1::IPluginV2DynamicExt {
 public:
  explicit ScalePlugin(float factor) : factor_(factor) {}

  nvinfer1::IPluginV2DynamicExt* clone() const noexcept override {
    auto* copy = new ScalePlugin(factor_);
    copy->setPluginNamespace(namespace_.c_str());
    return copy;
  }
  nvinfer1::DimsExprs getOutputDimensions(int32_t, const nvinfer1::DimsExprs* inputs, int32_t,
                                          nvinfer1::IExprBuilder&) noexcept override {
    return inputs[0];
  }
  bool supportsFormatCombination(int pos, const nvinfer1::PluginTensorDesc* inOut, int,
                                 int) noexcept override {
    return inOut[pos].format == nvinfer1::PluginFormat::kLINEAR &&
           inOut[pos].type == nvinfer1::DataType::kFLOAT;
  }
  void configurePlugin(const nvinfer1::DynamicPluginTensorDesc*, int,
                       const nvinfer1::DynamicPluginTensorDesc*, int) noexcept override {}
  size_t getWorkspaceSize(const nvinfer1::PluginTensorDesc*, int, const nvinfer1::PluginTensorDesc*,
                          int) const noexcept override {
    return 0;
  }
  int enqueue(const nvinfer1::PluginTensorDesc* inputDesc, const nvinfer1::PluginTensorDesc*,
              const void* const* inputs, void* const* outputs, void*,
              cudaStream_t) noexcept override {
    for (int64_t i = 0; i < inputDesc[0].dims.d[0]; ++i) {
      static_cast<float*>(outputs[0])[i] = static_cast<const float*>(inputs[0])[i] * factor_;
    }
    return 0;
  }
  nvinfer1::DataType getOutputDataType(int, const nvinfer1::DataType* types,
                                       int) const noexcept override {
    return types[0];
  }
  const char* getPluginType() const noexcept override { return "Scale"; }
  const char* getPluginVersion() const noexcept override { return "1"; }
  int getNbOutputs() const noexcept override { return 1; }
  int initialize() noexcept override { return 0; }
  void terminate() noexcept override {}
  size_t getSerializationSize() const noexcept override { return sizeof(factor_); }
  void serialize(void* buffer) const noexcept override {
    std::memcpy(buffer, &factor_, sizeof(factor_));
  }
  void destroy() noexcept override { delete this; }
  void setPluginNamespace(const char* pluginNamespace) noexcept override {
    namespace_ = pluginNamespace;
  }
  const char* getPluginNamespace() const noexcept override { return namespace_.c_str(); }
  void attachToContext(cudnnContext*, cublasContext*, IGpuAllocator*) noexcept override {}
  void detachFromContext() noexcept override {}

 private:
  using IPluginV2::enqueue;
  using IPluginV2::getOutputDimensions;
  using IPluginV2::getWorkspaceSize;
  using IPluginV2Ext::configurePlugin;

  float factor_;
  std::string namespace_;
};

class ScalePluginCreator : public nvinfer1::IPluginCreator {
 public:
  AsciiChar const* getPluginName() const noexcept override { return "Scale"; }
  AsciiChar const* getPluginVersion() const noexcept override { return "1"; }
  PluginFieldCollection const* getFieldNames() noexcept override { return &fields_; }
  IPluginV2* createPlugin(AsciiChar const*, PluginFieldCollection const*) noexcept override {
    return new ScalePlugin(2.0F);
  }
  IPluginV2* deserializePlugin(AsciiChar const*, void const* data, size_t) noexcept override {
    float factor;
    std::memcpy(&factor, data, sizeof(factor));
    return new ScalePlugin(factor);
  }
  void setPluginNamespace(AsciiChar const* name) noexcept override { namespace_ = name; }
  AsciiChar const* getPluginNamespace() const noexcept override { return namespace_.c_str(); }

 private:
  PluginFieldCollection fields_;
  std::string namespace_;
};

}  // namespace plugin
}  // namespace nvinfer1

namespace {

TEST(SourceCompat, PluginV2WithinNvinfer1) {
  nvinfer1::plugin::ScalePluginCreator creator;
  float const factor = 3.0F;
  nvinfer1::IPluginV2* const plugin = creator.deserializePlugin("layer", &factor, sizeof(factor));
  // The upper byte is the plugin's kind: 3 for IPluginV2DynamicExt. The rest is the API level.
  EXPECT_EQ(plugin->getTensorRTVersion() >> 24, 3);
  EXPECT_EQ(plugin->getTensorRTVersion() & 0xFFFFFF, NV_TENSORRT_VERSION);

  auto* const scale = static_cast<nvinfer1::IPluginV2DynamicExt*>(plugin);
  nvinfer1::PluginTensorDesc desc{};
  desc.dims = nvinfer1::Dims{1, {2}};
  float const in[] = {1.0F, -2.0F};
  float out[] = {0.0F, 0.0F};
  void const* inputs[] = {in};
  void* outputs[] = {out};
  EXPECT_EQ(scale->enqueue(&desc, &desc, inputs, outputs, nullptr, nullptr), 0);
  EXPECT_EQ(out[0], 3.0F);
  EXPECT_EQ(out[1], -6.0F);

  std::string bytes(plugin->getSerializationSize(), '\0');
  plugin->serialize(&bytes[0]);
  EXPECT_EQ(std::memcmp(bytes.data(), &factor, sizeof(factor)), 0);
  plugin->destroy();
}

TEST(SourceCompat, OneTypeUnderBothNames) {
  static_assert(std::is_same<nvinfer1::IPluginV3, opwright::IPluginV3>::value, "");
  static_assert(std::is_same<nvinfer1::v_1_0::IPluginV3OneCore, opwright::IPluginV3OneCore>::value,
                "");
}

/// An expression that is a constant, made as the library makes them.
class Constant final : public nvinfer1::IDimensionExpr, private nvinfer1::apiv::VDimensionExpr {
 public:
  explicit Constant(int64_t value) : value_(value) { mImpl = this; }

 private:
  bool isConstant() const override { return true; }
  int64_t getConstantValue() const override { return value_; }
  bool isSizeTensor() const override { return false; }

  int64_t value_;
};

TEST(SourceCompat, ExpressionsAnswerThroughTheirImplementation) {
  Constant const constant(int64_t{1} << 40);
  nvinfer1::IDimensionExpr const& expr = constant;
  EXPECT_TRUE(expr.isConstant());
  EXPECT_EQ(expr.getConstantValue(), int64_t{1} << 40);
  EXPECT_FALSE(expr.isSizeTensor());
}

}  // namespace
