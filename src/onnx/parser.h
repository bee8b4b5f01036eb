#pragma once

#include <string>
#include <vector>

#include "base/blob.h"
#include "base/log.h"
#include "network/network.h"

namespace opwright {

class IPluginRegistry;

/// Why a model could not be taken over; `node` is -1 for the model as a whole.
struct OnnxError {
  ErrorCode code = ErrorCode::kINVALID_ARGUMENT;
  int node = -1;
  std::string node_name, op_type, domain;
  std::string message;
};

/// Adds the graph of an ONNX model to a network. Opsets 7 to 23 of the default domain. A node of
/// another domain, or with a string attribute `plugin_namespace`, becomes a plugin of that name.
/// Everything that is wrong is collected, so that one run lists all unknown nodes.
class OnnxParser {
 public:
  /// `plugins` null: those of the network.
  OnnxParser(Network& network, Log log, IPluginRegistry* plugins = nullptr);
  /// `path` is the model's file, for external data beside it; empty when there is none. False when
  /// errors() has something; the network is then unusable.
  bool parse(const Blob& model, const std::string& path);
  bool parse_file(const std::string& path);
  const std::vector<OnnxError>& errors() const { return errors_; }
  void clear_errors() { errors_.clear(); }
  /// Whether a node of this type of the default domain can be taken over.
  static bool supports_operator(const std::string& op_type);

 private:
  /// Tells the logger and the network's error recorder of errors().
  void report() const;

  Network& network_;
  Log log_;
  IPluginRegistry* plugins_;
  std::vector<OnnxError> errors_;
};

}  // namespace opwright
