#include "compile/config.h"

#include "base/error.h"

namespace opwright {
namespace {

void check_range(const std::string& input, std::string_view what, const Shape& min,
                 const Shape& opt, const Shape& max) {
  require(min.rank() == opt.rank() && opt.rank() == max.rank(), "Optimization profile: the ", what,
          " for input '", input, "' differ in rank: min ", min, ", opt ", opt, ", max ", max);
  for (int i = 0; i < min.rank(); ++i)
    require(min[i] <= opt[i] && opt[i] <= max[i], "Optimization profile: the ", what,
            " for input '", input, "' must satisfy min <= opt <= max, but at index ", i, " are ",
            min[i], ", ", opt[i], ", ", max[i]);
}

}  // namespace

void OptimizationProfile::set_shape(const std::string& input, const Shape& min, const Shape& opt,
                                    const Shape& max) {
  check_range(input, "shapes", min, opt, max);
  for (int64_t extent : min)
    require(extent >= 0, "Optimization profile: input '", input, "' has the negative extent ",
            extent, " in its minimum shape ", min);
  shapes_[input] = {min, opt, max};
}

void OptimizationProfile::set_values(const std::string& input, const Shape& min, const Shape& opt,
                                     const Shape& max) {
  check_range(input, "values", min, opt, max);
  values_[input] = {min, opt, max};
}

const OptimizationProfile::Range* OptimizationProfile::shape(const std::string& input) const {
  auto found = shapes_.find(input);
  return found == shapes_.end() ? nullptr : &found->second;
}

const OptimizationProfile::Range* OptimizationProfile::values(const std::string& input) const {
  auto found = values_.find(input);
  return found == values_.end() ? nullptr : &found->second;
}

std::vector<std::string> OptimizationProfile::inputs() const {
  std::vector<std::string> names;
  for (const auto* entries : {&shapes_, &values_})
    for (const auto& entry : *entries) names.push_back(entry.first);
  return names;
}

}  // namespace opwright
