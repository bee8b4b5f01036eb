#include "api/layer.h"

#include "api/tensor.h"
#include "network/constant.h"
#include "network/shape_inputs.h"

namespace opwright {

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

DataType LayerHandle::output_type(int32_t index) const { return layer.output(index)->dtype(); }

Weights LayerHandle::weights(int index) const {
  Weights none{DataType::kFLOAT, nullptr, 0};
  if (index >= layer.num_inputs() || layer.input(index) == nullptr) return none;
  const Layer* producer = layer.input(index)->producer();
  if (producer == nullptr || producer->op()->kind() != "Constant") return none;
  const Constant::Params& constant = static_cast<const Constant&>(*producer->op()).params();
  return {constant.dtype, constant.data.data(), constant.shape.numel()};
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
