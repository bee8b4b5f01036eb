#include "api/layer.h"
#include "operators/normalization.h"
#include "operators/reduce.h"

namespace opwright {
namespace {

class ReduceLayer final : public BuiltinLayerApi<IReduceLayer, Reduce> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setOperation(ReduceOperation op) noexcept override { set(&Params::op, op); }
  ReduceOperation getOperation() const noexcept override { return params().op; }
  void setReduceAxes(uint32_t axes) noexcept override { set(&Params::axes, axes); }
  uint32_t getReduceAxes() const noexcept override { return static_cast<uint32_t>(params().axes); }
  void setKeepDimensions(bool keep) noexcept override { set(&Params::keep_dims, keep); }
  bool getKeepDimensions() const noexcept override { return params().keep_dims; }
};

class SoftMaxLayer final : public BuiltinLayerApi<ISoftMaxLayer, Softmax> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setAxes(uint32_t axes) noexcept override { set(&Params::axes, axes); }
  uint32_t getAxes() const noexcept override { return static_cast<uint32_t>(params().axes); }
};

class TopKLayer final : public BuiltinLayerApi<ITopKLayer, TopK> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setOperation(TopKOperation op) noexcept override { set(&Params::op, op); }
  TopKOperation getOperation() const noexcept override { return params().op; }
  void setK(int32_t k) noexcept override { set(&Params::k, k); }
  int32_t getK() const noexcept override { return static_cast<int32_t>(params().k); }
  void setReduceAxes(uint32_t axes) noexcept override { set(&Params::axes, axes); }
  uint32_t getReduceAxes() const noexcept override { return static_cast<uint32_t>(params().axes); }
  void setIndicesType(DataType type) noexcept override { set(&Params::indices_type, type); }
  DataType getIndicesType() const noexcept override { return params().indices_type; }
};

class NormalizationLayer final : public BuiltinLayerApi<INormalizationLayer, Normalization> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setEpsilon(float epsilon) noexcept override { set(&Params::epsilon, epsilon); }
  float getEpsilon() const noexcept override { return params().epsilon; }
  void setAxes(uint32_t axes) noexcept override { set(&Params::axes, axes); }
  uint32_t getAxes() const noexcept override { return static_cast<uint32_t>(params().axes); }
  void setNbGroups(int64_t nbGroups) noexcept override { set(&Params::num_groups, nbGroups); }
  int64_t getNbGroups() const noexcept override { return params().num_groups; }
};

class LrnLayer final : public BuiltinLayerApi<ILRNLayer, Lrn> {
 public:
  using BuiltinLayerApi::BuiltinLayerApi;
  void setWindowSize(int64_t size) noexcept override { set(&Params::window, size); }
  int64_t getWindowSize() const noexcept override { return params().window; }
  void setAlpha(float alpha) noexcept override { set(&Params::alpha, alpha); }
  float getAlpha() const noexcept override { return params().alpha; }
  void setBeta(float beta) noexcept override { set(&Params::beta, beta); }
  float getBeta() const noexcept override { return params().beta; }
  void setK(float k) noexcept override { set(&Params::k, k); }
  float getK() const noexcept override { return params().k; }
};

}  // namespace

void add_reduction_classes(LayerClasses& classes) {
  classes[LayerType::kREDUCE] = make_layer_api<ReduceLayer>;
  classes[LayerType::kSOFTMAX] = make_layer_api<SoftMaxLayer>;
  classes[LayerType::kTOPK] = make_layer_api<TopKLayer>;
  classes[LayerType::kNORMALIZATION] = make_layer_api<NormalizationLayer>;
  classes[LayerType::kLRN] = make_layer_api<LrnLayer>;
}

}  // namespace opwright
