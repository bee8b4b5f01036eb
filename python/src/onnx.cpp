// OnnxParser.

#include "bindings.h"
#include "held.h"
#include "network/network.h"
#include "onnx/parser.h"
#include "opwright/version.h"
#include "reporting.h"
#include "runtime/engine.h"

namespace opwright::python {
namespace {

using onnxparser::OnnxParserFlag;
using Kind = onnxparser::ErrorCode;

struct Parser {
  nb::object network, logger;  ///< kept alive
  OnnxParser parser;
  nb::object config{};  ///< argument of set_builder_config()
  const ErrorReport& errors() const { return nb::cast<Network&>(network).errors(); }
};

void tell_parser(const Parser& parser, HeldObjects& held) {
  held.tell(parser.network);
  held.tell(parser.logger);
  held.tell(parser.config);
}

const OnnxSubgraph& subgraph(const Parser& self, int64_t index) {
  check_position(index, self.parser.subgraphs().size());
  return self.parser.subgraph(index);
}

void bind_parser_enums(nb::module_& m) {
  nb::enum_<Kind> codes(m, "ErrorCode", nb::is_arithmetic(),
                        "Kinds of the errors of OnnxParser and OnnxParserRefitter.");
  for (int kind = 0; kind <= onnxparser::EnumMax<Kind>(); ++kind)
    codes.value(name(static_cast<Kind>(kind)), static_cast<Kind>(kind));
  codes.def("__str__", [](Kind self) { return name(self); });
  codes.def("__repr__", [](Kind self) { return name(self); });

  nb::enum_<OnnxParserFlag>(m, "OnnxParserFlag", nb::is_arithmetic(),
                            "Bits of OnnxParser.flags: how models are taken over.")
      .value("NATIVE_INSTANCENORM", OnnxParserFlag::kNATIVE_INSTANCENORM,
             "Set by default; a layer normalizes instances in any case.")
      .value("ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA",
             OnnxParserFlag::kENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA,
             "Without effect: there is no DLA.")
      .value("REPORT_CAPABILITY_DLA", OnnxParserFlag::kREPORT_CAPABILITY_DLA,
             "Parsing fails: there is no DLA.")
      .value("ENABLE_PLUGIN_OVERRIDE", OnnxParserFlag::kENABLE_PLUGIN_OVERRIDE,
             "A plugin of the name of an operator, or of a function of the model, takes its place.")
      .value("ADJUST_FOR_DLA", OnnxParserFlag::kADJUST_FOR_DLA, "Without effect.");
}

void bind_error(nb::module_& m) {
  nb::class_<OnnxError>(m, "ParserError", "Why a model could not be taken over.")
      .def(
          "code", [](const OnnxError& self) { return self.kind; }, "Its kind, an ErrorCode.")
      .def(
          "desc", [](const OnnxError& self) { return self.message; },
          "What was wrong, where, and how to mend it.")
      .def(
          "file", [](const OnnxError& self) { return self.file; },
          "The file of the library's source where it was noticed; line() and func() likewise.")
      .def("line", [](const OnnxError& self) { return self.line; })
      .def("func", [](const OnnxError& self) { return self.func; })
      .def(
          "node", [](const OnnxError& self) { return self.node; },
          "The node's index in the graph, of a node inside a function that of its call; -1 for the "
          "model as a whole.")
      .def("node_name", [](const OnnxError& self) { return self.node_name; })
      .def("node_operator", [](const OnnxError& self) { return self.op_type; })
      .def(
          "local_function_stack", [](const OnnxError& self) { return self.functions; },
          "The calls of the model's functions that the node lies in, from the graph inwards, each "
          "'node (function)'.")
      .def(
          "needed_constants", [](const OnnxError& self) { return self.needed_constants; },
          "Inputs of the model that would have to be constant (OnnxParser.set_constant_input) for "
          "the "
          "node to be taken over.")
      .def("local_function_stack_size", [](const OnnxError& self) { return self.functions.size(); })
      .def("__str__", [](const OnnxError& self) { return str(self); })
      .def("__repr__", [](const OnnxError& self) { return str(self); });
}

}  // namespace

/// Binds the parser's flags and the permissions of a model.
void bind_parser_flags(ReportingClass<Parser>& c) {
  c.def_prop_rw(
       "flags", [](const Parser& self) { return self.parser.flags(); },
       [](Parser& self, uint32_t flags) { self.parser.set_flags(flags); },
       "Bits 1 << int(OnnxParserFlag).")
      .def(
          "set_flag", [](Parser& self, OnnxParserFlag flag) { self.parser.set_flag(flag); },
          nb::arg("flag"))
      .def(
          "clear_flag", [](Parser& self, OnnxParserFlag flag) { self.parser.clear_flag(flag); },
          nb::arg("flag"))
      .def(
          "get_flag",
          [](const Parser& self, OnnxParserFlag flag) { return self.parser.has_flag(flag); },
          nb::arg("flag"))
      .def_prop_rw(
          "links_allowed", [](const Parser& self) { return self.parser.links_allowed(); },
          [](Parser& self, bool allowed) { self.parser.set_links_allowed(allowed); },
          "Whether external data may be read through symbolic links that lead out of the model's "
          "folder, as in a store of models that keeps each file once. At first False, unless the "
          "environment variable OPWRIGHT_ALLOW_LINKS is 1. Permit it where you trust whoever made "
          "the links; names that lead out of the folder by themselves are refused in any case.");
}

/// Binds known shapes of inputs, and the requirements of a model.
void bind_parser_inputs(ReportingClass<Parser>& c) {
  c.def(
       "set_input_shape",
       [](Parser& self, const std::string& name, nb::handle shape) {
         self.parser.set_input_shape(name, to_shape(shape));
       },
       nb::arg("name"), nb::arg("shape"),
       nb::sig("def set_input_shape(self, name: str, shape: Sequence[int]) -> None"),
       "Sets the shape of an input for every run of the models that are parsed next. -1 stands "
       "for an extent that varies. Open extents of the model become these. So do extents of the "
       "same name in other inputs.")
      .def_prop_rw(
          "time_limit", [](const Parser& self) { return self.parser.time_limit(); },
          [](Parser& self, double seconds) { self.parser.set_time_limit(seconds); },
          "Seconds that taking over a model may take, looked at between nodes; at first infinity. "
          "Limits.build_seconds of a config counts from build_serialized_network on.")
      .def(
          "_set_in_short_api",
          [](Parser& self) { self.parser.set_shape_source(ShapeSource::kPython); },
          "Messages speak of opwright.build's arguments.")
      .def(
          "_set_logs_errors", [](Parser& self, bool logs) { self.parser.set_logs_errors(logs); },
          nb::arg("logs"), "Whether the logger hears of errors: not where the caller raises them.")
      .def(
          "set_constant_input",
          [](Parser& self, const std::string& name, nb::handle array) {
            ArrayData data = to_array(array, "constant input '" + name + "'");
            self.parser.set_constant_input(name, data.dtype, data.shape, std::move(data.data));
          },
          nb::arg("name"), nb::arg("array"),
          "Replaces an input of the models that are parsed next by a constant, the array. It suits "
          "inputs that decide the result's shape in a way that the engine cannot follow, such as "
          "the axes of a reduction.")
      .def(
          "set_upper_bound",
          [](Parser& self, const std::string& name, int64_t most) {
            self.parser.set_upper_bound(name, most);
          },
          nb::arg("name"), nb::arg("most"),
          "Bounds the elements of a tensor that decides extents, in the models that are parsed "
          "next. The engine plans memory for the bound. A run with a larger extent fails. The "
          "parser's error asks for a bound where none follows from the computation.")
      .def(
          "supports_model_v2",
          [](Parser& self, nb::handle model, nb::handle path) {
            return self.parser.parse(borrow_bytes(model), to_path(path));
          },
          nb::arg("model"), nb::arg("path") = nb::none(),
          "As parse(), after which the network has the model where it is supported. What could be "
          "taken over tell num_subgraphs, get_subgraph_nodes() and is_subgraph_supported(), which "
          "parse() sets as well.")
      .def_prop_ro(
          "num_subgraphs", [](const Parser& self) { return self.parser.subgraphs().size(); },
          "How many runs of nodes there are in the last model between those that cannot be taken "
          "over, which are in none; 0 where an error concerns no node.")
      .def(
          "is_subgraph_supported",
          [](const Parser& self, int64_t index) { return subgraph(self, index).is_supported; },
          nb::arg("index"),
          "True for the whole of a model without errors. Of parts of others one knows only when "
          "they are parsed by themselves.")
      .def(
          "get_subgraph_nodes",
          [](const Parser& self, int64_t index) { return subgraph(self, index).nodes; },
          nb::arg("index"), "The indices of the subgraph's nodes, in order.")
      .def(
          "get_layer_output_tensor",
          [](const Parser& self, const std::string& name, int64_t i) {
            return self.parser.node_output(name, i);
          },
          nb::arg("name"), nb::arg("i"), nb::rv_policy::reference, nb::call_policy<HoldsMaker>(),
          "An output of the node of this name, of the first one where several have it; None where "
          "there is none. A node inside a function is called 'call/node'.")
      .def(
          "get_used_vc_plugin_libraries", [](const Parser&) { return std::vector<std::string>(); },
          "Libraries that the model's layers need: there are none.");
}

/// Binds the methods for models that are given in parts.
void bind_parser_models(ReportingClass<Parser>& c) {
  c.def(
       "load_model_proto",
       [](Parser& self, nb::handle model, nb::handle path) {
         return self.parser.load(borrow_bytes(model), to_path(path));
       },
       nb::arg("model"), nb::arg("path") = nb::none(),
       "Reads a model, without external data, so that load_initializer() can give it weights "
       "before parse_model_proto() takes it over. False when there are errors, or when a model "
       "is loaded that was not taken over.")
      .def(
          "load_initializer",
          [](Parser& self, const std::string& name, uintptr_t data, size_t size) {
            return self.parser.load_initializer(name, reinterpret_cast<const void*>(data), size);
          },
          nb::arg("name"), nb::arg("data"), nb::arg("size"),
          "Copies `size` bytes from the address `data`: the elements of an initializer, dense, of "
          "the model's type. False where no model is loaded, it has no such initializer, or it "
          "has another size.")
      .def(
          "parse_model_proto", [](Parser& self) { return self.parser.parse_loaded(); },
          "Takes over the loaded model. False when there are errors.")
      .def(
          "set_builder_config",
          [](Parser& self, nb::object config) {
            const nb::object type = nb::module_::import_("opwright._core").attr("IBuilderConfig");
            if (!nb::isinstance(config, type))
              throw nb::type_error("set_builder_config: expected an IBuilderConfig");
            self.config = std::move(config);
            return true;
          },
          nb::arg("builder_config"),
          nb::sig("def set_builder_config(self, builder_config: IBuilderConfig) -> bool"),
          "The config that the network is to be built with; nothing that the parser does depends "
          "on it. Returns True.")
      .def_static("supports_operator", &OnnxParser::supports_operator, nb::arg("op_name"),
                  "Whether a node of this type of ONNX's domain can be taken over.");
}

void bind_onnx(nb::module_& m) {
  m.def(
      "get_nv_onnx_parser_version", [] { return NV_TENSORRT_VERSION; },
      "The level of TensorRT's API that the parser has: 10000 major + 100 minor + patch.");
  bind_parser_enums(m);
  bind_error(m);

  ReportingClass<Parser> c(m, "OnnxParser", "Adds the graph of an ONNX model to a network.",
                           nb::type_slots(holder_slots<Parser, tell_parser>()));
  add_context_manager(c);
  c.def(
       "__init__",
       [](Parser* self, nb::object network, nb::object logger) {
         new (self)
             Parser{network, logger,
                    OnnxParser(nb::cast<Network&>(network), Log(nb::cast<ILogger*>(logger)))};
         self->parser.set_links_allowed(is_permitted_by_environment(kAllowLinks));
       },
       nb::arg("network"), nb::arg("logger"))
      .def(
          "parse",
          [](Parser& self, nb::handle model, nb::handle path) {
            return self.parser.parse(borrow_bytes(model), to_path(path));
          },
          nb::arg("model"), nb::arg("path") = nb::none(),
          "Takes over a serialized model (bytes, or another buffer); `path` is its file, for "
          "external data beside it. False when there are errors.")
      .def(
          "parse_from_file",
          [](Parser& self, nb::handle model) { return self.parser.parse_file(to_path(model)); },
          nb::arg("model"), "Takes over a model file. False when there are errors.")
      .def_prop_ro("_files", [](const Parser& self) { return self.parser.files(); })
      .def_prop_ro("num_errors", [](const Parser& self) { return self.parser.errors().size(); })
      .def(
          "get_error",
          [](const Parser& self, int64_t index) {
            check_position(index, self.parser.errors().size());
            return self.parser.errors()[index];
          },
          nb::arg("index"))
      .def(
          "clear_errors", [](Parser& self) { self.parser.clear_errors(); },
          "Forgets the errors. A network that a model was not taken over into stays unusable.");
  bind_parser_flags(c);
  bind_parser_inputs(c);
  bind_parser_models(c);
}

}  // namespace opwright::python
