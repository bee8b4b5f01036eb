// The ONNX parser's interface: flags, subgraphs, functions in errors, weights that the program
// gives.

#include "NvOnnxParser.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "api/program.h"
#include "onnx/model_writer.h"

namespace program {
namespace {

using namespace nvinfer1;
using Flag = nvonnxparser::OnnxParserFlag;

class Parser : public Program {
 protected:
  void make() {
    parser.reset(nvonnxparser::createParser(*network, logger));
    ASSERT_NE(parser, nullptr) << logger.errors;
  }
  std::vector<int64_t> nodes(int64_t subgraph) {
    int64_t length = -1;
    int64_t const* const first = parser->getSubgraphNodes(subgraph, length);
    return std::vector<int64_t>(first, first + length);
  }

  std::unique_ptr<nvonnxparser::IParser> parser;
};

static_assert(nvonnxparser::EnumMax<nvonnxparser::ErrorCode>() == 14);
static_assert(nvonnxparser::EnumMax<Flag>() == 4);

opwright::GraphParts graph(std::vector<std::string> nodes) {
  opwright::GraphParts parts;
  parts.nodes = std::move(nodes);
  parts.inputs = {opwright::value_info("x", 1, {"2"})};
  parts.outputs = {opwright::value_info("y", 1, {"2"})};
  return parts;
}

/// The model with functions: a member of the message like any other.
std::string with_functions(std::string model, std::vector<std::string> const& functions) {
  for (std::string const& function : functions) opwright::Writer(model).add_message(25, function);
  return model;
}

TEST_F(Parser, FlagsAreBits) {
  make();
  EXPECT_EQ(parser->getFlags(), 1u << static_cast<uint32_t>(Flag::kNATIVE_INSTANCENORM));
  parser->setFlag(Flag::kENABLE_PLUGIN_OVERRIDE);
  EXPECT_TRUE(parser->getFlag(Flag::kENABLE_PLUGIN_OVERRIDE));
  parser->clearFlag(Flag::kNATIVE_INSTANCENORM);
  EXPECT_EQ(parser->getFlags(), 1u << static_cast<uint32_t>(Flag::kENABLE_PLUGIN_OVERRIDE));
  parser->setFlags(0);
  EXPECT_FALSE(parser->getFlag(Flag::kENABLE_PLUGIN_OVERRIDE));
  int64_t libraries = -1;
  EXPECT_EQ(parser->getUsedVCPluginLibraries(libraries), nullptr);
  EXPECT_EQ(libraries, 0);
  EXPECT_TRUE(parser->setBuilderConfig(config.get()));
  EXPECT_FALSE(parser->setBuilderConfig(nullptr));
}

TEST_F(Parser, SubgraphsLieBetweenWhatCannotBeTakenOver) {
  make();
  std::string const bytes = opwright::model(
      graph({opwright::node("Relu", {"x"}, {"a"}), opwright::node("Foo", {"a"}, {"b"}),
             opwright::node("Neg", {"b"}, {"c"}), opwright::node("Abs", {"c"}, {"y"})}));
  EXPECT_EQ(parser->getNbSubgraphs(), 0);
  EXPECT_FALSE(parser->supportsModelV2(bytes.data(), bytes.size()));
  ASSERT_EQ(parser->getNbSubgraphs(), 2);
  EXPECT_EQ(nodes(0), (std::vector<int64_t>{0}));
  EXPECT_EQ(nodes(1), (std::vector<int64_t>{2, 3}));
  EXPECT_FALSE(parser->isSubgraphSupported(0));
  int64_t length = -1;
  EXPECT_EQ(parser->getSubgraphNodes(2, length), nullptr);
  EXPECT_EQ(length, 0);
  EXPECT_FALSE(parser->isSubgraphSupported(-1));
  EXPECT_NE(logger.errors.find("there is no subgraph -1"), std::string::npos) << logger.errors;
}

TEST_F(Parser, FunctionsAreExpanded) {
  make();
  std::string const bytes =
      with_functions(opwright::model(graph({opwright::node_of("nn", "outer", {"x"}, {"y"})})),
                     {opwright::function("nn", "outer", {"a"}, {"b"},
                                         {opwright::node_of("nn", "inner", {"a"}, {"t"}),
                                          opwright::node_of("nn", "inner", {"t"}, {"b"})}),
                      opwright::function("nn", "inner", {"a"}, {"b"},
                                         {opwright::node("Add", {"a", "a"}, {"b"})})});
  ASSERT_TRUE(parser->supportsModelV2(bytes.data(), bytes.size())) << logger.errors;
  EXPECT_EQ(parser->getNbSubgraphs(), 1);
  EXPECT_TRUE(parser->isSubgraphSupported(0));
  ITensor& y = *network->getOutput(0);
  EXPECT_EQ(parser->getLayerOutputTensor("the_outer", 0), &y);
  EXPECT_EQ(parser->getLayerOutputTensor("the_outer", 1), nullptr);
  EXPECT_EQ(parser->getLayerOutputTensor("nobody", 0), nullptr);
  EXPECT_EQ(parser->getLayerOutputTensor(nullptr, 0), nullptr);
  network->unmarkOutput(y);
  EXPECT_EQ(result_of(y, {2}, {1, -3}), (std::vector<float>{4, -12}));
}

TEST_F(Parser, ErrorsNameTheFunctions) {
  make();
  std::string const bytes = with_functions(
      opwright::model(graph(
          {opwright::node("Relu", {"x"}, {"r"}), opwright::node_of("nn", "outer", {"r"}, {"y"})})),
      {opwright::function("nn", "outer", {"a"}, {"b"},
                          {opwright::node_of("nn", "inner", {"a"}, {"b"})}),
       opwright::function("nn", "inner", {"a"}, {"b"}, {opwright::node("Foo", {"a"}, {"b"})})});
  EXPECT_FALSE(parser->parse(bytes.data(), bytes.size()));
  ASSERT_EQ(parser->getNbErrors(), 1);
  nvonnxparser::IParserError const& error = *parser->getError(0);
  EXPECT_EQ(error.code(), nvonnxparser::ErrorCode::kUNSUPPORTED_NODE);
  EXPECT_EQ(error.node(), 1);
  EXPECT_STREQ(error.nodeName(), "the_outer/the_inner/the_Foo");
  EXPECT_STREQ(error.nodeOperator(), "Foo");
  ASSERT_EQ(error.localFunctionStackSize(), 2);
  EXPECT_STREQ(error.localFunctionStack()[0], "the_outer (nn::outer)");
  EXPECT_STREQ(error.localFunctionStack()[1], "the_outer/the_inner (nn::inner)");
  EXPECT_NE(std::strstr(error.file(), ".cpp"), nullptr) << error.file();
  EXPECT_GT(error.line(), 0);
  EXPECT_STRNE(error.func(), "");
  EXPECT_FALSE(parser->parse("garbage", 7));
  EXPECT_EQ(parser->getError(0)->code(), nvonnxparser::ErrorCode::kMODEL_DESERIALIZE_FAILED);
  EXPECT_EQ(parser->getError(0)->localFunctionStack(), nullptr);
  EXPECT_EQ(parser->getError(0)->localFunctionStackSize(), 0);
}

TEST_F(Parser, ProgramsGiveInitializers) {
  make();
  opwright::GraphParts parts = graph({opwright::node("Add", {"x", "b"}, {"y"})});
  parts.initializers = {opwright::float_tensor("b", {2}, {1, -5})};
  std::string const bytes = opwright::model(parts);
  float values[] = {10, 20};
  EXPECT_FALSE(parser->loadInitializer("b", values, sizeof(values)));
  EXPECT_FALSE(parser->parseModelProto());
  ASSERT_TRUE(parser->loadModelProto(bytes.data(), bytes.size())) << logger.errors;
  EXPECT_FALSE(parser->loadModelProto(bytes.data(), bytes.size()));
  EXPECT_FALSE(parser->loadInitializer("nobody", values, sizeof(values)));
  EXPECT_FALSE(parser->loadInitializer("b", values, 4));
  EXPECT_FALSE(parser->loadInitializer("b", nullptr, sizeof(values)));
  EXPECT_FALSE(parser->loadInitializer(nullptr, values, sizeof(values)));
  EXPECT_EQ(parser->getNbErrors(), 0) << "what a null argument does is logged";
  ASSERT_TRUE(parser->loadInitializer("b", values, sizeof(values)));
  values[0] = 0;  // They were copied.
  ASSERT_TRUE(parser->parseModelProto()) << logger.errors;
  ITensor& y = *network->getOutput(0);
  network->unmarkOutput(y);
  EXPECT_EQ(result_of(y, {2}, {1, 2}), (std::vector<float>{11, 22}));
}

TEST_F(Parser, LinksOutOfTheFolderNeedPermission) {
  namespace fs = std::filesystem;
  fs::path const folder = fs::path(::testing::TempDir()) / ("links-" + std::to_string(getpid()));
  fs::create_directories(folder / "model");
  float const values[] = {10, 20};
  std::ofstream(folder / "blob").write(reinterpret_cast<char const*>(values), sizeof(values));
  fs::create_symlink("../blob", folder / "model" / "data");
  opwright::GraphParts parts = graph({opwright::node("Add", {"x", "b"}, {"y"})});
  parts.initializers = {opwright::message([](opwright::Writer& tensor) {
    std::vector<int64_t> const dims{2};
    tensor.add_packed_int64(1, dims.begin(), dims.end());
    tensor.add_int32(2, 1);
    tensor.add_string(8, "b");
    opwright::Writer location(tensor, 13);
    location.add_string(1, "location");
    location.add_string(2, "data");
    location.commit();
    tensor.add_int32(14, 1);  // EXTERNAL
  })};
  std::string const bytes = opwright::model(parts);
  std::string const path = folder / "model" / "model.onnx";
  make();
  EXPECT_FALSE(parser->getLinksAllowed());
  EXPECT_FALSE(parser->parse(bytes.data(), bytes.size(), path.c_str()));
  EXPECT_NE(logger.errors.find("setLinksAllowed(true)"), std::string::npos) << logger.errors;
  parser.reset();
  network.reset(builder->createNetworkV2(0));
  make();
  parser->setLinksAllowed(true);
  EXPECT_TRUE(parser->getLinksAllowed());
  ASSERT_TRUE(parser->parse(bytes.data(), bytes.size(), path.c_str())) << logger.errors;
  ITensor& y = *network->getOutput(0);
  network->unmarkOutput(y);
  EXPECT_EQ(result_of(y, {2}, {1, 2}), (std::vector<float>{11, 22}));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace program
