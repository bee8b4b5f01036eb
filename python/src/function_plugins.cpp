// Definitions of function plugins, calls of them, and INetworkDefinition.add_plugin.

#include "plugin/model/function_model.h"

#include <nanobind/stl/tuple.h>

#include <tuple>
#include <utility>

#include "base/error.h"
#include "creators.h"
#include "function_definition.h"
#include "held.h"
#include "network/network.h"
#include "plugin/abi/v3_creator.h"
#include "plugin/model/fit_field.h"
#include "raw_value.h"
#include "reporting.h"

namespace opwright::python {
namespace {

/// A plugin with its inputs and attributes. `op.namespace.name(...)` returns it, and add_plugin
/// takes it.
struct PluginCall {
  std::shared_ptr<const FunctionPlugin> definition;
  nb::list tensors;  ///< ITensors; None for an absent one
  FieldValues attributes;
  /// The wanted implementation. Calling the PluginCall sets it.
  QuickPluginCreationRequest request = QuickPluginCreationRequest::kUNKNOWN;
};

PluginFunction to_function(nb::object function, std::vector<int> attributes, bool wants_tactic,
                           std::vector<std::string> keywords, std::string fingerprint,
                           int communicator = -1, bool capturable = false) {
  return {Reference(std::move(function)), std::move(attributes), wants_tactic, std::move(keywords),
          std::move(fingerprint),         communicator,          capturable};
}

/// The field that the engine stores for a value. Throws TypeError if the value does not fit.
Field fit_value(const FunctionParameter& parameter, nb::handle value) {
  try {
    return Field{fit(raw_value(parameter.name, value), parameter)};
  } catch (const Error& error) {
    throw nb::type_error(error.what());
  }
}

OperatorPtr make_call_operator(const PluginCall& call, const NetworkFlags& flags) {
  using Request = QuickPluginCreationRequest;
  const bool is_strict =
      call.request == Request::kSTRICT_AOT || call.request == Request::kSTRICT_JIT;
  const bool says = call.request != Request::kUNKNOWN;
  const FunctionMode mode =
      choose_mode(*call.definition, is_strict ? int{call.request == Request::kSTRICT_AOT} : -1,
                  says ? call.request == Request::kPREFER_AOT : flags.prefer_aot_python_plugins,
                  says ? call.request == Request::kPREFER_JIT : flags.prefer_jit_python_plugins);
  return make_function_operator(call.definition, call.attributes, mode);
}

/// Adds a plugin's layer. `plugin` is (inputs, shape inputs, plugin) or a function that returns it.
/// The function is called with the requested implementation, as TensorRT's decorators expect.
Layer* add_plugin(Network& network, nb::handle plugin, std::optional<bool> aot) {
  nb::object made = nb::borrow(plugin);
  if (PyCallable_Check(plugin.ptr()) != 0) {
    using Request = QuickPluginCreationRequest;
    Request request = Request::kUNKNOWN;
    if (aot)
      request = *aot ? Request::kSTRICT_AOT : Request::kSTRICT_JIT;
    else if (!nb::isinstance<PluginCall>(plugin))  // a PluginCall asks the network itself
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

/// Binds the description of a plugin's parameters.
void bind_parameter(nb::module_& m) {
  nb::enum_<ParameterKind>(m, "ParameterKind", "What a parameter of a plugin stands for.")
      .value("TENSOR", ParameterKind::kTensor)
      .value("OPTIONAL_TENSOR", ParameterKind::kOptionalTensor)
      .value("TENSORS", ParameterKind::kTensors)
      .value("SHAPE_INPUT", ParameterKind::kShapeInput)
      .value("ATTRIBUTE", ParameterKind::kAttribute);
  nb::enum_<AttributeForm>(m, "AttributeForm", "What an attribute's value looks like.")
      .value("SCALAR", AttributeForm::kScalar)
      .value("TEXT", AttributeForm::kText)
      .value("BYTES", AttributeForm::kBytes)
      .value("ENUM", AttributeForm::kEnum)
      .value("ARRAY", AttributeForm::kArray)
      .value("LIST", AttributeForm::kList)
      .value("TUPLE", AttributeForm::kTuple);
  using EnumeratorTuple =
      std::tuple<std::string, std::optional<int64_t>, std::optional<std::string>>;
  nb::class_<FunctionParameter>(m, "Parameter")
      .def(
          "__init__",
          [](FunctionParameter* self, std::string name, ParameterKind kind, bool is_keyword_only,
             AttributeForm form, PluginFieldType type, bool is_bool, int length,
             std::vector<EnumeratorTuple> enumerators, std::string written) {
            FunctionParameter made{std::move(name), kind, is_keyword_only, form, type, is_bool,
                                   length,          {}};
            for (auto& [member, number, text] : enumerators)
              made.enumerators.push_back({std::move(member), number, std::move(text)});
            made.written = std::move(written);
            new (self) FunctionParameter(std::move(made));
          },
          nb::arg("name"), nb::arg("kind") = ParameterKind::kAttribute,
          nb::arg("is_keyword_only") = false, nb::arg("form") = AttributeForm::kScalar,
          nb::arg("type") = PluginFieldType::kUNKNOWN, nb::arg("is_bool") = false,
          nb::arg("length") = -1, nb::arg("enumerators") = nb::list(), nb::arg("written") = "",
          "`enumerators` is a list of (name, int value or None, str value or None), `written` the "
          "hint as messages show it.")
      .def_ro("name", &FunctionParameter::name)
      .def_ro("kind", &FunctionParameter::kind)
      .def("fit", &fit_value, nb::arg("value").none(),
           "The PluginField that the engine stores for a value. TypeError says what it must be.")
      .def("set_default",
           [](FunctionParameter& self, const Field& field) { self.default_value = field.value; })
      .def("__eq__", [](const FunctionParameter& a, const FunctionParameter& b) {
        return a.name == b.name && a.kind == b.kind && a.is_keyword_only == b.is_keyword_only &&
               a.form == b.form && a.type == b.type && a.is_bool == b.is_bool &&
               a.length == b.length && a.enumerators == b.enumerators;
      });
}

void bind_definition(nb::module_& m) {
  bind_parameter(m);
  m.def(
      "build_architecture", [] { return std::string(build_architecture()); },
      "The architecture (\"x86-64\", \"sm_90\") of the device that the autotune or aot_impl "
      "function which runs is asked for; empty outside of them.");
  nb::class_<PythonDefinition>(m, "Definition", "A function plugin.")
      .def(nb::init<std::string, std::string, std::vector<FunctionParameter>, int, std::string,
                    nb::object, nb::dict>(),
           nb::arg("namespace"), nb::arg("name"), nb::arg("parameters"), nb::arg("num_outputs"),
           nb::arg("signature"), nb::arg("function"), nb::arg("enums"),
           "`enums` has the classes of the attributes that are enums, by their names.")
      .def(
          "set_impl",
          [](PythonDefinition& self, std::optional<DeviceType> device, nb::object function,
             std::vector<int> attributes, bool wants_tactic, std::vector<std::string> keywords,
             std::string fingerprint, int communicator, bool capturable) {
            self.set_impl(device, to_function(function, std::move(attributes), wants_tactic,
                                              std::move(keywords), std::move(fingerprint),
                                              communicator, capturable));
          },
          nb::arg("device").none(), nb::arg("function"), nb::arg("attributes"),
          nb::arg("wants_tactic"), nb::arg("keywords") = nb::list(), nb::arg("fingerprint") = "",
          nb::arg("communicator") = -1, nb::arg("capturable") = false,
          "`keywords` names the last parameters of the function, which are given by keyword; "
          "`fingerprint` tells its code from other code; `communicator` is the place of a Comm "
          "behind the tensors, -1 where there is none.")
      .def(
          "set_autotune",
          [](PythonDefinition& self, nb::object function, std::vector<int> attributes,
             std::vector<std::string> keywords) {
            self.set_autotune(
                to_function(function, std::move(attributes), false, std::move(keywords), {}));
          },
          nb::arg("function"), nb::arg("attributes"), nb::arg("keywords") = nb::list())
      .def(
          "set_aot_impl",
          [](PythonDefinition& self, std::optional<DeviceType> device, nb::object function,
             std::vector<int> attributes, std::vector<std::string> keywords,
             std::string fingerprint) {
            self.set_aot_impl(device, to_function(function, std::move(attributes), true,
                                                  std::move(keywords), std::move(fingerprint)));
          },
          nb::arg("device").none(), nb::arg("function"), nb::arg("attributes"),
          nb::arg("keywords") = nb::list(), nb::arg("fingerprint") = "")
      .def(
          "set_pointwise_impl",
          [](PythonDefinition& self, nb::object function, std::vector<int> attributes,
             std::vector<std::string> keywords) {
            self.set_pointwise_impl(
                to_function(function, std::move(attributes), false, std::move(keywords), {}));
          },
          nb::arg("function"), nb::arg("attributes"), nb::arg("keywords") = nb::list(),
          "`function` gives the code, immediates and results of a Pointwise operator for the "
          "attributes.")
      .def(
          "set_reference",
          [](PythonDefinition& self, std::shared_ptr<PythonDefinition> reference) {
            self.set_reference(std::move(reference));
          },
          nb::arg("reference"), "`reference` is a definition whose impl says what is right.")
      .def("set_repeatable", &PythonDefinition::set_repeatable, nb::arg("repeatable"))
      .def("register",
           [](std::shared_ptr<PythonDefinition> self) { register_function_plugin(self); })
      .def("deregister",
           [](const PythonDefinition& self) {
             deregister_function_plugin(self.plugin_namespace(), self.name());
           })
      .def_prop_ro("id", &PythonDefinition::id)
      .def(
          "call",
          [](std::shared_ptr<PythonDefinition> self, nb::list tensors, nb::list attributes) {
            PluginCall call{self, tensors, {}, QuickPluginCreationRequest::kUNKNOWN};
            for (nb::handle field : attributes)
              call.attributes.push_back(nb::cast<Field&>(field).value);
            return call;
          },
          nb::arg("tensors"), nb::arg("attributes"),
          "`attributes` are what Parameter.fit gave for each.");
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
        return "<plugin call of '" + self.definition->plugin_namespace() +
               "::" + self.definition->name() + "'>";
      });
}

/// A function plugin's creator, as the plugin registry returns it.
struct FunctionCreator {
  std::shared_ptr<const FunctionPlugin> definition;

