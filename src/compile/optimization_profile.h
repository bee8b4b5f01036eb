#pragma once

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/setting.h"
#include "base/shape.h"
#include "opwright/builder.h"
#include "plan/plan.h"

namespace opwright {

/// Ranges of shapes (or, for shape inputs, of values) for which an engine is made. Network inputs
/// of constant shape need no entry.
class OptimizationProfile {
 public:
  struct Range {
    Shape min, opt, max;
  };
  /// Throws Error unless the ranks agree and min <= opt <= max.
  void set_shape(const std::string& input, const Shape& min, const Shape& opt, const Shape& max);
  void set_values(const std::string& input, const Shape& min, const Shape& opt, const Shape& max);
  /// Set the minimum, optimum or maximum separately.
  void set_shape(const std::string& input, OptProfileSelector select, const Shape& shape);
  void set_values(const std::string& input, OptProfileSelector select, const Shape& values);
  /// Null unless all three are set.
  const Range* shape(const std::string& input) const;
  const Range* values(const std::string& input) const;
  /// The selected one; null where it is not set.
  const Shape* shape(const std::string& input, OptProfileSelector select) const;
  const Shape* values(const std::string& input, OptProfileSelector select) const;
  /// How many values a shape input has; -1 where none are set.
  int num_values(const std::string& input) const;
  /// Throws Error naming an input that lacks one of the three.
  void check() const;
  /// Names of the inputs that have shapes or values.
  std::vector<std::string> inputs() const;

  float extra_memory_target = 1;   ///< without effect
  Queue profile_stream = nullptr;  ///< without effect

  /// The settings that are properties of Python's IOptimizationProfile.
  template <class V>
  static void visit(V&& v) {
    using Self = OptimizationProfile;
    v(Setting<Self, float>{.name = "extra_memory_target",
                           .member = &Self::extra_memory_target,
                           .doc = "0 to 1, by default 1: how much more memory the profile may take "
                                  "than one with constant shapes; without effect.",
                           .check = check_extra_memory_target});
    v(Setting<Self, Queue>{.name = "profile_stream",
                           .member = &Self::profile_stream,
                           .doc = "A stream for the timing of this profile, as "
                                  "IBuilderConfig.profile_stream; kept and given back, without "
                                  "effect."});
  }

 private:
  struct Choice {
    Range range;
    std::array<bool, 3> is_set{};
  };
  using Choices = std::unordered_map<std::string, Choice>;
  static void set(Choices& choices, const std::string& input, OptProfileSelector select,
                  const Shape& shape);
  static const Range* find(const Choices& choices, const std::string& input);
  static const Shape* find(const Choices& choices, const std::string& input,
                           OptProfileSelector select);
  static void check(const Choices& choices, const char* what);
  static void check_extra_memory_target(const float& target);

  Choices shapes_, values_;
};

}  // namespace opwright
