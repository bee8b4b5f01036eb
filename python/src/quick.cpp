// Definitions of plugins by functions, calls of them, and INetworkDefinition.add_plugin.

#include "plugin/quick.h"

#include "base/error.h"
#include "network/network.h"
#include "plugin/field_conversion.h"
#include "quick_definition.h"

namespace opwright::python {
namespace {

/// What `op.namespace.name(...)` gives and add_plugin takes.
struct PluginCall {
  std::shared_ptr<PythonDefinition> definition;
  nb::list tensors;  ///< ITensor
  FieldValues attributes;
};

PluginFunction to_function(nb::object function, std::vector<int> attributes, bool wants_tactic) {
  return {Reference(std::move(function)), std::move(attributes), wants_tactic};
}

/// The field of an attribute's Python value, whose Python type was checked.
FieldValue to_field(const QuickParameter& parameter, nb::handle value, std::string_view plugin) {
  Field field;
  nb::handle type = nb::type<Field>();
  nb::object made = parameter.is_array && parameter.type != PluginFieldType::kCHAR
                        ? type(parameter.name, value)
                        : type(parameter.name, value, parameter.type);
  FieldValue result = convert_field(nb::cast<Field&>(made).value, parameter.type, plugin);
  result.name = parameter.name;
  return result;
}

Layer* add_plugin(Network& network, const PluginCall& call, std::optional<bool> aot) {
  std::vector<Tensor*> inputs;
  for (nb::handle tensor : call.tensors) inputs.push_back(nb::cast<Tensor*>(tensor));
  const QuickMode mode =
      choose_mode(*call.definition, aot ? int{*aot} : -1, network.flags().prefer_aot_python_plugins,
                  network.flags().prefer_jit_python_plugins);
  return network.add_layer(make_quick_operator(call.definition, call.attributes, mode), inputs);
}

void bind_definition(nb::module_& m) {
  nb::class_<QuickParameter>(m, "Parameter")
      .def(
          "__init__",
          [](QuickParameter* self, std::string name, bool is_tensor, PluginFieldType type,
             bool is_array, bool is_text, bool is_bool) {
            new (self) QuickParameter{std::move(name), is_tensor, type, is_array, is_text, is_bool};
          },
          nb::arg("name"), nb::arg("is_tensor") = false,
          nb::arg("type") = PluginFieldType::kUNKNOWN, nb::arg("is_array") = false,
          nb::arg("is_text") = false, nb::arg("is_bool") = false)
      .def_ro("name", &QuickParameter::name)
      .def_ro("is_tensor", &QuickParameter::is_tensor)
      .def("__eq__", [](const QuickParameter& a, const QuickParameter& b) {
        return a.name == b.name && a.is_tensor == b.is_tensor && a.type == b.type &&
               a.is_array == b.is_array && a.is_text == b.is_text && a.is_bool == b.is_bool;
      });
  nb::class_<PythonDefinition>(m, "Definition", "A plugin that is defined by functions.")
      .def(nb::init<std::string, std::string, std::vector<QuickParameter>, int, std::string,
                    nb::object>(),
           nb::arg("namespace"), nb::arg("name"), nb::arg("parameters"), nb::arg("num_outputs"),
           nb::arg("signature"), nb::arg("function"))
      .def(
          "set_impl",
          [](PythonDefinition& self, std::optional<DeviceType> device, nb::object function,
             std::vector<int> attributes, bool wants_tactic) {
            self.set_impl(device, to_function(function, std::move(attributes), wants_tactic));
          },
          nb::arg("device").none(), nb::arg("function"), nb::arg("attributes"),
          nb::arg("wants_tactic"))
      .def(
          "set_autotune",
          [](PythonDefinition& self, nb::object function, std::vector<int> attributes) {
            self.set_autotune(to_function(function, std::move(attributes), false));
          },
          nb::arg("function"), nb::arg("attributes"))
      .def(
          "set_aot_impl",
          [](PythonDefinition& self, nb::object function, std::vector<int> attributes) {
            self.set_aot_impl(to_function(function, std::move(attributes), true));
          },
          nb::arg("function"), nb::arg("attributes"))
      .def("register", [](std::shared_ptr<PythonDefinition> self) { register_quick(self); })
      .def("deregister",
           [](const PythonDefinition& self) {
             deregister_quick(self.plugin_namespace(), self.name());
           })
      .def_prop_ro("id", &PythonDefinition::id)
      .def(
          "call",
          [](std::shared_ptr<PythonDefinition> self, nb::list tensors, nb::list attributes) {
            PluginCall call{self, tensors, {}};
            const auto& parameters = self->parameters();
            const std::string plugin = "plugin '" + self->id() + "'";
            for (size_t i = 0; i < nb::len(attributes); ++i)
              call.attributes.push_back(to_field(
                  parameters[static_cast<size_t>(self->num_tensors()) + i], attributes[i], plugin));
            return call;
          },
          nb::arg("tensors"), nb::arg("attributes"));
  nb::class_<PluginCall>(m, "PluginCall",
                         "A plugin with its inputs and attributes, for network.add_plugin.")
      .def("__repr__", [](const PluginCall& self) {
        return "<plugin call of '" + self.definition->id() + "'>";
      });
}

}  // namespace

void bind_quick(nb::module_& m) {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    for (const auto& definition : all_quick())
      if (dynamic_cast<const PythonDefinition*>(definition.get()) != nullptr)
        deregister_quick(definition->plugin_namespace(), definition->name());
  }));
  set_execution_domain(APILanguage::kPYTHON, interpreter_domain());
  bind_definition(m);
  auto network = nb::borrow<nb::class_<Network>>(nb::type<Network>());
  network.def(
      "add_plugin", &add_plugin, nb::arg("plugin"), nb::arg("aot").none() = nb::none(),
      nb::rv_policy::reference_internal,
      "Adds what `opwright.plugin.op.NAMESPACE.NAME(...)` gives. `aot` chooses the compiled "
      "(True) or the Python implementation; otherwise the only one there is, or the one "
      "that the network's flags prefer.");
}

}  // namespace opwright::python
