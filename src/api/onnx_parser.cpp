#include "opwright/onnx_parser.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "api/network.h"
#include "api/parser_error.h"
#include "onnx/parser.h"
#include "opwright/builder.h"
#include "runtime/engine.h"

namespace opwright::onnxparser {
namespace {

class ParserApi final : public IParser {
 public:
  ParserApi(NetworkApi& network, ILogger* logger)
      : report_(Log(logger), network.getErrorRecorder()),
        network_(network),
        parser_(network.network(), Log(logger)) {
    parser_.set_links_allowed(is_permitted_by_environment(kAllowLinks));
  }

  bool parse(void const* serializedModel, size_t size, char const* modelPath) noexcept override {
    return parsed(
        [&] { return parser_.parse(copy_of_model(serializedModel, size), text_of(modelPath)); });
  }
  bool parseFromFile(char const* onnxModelFile, int) noexcept override {
    return parsed([&] { return parser_.parse_file(file_of(onnxModelFile)); });
  }
  bool supportsOperator(char const* opName) const noexcept override {
    return report_.guard(
        false, [&] { return opName != nullptr && OnnxParser::supports_operator(opName); });
  }
  int getNbErrors() const noexcept override { return errors_.count(); }
  IParserError const* getError(int index) const noexcept override { return errors_.get(index); }
  void clearErrors() noexcept override {
    errors_.clear();
    parser_.clear_errors();
  }
  char const* const* getUsedVCPluginLibraries(int64_t& nbPluginLibs) const noexcept override {
    nbPluginLibs = 0;
    return nullptr;
  }
  void setFlags(OnnxParserFlags onnxParserFlags) noexcept override {
    parser_.set_flags(onnxParserFlags);
  }
  OnnxParserFlags getFlags() const noexcept override { return parser_.flags(); }
  void clearFlag(OnnxParserFlag onnxParserFlag) noexcept override {
    parser_.clear_flag(onnxParserFlag);
  }
  void setFlag(OnnxParserFlag onnxParserFlag) noexcept override {
    parser_.set_flag(onnxParserFlag);
  }
  bool getFlag(OnnxParserFlag onnxParserFlag) const noexcept override {
    return parser_.has_flag(onnxParserFlag);
  }
  ITensor const* getLayerOutputTensor(char const* name, int64_t i) noexcept override {
    return report_.guard<ITensor const*>(nullptr, [&]() -> ITensor const* {
      return name == nullptr ? nullptr : network_.tensor(parser_.node_output(name, i));
    });
  }
  bool supportsModelV2(void const* serializedOnnxModel, size_t serializedOnnxModelSize,
                       char const* modelPath) noexcept override {
    return parse(serializedOnnxModel, serializedOnnxModelSize, modelPath);
  }
  int64_t getNbSubgraphs() noexcept override {
    return static_cast<int64_t>(parser_.subgraphs().size());
  }
  bool isSubgraphSupported(int64_t const index) noexcept override {
    return report_.guard(false, [&] { return parser_.subgraph(index).is_supported; });
  }
  int64_t* getSubgraphNodes(int64_t const index, int64_t& subgraphLength) noexcept override {
    subgraphLength = 0;
    return report_.guard<int64_t*>(nullptr, [&] {
      // The caller may write to the list.
      subgraph_nodes_[index] = parser_.subgraph(index).nodes;
      subgraphLength = static_cast<int64_t>(subgraph_nodes_[index].size());
      return subgraph_nodes_[index].data();
    });
  }
  bool loadModelProto(void const* serializedOnnxModel, size_t serializedOnnxModelSize,
                      char const* modelPath) noexcept override {
    return parsed([&] {
      return parser_.load(copy_of_model(serializedOnnxModel, serializedOnnxModelSize),
                          text_of(modelPath));
    });
  }
  bool loadInitializer(char const* name, void const* data, size_t size) noexcept override {
    return parsed([&] {
      require(name != nullptr, "ONNX: the name of an initializer is null");
      return parser_.load_initializer(name, data, size);
    });
  }
  bool parseModelProto() noexcept override {
    return parsed([&] { return parser_.parse_loaded(); });
  }
  bool setBuilderConfig(IBuilderConfig const* const builderConfig) noexcept override {
    return builderConfig != nullptr;
  }
  void setLinksAllowed(bool allowed) noexcept override { parser_.set_links_allowed(allowed); }
  bool getLinksAllowed() const noexcept override { return parser_.links_allowed(); }

 private:
  template <class Parse>
  bool parsed(Parse&& parse) noexcept {
    subgraph_nodes_.clear();
    return errors_.take(report_, parser_, parse);
  }

  ErrorReport report_;
  NetworkApi& network_;
  OnnxParser parser_;
  ParserErrorsApi errors_;
  std::unordered_map<int64_t, std::vector<int64_t>> subgraph_nodes_;
};

}  // namespace
}  // namespace opwright::onnxparser

void* createNvOnnxParser_INTERNAL(void* network, void* logger, int version) noexcept {
  using namespace opwright;
  return create_face(logger, network != nullptr,
                     "an ONNX parser needs a network and a logger; one of them is null", version,
                     [&](ILogger* user) -> onnxparser::IParser* {
                       auto& face = *static_cast<INetworkDefinition*>(network);
                       return new onnxparser::ParserApi(NetworkApi::of(face), user);
                     });
}

int getNvOnnxParserVersion() noexcept { return NV_TENSORRT_VERSION; }
