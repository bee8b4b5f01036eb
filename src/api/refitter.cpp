#include "api/refitter.h"

#include <algorithm>

#include "api/border.h"
#include "api/engine.h"
#include "opwright/refitter.h"

namespace opwright {
namespace {

class RefitterApi final : public IRefitter {
 public:
  RefitterApi(const EngineApi& engine, ILogger* logger)
      : errors_(Log(logger), engine.getErrorRecorder()), refitter_(engine.engine()) {
    for (const int32_t weight : refitter_.all()) uses_.push_back(refitter_.use(weight));
  }

  Refitter& refitter() { return refitter_; }

  bool setWeights(char const* layerName, WeightsRole role, Weights weights) noexcept override {
    return errors_.run([&] {
      require(layerName != nullptr, "setWeights: the layer's name is null");
      set(refitter_.require_role(layerName, role), weights, TensorLocation::kHOST);
    });
  }
  bool refitCudaEngine() noexcept override {
    return errors_.run([&] { refitter_.refit(); });
  }
  int32_t getMissing(int32_t size, char const** layerNames, WeightsRole* roles) noexcept override {
    return errors_.guard(0, [&] { return tell(refitter_.missing(), size, layerNames, roles); });
  }
  int32_t getAll(int32_t size, char const** layerNames, WeightsRole* roles) noexcept override {
    return errors_.guard(0, [&] { return tell(refitter_.all(), size, layerNames, roles); });
  }
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    errors_.set_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }
  bool setNamedWeights(char const* name, Weights weights) noexcept override {
    return setNamedWeights(name, weights, TensorLocation::kHOST);
  }
  int32_t getMissingWeights(int32_t size, char const** weightsNames) noexcept override {
    return errors_.guard(0, [&] { return tell(refitter_.missing(), size, weightsNames); });
  }
  int32_t getAllWeights(int32_t size, char const** weightsNames) noexcept override {
    return errors_.guard(0, [&] { return tell(refitter_.all(), size, weightsNames); });
  }
  ILogger* getLogger() const noexcept override { return errors_.log().logger(); }
  bool setMaxThreads(int32_t maxThreads) noexcept override {
    return errors_.run([&] { refitter_.set_max_threads(maxThreads); });
  }
  int32_t getMaxThreads() const noexcept override { return refitter_.max_threads(); }
  bool setNamedWeights(char const* name, Weights weights,
                       TensorLocation location) noexcept override {
    return errors_.run([&] { set(named(name), weights, location); });
  }
  Weights getNamedWeights(char const* weightsName) const noexcept override {
    return errors_.guard(Weights{DataType::kFLOAT, nullptr, 0}, [&] {
      const int weight = named(weightsName);
      const RefitWeight& known = refitter_.weights()[weight];
      return Weights{known.dtype, refitter_.elements(weight).data(), known.shape.numel()};
    });
  }
  TensorLocation getWeightsLocation(char const* weightsName) const noexcept override {
    return errors_.guard(TensorLocation::kHOST,
                         [&] { return refitter_.location(named(weightsName)); });
  }
  bool unsetNamedWeights(char const* weightsName) noexcept override {
    return errors_.guard(false, [&] { return refitter_.unset(named(weightsName)); });
  }
  void setWeightsValidation(bool weightsValidation) noexcept override {
    refitter_.set_validates(weightsValidation);
  }
  bool getWeightsValidation() const noexcept override { return refitter_.validates(); }
  bool refitCudaEngineAsync(cudaStream_t stream) noexcept override {
    return errors_.run([&] { refitter_.refit(stream); });
  }
  Weights getWeightsPrototype(char const* weightsName) const noexcept override {
    constexpr Weights kNone{DataType::kFLOAT, nullptr, -1};
    return errors_.guard(kNone, [&] {
      const RefitWeight& known = refitter_.weights()[named(weightsName)];
      return Weights{known.dtype, nullptr, known.shape.numel()};
    });
  }

 private:
  int named(char const* name) const {
    require(name != nullptr, "the weights' name is null");
    return refitter_.require_name(name);
  }
  void set(int weight, const Weights& weights, TensorLocation location) {
    const auto bytes =
        static_cast<size_t>(bytes_of(weights.type, std::max<int64_t>(0, weights.count)));
    refitter_.set(weight, weights.type, weights.count, Blob({}, weights.values, bytes), location);
  }
  int32_t tell(const std::vector<int32_t>& list, int32_t size, char const** layers,
               WeightsRole* roles) const {
    for (size_t i = 0; i < std::min(list.size(), static_cast<size_t>(std::max(0, size))); ++i) {
      const WeightUse& use = uses_[list[i]];
      if (layers != nullptr) layers[i] = use.layer.c_str();
      if (roles != nullptr) roles[i] = static_cast<WeightsRole>(use.role);
    }
    return static_cast<int32_t>(list.size());
  }
  int32_t tell(const std::vector<int32_t>& list, int32_t size, char const** names) const {
    if (names != nullptr)
      for (size_t i = 0; i < std::min(list.size(), static_cast<size_t>(std::max(0, size))); ++i)
        names[i] = refitter_.weights()[list[i]].name.c_str();
    return static_cast<int32_t>(list.size());
  }

  ErrorReport errors_;
  Refitter refitter_;
  std::vector<WeightUse> uses_;  ///< per weight; callers get pointers to the names of layers
};

}  // namespace

Refitter& refitter_of(IRefitter& refitter) {
  return static_cast<RefitterApi&>(refitter).refitter();
}

}  // namespace opwright

void* createInferRefitter_INTERNAL(void* engine, void* logger, int32_t version) noexcept {
  using namespace opwright;
  return create_face(logger, engine != nullptr,
                     "a refitter needs an engine and a logger; one of them is null", version,
                     [&](ILogger* user) -> IRefitter* {
                       auto& face = *static_cast<ICudaEngine*>(engine);
                       return new RefitterApi(static_cast<EngineApi&>(face), user);
                     });
}
