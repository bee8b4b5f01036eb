#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "compile/config.h"
#include "opwright/builder.h"
#include "runtime/api_border.h"

namespace opwright {

/// The public face of an OptimizationProfile, which is set piece by piece.
class ProfileApi final : public IOptimizationProfile {
 public:
  ProfileApi(Log log, IErrorRecorder* recorder) : errors_(log, recorder) {}

  /// Throws Error naming an input that lacks something.
  OptimizationProfile profile() const;

  bool setDimensions(char const* inputName, OptProfileSelector select,
                     Dims const& dims) noexcept override;
  Dims getDimensions(char const* inputName, OptProfileSelector select) const noexcept override;
  bool setShapeValuesV2(char const* inputName, OptProfileSelector select, int64_t const* values,
                        int32_t nbValues) noexcept override;
  bool setShapeValues(char const* inputName, OptProfileSelector select, int32_t const* values,
                      int32_t nbValues) noexcept override;
  int32_t getNbShapeValues(char const* inputName) const noexcept override;
  int64_t const* getShapeValuesV2(char const* inputName,
                                  OptProfileSelector select) const noexcept override;
  bool setExtraMemoryTarget(float target) noexcept override;
  float getExtraMemoryTarget() const noexcept override { return extra_memory_target_; }
  bool isValid() const noexcept override;

 private:
  /// The three of an input, by OptProfileSelector.
  using Choices = std::array<std::optional<Shape>, 3>;
  using Inputs = std::map<std::string, Choices, std::less<>>;

  static void set(Inputs& inputs, const char* name, OptProfileSelector select, const Shape& shape);
  static const Shape* find(const Inputs& inputs, const char* name, OptProfileSelector select);

  ErrorReport errors_;
  Inputs shapes_, values_;
  float extra_memory_target_ = 1;
};

}  // namespace opwright
