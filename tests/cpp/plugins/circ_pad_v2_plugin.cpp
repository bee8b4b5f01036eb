// Circular padding as an IPluginV2DynamicExt for the CPU, written as one would write it for
// TensorRT. Field `pads` (INT32): pads[2i] and pads[2i+1] are the extents to add before and after
// dimension i, counted from the last.

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "NvInfer.h"

namespace {

using nvinfer1::AsciiChar;
using nvinfer1::DataType;
using nvinfer1::Dims;
using nvinfer1::DimsExprs;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginField;
using nvinfer1::PluginFieldCollection;
using nvinfer1::PluginFieldType;
using nvinfer1::PluginTensorDesc;

constexpr char const* kName = "circ_pad_v2_plugin";
constexpr char const* kVersion = "1";

/// The non-negative remainder of a division by b > 0.
int64_t mod(int64_t a, int64_t b) { return (a % b + b) % b; }

class CircPadV2 final : public nvinfer1::IPluginV2DynamicExt {
 public:
  explicit CircPadV2(std::vector<int32_t> pads) : pads_(std::move(pads)) {}

  char const* getPluginType() const noexcept override { return kName; }
  char const* getPluginVersion() const noexcept override { return kVersion; }
  int32_t getNbOutputs() const noexcept override { return 1; }
  DataType getOutputDataType(int32_t, DataType const* inputs, int32_t) const noexcept override {
    return inputs[0];
  }
  DimsExprs getOutputDimensions(int32_t, DimsExprs const* inputs, int32_t,
                                nvinfer1::IExprBuilder& builder) noexcept override {
    DimsExprs out = inputs[0];
    for (size_t i = 0; i < pads_.size() / 2; ++i) {
      auto*& extent = out.d[out.nbDims - 1 - static_cast<int32_t>(i)];
      extent = builder.operation(nvinfer1::DimensionOperation::kSUM, *extent,
                                 *builder.constant(pads_[2 * i] + pads_[2 * i + 1]));
    }
    return out;
  }
  bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* ports, int32_t,
                                 int32_t) noexcept override {
    return ports[pos].type == DataType::kFLOAT &&
           ports[pos].format == nvinfer1::TensorFormat::kLINEAR;
  }
  void configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
                       int32_t) noexcept override {}
  size_t getWorkspaceSize(PluginTensorDesc const*, int32_t, PluginTensorDesc const*,
                          int32_t) const noexcept override {
    return 0;
  }
  int32_t initialize() noexcept override { return 0; }
  void terminate() noexcept override {}

  int32_t enqueue(PluginTensorDesc const* in, PluginTensorDesc const* out,
                  void const* const* inputs, void* const* outputs, void*,
                  cudaStream_t) noexcept override {
    auto const* x = static_cast<float const*>(inputs[0]);
    auto* y = static_cast<float*>(outputs[0]);
    Dims const &from = in[0].dims, &to = out[0].dims;
    int64_t count = 1;
    for (int32_t i = 0; i < to.nbDims; ++i) count *= to.d[i];
    for (int64_t element = 0; element < count; ++element) {
      int64_t rest = element, stride = 1, source = 0;
      for (int32_t i = to.nbDims - 1; i >= 0; --i) {
        size_t const pad = 2 * static_cast<size_t>(to.nbDims - 1 - i);
        int64_t const before = pad < pads_.size() ? pads_[pad] : 0;
        source += mod(rest % to.d[i] - before, from.d[i]) * stride;
        stride *= from.d[i];
        rest /= to.d[i];
      }
      y[element] = x[source];
    }
    return 0;
  }

  size_t getSerializationSize() const noexcept override { return pads_.size() * sizeof(int32_t); }
  void serialize(void* buffer) const noexcept override {
    std::memcpy(buffer, pads_.data(), getSerializationSize());
  }
  void destroy() noexcept override { delete this; }
  CircPadV2* clone() const noexcept override { return new CircPadV2(*this); }
  void setPluginNamespace(char const* value) noexcept override { namespace_ = value; }
  char const* getPluginNamespace() const noexcept override { return namespace_.c_str(); }

 private:
  std::vector<int32_t> pads_;
  std::string namespace_;
};

class CircPadV2Creator final : public nvinfer1::IPluginCreator {
 public:
  char const* getPluginName() const noexcept override { return kName; }
  char const* getPluginVersion() const noexcept override { return kVersion; }
  PluginFieldCollection const* getFieldNames() noexcept override {
    static PluginField const field("pads", nullptr, PluginFieldType::kINT32, 1);
    static PluginFieldCollection const fields{1, &field};
    return &fields;
  }
  nvinfer1::IPluginV2* createPlugin(AsciiChar const*,
                                    PluginFieldCollection const* fields) noexcept override {
    if (fields->nbFields != 1 || std::strcmp(fields->fields[0].name, "pads") != 0 ||
        fields->fields[0].length % 2 != 0)
      return nullptr;
    auto const* pads = static_cast<int32_t const*>(fields->fields[0].data);
    return make({pads, pads + fields->fields[0].length});
  }
  nvinfer1::IPluginV2* deserializePlugin(AsciiChar const*, void const* data,
                                         size_t size) noexcept override {
    if (size % (2 * sizeof(int32_t)) != 0) return nullptr;
    std::vector<int32_t> pads(size / sizeof(int32_t));
    if (size != 0) std::memcpy(pads.data(), data, size);
    return make(std::move(pads));
  }
  void setPluginNamespace(char const* value) noexcept override { namespace_ = value; }
  char const* getPluginNamespace() const noexcept override { return namespace_.c_str(); }

 private:
  nvinfer1::IPluginV2* make(std::vector<int32_t> pads) const {
    auto* plugin = new CircPadV2(std::move(pads));
    plugin->setPluginNamespace(namespace_.c_str());
    return plugin;
  }
  std::string namespace_;
};

}  // namespace

REGISTER_TENSORRT_PLUGIN(CircPadV2Creator);
