#include <algorithm>
#include <iterator>

#include "api/layer.h"
#include "operators/add_layers.h"
#include "operators/movement.h"

namespace opwright {
namespace {

class ShuffleLayer final : public BuiltinLayerApi<IShuffleLayer, Shuffle> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setFirstTranspose(Permutation permutation) noexcept override {
    set_permutation(&Params::first_transpose, permutation);
  }
  Permutation getFirstTranspose() const noexcept override {
    return permutation(params().first_transpose);
  }
  void setReshapeDimensions(Dims const& dims) noexcept override {
    edit([&](Params& params) {
      params.has_reshape = true;
      params.reshape_dims = to_ints(dims);
    });
  }
  Dims getReshapeDimensions() const noexcept override {
    return params().has_reshape ? get_ints(&Params::reshape_dims) : Dims{-1, {}};
  }
  void setSecondTranspose(Permutation permutation) noexcept override {
    set_permutation(&Params::second_transpose, permutation);
  }
  Permutation getSecondTranspose() const noexcept override {
    return permutation(params().second_transpose);
  }
  void setZeroIsPlaceholder(bool is) noexcept override { set(&Params::zero_is_placeholder, is); }
  bool getZeroIsPlaceholder() const noexcept override { return params().zero_is_placeholder; }

 private:
  void set_permutation(Ints Params::*member, const Permutation& permutation) noexcept {
    edit([&](Params& params) {
      (params.*member).assign(std::begin(permutation.order), std::end(permutation.order));
    });
  }
  static Permutation permutation(const Ints& order) {
    Permutation result;
    for (int32_t i = 0; i < Dims::MAX_DIMS; ++i) result.order[i] = i;
    std::copy(order.begin(), order.end(), result.order);
    return result;
  }
};

class SliceLayer final : public BuiltinLayerApi<ISliceLayer, Slice> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setStart(Dims const& dims) noexcept override { set_ints(&Params::start, dims); }
  Dims getStart() const noexcept override { return get_ints(&Params::start); }
  void setSize(Dims const& dims) noexcept override { set_ints(&Params::size, dims); }
  Dims getSize() const noexcept override { return get_ints(&Params::size); }
  void setStride(Dims const& dims) noexcept override { set_ints(&Params::stride, dims); }
  Dims getStride() const noexcept override { return get_ints(&Params::stride); }
  void setMode(SampleMode mode) noexcept override { set(&Params::mode, mode); }
  SampleMode getMode() const noexcept override { return params().mode; }
  void setAxes(Dims const& dims) noexcept override { set_ints(&Params::axes, dims); }
  Dims getAxes() const noexcept override { return get_ints(&Params::axes); }
};

/// A slice that begins before and ends behind its input.
class PaddingLayer final : public BuiltinLayerApi<IPaddingLayer, Slice> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  Dims getPrePaddingNd() const noexcept override {
    return errors().guard(Dims{-1, {}}, [&] { return padding_of(handle_.layer).before.dims(); });
  }
  Dims getPostPaddingNd() const noexcept override {
    return errors().guard(Dims{-1, {}}, [&] { return padding_of(handle_.layer).after.dims(); });
  }
};

class ConcatenationLayer final : public BuiltinLayerApi<IConcatenationLayer, Concatenation> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setAxis(int32_t axis) noexcept override { set(&Params::axis, axis); }
  int32_t getAxis() const noexcept override { return static_cast<int32_t>(params().axis); }
};

class GatherLayer final : public BuiltinLayerApi<IGatherLayer, Gather> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setGatherAxis(int32_t axis) noexcept override { set(&Params::axis, axis); }
  int32_t getGatherAxis() const noexcept override { return static_cast<int32_t>(params().axis); }
  void setNbElementWiseDims(int32_t count) noexcept override {
    set(&Params::num_elementwise_dims, count);
  }
  int32_t getNbElementWiseDims() const noexcept override {
    return static_cast<int32_t>(params().num_elementwise_dims);
  }
  void setMode(GatherMode mode) noexcept override { set(&Params::mode, mode); }
  GatherMode getMode() const noexcept override { return params().mode; }
};

class ResizeLayer final : public BuiltinLayerApi<IResizeLayer, Resize> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setOutputDimensions(Dims const& dims) noexcept override {
    edit([&](Params& params) {
      params.shape = to_ints(dims);
      params.scales.clear();
    });
  }
  Dims getOutputDimensions() const noexcept override {
    return params().scales.empty() ? get_ints(&Params::shape) : Dims{-1, {}};
  }
  void setScales(float const* scales, int32_t nbScales) noexcept override {
    edit([&](Params& params) {
      require(scales != nullptr && nbScales >= 0, "layer '", handle_.layer.name(),
              "': the scales are null or their number ", nbScales, " is negative");
      params.scales.assign(scales, scales + nbScales);
      params.shape.clear();
    });
  }
  int32_t getScales(int32_t size, float* scales) const noexcept override {
    const Floats& own = params().scales;
    if (own.empty()) return -1;
    const auto count = static_cast<int32_t>(own.size());
    if (scales != nullptr) std::copy_n(own.begin(), std::clamp(size, 0, count), scales);
    return count;
  }
  void setResizeMode(InterpolationMode mode) noexcept override { set(&Params::mode, mode); }
  InterpolationMode getResizeMode() const noexcept override { return params().mode; }
  void setCoordinateTransformation(ResizeCoordinateTransformation value) noexcept override {
    set(&Params::coordinate_transformation, value);
  }
  ResizeCoordinateTransformation getCoordinateTransformation() const noexcept override {
    return params().coordinate_transformation;
  }
  void setSelectorForSinglePixel(ResizeSelector selector) noexcept override {
    set(&Params::selector_upper, selector == ResizeSelector::kUPPER);
  }
  ResizeSelector getSelectorForSinglePixel() const noexcept override {
    return params().selector_upper ? ResizeSelector::kUPPER : ResizeSelector::kFORMULA;
  }
  void setNearestRounding(ResizeRoundMode mode) noexcept override {
    set(&Params::nearest_rounding, mode);
  }
  ResizeRoundMode getNearestRounding() const noexcept override { return params().nearest_rounding; }
  void setCubicCoeff(float coefficient) noexcept override {
    set(&Params::cubic_coeff, coefficient);
  }
  float getCubicCoeff() const noexcept override { return params().cubic_coeff; }
  void setExcludeOutside(bool exclude) noexcept override { set(&Params::exclude_outside, exclude); }
  bool getExcludeOutside() const noexcept override { return params().exclude_outside; }
};

}  // namespace

void add_movement_classes(LayerClasses& classes) {
  classes[LayerType::kSHUFFLE] = make_layer_api<ShuffleLayer>;
  classes[LayerType::kSLICE] = make_layer_api<SliceLayer>;
  classes[LayerType::kPADDING] = make_layer_api<PaddingLayer>;
  classes[LayerType::kCONCATENATION] = make_layer_api<ConcatenationLayer>;
  classes[LayerType::kGATHER] = make_layer_api<GatherLayer>;
  classes[LayerType::kRESIZE] = make_layer_api<ResizeLayer>;
}

}  // namespace opwright
