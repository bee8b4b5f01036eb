// The parser on models written by hand: names, types, shapes, constants, and what it refuses.

#include "onnx/parser.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "model_writer.h"

namespace opwright {
namespace {

struct Parsed {
  explicit Parsed(const std::string& bytes) : parser(network, Log()) {
    taken = parser.parse(blob(bytes), "");
  }
  std::string messages() const {
    std::string all;
    for (const OnnxError& error : parser.errors()) all += error.message + "\n";
    return all;
  }
  Network network;
  OnnxParser parser;
  bool taken;
};

/// A node whose inputs are x [1, 4, 6, 6], w [2, 4, 3, 3], i (INT64, no constant), and its output
/// y.
std::string around(const std::string& node, int64_t opset = 17,
                   std::vector<std::string> initializers = {}) {
  initializers.push_back(float_tensor("w", {2, 4, 3, 3}, std::vector<float>(72, 1)));
  return model({{node},
                initializers,
                {value_info("x", 1, {"1", "4", "6", "6"}), value_info("v", 1, {"4"})},
                {value_info("y", 1, {})}},
               opset);
}

std::string int64_tensor(const std::string& name, const std::vector<int64_t>& values) {
  return message([&](Writer& t) {
    t.add_int64(1, static_cast<int64_t>(values.size()));
    t.add_int32(2, 7);
    t.add_string(8, name);
    t.add_packed_int64(7, values.begin(), values.end());
  });
}

#define EXPECT_REFUSED(bytes, part)                                                  \
  do {                                                                               \
    const Parsed parsed(bytes);                                                      \
    EXPECT_FALSE(parsed.taken);                                                      \
    EXPECT_NE(parsed.messages().find(part), std::string::npos) << parsed.messages(); \
  } while (false)

TEST(OnnxParser, NamesTypesAndShapesAreTheModels) {
  const Parsed parsed(
      model({{node("Conv", {"x", "w"}, {"features"}), node("Relu", {"features"}, {"active"}),
              node("Shape", {"active"}, {"extents"})},
             {float_tensor("w", {2, 4, 3, 3}, std::vector<float>(72, 1))},
             {value_info("x", 1, {"batch", "4", "6", "7"})},
             {value_info("active", 1, {}), value_info("extents", 7, {"4"})}}));
  ASSERT_TRUE(parsed.taken) << parsed.messages();
  EXPECT_EQ(parsed.network.name(), "hand_made");
  ASSERT_EQ(parsed.network.inputs().size(), 1u);
  const Tensor& x = *parsed.network.inputs()[0];
  EXPECT_EQ(x.name(), "x");
  EXPECT_EQ(x.dtype(), DataType::kFLOAT);
  EXPECT_EQ(x.shape(), (Shape{-1, 4, 6, 7}));
  EXPECT_EQ(x.dimension_name(0), "batch");
  ASSERT_EQ(parsed.network.outputs().size(), 2u);
  const Tensor& active = *parsed.network.outputs()[0];
  EXPECT_EQ(active.name(), "active");
  EXPECT_EQ(active.dims()[0], x.dims()[0]);
  EXPECT_EQ(active.dims()[1], Expr(2));
  EXPECT_EQ(active.dims()[3], Expr(5));
  EXPECT_NE(parsed.network.find_tensor("features"), nullptr);
  const Tensor& extents = *parsed.network.outputs()[1];
  EXPECT_EQ(extents.name(), "extents");
  EXPECT_EQ(extents.dtype(), DataType::kINT64);
  ASSERT_TRUE(extents.info().values);
  EXPECT_EQ(extents.info().values->at(2), Expr(4));
  EXPECT_EQ(parsed.network.layer(1)->name(), "the_Conv");
}

TEST(OnnxParser, AnInputMayBeAnOutput) {
  const Parsed parsed(model({{node("Identity", {"x"}, {"y"})},
                             {},
                             {value_info("x", 1, {"2"})},
                             {value_info("x", 1, {"2"}), value_info("y", 1, {"2"})}}));
  ASSERT_TRUE(parsed.taken) << parsed.messages();
  EXPECT_EQ(parsed.network.outputs().size(), 2u);
}

TEST(OnnxParser, UnknownOperatorsAreAllListed) {
  const Parsed parsed(model({{node("Alpha", {"x"}, {"a"}), node("Relu", {"a"}, {"b"}),
                              node("Beta", {"x"}, {"c"}), node("Add", {"b", "c"}, {"y"})},
                             {},
                             {value_info("x", 1, {"2"})},
                             {value_info("y", 1, {"2"})}}));
  ASSERT_EQ(parsed.parser.errors().size(), 2u) << parsed.messages();
  EXPECT_EQ(parsed.parser.errors()[0].node_name, "the_Alpha");
  EXPECT_EQ(parsed.parser.errors()[1].op_type, "Beta");
  EXPECT_EQ(parsed.parser.errors()[1].node, 2);
  EXPECT_EQ(parsed.parser.errors()[0].code, ErrorCode::kUNSUPPORTED_STATE);
}

std::string graph_attribute(const std::string& name, const std::string& graph) {
  return message([&](Writer& a) {
    a.add_string(1, name);
    a.add_message(6, graph);
    a.add_int32(20, 5);
  });
}

std::string branch(const std::string& inner) {
  return message([&](Writer& g) {
    g.add_message(1, inner);
    g.add_string(2, "branch");
    g.add_message(12, value_info("r", 1, {}));
  });
}

TEST(OnnxParser, ConditionsHaveToBeBoolean) {
  const std::string same = branch(node("Relu", {"x"}, {"r"}));
  EXPECT_REFUSED(
      around(node("If", {"x"}, {"y"},
                  {graph_attribute("then_branch", same), graph_attribute("else_branch", same)})),
      "expected BOOL");
}

TEST(OnnxParser, BodiesThatDoNotFitAreRefused) {
  const std::string same = branch(node("Relu", {"x"}, {"r"}));
  EXPECT_REFUSED(around(node("If", {"x"}, {"y"})), "'then_branch' is missing");
  EXPECT_REFUSED(around(node("Loop", {"", "", "x"}, {"y"}, {graph_attribute("body", same)})),
                 "its body takes 0 inputs");
  EXPECT_REFUSED(around(node("Scan", {"x"}, {"y"}, {graph_attribute("body", same)})),
                 "num_scan_inputs is 0");
  EXPECT_REFUSED(
      around(node("Scan", {"x"}, {"y"},
                  {graph_attribute("body", same),
                   int_attribute("num_scan_inputs", std::numeric_limits<int64_t>::min())})),
      "num_scan_inputs");
}

TEST(OnnxParser, GraphsInAttributesAreNotNestedWithoutEnd) {
  std::string graph = branch(node("Relu", {"x"}, {"r"}));
  for (int depth = 0; depth < 40; ++depth)
    graph = branch(node("If", {"x"}, {"r"}, {graph_attribute("then_branch", graph)}));
  EXPECT_REFUSED(around(node("If", {"x"}, {"y"}, {graph_attribute("then_branch", graph)})),
                 "nested more than 32 deep");
}

TEST(OnnxParser, ErrorsAreOfTheLastModel) {
  Network network;
  OnnxParser parser(network, Log());
  EXPECT_FALSE(parser.parse(blob("no model"), ""));
  EXPECT_EQ(parser.errors().size(), 1u);
  EXPECT_TRUE(parser.parse(blob(around(node("Relu", {"x"}, {"y"}))), ""));
  EXPECT_TRUE(parser.errors().empty());
}

TEST(OnnxParser, RefusesModelsThatDoNotHangTogether) {
  EXPECT_REFUSED(around(node("Relu", {"nobody"}, {"y"})), "'nobody'");
  EXPECT_REFUSED(around(node("Relu", {}, {"y"})), "input 0 is missing");
  EXPECT_REFUSED(around(node("Relu", {"y"}, {"y"})), "'y'");
  EXPECT_REFUSED(around(node("Relu", {"x"}, {"z"})), "'y' is made by no node");
  EXPECT_REFUSED(around(node("Relu", {"x"}, {})), "'y' is made by no node");
  EXPECT_REFUSED(around(node("Relu", {"x"}, {"y"}), 6), "opset 6");
  std::string no_opset = around(node("Relu", {"x"}, {"y"}));
  no_opset.resize(no_opset.size() - 4);  // tag, length, and the version's two bytes
  EXPECT_REFUSED(no_opset, "opset");
  EXPECT_REFUSED(model({{node("Relu", {"x"}, {"y"})},
                        {},
                        {value_info("x", 1, std::vector<std::string>(9, "1"))},
                        {value_info("y", 1, {})}}),
                 "8");
}

TEST(OnnxParser, RefusesAttributesOfAnotherType) {
  EXPECT_REFUSED(around(node("Softmax", {"x"}, {"y"}, {ints_attribute("axis", {1})})), "'axis'");
  EXPECT_REFUSED(around(node("Conv", {"x", "w"}, {"y"}, {int_attribute("pads", 1)})), "'pads'");
}

TEST(OnnxParser, RefusesParametersOfAnotherSize) {
  const std::vector<int64_t> most = {std::numeric_limits<int64_t>::max()};
  const std::vector<int64_t> least = {std::numeric_limits<int64_t>::min()};
  EXPECT_REFUSED(around(node("Conv", {"x", "w"}, {"y"}, {ints_attribute("strides", {1})})),
                 "'strides'");
  EXPECT_REFUSED(
      around(node("ConvTranspose", {"x", "w"}, {"y"},
                  {ints_attribute("output_padding", {1}), ints_attribute("output_shape", {9, 9})})),
      "'output_padding'");
  EXPECT_REFUSED(
      around(node("ConvTranspose", {"x", "v"}, {"y"}, {ints_attribute("output_shape", {9, 9})})),
      "rank 1");
  EXPECT_REFUSED(around(node("ConvTranspose", {"x", "w"}, {"y"},
                             {ints_attribute("output_shape", {9, 9}),
                              ints_attribute("strides", {most[0], most[0]})})),
                 "64 bits");
  EXPECT_REFUSED(around(node("InstanceNormalization", {"v", "v", "v"}, {"y"})), "rank 1");
  EXPECT_REFUSED(
      around(node("GroupNormalization", {"v", "v", "v"}, {"y"}, {int_attribute("num_groups", 2)})),
      "rank 1");
  EXPECT_REFUSED(around(node("ConstantOfShape", {"s"}, {"y"},
                             {tensor_attribute("value", float_tensor("", {0}, {}))}),
                        17, {int64_tensor("s", {2})}),
                 "0 elements");
  EXPECT_REFUSED(around(node("Range", {"a", "b", "b"}, {"y"}), 17,
                        {int64_tensor("a", {}), int64_tensor("b", {1})}),
                 "0 elements");
  EXPECT_REFUSED(around(node("TopK", {"x", "k"}, {"y"}), 17, {int64_tensor("k", {})}),
                 "0 elements");
  EXPECT_REFUSED(around(node("Clip", {"x", "v"}, {"y"}), 17, {float_tensor("v", {2}, {0, 1})}),
                 "2 elements");
  EXPECT_REFUSED(around(node("DepthToSpace", {"x"}, {"y"}, {int_attribute("blocksize", most[0])})),
                 "blocksize");
  EXPECT_REFUSED(around(node("Slice", {"x", "s", "e", "a", "t"}, {"y"}), 17,
                        {int64_tensor("s", {5}), int64_tensor("e", {0}), int64_tensor("a", {2}),
                         int64_tensor("t", least)}),
                 "64 bits");
  EXPECT_REFUSED(around(node("Tile", {"x", "r"}, {"y"}), 17,
                        {int64_tensor("r", {most[0], most[0], most[0], most[0]})}),
                 "64 bits");
  EXPECT_REFUSED(around(node("Split", {"x"}, {})), "the_Split");
}

}  // namespace
}  // namespace opwright
