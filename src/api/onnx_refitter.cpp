#include "api/onnx_refitter.h"

#include <filesystem>

#include "api/border.h"
#include "api/parser_error.h"
#include "api/refitter.h"
#include "base/error.h"
#include "base/file.h"
#include "onnx/refit.h"
#include "opwright/onnx_refitter.h"

namespace opwright {

template <class Work>
bool OnnxRefitter::collecting(Work&& work) {
  errors_.clear();
  try {
    work();
  } catch (const Error& error) {
    add_error(error);
  }
  for (const OnnxError& error : errors_) log_.error(error.message);
  return errors_.empty();
}

void OnnxRefitter::add_error(const Error& problem) {
  constexpr auto kKind = onnxparser::ErrorCode::kREFIT_FAILED;
  errors_.emplace_back(problem, -1, kKind);
  errors_.back().kind = kKind;
}

bool OnnxRefitter::refit_file(const std::string& path) {
  Blob model;
  return collecting([&] { model = map_file(path); }) && refit(model, path);
}

bool OnnxRefitter::load_model(const Blob& model, const std::string& path) {
  return collecting([&] {
    const std::filesystem::path file = path;
    const std::string directory = path.empty()             ? ""
                                  : file.has_parent_path() ? file.parent_path().string()
                                                           : ".";
    std::map<std::string, onnx::TensorProto> weights;
    for (onnx::TensorProto& tensor : onnx_weights(onnx::decode_model(model, directory, links_))) {
      std::string name = tensor.name;
      weights[std::move(name)] = std::move(tensor);
    }
    weights_ = std::move(weights);
    has_model_ = true;
  });
}

bool OnnxRefitter::load_initializer(const std::string& name, Blob data) {
  return collecting([&] {
    const auto found = weights_.find(name);
    require(found != weights_.end(), "ONNX: ",
            has_model_ ? "the model has no initializer '"
                       : "no model is loaded that has an initializer '",
            name, "'");
    onnx::TensorProto& tensor = found->second;
    require(data.size() == tensor.data.size(), "ONNX: initializer '", name, "' takes ",
            tensor.data.size(), " bytes, the new data has ", data.size());
    tensor.data = std::move(data);
  });
}

bool OnnxRefitter::refit_model() {
  return collecting([&] {
    require(has_model_, "ONNX: no model is loaded to refit ", refitter_.engine()->name(), " from");
    for (size_t i = 0; i < refitter_.weights().size(); ++i) {
      const RefitWeight& weight = refitter_.weights()[i];
      const auto found = weights_.find(weight.name);
      if (found == weights_.end()) {
        add_error(Error(ErrorCode::kINVALID_ARGUMENT,
                        str("ONNX: the model has no initializer or Constant node '", weight.name,
                            "', which ", refitter_.engine()->name(), " needs")));
        continue;
      }
      const onnx::TensorProto& tensor = found->second;
      try {
        refitter_.set(static_cast<int>(i), tensor.dtype, tensor.shape.numel(), tensor.data);
      } catch (const Error& error) {
        add_error(Error(error.code(), str("ONNX: ", error.what())));
      }
    }
  });
}

namespace onnxparser {
namespace {

class ParserRefitterApi final : public IParserRefitter {
 public:
  ParserRefitterApi(IRefitter& refitter, ILogger* logger)
      : report_(Log(logger), refitter.getErrorRecorder()),
        refitter_(refitter_of(refitter), Log(logger)) {
    refitter_.set_links_allowed(is_permitted_by_environment(kAllowLinks));
  }

  bool refitFromBytes(void const* serializedOnnxModel, size_t serializedOnnxModelSize,
                      char const* modelPath) noexcept override {
    return tried([&] {
      return refitter_.refit(copy_of_model(serializedOnnxModel, serializedOnnxModelSize),
                             text_of(modelPath));
    });
  }
  bool refitFromFile(char const* onnxModelFile) noexcept override {
    return tried([&] { return refitter_.refit_file(file_of(onnxModelFile)); });
  }
  int32_t getNbErrors() const noexcept override { return errors_.count(); }
  IParserError const* getError(int32_t index) const noexcept override { return errors_.get(index); }
  void clearErrors() noexcept override { errors_.clear(); }
  bool loadModelProto(void const* serializedOnnxModel, size_t serializedOnnxModelSize,
                      char const* modelPath) noexcept override {
    return tried([&] {
      return refitter_.load_model(copy_of_model(serializedOnnxModel, serializedOnnxModelSize),
                                  text_of(modelPath));
    });
  }
  bool loadInitializer(char const* name, void const* data, size_t size) noexcept override {
    return tried([&] {
      require(name != nullptr && data != nullptr,
              "ONNX: loadInitializer: the name or the data is null");
      return refitter_.load_initializer(name, Blob({}, data, size));
    });
  }
  bool refitModelProto() noexcept override {
    return tried([&] { return refitter_.refit_model(); });
  }
  void setLinksAllowed(bool allowed) noexcept override { refitter_.set_links_allowed(allowed); }
  bool getLinksAllowed() const noexcept override { return refitter_.links_allowed(); }

 private:
  template <class Work>
  bool tried(Work&& work) noexcept {
    return errors_.take(report_, refitter_, work);
  }

  ErrorReport report_;
  OnnxRefitter refitter_;
  ParserErrorsApi errors_;
};

}  // namespace
}  // namespace onnxparser
}  // namespace opwright

void* createNvOnnxParserRefitter_INTERNAL(void* refitter, void* logger, int32_t version) noexcept {
  using namespace opwright;
  return create_face(logger, refitter != nullptr,
                     "an ONNX refitter needs a refitter and a logger; one of them is null", version,
                     [&](ILogger* user) -> onnxparser::IParserRefitter* {
                       return new onnxparser::ParserRefitterApi(*static_cast<IRefitter*>(refitter),
                                                                user);
                     });
}
