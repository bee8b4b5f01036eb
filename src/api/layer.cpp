#include "api/layer.h"

#include <span>
#include <unordered_map>
#include <utility>

#include "api/regions.h"
#include "api/tensor.h"
#include "network/shape_inputs.h"
#include "operators/builtin_layers.h"
#include "operators/layer_types.h"
#include "operators/properties.h"
#include "plugin/abi/v2_model.h"
#include "plugin/abi/v3_model.h"

namespace opwright {

Ints to_ints(Dims const& dims) {
  const Shape shape(dims);
  return Ints(shape.begin(), shape.end());
}

void LayerHandle::set_name(char const* name) const {
  require(name != nullptr, "layer '", layer.name(), "': the new name is null");
  layer.set_name(name);
}

void LayerHandle::set_metadata(char const* metadata) const {
  layer.set_metadata(metadata == nullptr ? "" : metadata);
}

void LayerHandle::set_input(int32_t index, ITensor& tensor) const {
  Tensor& core = TensorApi::of(tensor);
  if (&core.network() == &layer.network() && layer.op()->is_shape_input(index)) {
    make_shape_inputs(core);
  }
  layer.set_input(index, &core);
}

ITensor* LayerHandle::input(int32_t index) const { return network.tensor(layer.input(index)); }

ITensor* LayerHandle::output(int32_t index) const { return network.tensor(layer.output(index)); }

DataType LayerHandle::output_type(int32_t index) const {
  return layer.output(index)->engine_type();
}

DataType LayerHandle::precision() const { return layer.computed_in(); }

void LayerHandle::set_output_type(int32_t index, DataType type) const {
  layer.output(index)->set_stored_type(type);
}

bool LayerHandle::output_type_is_set(int32_t index) const {
  return layer.output(index)->stored_type().has_value();
}

void LayerHandle::reset_output_type(int32_t index) const {
  layer.output(index)->reset_stored_type();
}

impl::LayerValue LayerHandle::property(char const* name, Kept& kept) const {
  const PropertyValue value = get_property(layer, name);
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* ints = std::get_if<Ints>(&value))
    return Shape(std::span<const int64_t>(*ints)).dims();
  if (const auto* floats = std::get_if<Floats>(&value)) {
    kept.reals.assign(floats->begin(), floats->end());
    return {kept.reals.data(), static_cast<int32_t>(kept.reals.size())};
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    kept.text = *text;
    return kept.text.c_str();
  }
  if (const auto* weights = std::get_if<WeightsArray>(&value)) {
    if (weights->data.size() == 0) return Weights{weights->dtype, nullptr, 0};
    return Weights{weights->dtype, weights->data.data(), weights->shape.numel()};
  }
  return {};
}

void LayerHandle::set_property(char const* name, impl::LayerValue const& value) const {
  using Kind = impl::LayerValue::Kind;
  PropertyValue to;
  if (value.kind == Kind::kINTEGER) to = value.integer;
  if (value.kind == Kind::kREAL) to = value.real;
  if (value.kind == Kind::kDIMS) to = to_ints(value.dims);
  if (value.kind == Kind::kREALS) {
    require(value.reals != nullptr && value.count >= 0, "layer '", layer.name(), "': the ", name,
            " are null or their number ", value.count, " is negative");
    to = Floats(value.reals, value.reals + value.count);
  }
  if (value.kind == Kind::kTEXT) {
    require(value.text != nullptr, "layer '", layer.name(), "': the ", name, " is null");
    to = std::string(value.text);
  }
  if (value.kind == Kind::kWEIGHTS) to = network.copy_of(value.weights, name);
  opwright::set_property(layer, name, to);
}

namespace {

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

/// A layer at the border of a loop or conditional.
template <class Interface>
class BoundaryLayer final : public LayerApi<Interface> {
 public:
  using LayerApi<Interface>::LayerApi;
  /// The loop, in layers of loops.
  ILoop* getLoop() const noexcept {
    return this->handle_.network.loop(boundary_of(this->handle_.layer)->region());
  }
  /// The conditional, in layers of conditionals.
  IIfConditional* getConditional() const noexcept {
    return this->handle_.network.conditional(boundary_of(this->handle_.layer)->region());
  }
};

class AttentionLayer final : public LayerApi<IAttentionOutputLayer> {
 public:
  explicit AttentionLayer(const LayerHandle& handle) : LayerApi(handle), attention_(handle) {}
  IAttention* getAttention() const noexcept override { return &attention_; }

 private:
  mutable AttentionApi attention_;
};

template <class Interface>
constexpr bool is_boundary = std::is_base_of_v<ILoopBoundaryLayer, Interface> ||
                             std::is_base_of_v<IIfConditionalBoundaryLayer, Interface>;

using MakeLayer = std::shared_ptr<ILayer> (*)(const LayerHandle& handle);

template <class Api>
std::shared_ptr<ILayer> make(const LayerHandle& handle) {
  return std::make_shared<Api>(handle);
}

}  // namespace

std::shared_ptr<ILayer> make_layer_api(const LayerHandle& handle) {
  static const auto classes = [] {
    std::unordered_map<LayerType, MakeLayer> all = {
        {LayerType::kCONSTANT, make<LayerApi<IConstantLayer>>},
        {LayerType::kPADDING, make<LayerApi<IPaddingLayer>>},
        {LayerType::kPLUGIN_V2, make<PluginV2Layer>},
        {LayerType::kPLUGIN_V3, make<PluginV3Layer>}};
    each_layer([&]<class Op>() {
      using Interface = typename decltype(Op::kLayer)::Interface;
      if constexpr (std::is_same_v<Interface, IAttentionOutputLayer>)
        all.emplace(Op::kLayer.type, make<AttentionLayer>);
      else if constexpr (is_boundary<Interface>)
        all.emplace(Op::kLayer.type, make<BoundaryLayer<Interface>>);
      else
        all.emplace(Op::kLayer.type, make<LayerApi<Interface>>);
    });
    return all;
  }();
  const auto found = classes.find(layer_type(handle.layer));
  return (found == classes.end() ? make<LayerApi<ILayer>> : found->second)(handle);
}

}  // namespace opwright
