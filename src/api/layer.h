#pragma once

#include <span>
#include <string_view>
#include <unordered_map>

#include "api/network.h"
#include "operators/add_layers.h"
#include "operators/layer_types.h"
#include "opwright/layers.h"

namespace opwright {

/// A copy of what a caller gives; without data for weights without values.
WeightsArray copy_of(const Weights& weights, const char* what);

Shape to_shape(const Ints& values);
/// Throws Error for a wrong rank.
Ints to_ints(Dims const& dims);

/// A layer and the network object that it belongs to: what the methods that all layers share need.
struct LayerHandle {
  const NetworkApi& network;
  Layer& layer;

  void set_name(char const* name) const;
  void set_metadata(char const* metadata) const;
  void set_input(int32_t index, ITensor& tensor) const;
  ITensor* input(int32_t index) const;
  ITensor* output(int32_t index) const;
  DataType output_type(int32_t index) const;
  DataType precision() const;
  void set_output_type(int32_t index, DataType type) const;
  bool output_type_is_set(int32_t index) const;
  void reset_output_type(int32_t index) const;
  /// The elements of an input that is a constant, or of the layer if it is one; without values for
  /// others.
  Weights weights(int index) const;
};

/// The methods of ILayer for a class that implements `Interface`.
template <class Interface>
class LayerApi : public Interface {
 public:
  explicit LayerApi(const LayerHandle& handle) : handle_(handle) {}

  LayerType getType() const noexcept override { return layer_type(handle_.layer); }
  void setName(char const* name) noexcept override {
    errors().run([&] { handle_.set_name(name); });
  }
  char const* getName() const noexcept override { return handle_.layer.name().c_str(); }
  int32_t getNbInputs() const noexcept override { return handle_.layer.num_inputs(); }
  ITensor* getInput(int32_t index) const noexcept override {
    return errors().template guard<ITensor*>(nullptr, [&] { return handle_.input(index); });
  }
  int32_t getNbOutputs() const noexcept override { return handle_.layer.num_outputs(); }
  ITensor* getOutput(int32_t index) const noexcept override {
    return errors().template guard<ITensor*>(nullptr, [&] { return handle_.output(index); });
  }
  void setInput(int32_t index, ITensor& tensor) noexcept override {
    errors().run([&] { handle_.set_input(index, tensor); });
  }
  DataType getOutputType(int32_t index) const noexcept override {
    return errors().guard(DataType::kFLOAT, [&] { return handle_.output_type(index); });
  }
  void setMetadata(char const* metadata) noexcept override {
    errors().run([&] { handle_.set_metadata(metadata); });
  }
  char const* getMetadata() const noexcept override { return handle_.layer.metadata().c_str(); }
  void setPrecision(DataType type) noexcept override {
    errors().run([&] { handle_.layer.set_precision(type); });
  }
  DataType getPrecision() const noexcept override {
    return errors().guard(DataType::kFLOAT, [&] { return handle_.precision(); });
  }
  bool precisionIsSet() const noexcept override { return handle_.layer.precision().has_value(); }
  void resetPrecision() noexcept override { handle_.layer.reset_precision(); }
  void setOutputType(int32_t index, DataType type) noexcept override {
    errors().run([&] { handle_.set_output_type(index, type); });
  }
  bool outputTypeIsSet(int32_t index) const noexcept override {
    return errors().guard(false, [&] { return handle_.output_type_is_set(index); });
  }
  void resetOutputType(int32_t index) noexcept override {
    errors().run([&] { handle_.reset_output_type(index); });
  }

 protected:
  const ErrorReport& errors() const { return handle_.network.errors(); }

  LayerHandle handle_;
};

/// The same for a layer whose operator is a built-in one, with its parameters at hand.
template <class Interface, class Op>
class BuiltinLayerApi : public LayerApi<Interface> {
 public:
  using LayerApi<Interface>::LayerApi;

 protected:
  using Params = typename Op::Params;

  const Params& params() const { return static_cast<const Op&>(*layer().op()).params(); }
  /// Lets `change` change the parameters and infers the network again.
  template <class Change>
  void edit(Change&& change) noexcept {
    this->errors().run([&] {
      Params params = this->params();
      change(params);
      layer().set_op(std::make_shared<Op>(std::move(params)));
    });
  }
  template <class T, class Value>
  void set(T Params::*member, Value value) noexcept {
    edit([&](Params& params) { params.*member = static_cast<T>(value); });
  }
  void set_ints(Ints Params::*member, Dims const& dims) noexcept {
    edit([&](Params& params) { params.*member = to_ints(dims); });
  }
  Dims get_ints(Ints Params::*member) const noexcept {
    return this->errors().guard(Dims{-1, {}}, [&] { return to_shape(params().*member).dims(); });
  }
  /// A list per spatial axis, which may be absent: then it is `otherwise` on each.
  Dims get_spatial(Ints Params::*member, int64_t otherwise) const noexcept {
    return this->errors().guard(Dims{-1, {}}, [&] {
      const Ints& given = params().*member;
      return to_shape(given.empty() ? Ints(layer().input(0)->rank() - 2, otherwise) : given).dims();
    });
  }

 private:
  Layer& layer() const { return this->handle_.layer; }
};

template <class Api>
std::shared_ptr<ILayer> make_layer_api(const LayerHandle& handle) {
  return std::make_shared<Api>(handle);
}

/// What makes the public object for each type of layer.
using LayerClasses = std::unordered_map<LayerType, LayerFactory>;
const LayerClasses& layer_classes();

// The parts of layer_classes(), one for each file of layers.
void add_window_classes(LayerClasses& classes);
void add_elementwise_classes(LayerClasses& classes);
void add_reduction_classes(LayerClasses& classes);
void add_movement_classes(LayerClasses& classes);
void add_source_classes(LayerClasses& classes);

}  // namespace opwright
