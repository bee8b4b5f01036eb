#include "api/layer.h"
#include "operators/source.h"
#include "plugin/v2_operator.h"
#include "plugin/v3_operator.h"

namespace opwright {
namespace {

class ConstantLayer final : public LayerApi<IConstantLayer> {
 public:
  using LayerApi::LayerApi;
  Dims getDimensions() const noexcept override {
    return layer_weights(handle_.layer, 0).shape.dims();
  }
  void setDimensions(Dims const& dimensions) noexcept override {
    errors().run([&] { reshape_constant(handle_.layer, Shape(dimensions)); });
  }
  Weights getWeights() const noexcept override { return handle_.weights(0); }
  void setWeights(Weights weights) noexcept override {
    errors().run([&] { set_constant(handle_.layer, copy_of(weights, "setWeights")); });
  }
};

class FillLayer final : public BuiltinLayerApi<IFillLayer, Fill> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setDimensions(Dims const& dims) noexcept override { set_ints(&Params::shape, dims); }
  Dims getDimensions() const noexcept override { return get_ints(&Params::shape); }
  void setOperation(FillOperation op) noexcept override { set(&Params::operation, op); }
  FillOperation getOperation() const noexcept override { return params().operation; }
  void setAlpha(double alpha) noexcept override { set(&Params::alpha, alpha); }
  double getAlpha() const noexcept override { return params().alpha; }
  void setBeta(double beta) noexcept override { set(&Params::beta, beta); }
  double getBeta() const noexcept override { return params().beta; }
  void setToType(DataType type) noexcept override { set(&Params::to_type, type); }
  DataType getToType() const noexcept override { return params().to_type; }
};

class PluginV2Layer final : public LayerApi<IPluginV2Layer> {
 public:
  using LayerApi::LayerApi;
  IPluginV2& getPlugin() noexcept override { return *plugin_v2_of(*handle_.layer.op()); }
};

class PluginV3Layer final : public LayerApi<IPluginV3Layer> {
 public:
  using LayerApi::LayerApi;
  IPluginV3& getPlugin() noexcept override { return *plugin_of(*handle_.layer.op()); }
};

}  // namespace

void add_source_classes(LayerClasses& classes) {
  classes[LayerType::kCONSTANT] = make_layer_api<ConstantLayer>;
  classes[LayerType::kFILL] = make_layer_api<FillLayer>;
  classes[LayerType::kSHAPE] = make_layer_api<LayerApi<IShapeLayer>>;
  classes[LayerType::kPLUGIN_V2] = make_layer_api<PluginV2Layer>;
  classes[LayerType::kPLUGIN_V3] = make_layer_api<PluginV3Layer>;
}

}  // namespace opwright
