#include "compile/optimization_profile.h"

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

constexpr Shape OptimizationProfile::Range::*kEnds[] = {&OptimizationProfile::Range::min,
                                                        &OptimizationProfile::Range::opt,
                                                        &OptimizationProfile::Range::max};

bool is_selector(OptProfileSelector select) {
  return static_cast<int>(select) >= 0 && static_cast<int>(select) < EnumMax<OptProfileSelector>();
}

void check_extents(const std::string& input, const Shape& shape) {
  for (const int64_t extent : shape)
    require(extent >= 0, "Optimization profile: input '", input, "' has the negative extent ",
            extent, " in ", shape);
}

}  // namespace

void OptimizationProfile::set_shape(const std::string& input, const Shape& min, const Shape& opt,
                                    const Shape& max) {
  check_range(input, "shapes", min, opt, max);
  check_extents(input, min);
  shapes_[input] = {{min, opt, max}, {true, true, true}};
}

void OptimizationProfile::set_values(const std::string& input, const Shape& min, const Shape& opt,
                                     const Shape& max) {
  check_range(input, "values", min, opt, max);
  values_[input] = {{min, opt, max}, {true, true, true}};
}

void OptimizationProfile::set_shape(const std::string& input, OptProfileSelector select,
                                    const Shape& shape) {
  check_extents(input, shape);
  set(shapes_, input, select, shape);
}

void OptimizationProfile::set_values(const std::string& input, OptProfileSelector select,
                                     const Shape& values) {
  set(values_, input, select, values);
}

void OptimizationProfile::set(Choices& choices, const std::string& input, OptProfileSelector select,
                              const Shape& shape) {
  require(is_selector(select), "Optimization profile: the selector ", static_cast<int>(select),
          " is none of kMIN, kOPT and kMAX");
  const auto known = choices.find(input);
  Choice choice = known == choices.end() ? Choice() : known->second;
  choice.range.*kEnds[static_cast<size_t>(select)] = shape;
  choice.is_set[static_cast<size_t>(select)] = true;
  const Shape* below = nullptr;
  for (size_t i = 0; i < std::size(kEnds); ++i) {
    if (!choice.is_set[i]) continue;
    const Shape& end = choice.range.*kEnds[i];
    if (below != nullptr) {
      bool is_ordered = below->rank() == end.rank();
      for (int axis = 0; is_ordered && axis < end.rank(); ++axis)
        is_ordered = (*below)[axis] <= end[axis];
      require(is_ordered, "Optimization profile: input '", input, "' would have ", end, " above ",
              *below, "; expected minimum <= optimum <= maximum, of one rank");
    }
    below = &end;
  }
  choices[input] = choice;
}

const OptimizationProfile::Range* OptimizationProfile::find(const Choices& choices,
                                                            const std::string& input) {
  const auto found = choices.find(input);
  if (found == choices.end()) return nullptr;
  const auto& is_set = found->second.is_set;
  return is_set[0] && is_set[1] && is_set[2] ? &found->second.range : nullptr;
}

const Shape* OptimizationProfile::find(const Choices& choices, const std::string& input,
                                       OptProfileSelector select) {
  const auto found = choices.find(input);
  if (found == choices.end() || !is_selector(select)) return nullptr;
  const auto i = static_cast<size_t>(select);
  return found->second.is_set[i] ? &(found->second.range.*kEnds[i]) : nullptr;
}

const OptimizationProfile::Range* OptimizationProfile::shape(const std::string& input) const {
  return find(shapes_, input);
}

const OptimizationProfile::Range* OptimizationProfile::values(const std::string& input) const {
  return find(values_, input);
}

const Shape* OptimizationProfile::shape(const std::string& input, OptProfileSelector select) const {
  return find(shapes_, input, select);
}

const Shape* OptimizationProfile::values(const std::string& input,
                                         OptProfileSelector select) const {
  return find(values_, input, select);
}

int OptimizationProfile::num_values(const std::string& input) const {
  for (int i = 0; i < EnumMax<OptProfileSelector>(); ++i)
    if (const Shape* set = values(input, static_cast<OptProfileSelector>(i)); set != nullptr)
      return set->rank();
  return -1;
}

void OptimizationProfile::check(const Choices& choices, const char* what) {
  for (const auto& [input, choice] : choices)
    require(choice.is_set[0] && choice.is_set[1] && choice.is_set[2],
            "Optimization profile: input '", input,
            "' has not all of the minimum, the optimum and the maximum of its ", what,
            ": set the missing ones");
}

void OptimizationProfile::check() const {
  check(shapes_, "dimensions");
  check(values_, "values");
}

void OptimizationProfile::check_extra_memory_target(const float& target) {
  require(target >= 0 && target <= 1, "the extra memory target ", target,
          " is not between 0 and 1");
}

std::vector<std::string> OptimizationProfile::inputs() const {
  std::vector<std::string> names;
  for (const auto* entries : {&shapes_, &values_})
    for (const auto& entry : *entries) names.push_back(entry.first);
  return names;
}

}  // namespace opwright
