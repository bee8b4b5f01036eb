// Definitions of plugins by functions, calls of them, and INetworkDefinition.add_plugin.

#include "plugin/quick.h"

#include "base/error.h"
#include "network/network.h"
#include "plugin/field_conversion.h"
#include "plugin/v3_creator.h"
#include "quick_definition.h"
#include "reporting.h"

namespace opwright::python {
namespace {

/// What `op.namespace.name(...)` gives and add_plugin takes.
struct PluginCall {
  std::shared_ptr<PythonDefinition> definition;
  nb::list tensors;  ///< ITensor
  FieldValues attributes;
  /// Set where the call was called to say which implementation is wanted.
  QuickPluginCreationRequest request = QuickPluginCreationRequest::kUNKNOWN;
};

PluginFunction to_function(nb::object function, std::vector<int> attributes, bool wants_tactic,
                           std::vector<std::string> keywords) {
  return {Reference(std::move(function)), std::move(attributes), wants_tactic, std::move(keywords)};
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

OperatorPtr make_call_operator(const PluginCall& call, const NetworkFlags& flags) {
  using Request = QuickPluginCreationRequest;
  const bool is_strict =
      call.request == Request::kSTRICT_AOT || call.request == Request::kSTRICT_JIT;
  const bool says = call.request != Request::kUNKNOWN;
  const QuickMode mode =
      choose_mode(*call.definition, is_strict ? int{call.request == Request::kSTRICT_AOT} : -1,
                  says ? call.request == Request::kPREFER_AOT : flags.prefer_aot_python_plugins,
                  says ? call.request == Request::kPREFER_JIT : flags.prefer_jit_python_plugins);
  return make_quick_operator(call.definition, call.attributes, mode);
}

/// A function gets what is asked for, as TensorRT's layers of decorators expect; what it gives, or
/// what came itself, is (inputs, shape inputs, plugin).
Layer* add_plugin(Network& network, nb::handle plugin, std::optional<bool> aot) {
  nb::object made = nb::borrow(plugin);
  if (PyCallable_Check(plugin.ptr()) != 0) {
    using Request = QuickPluginCreationRequest;
    Request request = Request::kUNKNOWN;
    if (aot)
      request = *aot ? Request::kSTRICT_AOT : Request::kSTRICT_JIT;
    else if (!nb::isinstance<PluginCall>(plugin))  // which asks the network itself
      request = preferred_request(network.flags().prefer_aot_python_plugins,
                                  network.flags().prefer_jit_python_plugins, "add_plugin");
    made = plugin(request);
  }
  if (!nb::isinstance<nb::tuple>(made) || nb::len(made) != 3)
    throw nb::type_error(("add_plugin: expected what opwright.plugin.op.NAMESPACE.NAME(...) gives, "
                          "or a function of a QuickPluginCreationRequest that returns (inputs, "
                          "shape inputs, IPluginV3); " +
                          nb::cast<std::string>(nb::repr(made)) + " came")
                             .c_str());
  return add_plugin_v3(network, made[0], made[1], made[2]);
}

void bind_definition(nb::module_& m) {
  nb::enum_<ParameterKind>(m, "ParameterKind", "What a parameter of a plugin stands for.")
      .value("TENSOR", ParameterKind::kTensor)
      .value("OPTIONAL_TENSOR", ParameterKind::kOptionalTensor)
      .value("TENSORS", ParameterKind::kTensors)
      .value("SHAPE_INPUT", ParameterKind::kShapeInput)
      .value("ATTRIBUTE", ParameterKind::kAttribute);
  nb::class_<QuickParameter>(m, "Parameter")
      .def(
          "__init__",
          [](QuickParameter* self, std::string name, ParameterKind kind, PluginFieldType type,
             bool is_array, bool is_text, bool is_bool, bool is_keyword_only) {
            new (self) QuickParameter{std::move(name), kind,    type,           is_array,
                                      is_text,         is_bool, is_keyword_only};
          },
          nb::arg("name"), nb::arg("kind") = ParameterKind::kAttribute,
          nb::arg("type") = PluginFieldType::kUNKNOWN, nb::arg("is_array") = false,
          nb::arg("is_text") = false, nb::arg("is_bool") = false,
          nb::arg("is_keyword_only") = false)
      .def_ro("name", &QuickParameter::name)
      .def_ro("kind", &QuickParameter::kind)
      .def("__eq__", [](const QuickParameter& a, const QuickParameter& b) {
        return a.name == b.name && a.kind == b.kind && a.type == b.type &&
               a.is_array == b.is_array && a.is_text == b.is_text && a.is_bool == b.is_bool &&
               a.is_keyword_only == b.is_keyword_only;
      });
  nb::class_<PythonDefinition>(m, "Definition", "A plugin that is defined by functions.")
      .def(nb::init<std::string, std::string, std::vector<QuickParameter>, int, std::string,
                    nb::object>(),
           nb::arg("namespace"), nb::arg("name"), nb::arg("parameters"), nb::arg("num_outputs"),
           nb::arg("signature"), nb::arg("function"))
      .def(
          "set_impl",
          [](PythonDefinition& self, std::optional<DeviceType> device, nb::object function,
             std::vector<int> attributes, bool wants_tactic, std::vector<std::string> keywords) {
            self.set_impl(device, to_function(function, std::move(attributes), wants_tactic,
                                              std::move(keywords)));
          },
          nb::arg("device").none(), nb::arg("function"), nb::arg("attributes"),
          nb::arg("wants_tactic"), nb::arg("keywords") = nb::list(),
          "`keywords` names the last parameters of the function, which are given by keyword.")
      .def(
          "set_autotune",
          [](PythonDefinition& self, nb::object function, std::vector<int> attributes,
             std::vector<std::string> keywords) {
            self.set_autotune(
                to_function(function, std::move(attributes), false, std::move(keywords)));
          },
          nb::arg("function"), nb::arg("attributes"), nb::arg("keywords") = nb::list())
      .def(
          "set_aot_impl",
          [](PythonDefinition& self, nb::object function, std::vector<int> attributes,
             std::vector<std::string> keywords) {
            self.set_aot_impl(
                to_function(function, std::move(attributes), true, std::move(keywords)));
          },
          nb::arg("function"), nb::arg("attributes"), nb::arg("keywords") = nb::list())
      .def("register", [](std::shared_ptr<PythonDefinition> self) { register_quick(self); })
      .def("deregister",
           [](const PythonDefinition& self) {
             deregister_quick(self.plugin_namespace(), self.name());
           })
      .def_prop_ro("id", &PythonDefinition::id)
      .def(
          "call",
          [](std::shared_ptr<PythonDefinition> self, nb::list tensors, nb::list attributes) {
            PluginCall call{self, tensors, {}, QuickPluginCreationRequest::kUNKNOWN};
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
      .def(
          "__call__",
          [](const PluginCall& self, std::optional<QuickPluginCreationRequest> request) {
            PluginCall call = self;
            call.request = request.value_or(QuickPluginCreationRequest::kUNKNOWN);
            return nb::make_tuple(self.tensors, nb::list(), std::move(call));
          },
          nb::arg("request").none() = nb::none(),
          "(inputs, shape inputs, plugin) for network.add_plugin_v3, with the implementation that "
          "is asked for.")
      .def("__repr__", [](const PluginCall& self) {
        return "<plugin call of '" + self.definition->id() + "'>";
      });
}

}  // namespace

OperatorPtr operator_of_call(nb::handle object, const Network& network) {
  if (!nb::isinstance<PluginCall>(object)) return nullptr;
  return make_call_operator(nb::cast<PluginCall&>(object), network.flags());
}

void bind_quick(nb::module_& m) {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    for (const auto& definition : all_quick())
      if (dynamic_cast<const PythonDefinition*>(definition.get()) != nullptr)
        deregister_quick(definition->plugin_namespace(), definition->name());
  }));
  set_execution_domain(APILanguage::kPYTHON, interpreter_domain());
  bind_definition(m);
  auto network = nb::borrow<ReportingClass<Network>>(nb::type<Network>());
  network.def("add_plugin", &add_plugin, nb::arg("plugin"), nb::arg("aot").none() = nb::none(),
              nb::rv_policy::reference_internal,
              "Adds what `opwright.plugin.op.NAMESPACE.NAME(...)` gives, or (inputs, shape inputs, "
              "plugin), "
              "or what a function gives as that for a QuickPluginCreationRequest. `aot` chooses "
              "the compiled "
              "(True) or the Python implementation; otherwise the only one there is, or the one "
              "that the network's flags prefer.");
}

}  // namespace opwright::python
