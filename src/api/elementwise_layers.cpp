#include "api/layer.h"
#include "operators/activation.h"
#include "operators/elementwise.h"
#include "operators/matrix.h"

namespace opwright {
namespace {

class ActivationLayer final : public BuiltinLayerApi<IActivationLayer, Activation> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setActivationType(ActivationType type) noexcept override { set(&Params::type, type); }
  ActivationType getActivationType() const noexcept override { return params().type; }
  void setAlpha(float alpha) noexcept override { set(&Params::alpha, alpha); }
  float getAlpha() const noexcept override { return params().alpha; }
  void setBeta(float beta) noexcept override { set(&Params::beta, beta); }
  float getBeta() const noexcept override { return params().beta; }
};

class ElementWiseLayer final : public BuiltinLayerApi<IElementWiseLayer, ElementWise> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setOperation(ElementWiseOperation op) noexcept override { set(&Params::op, op); }
  ElementWiseOperation getOperation() const noexcept override { return params().op; }
};

class UnaryLayer final : public BuiltinLayerApi<IUnaryLayer, Unary> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setOperation(UnaryOperation op) noexcept override { set(&Params::op, op); }
  UnaryOperation getOperation() const noexcept override { return params().op; }
};

class CastLayer final : public BuiltinLayerApi<ICastLayer, Cast> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setToType(DataType type) noexcept override { set(&Params::to, type); }
  DataType getToType() const noexcept override { return params().to; }
};

class MatrixMultiplyLayer final : public BuiltinLayerApi<IMatrixMultiplyLayer, MatrixMultiply> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setOperation(int32_t index, MatrixOperation op) noexcept override {
    edit([&](Params& params) { params.*operand(index) = op; });
  }
  MatrixOperation getOperation(int32_t index) const noexcept override {
    return errors().guard(MatrixOperation::kNONE, [&] { return params().*operand(index); });
  }

 private:
  MatrixOperation Params::*operand(int32_t index) const {
    require(index == 0 || index == 1, "layer '", handle_.layer.name(), "' has no operand ", index,
            "; it has 0 and 1");
    return index == 0 ? &Params::op0 : &Params::op1;
  }
};

class ScaleLayer final : public BuiltinLayerApi<IScaleLayer, Scale> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setMode(ScaleMode mode) noexcept override { set(&Params::mode, mode); }
  ScaleMode getMode() const noexcept override { return params().mode; }
  Weights getShift() const noexcept override { return weights(1); }
  Weights getScale() const noexcept override { return weights(2); }
  Weights getPower() const noexcept override { return weights(3); }
  void setShift(Weights shift) noexcept override { set_factor(1, shift, "setShift"); }
  void setScale(Weights scale) noexcept override { set_factor(2, scale, "setScale"); }
  void setPower(Weights power) noexcept override { set_factor(3, power, "setPower"); }
  void setChannelAxis(int32_t axis) noexcept override { set(&Params::channel_axis, axis); }
  int32_t getChannelAxis() const noexcept override {
    return static_cast<int32_t>(params().channel_axis);
  }

 private:
  Weights weights(int index) const noexcept {
    return errors().guard(Weights{DataType::kFLOAT, nullptr, 0},
                          [&] { return handle_.weights(index); });
  }
  void set_factor(int input, const Weights& weights, const char* what) noexcept {
    errors().run([&] { set_scale_factor(handle_.layer, input, copy_of(weights, what)); });
  }
};

}  // namespace

void add_elementwise_classes(LayerClasses& classes) {
  classes[LayerType::kACTIVATION] = make_layer_api<ActivationLayer>;
  classes[LayerType::kELEMENTWISE] = make_layer_api<ElementWiseLayer>;
  classes[LayerType::kUNARY] = make_layer_api<UnaryLayer>;
  classes[LayerType::kCAST] = make_layer_api<CastLayer>;
  classes[LayerType::kIDENTITY] = make_layer_api<LayerApi<IIdentityLayer>>;
  classes[LayerType::kSELECT] = make_layer_api<LayerApi<ISelectLayer>>;
  classes[LayerType::kPARAMETRIC_RELU] = make_layer_api<LayerApi<IParametricReLULayer>>;
  classes[LayerType::kMATRIX_MULTIPLY] = make_layer_api<MatrixMultiplyLayer>;
  classes[LayerType::kSCALE] = make_layer_api<ScaleLayer>;
}

}  // namespace opwright
