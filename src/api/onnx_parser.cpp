#include "opwright/onnx_parser.h"

#include <vector>

#include "api/network.h"
#include "onnx/parser.h"
#include "opwright/builder.h"

namespace opwright::onnxparser {
namespace {

ErrorCode code_of(const OnnxError& error) {
  const bool is_node = error.node >= 0;
  switch (error.code) {
    case opwright::ErrorCode::kFAILED_ALLOCATION:
      return ErrorCode::kMEM_ALLOC_FAILED;
    case opwright::ErrorCode::kUNSUPPORTED_STATE:
      return is_node ? ErrorCode::kUNSUPPORTED_NODE : ErrorCode::kUNSUPPORTED_GRAPH;
    case opwright::ErrorCode::kINVALID_ARGUMENT:
      return is_node ? ErrorCode::kINVALID_NODE : ErrorCode::kMODEL_DESERIALIZE_FAILED;
    default:
      return ErrorCode::kINTERNAL_ERROR;
  }
}

class ParserErrorApi final : public IParserError {
 public:
  explicit ParserErrorApi(const OnnxError& error) : error_(error) {}
  ErrorCode code() const override { return code_of(error_); }
  char const* desc() const override { return error_.message.c_str(); }
  int node() const override { return error_.node; }
  char const* nodeName() const override { return error_.node_name.c_str(); }
  char const* nodeOperator() const override { return error_.op_type.c_str(); }

 private:
  OnnxError error_;
};

class ParserApi final : public IParser {
 public:
  ParserApi(NetworkApi& network, ILogger* logger)
      : report_(Log(logger), network.getErrorRecorder()), parser_(network.network(), Log(logger)) {}

  bool parse(void const* serializedModel, size_t size, char const* modelPath) noexcept override {
    return parsed([&] {
      require(serializedModel != nullptr, "ONNX: the model's bytes are null");
      // Weights stay in the copy, as the caller may free the bytes.
      return parser_.parse(Blob::copy(serializedModel, size),
                           modelPath == nullptr ? "" : modelPath);
    });
  }
  bool parseFromFile(char const* onnxModelFile, int) noexcept override {
    return parsed([&] {
      require(onnxModelFile != nullptr, "ONNX: the name of the model's file is null");
      return parser_.parse_file(onnxModelFile);
    });
  }
  bool supportsOperator(char const* opName) const noexcept override {
    return report_.guard(
        false, [&] { return opName != nullptr && OnnxParser::supports_operator(opName); });
  }
  int getNbErrors() const noexcept override { return static_cast<int>(errors_.size()); }
  IParserError const* getError(int index) const noexcept override {
    return index >= 0 && index < getNbErrors() ? &errors_[static_cast<size_t>(index)] : nullptr;
  }
  void clearErrors() noexcept override { errors_.clear(); }

 private:
  template <class Parse>
  bool parsed(Parse&& parse) noexcept {
    errors_.clear();
    return report_.guard(false, [&] {
      if (parse()) return true;
      for (const OnnxError& error : parser_.errors()) errors_.emplace_back(error);
      return false;
    });
  }

  ErrorReport report_;
  OnnxParser parser_;
  std::vector<ParserErrorApi> errors_;
};

}  // namespace
}  // namespace opwright::onnxparser

void* createNvOnnxParser_INTERNAL(void* network, void* logger, int version) noexcept {
  using namespace opwright;
  auto* const user = static_cast<ILogger*>(logger);
  const ErrorReport errors{user == nullptr ? Log() : Log(user)};
  return errors.guard<void*>(nullptr, [&]() -> void* {
    require(user != nullptr && network != nullptr,
            "an ONNX parser needs a network and a logger; one of them is null");
    require(version / 10000 == NV_TENSORRT_MAJOR, "the program was compiled for API level ",
            version / 10000, ", the library has ", NV_TENSORRT_MAJOR);
    auto& definition = NetworkApi::of(*static_cast<INetworkDefinition*>(network));
    return static_cast<onnxparser::IParser*>(new onnxparser::ParserApi(definition, user));
  });
}

int getNvOnnxParserVersion() noexcept { return NV_TENSORRT_VERSION; }
