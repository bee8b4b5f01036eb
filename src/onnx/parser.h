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

/// A place in the library's source. std::source_location is not there with every compiler that has
/// C++20.
struct SourcePlace {
  const char* file = "";
  const char* function = "";
  int line = 0;
  /// That of the caller.
  static constexpr SourcePlace current(const char* file = __builtin_FILE(),
                                       const char* function = __builtin_FUNCTION(),
                                       int line = __builtin_LINE()) {
    return {file, function, line};
  }
};

/// Why a model could not be taken over; `node` is -1 for the model as a whole.
struct OnnxError {
  /// `otherwise` is the kind of what concerns no node and says none. `where` is the place in the
  /// library's source.
  OnnxError(const Error& problem, int node, onnxparser::ErrorCode otherwise,
            SourcePlace where = SourcePlace::current());

  ErrorCode code;              ///< as error recorders know it
  onnxparser::ErrorCode kind;  ///< as parsers say it
  int node;                    ///< of the graph: inside a function, the node that calls it
  std::string node_name, op_type, domain;
  std::string message;
  /// The calls of functions that the node lies in, from the graph inwards: "name (function)".
  std::vector<std::string> functions;
  /// Inputs of the graph that would have to be constant for the node to be taken over.
  std::vector<std::string> needed_constants;
  std::string file, func;
  int line;
};
/// How a kind is called: "UNSUPPORTED_NODE".
const char* name(onnxparser::ErrorCode kind);
/// The error in one line, with the node, the kind and where it comes from.
std::string str(const OnnxError& error);

/// Nodes of a graph that follow each other.
struct OnnxSubgraph {
  std::vector<int64_t> nodes;  ///< indices
  bool is_supported = false;
};

/// The environment variable that permits links where it is 1 (see is_permitted_by_environment()),
/// for programs that were written for TensorRT: what parsers of the public API begin with.
inline constexpr const char* kAllowLinks = "OPWRIGHT_ALLOW_LINKS";

/// Adds the graph of an ONNX model to a network. Opsets from 7 on of the default domain, functions
/// that the model defines, and plugins (see onnx::GraphImporter for which of them a node becomes).
/// Everything that is wrong is collected, so that one run lists all unknown nodes.
class OnnxParser {
 public:
  /// `plugins` null: those of the network.
  OnnxParser(Network& network, Log log, IPluginRegistry* plugins = nullptr);
  ~OnnxParser();
  OnnxParser(OnnxParser&&) noexcept;

  /// `path` is the model's file, for external data beside it; empty when there is none. False when
  /// errors() has something; the network is then unusable.
  bool parse(const Blob& model, const std::string& path);
  bool parse_file(const std::string& path);

  /// Decodes a model, without what lies beside it, so that initializers can be given before
  /// parse_loaded() takes it over. False when errors() has something, or when a model is loaded
  /// that has not been taken over.
  bool load(const Blob& model, const std::string& path);
  /// Copies `size` bytes: the elements of an initializer, dense, of the model's type. False when
  /// errors() has something: no model is loaded, it has no such initializer, or it needs another
  /// size.
  bool load_initializer(const std::string& name, const void* data, size_t size);
  bool parse_loaded();

  /// The shape that an input of the models to come has in every run, -1 for extents that vary.
  /// Extents that a model leaves open become these, with those of other inputs that have the same
  /// names.
  void set_input_shape(const std::string& name, const Shape& shape) { known_.shapes[name] = shape; }
  /// An input of the models to come holds these elements (`data`, dense) in every run: the network
  /// has a constant of that name instead of the input.
  void set_constant_input(const std::string& name, DataType dtype, const Shape& shape, Blob data);

  /// No element of this tensor of the models to come, which decides extents, is larger than `most`
  /// in any run: a run in which an extent is larger fails. Memory is planned for it.
  void set_upper_bound(const std::string& name, int64_t most);

  /// What messages speak of.
  void set_shape_source(ShapeSource source) { known_.source = source; }

  /// What taking over a model may take; it is looked at between nodes. No limit at first.
  void set_time_limit(double seconds);
  double time_limit() const { return seconds_; }

  /// A bit for each OnnxParserFlag; NATIVE_INSTANCENORM is set.
  uint32_t flags() const { return flags_; }
  void set_flags(uint32_t flags) { flags_ = flags; }
  void set_flag(onnxparser::OnnxParserFlag flag) { flags_ |= bit(flag); }
  void clear_flag(onnxparser::OnnxParserFlag flag) { flags_ &= ~bit(flag); }
  bool has_flag(onnxparser::OnnxParserFlag flag) const { return (flags_ & bit(flag)) != 0; }

  /// Whether external data may be read through links that lead out of the model's folder: not at
  /// first, since a model says which files it wants to be read.
  bool links_allowed() const { return links_ == Links::kAnywhere; }
  /// Whether the logger hears of errors, as it does at first: not where the caller throws them.
  void set_logs_errors(bool logs) { logs_errors_ = logs; }
  void set_links_allowed(bool allowed) { links_ = allowed ? Links::kAnywhere : Links::kBeneath; }

  /// The last model in runs of nodes between those that cannot be taken over, which are in none.
  /// Supported is a run that is the whole of a model without errors; of others one knows only when
  /// they are parsed by themselves, since types of inputs may be missing. Empty where an error
  /// concerns no node.
  const std::vector<OnnxSubgraph>& subgraphs() const { return subgraphs_; }
  /// Throws Error for an index that there is not.
  const OnnxSubgraph& subgraph(int64_t index) const;
  /// An output of the node that has this name in the last model, the first one of that name; null
  /// where there is none. Nodes inside a function are called "call/node".
  Tensor* node_output(const std::string& name, int64_t index) const;

  /// The files that models were read from, weights beside them included.
  const std::vector<std::string>& files() const { return files_; }

  const std::vector<OnnxError>& errors() const { return errors_; }
  void clear_errors() { errors_.clear(); }
  /// Whether a node of this type of the default domain can be taken over.
  static bool supports_operator(const std::string& op_type);

 private:
  static uint32_t bit(onnxparser::OnnxParserFlag flag) {
    return uint32_t{1} << static_cast<uint32_t>(flag);
  }
  /// Runs `body`, collects and reports what it throws. Whether there was nothing.
  template <class Body>
  bool collect(Body&& body);
  void take_over(const onnx::ModelProto& model);
  void partition(const onnx::GraphImporter& importer);
  /// Tells the logger and the network's error recorder of errors().
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
