#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/blob.h"
#include "base/file.h"
#include "base/log.h"
#include "network/network.h"
#include "onnx/known_inputs.h"
#include "opwright/onnx_parser.h"

namespace opwright {

class IPluginRegistry;

namespace onnx {
class GraphImporter;
struct ModelProto;
}  // namespace onnx

/// A place in the library's source. Not every compiler with C++20 has std::source_location.
struct SourcePlace {
  const char* file = "";
  const char* function = "";
  int line = 0;
  /// The caller's place.
  static constexpr SourcePlace current(const char* file = __builtin_FILE(),
                                       const char* function = __builtin_FUNCTION(),
                                       int line = __builtin_LINE()) {
    return {file, function, line};
  }
};

/// Why a model could not be taken over. `node` is -1 for the model as a whole.
struct OnnxError {
  /// `otherwise` is the kind of a problem that concerns no node and has no kind. `where` is the
  /// place in the library's source.
  OnnxError(const Error& problem, int node, onnxparser::ErrorCode otherwise,
            SourcePlace where = SourcePlace::current());

  ErrorCode code;              ///< the code for error recorders
  onnxparser::ErrorCode kind;  ///< the kind for parsers
  int node;                    ///< of the graph; inside a function, the node that calls it
  std::string node_name, op_type, domain;
  std::string message;
  /// The calls of functions around the node, from the graph inwards: "name (function)".
  std::vector<std::string> functions;
  /// Inputs of the graph that would have to be constant for the importer to take the node over.
  std::vector<std::string> needed_constants;
  std::string file, func;
  int line;
};
/// The name of a kind: "UNSUPPORTED_NODE".
const char* name(onnxparser::ErrorCode kind);
/// The error in one line, with the node, the kind and the source place.
std::string str(const OnnxError& error);

/// Consecutive nodes of a graph.
struct OnnxSubgraph {
  std::vector<int64_t> nodes;  ///< indices
  bool is_supported = false;
};

/// The environment variable that permits links where it is 1 (see is_permitted_by_environment()),
/// for programs that were written for TensorRT. Parsers of the public API begin with its value.
inline constexpr const char* kAllowLinks = "OPWRIGHT_ALLOW_LINKS";

/// Adds the graph of an ONNX model to a network. Takes opsets of the default domain from 7 on,
/// functions that the model defines, and plugins (onnx::GraphImporter tells which of these a node
/// becomes). Collects all problems, so that one run lists all unknown nodes.
class OnnxParser {
 public:
  /// `plugins` null: the network's.
  OnnxParser(Network& network, Log log, IPluginRegistry* plugins = nullptr);
  ~OnnxParser();
  OnnxParser(OnnxParser&&) noexcept;

  /// `path` is the model's file, for external data beside it; empty when there is none. Returns
  /// false when errors() has errors; the network is then unusable.
  bool parse(const Blob& model, const std::string& path);
  bool parse_file(const std::string& path);

  /// Decodes a model without the files beside it, so that initializers can be given before
  /// parse_loaded() takes the model over. Returns false when errors() has errors, or when a model
  /// is already loaded and not yet taken over.
  bool load(const Blob& model, const std::string& path);
  /// Copies `size` bytes: the elements of an initializer, dense, of the model's type. Returns false
  /// when errors() has errors: no model is loaded, it has no such initializer, or that has another
  /// size.
  bool load_initializer(const std::string& name, const void* data, size_t size);
  bool parse_loaded();

  /// Sets the shape that an input of later models has in every run, -1 for extents that vary.
  /// Extents that a model leaves open get these values, also those of other inputs with the same
  /// names.
  void set_input_shape(const std::string& name, const Shape& shape) { known_.shapes[name] = shape; }
  /// Sets the elements (`data`, dense) that an input of later models has in every run. The network
  /// has a constant of that name instead of the input.
  void set_constant_input(const std::string& name, DataType dtype, const Shape& shape, Blob data);

  /// Bounds all elements of a tensor of later models, which decides extents, by `most`. A run in
  /// which an extent is larger fails. Memory is planned for this bound.
  void set_upper_bound(const std::string& name, int64_t most);

  /// Sets the source of shapes that messages mention.
  void set_shape_source(ShapeSource source) { known_.source = source; }

  /// Sets the most time for taking over a model, which is checked between nodes. There is no limit
  /// initially.
  void set_time_limit(double seconds);
  double time_limit() const { return seconds_; }

  /// One bit for each OnnxParserFlag. NATIVE_INSTANCENORM is set.
  uint32_t flags() const { return flags_; }
  void set_flags(uint32_t flags) { flags_ = flags; }
  void set_flag(onnxparser::OnnxParserFlag flag) { flags_ |= bit(flag); }
  void clear_flag(onnxparser::OnnxParserFlag flag) { flags_ &= ~bit(flag); }
  bool has_flag(onnxparser::OnnxParserFlag flag) const { return (flags_ & bit(flag)) != 0; }

  /// Whether external data may be read through links that lead out of the model's folder. Not
  /// initially, because a model says which files are read.
  bool links_allowed() const { return links_ == Links::kAnywhere; }
  /// Whether the logger receives errors. It does initially; a caller that throws them turns this
  /// off.
  void set_logs_errors(bool logs) { logs_errors_ = logs; }
  void set_links_allowed(bool allowed) { links_ = allowed ? Links::kAnywhere : Links::kBeneath; }

  /// The last model as runs of nodes between the nodes that cannot be taken over, which are in no
  /// run. Only a run that is the whole of a model without errors is supported. Other runs have to
  /// be parsed by themselves, because types of their inputs may be missing. Empty where an error
  /// concerns no node.
  const std::vector<OnnxSubgraph>& subgraphs() const { return subgraphs_; }
  /// Throws Error for an index that does not exist.
  const OnnxSubgraph& subgraph(int64_t index) const;
  /// An output of the first node with this name in the last model; null where there is none. Nodes
  /// inside a function are called "call/node".
  Tensor* node_output(const std::string& name, int64_t index) const;

  /// The files from which models were read, with the files of weights beside them.
  const std::vector<std::string>& files() const { return files_; }

  const std::vector<OnnxError>& errors() const { return errors_; }
  void clear_errors() { errors_.clear(); }
  /// Whether the importer can take over a node of this type of the default domain.
  static bool supports_operator(const std::string& op_type);

 private:
  static uint32_t bit(onnxparser::OnnxParserFlag flag) {
    return uint32_t{1} << static_cast<uint32_t>(flag);
  }
  /// Runs `body`, and collects and reports the exceptions that it throws. Returns whether there
  /// were none.
  template <class Body>
  bool collect(Body&& body);
  void take_over(const onnx::ModelProto& model);
  void partition(const onnx::GraphImporter& importer);
  /// Passes errors() to the logger and the network's error recorder.
  void report() const;

  Network* network_;
  Log log_;
  IPluginRegistry* plugins_;
  uint32_t flags_ = bit(onnxparser::OnnxParserFlag::kNATIVE_INSTANCENORM);
  Links links_ = Links::kBeneath;
  bool logs_errors_ = true;
  onnx::KnownInputs known_;
  double seconds_ = std::numeric_limits<double>::infinity();
  std::unique_ptr<onnx::ModelProto> loaded_;
  std::string loaded_directory_;
  std::vector<std::string> files_;
  std::vector<OnnxSubgraph> subgraphs_;
  std::unordered_map<std::string, std::vector<Tensor*>> node_outputs_;
  std::vector<OnnxError> errors_;
};

}  // namespace opwright
