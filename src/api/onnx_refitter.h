#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "onnx/model.h"
#include "onnx/parser.h"
#include "runtime/refitter.h"

namespace opwright {

/// Sets a refitter's weights from an ONNX model. Collects errors, as OnnxParser does.
class OnnxRefitter {
 public:
  OnnxRefitter(Refitter& refitter, Log log) : refitter_(refitter), log_(log) {}

  /// Sets all weights of the engine. Returns false when errors() has errors.
  bool refit(const Blob& model, const std::string& path) {
    return load_model(model, path) && refit_model();
  }
  bool refit_file(const std::string& path);

  /// Refits in steps: the model, then other data for some initializers, then the weights.
  bool load_model(const Blob& model, const std::string& path);
  bool load_initializer(const std::string& name, Blob data);
  bool refit_model();

  /// As OnnxParser::links_allowed().
  bool links_allowed() const { return links_ == Links::kAnywhere; }
  void set_links_allowed(bool allowed) { links_ = allowed ? Links::kAnywhere : Links::kBeneath; }

  const std::vector<OnnxError>& errors() const { return errors_; }
  void clear_errors() { errors_.clear(); }

 private:
  template <class Work>
  bool collecting(Work&& work);
  void add_error(const Error& problem);

  Refitter& refitter_;
  Log log_;
  Links links_ = Links::kBeneath;
  std::map<std::string, onnx::TensorProto> weights_;
  bool has_model_ = false;
  std::vector<OnnxError> errors_;
};

}  // namespace opwright
