#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "network/constant.h"
#include "network/network.h"

namespace opwright {

/// Elements with their type and shape. Has no data where there are no elements.
using WeightsArray = Constant::Params;

/// The value of a layer's property. An int64_t also stands for a bool or an enumerator. Monostate:
/// the property is not set.
using PropertyValue =
    std::variant<std::monostate, int64_t, double, Ints, Floats, WeightsArray, std::string>;

/// A property of the layer by its name in TensorRT's Python API: a parameter of its operator, the
/// elements of an input that is a constant, or a value that follows from its tensors. Throws Error
/// for another name, with the names that exist, and where the value cannot be known.
PropertyValue get_property(const Layer& layer, std::string_view name);
/// Throws Error as get_property() does, and for a property that can only be read or a value of
/// another kind. Inference checks whether the value fits.
void set_property(Layer& layer, std::string_view name, const PropertyValue& value);

/// Visits a parameter struct. Calls `function(name, member, hints...)` for each member that the
/// APIs show.
template <class Function>
class ShownParameters {
 public:
  explicit ShownParameters(Function function) : function_(std::move(function)) {}
  template <class T>
  void internal(const char*, T&) {}
  template <class T, class... Hints>
  void shown(const char* name, T& member, Hints... hints) {
    function_(name, member, hints...);
  }
  template <class T, class... Hints>
  void operator()(const char* name, T& member, Hints... hints) {
    function_(name, member, hints...);
  }

 private:
  Function function_;
};
template <class Params, class Function>
void each_shown(Params& params, Function function) {
  ShownParameters<Function> visitor(std::move(function));
  params.visit(visitor);
}

/// A property of layers of one type that is no parameter of their operator.
struct LayerProperty {
  enum class Kind : uint8_t { kInteger, kInts, kWeights };
  LayerType type;
  Kind kind;
  const char* name;
  PropertyValue (*get)(const Layer& layer);
  /// Null for a property that can only be read.
  void (*set)(Layer& layer, const PropertyValue& value);
  const char* doc;
};
std::span<const LayerProperty> layer_properties();

}  // namespace opwright
