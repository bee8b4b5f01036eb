#include "plugin/abi/fixed_shape_plugin.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "plugin/registry/callback.h"

namespace opwright {
namespace {

/// Marks adapters in the upper byte of getTensorRTVersion(), which no version uses. A cast could
/// not find them: foreign objects may have been compiled without run-time types.
constexpr uint32_t kAdapted = 0x20;

uint32_t upper_byte(const IPluginV2& plugin) {
  return static_cast<uint32_t>(plugin.getTensorRTVersion()) >> 24U;
}

/// Types to which the format of floating tensors applies.
bool has_float_format(DataType type) { return is_floating(type) || type == DataType::kINT8; }

Dims without_batch(const Dims& dims) {
  Dims rest{std::max(dims.nbDims - 1, 0), {}};
  std::copy_n(dims.d + 1, rest.nbDims, rest.d);
  return rest;
}

std::vector<PluginTensorDesc> without_batch(std::span<const PluginTensorDesc> descs) {
  std::vector<PluginTensorDesc> rest(descs.begin(), descs.end());
  for (PluginTensorDesc& desc : rest) desc.dims = without_batch(desc.dims);
  return rest;
}

/// The first extent, which all inputs share; 1 without inputs.
int32_t batch_of(std::span<const Dims> inputs) {
  int64_t batch = 1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    require(inputs[i].nbDims > 0, "input ", i,
            " is a scalar; plugins of this kind take the first axis of their inputs for the batch");
    if (i == 0) batch = inputs[0].d[0];
    require(inputs[i].d[0] == batch, "input ", i, " has ", inputs[i].d[0],
            " as its first extent, and input 0 ", batch,
            "; plugins of this kind take that for the batch, which all inputs share");
  }
  require(std::in_range<int32_t>(batch), "the batch ", batch, " does not fit 32 bits");
  return static_cast<int32_t>(batch);
}

int32_t batch_of(std::span<const PluginTensorDesc> inputs) {
  std::vector<Dims> dims;
  for (const PluginTensorDesc& input : inputs) dims.push_back(input.dims);
  return batch_of(dims);
}

std::vector<PluginTensorDesc> descs_of(std::span<const DynamicPluginTensorDesc> ports) {
  std::vector<PluginTensorDesc> descs;
  for (const DynamicPluginTensorDesc& port : ports) descs.push_back(port.desc);
  return descs;
}

class FixedShapePlugin : public IPluginV2DynamicExt {
 public:
  explicit FixedShapePlugin(IPluginV2Ext* plugin) : plugin_(plugin) {}
  IPluginV2Ext& plugin() const { return *plugin_; }

  int32_t getTensorRTVersion() const noexcept override {
    const int32_t own = IPluginV2DynamicExt::getTensorRTVersion();
    return static_cast<int32_t>(static_cast<uint32_t>(own) | kAdapted << 24U);
  }
  AsciiChar const* getPluginType() const noexcept override { return plugin_->getPluginType(); }
  AsciiChar const* getPluginVersion() const noexcept override {
    return plugin_->getPluginVersion();
  }
  AsciiChar const* getPluginNamespace() const noexcept override {
    return plugin_->getPluginNamespace();
  }
  void setPluginNamespace(AsciiChar const* value) noexcept override {
    plugin_->setPluginNamespace(value);
  }
  int32_t getNbOutputs() const noexcept override { return plugin_->getNbOutputs(); }
  DataType getOutputDataType(int32_t output, DataType const* inputs,
                             int32_t num_inputs) const noexcept override {
    return plugin_->getOutputDataType(output, inputs, num_inputs);
  }

  DimsExprs getOutputDimensions(int32_t output, DimsExprs const* inputs, int32_t num_inputs,
                                IExprBuilder& builder) noexcept override {
    return guarded(DimsExprs{-1, {}}, [&] {
      std::vector<Dims> whole;
      for (const DimsExprs& input : std::span(inputs, static_cast<size_t>(num_inputs)))
        whole.push_back(fixed(input, whole.size()));
      const int32_t batch = batch_of(whole);
      for (Dims& dims : whole) dims = without_batch(dims);
      const Dims made = plugin_->getOutputDimensions(output, whole.data(), num_inputs);
      require(made.nbDims >= 0 && made.nbDims < Dims::MAX_DIMS, "getOutputDimensions(", output,
              ") returned a rank of ", made.nbDims, "; without the batch it must be 0 to ",
              Dims::MAX_DIMS - 1);
      DimsExprs all{made.nbDims + 1, {}};
      all.d[0] = builder.constant(batch);
      for (int32_t i = 0; i < made.nbDims; ++i) all.d[i + 1] = builder.constant(made.d[i]);
      return all;
    });
  }

