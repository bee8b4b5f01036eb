// Functions of a model that no ONNX library would write.

#include "onnx/functions.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model_writer.h"
#include "onnx/parser.h"

namespace opwright {
namespace {

std::string with_functions(const std::vector<std::string>& functions,
                           const std::vector<std::string>& nodes) {
  std::string bytes = model({nodes, {}, {value_info("x", 1, {"2"})}, {value_info("y", 1, {"2"})}});
  for (const std::string& part : functions) Writer(bytes).add_message(25, part);
  return bytes;
}

std::vector<std::string> errors_of(const std::string& bytes) {
  Network network;
  OnnxParser parser(network, Log());
  parser.parse(blob(bytes), "");
  std::vector<std::string> messages;
  for (const OnnxError& error : parser.errors()) messages.push_back(error.message);
  return messages;
}

#define EXPECT_FUNCTIONS_REFUSED(bytes, part)                            \
  do {                                                                   \
    const std::vector<std::string> messages = errors_of(bytes);          \
    ASSERT_FALSE(messages.empty());                                      \
    EXPECT_NE(messages[0].find(part), std::string::npos) << messages[0]; \
  } while (false)

TEST(OnnxFunctions, RefusesThoseThatDoNotHangTogether) {
  const std::string call = node_of("nn", "f", {"x"}, {"y"});
  const std::string relu = node("Relu", {"a"}, {"b"});
  EXPECT_FUNCTIONS_REFUSED(with_functions({function("nn", "f", {"a"}, {"b"}, {})}, {call}),
                           "none of its nodes makes");
  EXPECT_FUNCTIONS_REFUSED(with_functions({function("nn", "f", {"other"}, {"b"}, {relu})}, {call}),
                           "input 'a' is made by no node before this one");
  EXPECT_FUNCTIONS_REFUSED(with_functions({function("nn", "f", {}, {"b"}, {relu})}, {call}),
                           "takes 0 inputs; the node has 1");
  EXPECT_FUNCTIONS_REFUSED(with_functions({function("mm", "f", {"a"}, {"b"}, {relu})}, {call}),
                           "operator 'f' of domain 'nn' is unknown");
  EXPECT_FUNCTIONS_REFUSED(with_functions({"\xff"}, {call}), "not a serialized ONNX model");
  // The graph's tensors are unknown inside.
  EXPECT_FUNCTIONS_REFUSED(
      with_functions({function("nn", "f", {"a"}, {"b"}, {node("Add", {"a", "x"}, {"b"})})}, {call}),
      "input 'x' is made by no node");
}

TEST(OnnxFunctions, AreBounded) {
  for (const char* second : {"t", "a"}) {
    std::vector<std::string> functions;
    for (int i = 0; i < 30; ++i) {
      const std::string next = "f" + std::to_string(i + 1);
      functions.push_back(
          function("nn", "f" + std::to_string(i), {"a"}, {"b"},
                   {node_of("nn", next, {"a"}, {"t"}), node_of("nn", next, {second}, {"b"})}));
    }
    functions.push_back(function("nn", "f30", {"a"}, {"a"}, {}));
    const std::vector<std::string> messages =
        errors_of(with_functions(functions, {node_of("nn", "f0", {"x"}, {"y"})}));
    ASSERT_GE(messages.size(), 1u);
    EXPECT_LE(messages.size(), 1000u);
    EXPECT_NE(messages[0].find("stand for more than 100000 nodes"), std::string::npos)
        << messages[0];
  }
}

TEST(OnnxFunctions, AReferenceInTheGraphStandsForNothing) {
  const std::string alpha = message([](Writer& a) {
    a.add_string(1, "alpha");
    a.add_int32(20, 1);
    a.add_string(21, "nobody");
  });
  Network network;
  OnnxParser parser(network, Log());
  EXPECT_TRUE(
      parser.parse(blob(with_functions({}, {node("LeakyRelu", {"x"}, {"y"}, {alpha})})), ""));
}

}  // namespace
}  // namespace opwright
