// OnnxParser.

#include "bindings.h"
#include "network/network.h"
#include "onnx/parser.h"
#include "opwright/version.h"
#include "reporting.h"

namespace opwright::python {
namespace {

struct Parser {
  nb::object network, logger;  ///< kept alive
  OnnxParser parser;
  const ErrorReport& errors() const { return nb::cast<Network&>(network).errors(); }
};

}  // namespace

void bind_onnx(nb::module_& m) {
  m.def(
      "get_nv_onnx_parser_version", [] { return NV_TENSORRT_VERSION; },
      "The level of TensorRT's API that the parser has: 10000 major + 100 minor + patch.");
  nb::class_<OnnxError>(m, "ParserError", "Why a model could not be taken over.")
      .def("code", [](const OnnxError& self) { return static_cast<int>(self.code); })
      .def("desc", [](const OnnxError& self) { return self.message; })
      .def(
          "node", [](const OnnxError& self) { return self.node; },
          "The node's index; -1 for the model as a whole.")
      .def("node_name", [](const OnnxError& self) { return self.node_name; })
      .def("node_operator", [](const OnnxError& self) { return self.op_type; })
      .def("__str__", [](const OnnxError& self) { return self.message; })
      .def("__repr__", [](const OnnxError& self) { return "<ParserError " + self.message + ">"; });

  ReportingClass<Parser> c(m, "OnnxParser", "Adds the graph of an ONNX model to a network.");
  add_context_manager(c);
  c.def(
       "__init__",
       [](Parser* self, nb::object network, nb::object logger) {
         new (self)
             Parser{network, logger,
                    OnnxParser(nb::cast<Network&>(network), Log(nb::cast<ILogger*>(logger)))};
       },
       nb::arg("network"), nb::arg("logger"))
      .def(
          "parse",
          [](Parser& self, nb::handle model, std::optional<std::string> path) {
            return self.parser.parse(borrow_bytes(model), path.value_or(""));
          },
          nb::arg("model"), nb::arg("path").none() = nb::none(),
          "Takes over a serialized model; `path` is its file, for external data beside it. False "
          "when there are errors.")
      .def(
          "parse_from_file",
          [](Parser& self, const std::string& model) { return self.parser.parse_file(model); },
          nb::arg("model"), "Takes over a model file. False when there are errors.")
      .def_prop_ro("num_errors", [](const Parser& self) { return self.parser.errors().size(); })
      .def(
          "get_error",
          [](const Parser& self, size_t index) {
            if (index >= self.parser.errors().size()) throw nb::index_error();
            return self.parser.errors()[index];
          },
          nb::arg("index"))
      .def(
          "clear_errors", [](Parser& self) { self.parser.clear_errors(); },
          "Forgets the errors. A network that a model was not taken over into stays unusable.")
      .def_static("supports_operator", &OnnxParser::supports_operator, nb::arg("op_name"));
}

}  // namespace opwright::python