  size_t getWorkspaceSize(PluginTensorDesc const* inputs, int32_t num_inputs,
                          PluginTensorDesc const*, int32_t) const noexcept override {
    return guarded<size_t>(0, [&] {
      return plugin_->getWorkspaceSize(
          batch_of(std::span(inputs, static_cast<size_t>(num_inputs))));
    });
  }

  /// Tells the plugin its shapes while an engine is built. The plugin serializes them.
  void configurePlugin(DynamicPluginTensorDesc const* in, int32_t num_inputs,
                       DynamicPluginTensorDesc const* out, int32_t num_outputs) noexcept override {
    if (is_initialized_) return;
    guarded(0, [&] {
      const std::vector<PluginTensorDesc> inputs =
          descs_of(std::span(in, static_cast<size_t>(num_inputs)));
      configure(inputs, descs_of(std::span(out, static_cast<size_t>(num_outputs))));
      return 0;
    });
  }

  int32_t initialize() noexcept override {
    is_initialized_ = true;
    return plugin_->initialize();
  }
  void terminate() noexcept override { plugin_->terminate(); }
  void attachToContext(cudnnContext* cudnn, cublasContext* cublas,
                       IGpuAllocator* allocator) noexcept override {
    plugin_->attachToContext(cudnn, cublas, allocator);
  }
  void detachFromContext() noexcept override { plugin_->detachFromContext(); }

  int32_t enqueue(PluginTensorDesc const* inputs, PluginTensorDesc const* outputs,
                  void const* const* in, void* const* out, void* workspace,
                  cudaStream_t stream) noexcept override {
    // Without inputs, the outputs have the batch.
    const Dims& first = inputs != nullptr ? inputs[0].dims : outputs[0].dims;
    return plugin_->enqueue(static_cast<int32_t>(first.d[0]), in, out, workspace, stream);
  }

  size_t getSerializationSize() const noexcept override { return plugin_->getSerializationSize(); }
  void serialize(void* buffer) const noexcept override { plugin_->serialize(buffer); }
  void destroy() noexcept override { delete this; }

 protected:
  struct Destroy {
    void operator()(IPluginV2* plugin) const { plugin->destroy(); }
  };

  virtual void configure(const std::vector<PluginTensorDesc>& inputs,
                         const std::vector<PluginTensorDesc>& outputs) = 0;

  template <class T, class Function>
  static T guarded(T failed, Function function) noexcept {
    try {
      return function();
    } catch (...) {
      leave_exception(std::current_exception());
      return failed;
    }
  }

  /// An adapted clone of `plugin`; null if it cannot be cloned.
  template <class Adapter>
  IPluginV2DynamicExt* cloned() const noexcept {
    return guarded<IPluginV2DynamicExt*>(nullptr, [&]() -> IPluginV2DynamicExt* {
      std::unique_ptr<IPluginV2, Destroy> copy(plugin_->clone());
      if (copy == nullptr) return nullptr;
      auto made = std::make_unique<Adapter>(static_cast<IPluginV2Ext*>(copy.get()));
      (void)copy.release();
      made->is_initialized_ = is_initialized_;
      return made.release();
    });
  }

  const std::unique_ptr<IPluginV2Ext, Destroy> plugin_;
  bool is_initialized_ = false;

 private:
  static Dims fixed(const DimsExprs& input, size_t index) {
    Dims dims{input.nbDims, {}};
    for (int32_t i = 0; i < input.nbDims; ++i) {
      require(input.d[i]->isConstant(), "input ", index, " has a dynamic extent, axis ", i,
              "; plugins of this kind run with fixed shapes only: give the network's inputs "
              "constant extents, or derive the plugin from IPluginV2DynamicExt or IPluginV3");
      dims.d[i] = input.d[i]->getConstantValue();
    }
    return dims;
  }
};

/// An adapter with one type and format for all floating inputs and outputs.
class ExtPlugin final : public FixedShapePlugin {
 public:
  using FixedShapePlugin::FixedShapePlugin;

  bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* ports, int32_t num_inputs,
                                 int32_t) noexcept override {
    const PluginTensorDesc& port = ports[pos];
    if (pos >= num_inputs) {
      std::vector<DataType> types;
      for (int32_t i = 0; i < num_inputs; ++i) types.push_back(ports[i].type);
      if (port.type != plugin_->getOutputDataType(pos - num_inputs, types.data(), num_inputs))
        return false;
    }
    if (!has_float_format(port.type)) return port.format == TensorFormat::kLINEAR;
    // These plugins are never asked about these formats.
    if (port.format == TensorFormat::kCHW4 || port.format == TensorFormat::kCHW16 ||
        port.format == TensorFormat::kCHW32)
      return false;
    for (int32_t i = 0; i < pos; ++i) {
      if (!has_float_format(ports[i].type)) continue;
      if (ports[i].format != port.format) return false;
      if (i < num_inputs && pos < num_inputs && ports[i].type != port.type) return false;
    }
    return plugin_->supportsFormat(port.type, port.format);
  }

  IPluginV2DynamicExt* clone() const noexcept override { return cloned<ExtPlugin>(); }

 private:
  void configure(const std::vector<PluginTensorDesc>& inputs,
                 const std::vector<PluginTensorDesc>& outputs) override {
    TensorFormat format = TensorFormat::kLINEAR;
    const auto split = [&format](const std::vector<PluginTensorDesc>& ports) {
      std::pair<std::vector<Dims>, std::vector<DataType>> lists;
      for (const PluginTensorDesc& port : ports) {
        lists.first.push_back(without_batch(port.dims));
        lists.second.push_back(port.type);
        if (has_float_format(port.type)) format = port.format;
      }
      return lists;
    };
    const auto in = split(inputs), out = split(outputs);
    const auto is_broadcast = std::make_unique<bool[]>(std::max(inputs.size(), outputs.size()));
    plugin_->configurePlugin(in.first.data(), static_cast<int32_t>(inputs.size()), out.first.data(),
                             static_cast<int32_t>(outputs.size()), in.second.data(),
                             out.second.data(), is_broadcast.get(), is_broadcast.get(), format,
                             batch_of(inputs));
  }
};

/// An adapter with a type and a format for each input and output.
class IoExtPlugin final : public FixedShapePlugin {
 public:
  using FixedShapePlugin::FixedShapePlugin;

  bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* ports, int32_t num_inputs,
                                 int32_t num_outputs) noexcept override {
    return guarded(false, [&] {
      const size_t count = static_cast<size_t>(num_inputs) + static_cast<size_t>(num_outputs);
      return own().supportsFormatCombination(pos, without_batch(std::span(ports, count)).data(),
                                             num_inputs, num_outputs);
    });
  }

  IPluginV2DynamicExt* clone() const noexcept override { return cloned<IoExtPlugin>(); }

 private:
  IPluginV2IOExt& own() const { return static_cast<IPluginV2IOExt&>(*plugin_); }
  void configure(const std::vector<PluginTensorDesc>& inputs,
                 const std::vector<PluginTensorDesc>& outputs) override {
    own().configurePlugin(without_batch(inputs).data(), static_cast<int32_t>(inputs.size()),
                          without_batch(outputs).data(), static_cast<int32_t>(outputs.size()));
  }
};

}  // namespace

IPluginV2DynamicExt* adapt_fixed_shapes(IPluginV2* plugin, PluginVersion version) {
  auto* ext = static_cast<IPluginV2Ext*>(plugin);
  if (version == PluginVersion::kV2_IOEXT) return new IoExtPlugin(ext);
  return new ExtPlugin(ext);
}

IPluginV2& plugin_as_given(IPluginV2& plugin) {
  if ((upper_byte(plugin) & kAdapted) == 0) return plugin;
  return static_cast<FixedShapePlugin&>(plugin).plugin();
}

const IPluginV2& plugin_as_given(const IPluginV2& plugin) {
  return plugin_as_given(const_cast<IPluginV2&>(plugin));
}

PluginVersion plugin_version(const IPluginV2& plugin) {
  const uint32_t version = call_plugin("", [&] { return upper_byte(plugin); });
  return static_cast<PluginVersion>(version & ~(uint32_t{kPLUGIN_VERSION_PYTHON_BIT} | kAdapted));
}

}  // namespace opwright
