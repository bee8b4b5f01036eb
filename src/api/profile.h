#pragma once

#include <memory>
#include <vector>

#include "api/border.h"
#include "compile/optimization_profile.h"
#include "opwright/builder.h"

namespace opwright {

/// The public face of an OptimizationProfile.
class ProfileApi final : public IOptimizationProfile {
 public:
  ProfileApi(Log log, IErrorRecorder* recorder) : errors_(log, recorder) {}

  const std::shared_ptr<OptimizationProfile>& profile() const { return profile_; }

  bool setDimensions(char const* input, OptProfileSelector select,
                     Dims const& dims) noexcept override {
    return errors_.run([&] { profile_->set_shape(named(input), select, Shape(dims)); });
  }
  Dims getDimensions(char const* input, OptProfileSelector select) const noexcept override {
    return errors_.guard(kNoDims, [&] {
      const Shape* const shape = profile_->shape(named(input), select);
      return shape == nullptr ? kNoDims : shape->dims();
    });
  }
  bool setShapeValuesV2(char const* input, OptProfileSelector select, int64_t const* values,
                        int32_t nbValues) noexcept override {
    return errors_.run([&] { set_values(input, select, values, nbValues); });
  }
  bool setShapeValues(char const* input, OptProfileSelector select, int32_t const* values,
                      int32_t nbValues) noexcept override {
    return errors_.run([&] { set_values(input, select, values, nbValues); });
  }
  int32_t getNbShapeValues(char const* input) const noexcept override {
    return errors_.guard(-1, [&] { return profile_->num_values(named(input)); });
  }
  int64_t const* getShapeValuesV2(char const* input,
                                  OptProfileSelector select) const noexcept override {
    return errors_.guard<int64_t const*>(nullptr, [&] {
      const Shape* const values = profile_->values(named(input), select);
      return values == nullptr ? nullptr : values->begin();
    });
  }
  bool setExtraMemoryTarget(float target) noexcept override {
    return errors_.run([&] { set(*profile_, &OptimizationProfile::extra_memory_target, target); });
  }
  float getExtraMemoryTarget() const noexcept override { return profile_->extra_memory_target; }
  bool isValid() const noexcept override {
    return errors_.run([&] { profile_->check(); });
  }

 private:
  static std::string named(char const* input) { return std::string(checked_name(input)); }
  template <class T>
  void set_values(char const* input, OptProfileSelector select, T const* values, int32_t count) {
    require(count >= 0 && (count == 0 || values != nullptr),
            "Optimization profile: the values are null or their number ", count, " is negative");
    profile_->set_values(named(input), select, Shape(std::vector<int64_t>(values, values + count)));
  }

  ErrorReport errors_;
  const std::shared_ptr<OptimizationProfile> profile_ = std::make_shared<OptimizationProfile>();
};

}  // namespace opwright
