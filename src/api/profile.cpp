#include "api/profile.h"

#include <vector>

namespace opwright {
namespace {

bool is_selector(OptProfileSelector select) {
  return static_cast<int32_t>(select) >= 0 &&
         static_cast<int32_t>(select) < EnumMax<OptProfileSelector>();
}

}  // namespace

OptimizationProfile ProfileApi::profile() const {
  OptimizationProfile profile;
  auto take = [&](const Inputs& inputs, const char* what, auto member) {
    for (const auto& [name, choices] : inputs) {
      require(choices[0] && choices[1] && choices[2], "optimization profile: input '", name,
              "' has not all of the minimum, the optimum and the maximum of its ", what,
              ": set the missing ones");
      (profile.*member)(name, *choices[0], *choices[1], *choices[2]);
    }
  };
  take(shapes_, "dimensions", &OptimizationProfile::set_shape);
  take(values_, "values", &OptimizationProfile::set_values);
  return profile;
}

void ProfileApi::set(Inputs& inputs, const char* name, OptProfileSelector select,
                     const Shape& shape) {
  require(name != nullptr, "optimization profile: the input's name is null");
  require(is_selector(select), "optimization profile: the selector ", static_cast<int>(select),
          " is none of kMIN, kOPT and kMAX");
  Choices choices = inputs[name];
  choices[static_cast<size_t>(select)] = shape;
  const Shape* below = nullptr;
  for (const std::optional<Shape>& choice : choices) {
    if (!choice) continue;
    bool ordered = below == nullptr || below->rank() == choice->rank();
    for (int i = 0; ordered && below != nullptr && i < choice->rank(); ++i) {
      ordered = (*below)[i] <= (*choice)[i];
    }
    require(ordered, "optimization profile: input '", name, "' would have ", *choice, " above ",
            below == nullptr ? Shape() : *below,
            "; expected minimum <= optimum <= maximum, of one rank");
    below = &*choice;
  }
  inputs[name] = choices;
}

const Shape* ProfileApi::find(const Inputs& inputs, const char* name, OptProfileSelector select) {
  if (name == nullptr || !is_selector(select)) return nullptr;
  const auto found = inputs.find(name);
  if (found == inputs.end()) return nullptr;
  const std::optional<Shape>& choice = found->second[static_cast<size_t>(select)];
  return choice ? &*choice : nullptr;
}

bool ProfileApi::setDimensions(char const* inputName, OptProfileSelector select,
                               Dims const& dims) noexcept {
  return errors_.run([&] {
    const Shape shape(dims);
    for (const int64_t extent : shape) {
      require(extent >= 0, "optimization profile: input '", inputName == nullptr ? "" : inputName,
              "' has the negative extent ", extent, " in ", shape);
    }
    set(shapes_, inputName, select, shape);
  });
}

Dims ProfileApi::getDimensions(char const* inputName, OptProfileSelector select) const noexcept {
  const Shape* shape = find(shapes_, inputName, select);
  return shape == nullptr ? Dims{-1, {}} : shape->dims();
}

bool ProfileApi::setShapeValuesV2(char const* inputName, OptProfileSelector select,
                                  int64_t const* values, int32_t nbValues) noexcept {
  return errors_.run([&] {
    require(nbValues >= 0 && (nbValues == 0 || values != nullptr),
            "optimization profile: the values are null or their number ", nbValues, " is negative");
    set(values_, inputName, select, Shape(std::span(values, static_cast<size_t>(nbValues))));
  });
}

bool ProfileApi::setShapeValues(char const* inputName, OptProfileSelector select,
                                int32_t const* values, int32_t nbValues) noexcept {
  return errors_.run([&] {
    std::vector<int64_t> wide;
    if (values != nullptr && nbValues > 0) wide.assign(values, values + nbValues);
    require(nbValues == static_cast<int32_t>(wide.size()),
            "optimization profile: the values are null or their number ", nbValues, " is negative");
    set(values_, inputName, select, Shape(wide));
  });
}

int32_t ProfileApi::getNbShapeValues(char const* inputName) const noexcept {
  if (inputName == nullptr) return -1;
  const auto found = values_.find(inputName);
  if (found == values_.end()) return -1;
  for (const std::optional<Shape>& choice : found->second) {
    if (choice) return choice->rank();
  }
  return -1;
}

int64_t const* ProfileApi::getShapeValuesV2(char const* inputName,
                                            OptProfileSelector select) const noexcept {
  const Shape* values = find(values_, inputName, select);
  return values == nullptr ? nullptr : values->begin();
}

bool ProfileApi::setExtraMemoryTarget(float target) noexcept {
  return errors_.run([&] {
    require(target >= 0 && target <= 1, "setExtraMemoryTarget: ", target,
            " is not between 0 and 1");
    extra_memory_target_ = target;
  });
}

bool ProfileApi::isValid() const noexcept {
  return errors_.run([&] { profile(); });
}

}  // namespace opwright
