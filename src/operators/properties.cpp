#include "operators/properties.h"

#include <type_traits>
#include <unordered_map>
#include <utility>

#include "operators/add_layers.h"
#include "operators/builtin_layers.h"
#include "operators/layer_types.h"

namespace opwright {
namespace {

constexpr const char* kPropertyKinds[] = {"no value",
                                          "an integer",
                                          "a floating-point number",
                                          "a list of integers",
                                          "a list of floating-point numbers",
                                          "weights",
                                          "a text"};
static_assert(std::size(kPropertyKinds) == std::variant_size_v<PropertyValue>);

/// The type in which a parameter struct's member is passed.
template <class T>
using Handed = std::conditional_t<std::is_enum_v<T> || std::is_integral_v<T>, int64_t,
                                  std::conditional_t<std::is_floating_point_v<T>, double, T>>;

template <class T>
const T& value_as(const PropertyValue& value) {
  const T* const held = std::get_if<T>(&value);
  require(held != nullptr, kPropertyKinds[PropertyValue(T{}).index()], " was expected, not ",
          kPropertyKinds[value.index()]);
  return *held;
}

template <class T>
PropertyValue handed(const Layer&, const T& member) {
  return static_cast<Handed<T>>(member);
}
PropertyValue handed(const Layer& layer, const Ints& member, PerSpatialAxis axes) {
  return member.empty() ? Ints(layer.input(0)->rank() - 2, axes.otherwise) : member;
}

template <class T>
void take(const PropertyValue& value, T& member) {
  if constexpr (std::is_floating_point_v<T>)
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      member = static_cast<T>(*integer);
      return;
    }
  member = static_cast<T>(value_as<Handed<T>>(value));
}

/// Returns false where the operator has no such parameter.
template <class Op>
bool get_parameter(const Layer& layer, std::string_view name, PropertyValue& value) {
  typename Op::Params params = static_cast<const Op&>(*layer.op()).params();
  if constexpr (requires { params.is_set(name); })
    if (!params.is_set(name)) return true;
  bool is_found = false;
  each_shown(params, [&](const char* each, auto& member, auto... hints) {
    if (each != name) return;
    is_found = true;
    value = handed(layer, member, hints...);
  });
  return is_found;
}

template <class Op>
bool set_parameter(Layer& layer, std::string_view name, const PropertyValue& value) {
  typename Op::Params params = static_cast<const Op&>(*layer.op()).params();
  bool is_found = false;
  each_shown(params, [&](const char* each, auto& member, auto...) {
    if (each != name) return;
    is_found = true;
    take(value, member);
  });
  if (!is_found) return false;
  if constexpr (requires { params.was_set(name); }) params.was_set(name);
  layer.set_op(std::make_shared<Op>(std::move(params)));
  return true;
}

/// "op, axes, keep_dims"
template <class Op>
std::string parameter_names() {
  typename Op::Params params;
  std::string names;
  each_shown(params, [&](const char* each, auto&, auto...) {
    names += names.empty() ? each : str(", ", each);
  });
  return names;
}

/// Functions that read and change the parameters of one operator class.
struct Parameters {
  bool (*get)(const Layer&, std::string_view, PropertyValue&);
  bool (*set)(Layer&, std::string_view, const PropertyValue&);
  std::string (*names)();
};

/// Null for a layer that is not built in, or whose shown type is not that of its operator.
const Parameters* parameters_of(const Layer& layer) {
  static const auto all = [] {
    std::unordered_map<std::string_view, Parameters> map;
    each_layer([&]<class Op>() {
      map.emplace(Op::kKind, Parameters{get_parameter<Op>, set_parameter<Op>, parameter_names<Op>});
    });
    return map;
  }();
  if (layer.added_as()) return nullptr;
  const auto found = all.find(layer.op()->kind());
  return found == all.end() ? nullptr : &found->second;
}

const LayerProperty* find_property(LayerType type, std::string_view name) {
  for (const LayerProperty& property : layer_properties())
    if (property.type == type && property.name == name) return &property;
  return nullptr;
}

[[noreturn]] void fail_unknown(const Layer& layer, std::string_view name) {
  const Parameters* const parameters = parameters_of(layer);
  std::string names = parameters == nullptr ? "" : parameters->names();
  for (const LayerProperty& property : layer_properties())
    if (property.type == layer_type(layer))
      names += names.empty() ? property.name : str(", ", property.name);
  fail("layer '", layer.name(), "' is a ", layer.op()->kind(), ", which has no property '", name,
       "'; it has ", names.empty() ? "none" : names);
}

Ints ints_of(const Shape& shape) { return Ints(shape.begin(), shape.end()); }

template <int input>
PropertyValue elements(const Layer& layer) {
  return layer_weights(layer, input);
}
template <int input>
void set_factor(Layer& layer, const PropertyValue& value) {
  set_scale_factor(layer, input, value_as<WeightsArray>(value));
}
void set_kernel_of(Layer& layer, const PropertyValue& value) {
  set_kernel(layer, value_as<WeightsArray>(value));
}
void set_bias_of(Layer& layer, const PropertyValue& value) {
  set_bias(layer, value_as<WeightsArray>(value));
}
PropertyValue window_of(const Layer& layer) { return ints_of(kernel_window(layer)); }
PropertyValue maps_of(const Layer& layer) { return layer.output(0)->shape()[1]; }

constexpr char kKernelDoc[] =
    "Its elements as a NumPy array of one axis, read-only; empty where they are computed. Another "
    "one has the same window and output maps.";
constexpr char kBiasDoc[] =
    "Its elements, likewise; empty where there is none, None takes it away.";
constexpr char kWindowDoc[] = "The extents of the kernel's spatial axes.";
constexpr char kMapsDoc[] = "How many channels the output has.";

using Kind = LayerProperty::Kind;
constexpr LayerProperty kProperties[] = {
    {LayerType::kCONVOLUTION, Kind::kInts, "kernel_size_nd", window_of, nullptr, kWindowDoc},
    {LayerType::kCONVOLUTION, Kind::kWeights, "kernel", elements<1>, set_kernel_of, kKernelDoc},
    {LayerType::kCONVOLUTION, Kind::kWeights, "bias", elements<2>, set_bias_of, kBiasDoc},
    {LayerType::kCONVOLUTION, Kind::kInteger, "num_output_maps", maps_of, nullptr, kMapsDoc},
    {LayerType::kDECONVOLUTION, Kind::kInts, "kernel_size_nd", window_of, nullptr, kWindowDoc},
    {LayerType::kDECONVOLUTION, Kind::kWeights, "kernel", elements<1>, set_kernel_of, kKernelDoc},
    {LayerType::kDECONVOLUTION, Kind::kWeights, "bias", elements<2>, set_bias_of, kBiasDoc},
    {LayerType::kDECONVOLUTION, Kind::kInteger, "num_output_maps", maps_of, nullptr, kMapsDoc},
    {LayerType::kSCALE, Kind::kWeights, "shift", elements<1>, set_factor<1>,
     "What is added, as a NumPy array of one axis, read-only; empty for nothing. None takes it "
     "away."},
    {LayerType::kSCALE, Kind::kWeights, "scale", elements<2>, set_factor<2>,
     "What is multiplied by, likewise."},
    {LayerType::kSCALE, Kind::kWeights, "power", elements<3>, set_factor<3>,
     "What the result is raised to, likewise."},
    {LayerType::kCONSTANT, Kind::kInts, "shape",
     [](const Layer& layer) -> PropertyValue { return ints_of(layer_weights(layer, 0).shape); },
     [](Layer& layer, const PropertyValue& value) {
       reshape_constant(layer, Shape(std::span<const int64_t>(value_as<Ints>(value))));
     },
     "Its extents; others are of as many elements."},
    {LayerType::kCONSTANT, Kind::kWeights, "weights", elements<0>,
     [](Layer& layer, const PropertyValue& value) {
       set_constant(layer, value_as<WeightsArray>(value));
     },
     "Its elements as a NumPy array of one axis, read-only; others are as many."},
    {LayerType::kPADDING, Kind::kInts, "pre_padding_nd",
     [](const Layer& layer) -> PropertyValue { return ints_of(padding_of(layer).before); }, nullptr,
     "Elements before each axis; negative where some are taken off."},
    {LayerType::kPADDING, Kind::kInts, "post_padding_nd",
     [](const Layer& layer) -> PropertyValue { return ints_of(padding_of(layer).after); }, nullptr,
     "Elements after each axis."},
};

}  // namespace

std::span<const LayerProperty> layer_properties() { return kProperties; }

PropertyValue get_property(const Layer& layer, std::string_view name) {
  PropertyValue value;
  const Parameters* const parameters = parameters_of(layer);
  if (parameters != nullptr && parameters->get(layer, name, value)) return value;
  const LayerProperty* const property = find_property(layer_type(layer), name);
  if (property == nullptr) fail_unknown(layer, name);
  return property->get(layer);
}

void set_property(Layer& layer, std::string_view name, const PropertyValue& value) {
  const Parameters* const parameters = parameters_of(layer);
  if (parameters != nullptr && parameters->set(layer, name, value)) return;
  const LayerProperty* const property = find_property(layer_type(layer), name);
  if (property == nullptr) fail_unknown(layer, name);
  require(property->set != nullptr, "layer '", layer.name(), "': '", name, "' can only be read");
  property->set(layer, value);
}

}  // namespace opwright
