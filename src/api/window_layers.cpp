#include "api/layer.h"
#include "operators/add_layers.h"
#include "operators/convolution.h"
#include "operators/pooling.h"

namespace opwright {
namespace {

/// What convolutions and pooling share.
template <class Interface, class Op>
class WindowLayer : public BuiltinLayerApi<Interface, Op> {
 public:
  using BuiltinLayerApi<Interface, Op>::BuiltinLayerApi;
  using Params = typename Op::Params;

  void setStrideNd(Dims const& dims) noexcept override { this->set_ints(&Params::stride, dims); }
  Dims getStrideNd() const noexcept override { return this->get_spatial(&Params::stride, 1); }
  void setPrePadding(Dims const& dims) noexcept override {
    this->set_ints(&Params::pre_padding, dims);
  }
  Dims getPrePadding() const noexcept override {
    return this->get_spatial(&Params::pre_padding, 0);
  }
  void setPostPadding(Dims const& dims) noexcept override {
    this->set_ints(&Params::post_padding, dims);
  }
  Dims getPostPadding() const noexcept override {
    return this->get_spatial(&Params::post_padding, 0);
  }
  void setPaddingNd(Dims const& dims) noexcept override {
    this->edit([&](Params& params) { params.pre_padding = params.post_padding = to_ints(dims); });
  }
  Dims getPaddingNd() const noexcept override { return getPrePadding(); }
  void setPaddingMode(PaddingMode mode) noexcept override {
    this->set(&Params::padding_mode, mode);
  }
  PaddingMode getPaddingMode() const noexcept override { return this->params().padding_mode; }
};

template <class Interface, class Op>
class ConvolutionLayer final : public WindowLayer<Interface, Op> {
 public:
  using WindowLayer<Interface, Op>::WindowLayer;

  Dims getKernelSizeNd() const noexcept override {
    return this->errors().guard(Dims{-1, {}},
                                [&] { return kernel_window(this->handle_.layer).dims(); });
  }
  int64_t getNbOutputMaps() const noexcept override {
    return this->errors().template guard<int64_t>(
        0, [&] { return this->handle_.layer.output(0)->shape()[1]; });
  }
  Weights getKernelWeights() const noexcept override { return weights(1); }
  Weights getBiasWeights() const noexcept override { return weights(2); }
  void setKernelWeights(Weights weights) noexcept override {
    this->errors().run(
        [&] { set_kernel(this->handle_.layer, copy_of(weights, "setKernelWeights")); });
  }
  void setBiasWeights(Weights weights) noexcept override {
    this->errors().run([&] { set_bias(this->handle_.layer, copy_of(weights, "setBiasWeights")); });
  }
  void setNbGroups(int64_t nbGroups) noexcept override {
    this->set(&ConvolutionParams::groups, nbGroups);
  }
  int64_t getNbGroups() const noexcept override { return this->params().groups; }
  void setDilationNd(Dims const& dims) noexcept override {
    this->set_ints(&ConvolutionParams::dilation, dims);
  }
  Dims getDilationNd() const noexcept override {
    return this->get_spatial(&ConvolutionParams::dilation, 1);
  }

 private:
  Weights weights(int index) const noexcept {
    return this->errors().guard(Weights{DataType::kFLOAT, nullptr, 0},
                                [&] { return this->handle_.weights(index); });
  }
};

class PoolingLayer final : public WindowLayer<IPoolingLayer, Pooling> {
 public:
  using WindowLayer::WindowLayer;

  void setPoolingType(PoolingType type) noexcept override { set(&PoolingParams::type, type); }
  PoolingType getPoolingType() const noexcept override { return params().type; }
  void setWindowSizeNd(Dims const& dims) noexcept override {
    set_ints(&PoolingParams::window, dims);
  }
  Dims getWindowSizeNd() const noexcept override { return get_ints(&PoolingParams::window); }
  void setBlendFactor(float factor) noexcept override { set(&PoolingParams::blend_factor, factor); }
  float getBlendFactor() const noexcept override { return params().blend_factor; }
  void setAverageCountExcludesPadding(bool excludes) noexcept override {
    set(&PoolingParams::average_count_excludes_padding, excludes);
  }
  bool getAverageCountExcludesPadding() const noexcept override {
    return params().average_count_excludes_padding;
  }
};

}  // namespace

void add_window_classes(LayerClasses& classes) {
  classes[LayerType::kCONVOLUTION] =
      make_layer_api<ConvolutionLayer<IConvolutionLayer, Convolution>>;
  classes[LayerType::kDECONVOLUTION] =
      make_layer_api<ConvolutionLayer<IDeconvolutionLayer, Deconvolution>>;
  classes[LayerType::kPOOLING] = make_layer_api<PoolingLayer>;
}

}  // namespace opwright