  FieldCollection field_names() const {
    FieldCollection fields;
    for (const FunctionParameter& parameter : definition->parameters())
      if (parameter.is_attribute())
        fields.values.push_back({parameter.name, parameter.type, 0, {}});
    return fields;
  }
  PluginCall create_plugin(nb::handle fields, QuickPluginCreationRequest request) const {
    const std::string owner =
        str("plugin '", definition->plugin_namespace(), "::", definition->name(), "'");
    return {definition, nb::list(),
            fit_attributes(to_fields(fields, owner), definition->parameters(), owner), request};
  }
};

void bind_creator(nb::module_& m) {
  nb::class_<FunctionCreator>(m, "FunctionCreator", "The creator of a function plugin.")
      .def_prop_ro("name", [](const FunctionCreator& self) { return self.definition->name(); })
      .def_prop_ro("plugin_version", [](const FunctionCreator&) { return "1"; })
      .def_prop_ro("plugin_namespace",
                   [](const FunctionCreator& self) { return self.definition->plugin_namespace(); })
      .def_prop_ro("field_names", &FunctionCreator::field_names,
                   "The attributes, as a PluginFieldCollection without data.")
      .def(
          "create_plugin",
          [](const FunctionCreator& self, nb::handle, nb::handle, nb::handle field_collection,
             nb::handle, QuickPluginCreationRequest request) {
            return self.create_plugin(field_collection, request);
          },
          nb::arg("name"), nb::arg("namespace"), nb::arg("field_collection"), nb::arg("phase"),
          nb::arg("quickPluginType") = QuickPluginCreationRequest::kUNKNOWN,
          "The plugin with these attributes, for network.add_plugin_v3.");
}

}  // namespace

bool is_plugin_call(nb::handle object) { return nb::isinstance<PluginCall>(object); }

nb::object find_function_creator(const std::string& name, const std::string& version,
                                 const std::string& plugin_namespace) {
  auto definition = version == "1" ? find_function_plugin(plugin_namespace, name) : nullptr;
  return definition != nullptr ? nb::cast(FunctionCreator{std::move(definition)}) : nb::none();
}

OperatorPtr operator_of_call(nb::handle object, const Network& network) {
  if (!is_plugin_call(object)) return nullptr;
  return make_call_operator(nb::cast<PluginCall&>(object), network.flags());
}

void bind_function_plugins(nb::module_& m) {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    for (const auto& definition : all_function_plugins())
      if (dynamic_cast<const PythonDefinition*>(definition.get()) != nullptr)
        deregister_function_plugin(definition->plugin_namespace(), definition->name());
  }));
  bind_definition(m);
  bind_creator(m);
  auto network = nb::borrow<ReportingClass<Network>>(nb::type<Network>());
  network.def("add_plugin", &add_plugin, nb::arg("plugin"), nb::arg("aot").none() = nb::none(),
              nb::rv_policy::reference, nb::call_policy<HoldsMaker>(),
              "Adds what `opwright.plugin.op.NAMESPACE.NAME(...)` gives, or (inputs, shape inputs, "
              "plugin), "
              "or what a function gives as that for a QuickPluginCreationRequest. `aot` chooses "
              "the compiled "
              "(True) or the Python implementation; otherwise the only one there is, or the one "
              "that the network's flags prefer.");
}

}  // namespace opwright::python
