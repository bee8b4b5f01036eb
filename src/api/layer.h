#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/network.h"
#include "operators/layer_types.h"
#include "opwright/layers.h"

namespace opwright {

/// Throws Error for a wrong rank.
Ints to_ints(Dims const& dims);

/// A layer and its network object, for the methods that all layers share.
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
  /// Keeps the arrays and texts to which a value points.
  struct Kept {
    std::vector<float> reals;
    std::string text;
  };
  impl::LayerValue property(char const* name, Kept& kept) const;
  void set_property(char const* name, impl::LayerValue const& value) const;
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
  impl::LayerValue getProperty(char const* name) const noexcept override {
    return errors().guard(impl::LayerValue(), [&] { return handle_.property(name, kept_); });
  }
  bool setProperty(char const* name, impl::LayerValue const& value) noexcept override {
    return errors().run([&] { handle_.set_property(name, value); });
  }
  const ErrorReport& errors() const { return handle_.network.errors(); }

  LayerHandle handle_;

 private:
  mutable LayerHandle::Kept kept_;
};

/// Makes the public object of a layer, of the class for the layer's type.
std::shared_ptr<ILayer> make_layer_api(const LayerHandle& handle);

}  // namespace opwright
