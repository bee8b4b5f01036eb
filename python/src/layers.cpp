// The layer classes have a property for each of the core's. Setting one infers the network's shapes
// again.

#include "layers.h"

#include "bindings.h"
#include "held.h"
#include "network/network.h"
#include "operators/builtin_layers.h"
#include "operators/layer_types.h"
#include "operators/properties.h"
#include "regions.h"

namespace opwright::python {
namespace {

/// Elements as an array of one axis; empty if the network computes the values.
nb::object to_python(const WeightsArray& weights) {
  return flat_array(weights.dtype, weights.data,
                    weights.data.size() == 0 ? 0 : weights.shape.numel());
}

/// A list of integers as Dims; empty if nothing is set.
Shape to_dims(const PropertyValue& value) {
  const Ints* const ints = std::get_if<Ints>(&value);
  return ints == nullptr ? Shape() : Shape(std::span<const int64_t>(*ints));
}

Ints to_ints(nb::handle sequence) {
  const Shape shape = to_shape(sequence);
  return Ints(shape.begin(), shape.end());
}

/// Throws Error unless the layer has the type of its class. A program may have given it another
/// class (`layer.__class__ = ...`).
void check_type(const Layer& layer, LayerType expected, std::string_view kind,
                const char* property) {
  require(layer_type(layer) == expected, property, ": layer '", layer.name(), "' is a ",
          layer.op()->kind(), ", not a ", kind);
}

/// Binds the parameters of an operator as properties of its layer's class.
template <class Op, class C>
void bind_parameters(C& c) {
  typename Op::Params parameters;
  each_shown(parameters, [&]<class T>(const char* name, T&, auto...) {
    const auto get = [name](const Layer& self) {
      check_type(self, Op::kLayer.type, Op::kKind, name);
      return get_property(self, name);
    };
    const auto set = [name](Layer& self, const PropertyValue& value) {
      check_type(self, Op::kLayer.type, Op::kKind, name);
      set_property(self, name, value);
    };
    if constexpr (std::is_same_v<T, std::string>) {
      c.def_prop_rw(
          name, [get](const Layer& self) { return std::get<std::string>(get(self)); },
          [set](Layer& self, std::string value) { set(self, std::move(value)); });
    } else if constexpr (std::is_same_v<T, Ints>) {
      c.def_prop_rw(
          name, [get](const Layer& self) { return to_dims(get(self)); },
          [set](Layer& self, nb::handle value) { set(self, to_ints(value)); });
    } else if constexpr (std::is_same_v<T, Floats>) {
      c.def_prop_rw(
          name,
          [get](const Layer& self) {
            const PropertyValue value = get(self);
            const Floats* const floats = std::get_if<Floats>(&value);
            return floats == nullptr ? Floats() : *floats;
          },
          [set](Layer& self, Floats value) { set(self, std::move(value)); });
    } else if constexpr (std::is_floating_point_v<T>) {
      c.def_prop_rw(
          name, [get](const Layer& self) { return static_cast<T>(std::get<double>(get(self))); },
          [set](Layer& self, T value) { set(self, static_cast<double>(value)); });
    } else {
      c.def_prop_rw(
          name, [get](const Layer& self) { return static_cast<T>(std::get<int64_t>(get(self))); },
          [set](Layer& self, T value) { set(self, static_cast<int64_t>(value)); });
    }
  });
}

/// Binds the properties of the layer type that are not parameters.
template <class C>
void bind_properties(C& c, LayerType type, std::string_view kind) {
  using Kind = LayerProperty::Kind;
  for (const LayerProperty& property : layer_properties()) {
    if (property.type != type) continue;
    const char* const name = property.name;
    const auto value = [=](const Layer& self) {
      check_type(self, type, kind, name);
      return get_property(self, name);
    };
    const auto bind = [&](const auto& get) {
      if (property.set == nullptr) {
        c.def_prop_ro(name, get, property.doc);
        return;
      }
      const auto set = [=, takes = property.kind](Layer& self, nb::handle given) {
        check_type(self, type, kind, name);
        if (takes == Kind::kWeights)
          set_property(self, name, to_weights(given, name));
        else
          set_property(self, name, to_ints(given));
      };
      c.def_prop_rw(name, get, set, nb::for_setter(nb::arg(name).none()), property.doc);
    };
    if (property.kind == Kind::kInteger)
      bind([=](const Layer& self) { return std::get<int64_t>(value(self)); });
    else if (property.kind == Kind::kInts)
      bind([=](const Layer& self) { return to_dims(value(self)); });
    else
      bind([=](const Layer& self) { return to_python(std::get<WeightsArray>(value(self))); });
  }
}

/// A layer from the network, not from the method that adds it. As in TensorRT its `type` is a
/// LayerType until a program assigns it its class, which has another `type`.
template <class Op>
struct FoundLayer : TypedLayer<Op> {};

template <class C>
void bind_moe(C& c) {
  using L = TypedLayer<Moe>;
  c.def(
       "set_gated_weights",
       [](L& self, Tensor& gate, Tensor& up, Tensor& down, MoEActType activation) {
         self.set_input(Moe::kGate, &gate), self.set_input(Moe::kGate + 1, &up);
         self.set_input(Moe::kGate + 2, &down);
         set_property(self, "activation_type", static_cast<int64_t>(activation));
       },
       nb::arg("fc_gate_weights"), nb::arg("fc_up_weights"), nb::arg("fc_down_weights"),
       nb::arg("activation_type"),
       "The weights of the experts: gate and up [experts, hidden, inner], down [experts, inner, "
       "hidden].")
      .def(
          "set_gated_biases",
          [](L& self, Tensor& gate, Tensor& up, Tensor& down) {
            self.set_input(Moe::kBiases, &gate), self.set_input(Moe::kBiases + 1, &up);
            self.set_input(Moe::kBiases + 2, &down);
          },
          nb::arg("fc_gate_biases"), nb::arg("fc_up_biases"), nb::arg("fc_down_biases"),
          "Gate and up [experts, inner], down [experts, hidden].")
      .def(
          "set_quantization_static",
          [](L& self, Tensor& scale, DataType to) {
            self.set_input(Moe::kScale, &scale);
            set_property(self, "quantization_to_type", static_cast<int64_t>(to));
          },
          nb::arg("fc_down_activation_scale"), nb::arg("data_type"),
          "What goes down is rounded to multiples of the scale, one element or [experts], in FP8.")
      .def(
          "set_quantization_dynamic_dbl_q",
          [](L& self, Tensor& scale, DataType to, nb::handle block_shape, DataType scale_type) {
            const Ints shape = to_ints(block_shape);
            self.set_input(Moe::kScale, &scale);
            set_property(self, "quantization_to_type", static_cast<int64_t>(to));
            set_property(self, "quantization_block_shape", shape);
            set_property(self, "dyn_q_output_scale_type", static_cast<int64_t>(scale_type));
          },
          nb::arg("fc_down_activation_dbl_q_scale"), nb::arg("data_type"), nb::arg("block_shape"),
          nb::arg("dyn_q_output_scale_type"),
          "Not supported, since it needs FP4: a network with it cannot be built.")
      .def(
          "set_swiglu_params",
          [](L& self, double limit, double alpha, double beta) {
            set_property(self, "swiglu_param_limit", limit);
            set_property(self, "swiglu_param_alpha", alpha);
            set_property(self, "swiglu_param_beta", beta);
          },
          nb::arg("limit"), nb::arg("alpha"), nb::arg("beta"),
          "The gate is at most `limit`, what goes up between -limit and limit; the activation is x "
          "sigmoid(alpha x), and beta is added to what goes up.");
}

template <class C>
void bind_kv_cache_update(C& c) {
  c.def_prop_rw(
      "update_lengths",
      [](const Layer& self) { return self.num_inputs() > 3 ? self.input(3) : nullptr; },
      [](Layer& self, Tensor* lengths) { self.set_input(3, lengths); }, nb::rv_policy::reference,
      nb::call_policy<HoldsMaker>(), nb::for_setter(nb::arg("lengths").none()),
      "Of PACKED_NHD: where the tokens of each batch begin, INT32 or INT64, [batch + 1]. Input 3.");
}

template <class Op>
void bind_layer(nb::module_& m) {
  using Class = nb::class_<TypedLayer<Op>, typename LayerBaseOf<Op>::Type>;
  Class c(m, Op::kLayer.name, Op::kLayer.doc);
  bind_parameters<Op>(c);
  bind_properties(c, Op::kLayer.type, Op::kKind);
  if constexpr (std::is_same_v<Op, Moe>) bind_moe(c);
  if constexpr (std::is_same_v<Op, KvCacheUpdate>) bind_kv_cache_update(c);
  if constexpr (std::is_same_v<Op, Fill>)
    c.def(
        "is_alpha_beta_int64",
        [](const Layer& self) {
          return std::get<int64_t>(get_property(self, "to_type")) ==
                 static_cast<int64_t>(DataType::kINT64);
        },
        "Whether alpha and beta are integers: those of INT64 elements are.");
}

template <class Op>
void bind_found_layer(nb::module_& m) {
  nb::class_<FoundLayer<Op>, TypedLayer<Op>> found(m, str("_Found", Op::kLayer.name).c_str());
  found.def_prop_ro(
      "type", [](const Layer& self) { return layer_type(self); }, "What the layer is.");
  for (const char* each : {"__name__", "__qualname__"})
    found.attr(each) = m.attr(Op::kLayer.name).attr(each);
}

/// A Slice that add_padding_nd made.
struct PaddingLayer : Layer {};
/// Classes that no layer has.
struct AttentionInputLayer : AttentionBoundaryLayer {};

}  // namespace

WeightsArray to_weights(nb::handle weights, std::string_view what) {
  if (weights.is_none()) return {};
  ArrayData array = to_array(weights, what);
  return {array.dtype, array.shape, std::move(array.data)};
}

nb::object layer_object(Layer& layer, nb::handle network) {
  const LayerType type = layer_type(layer);
  const auto held = [&](nb::object object) {
    hold(object, network);
    return object;
  };
  const auto as = [&](nb::handle python_class) {
    return held(nb::inst_reference(python_class, &layer));
  };
  if (type == LayerType::kACTIVATION) return as(nb::type<FoundLayer<Activation>>());
  if (type == LayerType::kPOOLING) return as(nb::type<FoundLayer<Pooling>>());
  if (type == LayerType::kPADDING) return as(nb::type<PaddingLayer>());
  if (type == LayerType::kSHAPE) return as(nb::type<TypedLayer<ShapeOf>>());
  return held(nb::cast(&layer, nb::rv_policy::reference));
}

void bind_layers(nb::module_& m) {
  bind_region_layers(m);
  each_layer([&]<class Op>() { bind_layer<Op>(m); });
  bind_found_layer<Activation>(m);
  bind_found_layer<Pooling>(m);
  nb::class_<TypedLayer<Constant>, Layer> constant(m, "IConstantLayer", "A constant tensor.");
  bind_properties(constant, LayerType::kCONSTANT, "Constant");
  nb::class_<PaddingLayer, Layer> padding(m, "IPaddingLayer",
                                          "Zeros before and after the last axes.");
  bind_properties(padding, LayerType::kPADDING, "Padding");
  nb::class_<AttentionInputLayer, AttentionBoundaryLayer>(
      m, "IAttentionInputLayer",
      "What enters an attention, in TensorRT. An attention is one layer here, "
      "IAttentionOutputLayer, "
      "so that no layer is one.");
}

}  // namespace opwright::python
