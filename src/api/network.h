#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "api/border.h"
#include "api/tensor.h"
#include "network/network.h"
#include "operators/properties.h"
#include "opwright/network.h"
#include "plugin/registry/registry.h"

namespace opwright {

/// The public face of a Network, which it owns.
class NetworkApi final : public INetworkDefinition {
 public:
  NetworkApi(IBuilder& builder, NetworkDefinitionCreationFlags flags, Log log,
             IErrorRecorder* recorder);
  ~NetworkApi() noexcept override;

  static NetworkApi& of(INetworkDefinition& network) { return static_cast<NetworkApi&>(network); }
  static const NetworkApi& of(INetworkDefinition const& network) {
    return static_cast<const NetworkApi&>(network);
  }
  Network& network() { return network_; }
  const Network& network() const { return network_; }
  const ErrorReport& errors() const { return errors_; }
  /// The public objects of the network's parts. Each is made on its first use. Null for a null
  /// tensor.
  ITensor* tensor(Tensor* tensor) const;
  ILayer* layer(Layer& layer) const;
  ILoop* loop(Region& region) const;
  IIfConditional* conditional(Region& region) const;
  /// A copy of a caller's weights, which setWeightsName() finds by the caller's address; without
  /// data for weights without values.
  WeightsArray copy_of(const Weights& weights, std::string_view what) const;

  void setName(char const* name) noexcept override;
  char const* getName() const noexcept override { return network_.name().c_str(); }
  NetworkDefinitionCreationFlags getFlags() const noexcept override {
    return network_.flags().bits;
  }
  bool getFlag(NetworkDefinitionCreationFlag flag) const noexcept override;
  bool hasImplicitBatchDimension() const noexcept override { return false; }
  IBuilder& getBuilder() const noexcept override { return builder_; }
  ITensor* addInput(char const* name, DataType type, Dims const& dimensions) noexcept override;
  void markOutput(ITensor& tensor) noexcept override;
  void unmarkOutput(ITensor& tensor) noexcept override;
  bool markOutputForShapes(ITensor& tensor) noexcept override;
  bool unmarkOutputForShapes(ITensor& tensor) noexcept override;
  void removeTensor(ITensor& tensor) noexcept override;
  bool markDebug(ITensor& tensor) noexcept override;
  bool unmarkDebug(ITensor& tensor) noexcept override;
  bool isDebugTensor(ITensor const& tensor) const noexcept override {
    return network_.is_debug(TensorApi::of(tensor));
  }
  bool markUnfusedTensorsAsDebugTensors() noexcept override {
    network_.set_unfused_debug(true);
    return true;
  }
  bool unmarkUnfusedTensorsAsDebugTensors() noexcept override {
    network_.set_unfused_debug(false);
    return true;
  }
  int32_t getNbInputs() const noexcept override;
  ITensor* getInput(int32_t index) const noexcept override;
  int32_t getNbOutputs() const noexcept override;
  ITensor* getOutput(int32_t index) const noexcept override;
  int32_t getNbLayers() const noexcept override { return network_.num_layers(); }
  ILayer* getLayer(int32_t index) const noexcept override;
  IPluginV2Layer* addPluginV2(ITensor* const* inputs, int32_t nbInputs,
                              IPluginV2& plugin) noexcept override;
  IPluginV3Layer* addPluginV3(ITensor* const* inputs, int32_t nbInputs, ITensor* const* shapeInputs,
                              int32_t nbShapeInputs, IPluginV3& plugin) noexcept override;
  bool setWeightsName(Weights weights, char const* name) noexcept override;
  bool markWeightsRefittable(char const* name) noexcept override;
  bool unmarkWeightsRefittable(char const* name) noexcept override;
  bool areWeightsMarkedRefittable(char const* name) const noexcept override;
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    errors_.set_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }
  ILoop* addLoop() noexcept override;
  IIfConditional* addIfConditional() noexcept override;

 protected:
  ILayer* addLayer(char const* method, impl::LayerValue const* arguments,
                   int32_t nbArguments) noexcept override;

 private:
  /// Runs `add`, which returns a Layer*, and returns the layer's public object, of the class
  /// `Interface`.
  template <class Interface, class Add>
  Interface* added(Add&& add) noexcept {
    return errors_.guard<Interface*>(nullptr,
                                     [&] { return static_cast<Interface*>(layer(*add())); });
  }

  IBuilder& builder_;
  Network network_;
  ErrorReport& errors_;
  mutable std::unordered_multimap<const void*, const void*>
      copies_;  ///< by the address of the caller's weights
  mutable std::unordered_map<const Tensor*, std::unique_ptr<TensorApi>> tensors_;
  mutable std::unordered_map<const Layer*, std::shared_ptr<ILayer>> layers_;
  /// Callers cannot delete these objects.
  struct RegionDeleter {
    void operator()(ILoop* loop) const;
    void operator()(IIfConditional* conditional) const;
  };
  mutable std::unordered_map<const Region*, std::unique_ptr<ILoop, RegionDeleter>> loops_;
  mutable std::unordered_map<const Region*, std::unique_ptr<IIfConditional, RegionDeleter>>
      conditionals_;
};

}  // namespace opwright
