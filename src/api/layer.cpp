#include "api/layer.h"

#include "api/tensor.h"
#include "network/shape_inputs.h"

namespace opwright {

WeightsArray copy_of(const Weights& weights, const char* what) {
  require(weights.count >= 0 && (weights.count == 0 || weights.values != nullptr), what,
          ": the weights have no values, but ", weights.count, " elements");
  const auto bytes = static_cast<size_t>(bytes_of(weights.type, weights.count));
  return {weights.type, Shape{weights.count},
          weights.count == 0 ? Blob() : Blob::copy(weights.values, bytes)};
}

Shape to_shape(const Ints& values) { return Shape(std::span<const int64_t>(values)); }

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

Weights LayerHandle::weights(int index) const {
  const WeightsArray array = layer_weights(layer, index);
  if (array.data.size() == 0) return {array.dtype, nullptr, 0};
  return {array.dtype, array.data.data(), array.shape.numel()};
}

const LayerClasses& layer_classes() {
  static const LayerClasses classes = [] {
    LayerClasses all;
    add_window_classes(all);
    add_elementwise_classes(all);
    add_reduction_classes(all);
    add_movement_classes(all);
    add_source_classes(all);
    return all;
  }();
  return classes;
}

}  // namespace opwright
