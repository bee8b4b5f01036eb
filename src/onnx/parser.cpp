#include "onnx/parser.h"

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "onnx/graph_importer.h"
#include "onnx/importer.h"
#include "onnx/model.h"

namespace opwright {
namespace {

using onnxparser::OnnxParserFlag;

std::string directory_of(const std::string& path) {
  return path.empty() ? std::string() : std::filesystem::absolute(path).parent_path().string();
}

onnxparser::ErrorCode kind_of(const Error& problem, int node, onnxparser::ErrorCode otherwise) {
  using Kind = onnxparser::ErrorCode;
  if (const auto* known = dynamic_cast<const onnx::NodeError*>(&problem)) return known->kind();
  switch (problem.code()) {
    case ErrorCode::kFAILED_ALLOCATION:
      return Kind::kMEM_ALLOC_FAILED;
    case ErrorCode::kUNSUPPORTED_STATE:
      return node >= 0 ? Kind::kUNSUPPORTED_NODE : Kind::kUNSUPPORTED_GRAPH;
    case ErrorCode::kINVALID_ARGUMENT:
      return node >= 0 ? Kind::kINVALID_NODE : otherwise;
    default:
      return Kind::kINTERNAL_ERROR;
  }
}

std::vector<std::string> needed_by(const Error& problem) {
  const auto* known = dynamic_cast<const onnx::NodeError*>(&problem);
  return known != nullptr ? known->needed_constants() : std::vector<std::string>();
}

}  // namespace

OnnxError::OnnxError(const Error& problem, int node, onnxparser::ErrorCode otherwise,
                     SourcePlace where)
    : code(problem.code()),
      kind(kind_of(problem, node, otherwise)),
      node(node),
      message(problem.what()),
      needed_constants(needed_by(problem)),
      file(std::filesystem::path(where.file).filename().string()),
      func(where.function),
      line(where.line) {}

const char* name(onnxparser::ErrorCode kind) {
  static constexpr const char* kNames[] = {"SUCCESS",
                                           "INTERNAL_ERROR",
                                           "MEM_ALLOC_FAILED",
                                           "MODEL_DESERIALIZE_FAILED",
                                           "INVALID_VALUE",
                                           "INVALID_GRAPH",
                                           "INVALID_NODE",
                                           "UNSUPPORTED_GRAPH",
                                           "UNSUPPORTED_NODE",
                                           "UNSUPPORTED_NODE_ATTR",
                                           "UNSUPPORTED_NODE_INPUT",
                                           "UNSUPPORTED_NODE_DATATYPE",
                                           "UNSUPPORTED_NODE_DYNAMIC",
                                           "UNSUPPORTED_NODE_SHAPE",
                                           "REFIT_FAILED"};
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

std::string str(const OnnxError& error) {
  const std::string text = str("(", error.func, "): ", name(error.kind), ": ", error.message);
  if (error.node < 0) return text;
  return str("In node ", error.node, " with name: ", error.node_name,
             " and operator: ", error.op_type, " ", text);
}

OnnxParser::OnnxParser(Network& network, Log log, IPluginRegistry* plugins)
    : network_(&network), log_(log), plugins_(plugins != nullptr ? plugins : network.plugins()) {}

OnnxParser::~OnnxParser() = default;
OnnxParser::OnnxParser(OnnxParser&&) noexcept = default;

template <class Body>
bool OnnxParser::collect(Body&& body) {
  errors_.clear();
  try {
    body();
  } catch (const Error& problem) {
    errors_.emplace_back(problem, -1, onnxparser::ErrorCode::kINVALID_GRAPH);
  } catch (const std::bad_alloc&) {
    errors_.emplace_back(
        Error(ErrorCode::kFAILED_ALLOCATION, "ONNX: the model needs more memory than there is"), -1,
        onnxparser::ErrorCode::kMEM_ALLOC_FAILED);
  }
  report();
  return errors_.empty();
}

bool OnnxParser::parse(const Blob& model, const std::string& path) {
  return collect([&] {
    subgraphs_.clear();
    node_outputs_.clear();
    onnx::ModelProto proto;
    try {
      proto = onnx::decode_model(model, directory_of(path), links_);
    } catch (const Error& problem) {
      errors_.emplace_back(problem, -1, onnxparser::ErrorCode::kMODEL_DESERIALIZE_FAILED);
      return;
    }
    take_over(proto);
  });
}

bool OnnxParser::parse_file(const std::string& path) {
  Blob bytes;
  const bool is_there = collect([&] {
    bytes = map_file(path);
    files_.push_back(path);
  });
  return is_there && parse(bytes, path);
}

bool OnnxParser::load(const Blob& model, const std::string& path) {
  return collect([&] {
    require(loaded_ == nullptr,
            "ONNX: a model is loaded already: take it over (parse_model_proto) before the next");
    std::string directory = directory_of(path);
    try {
      loaded_ = std::make_unique<onnx::ModelProto>(onnx::decode_without_external(model, directory));
    } catch (const Error& problem) {
      errors_.emplace_back(problem, -1, onnxparser::ErrorCode::kMODEL_DESERIALIZE_FAILED);
    }
    loaded_directory_ = std::move(directory);
  });
}

bool OnnxParser::load_initializer(const std::string& name, const void* data, size_t size) {
  return collect([&] {
    require(loaded_ != nullptr, "ONNX: there is no model to give the initializer '", name,
            "' to: load one first (load_model_proto)");
    for (onnx::TensorProto& tensor : loaded_->graph.initializers)
      if (tensor.name == name) {
        require(data != nullptr || size == 0, "ONNX: the elements of initializer '", name,
                "' are null");
        onnx::set_elements(tensor, Blob::copy(data, size));
        return;
      }
    fail("ONNX: the loaded model has no initializer '", name, "'");
  });
}

bool OnnxParser::parse_loaded() {
  return collect([&] {
    subgraphs_.clear();
    node_outputs_.clear();
    require(loaded_ != nullptr, "ONNX: no model is loaded: call load_model_proto first");
    const std::unique_ptr<onnx::ModelProto> model = std::move(loaded_);
    onnx::read_external(*model, loaded_directory_, links_);
    take_over(*model);
  });
}

void OnnxParser::take_over(const onnx::ModelProto& model) {
  files_.insert(files_.end(), model.external_files.begin(), model.external_files.end());
  if (has_flag(OnnxParserFlag::kREPORT_CAPABILITY_DLA))
    throw onnx::NodeError(onnxparser::ErrorCode::kUNSUPPORTED_GRAPH,
                          "ONNX: the parser's flag REPORT_CAPABILITY_DLA asks what a DLA can run, "
                          "but none is supported: clear the flag");
  onnx::GraphImporter importer(*network_, model, known_, Deadline(seconds_), plugins_,
                               has_flag(OnnxParserFlag::kENABLE_PLUGIN_OVERRIDE), log_, errors_);
  importer.run();
  partition(importer);
  node_outputs_ = importer.take_node_outputs();
}

void OnnxParser::set_constant_input(const std::string& name, DataType dtype, const Shape& shape,
                                    Blob data) {
  const int64_t bytes = bytes_of(dtype, shape.numel());
  require(std::cmp_equal(data.size(), bytes), "ONNX: the constant for input '", name, "' of ",
          opwright::name(dtype), " and shape ", shape, " takes ", bytes, " bytes, not ",
          data.size());
  known_.constants[name] = {dtype, shape, std::move(data)};
}

void OnnxParser::set_time_limit(double seconds) {
  require(seconds > 0, "ONNX: the time limit is ", seconds, " s; expected a positive number");
  seconds_ = seconds;
}

void OnnxParser::set_upper_bound(const std::string& name, int64_t most) {
  require(most >= 0, "ONNX: the upper bound of '", name, "' must not be negative, but is ", most);
  known_.upper_bounds[name] = most;
}

void OnnxParser::partition(const onnx::GraphImporter& importer) {
  using Fate = onnx::GraphImporter::Fate;
  bool is_open = false;
  for (size_t i = 0; i < importer.fates().size(); ++i) {
    const bool has_failed = importer.fates()[i] == Fate::kFailed;
    if (!has_failed && !is_open) subgraphs_.emplace_back();
    if (!has_failed) subgraphs_.back().nodes.push_back(static_cast<int64_t>(i));
    is_open = !has_failed;
  }
  if (errors_.empty())
    for (OnnxSubgraph& whole : subgraphs_) whole.is_supported = true;
  else if (subgraphs_.size() == 1 && subgraphs_[0].nodes.size() == importer.fates().size())
    subgraphs_.clear();
}

Tensor* OnnxParser::node_output(const std::string& name, int64_t index) const {
  const auto found = node_outputs_.find(name);
  if (found == node_outputs_.end() || index < 0 ||
      std::cmp_greater_equal(index, found->second.size()))
    return nullptr;
  return found->second[static_cast<size_t>(index)];
}

void OnnxParser::report() const {
  for (const OnnxError& error : errors_) {
    if (logs_errors_) log_.error(error.message);
    network_->errors().record(error.code, error.message.c_str());
  }
}

const OnnxSubgraph& OnnxParser::subgraph(int64_t index) const {
  require(index >= 0 && std::cmp_less(index, subgraphs_.size()), "ONNX: there is no subgraph ",
          index, "; the last model has ", subgraphs_.size());
  return subgraphs_[static_cast<size_t>(index)];
}

bool OnnxParser::supports_operator(const std::string& op_type) {
  return onnx::find_operator("", op_type) != nullptr;
}

}  // namespace opwright
