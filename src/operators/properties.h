#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "network/constant.h"
#include "network/network.h"

namespace opwright {

/// Elements with their type and shape; without data where there are none.
using WeightsArray = Constant::Params;

/// What a property of a layer holds. An int64_t stands for a bool and an enumerator, too; nothing
/// for what is not set.
using PropertyValue =
    std::variant<std::monostate, int64_t, double, Ints, Floats, WeightsArray, std::string>;

/// A property of the layer by its name in TensorRT's Python API: a parameter of its operator, the
/// elements of an input that is a constant, or what follows from its tensors. Throws Error, naming
/// those that there are, for another name, and where the value cannot be known.
PropertyValue get_property(const Layer& layer, std::string_view name);
/// Throws Error likewise, for what can only be read and for a value of another kind. Whether the
/// value fits is left to inference.
void set_property(Layer& layer, std::string_view name, const PropertyValue& value);

/// Visits a parameter struct: calls `function(name, member, hints...)` for each member that the
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
  /// Null for what can only be read.
  void (*set)(Layer& layer, const PropertyValue& value);
  const char* doc;
};
std::span<const LayerProperty> layer_properties();

}  // namespace opwright
