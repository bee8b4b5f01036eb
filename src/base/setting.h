#pragma once

// Settings are described once, each by a row of its struct's visit():
//
//   struct BuilderConfig {
//     double kernel_seconds = 60;
//     template <class V>
//     static void visit(V&& v) {
//       v(Setting<BuilderConfig, double>{.name = "kernel_seconds", .member = ...});
//
// Python's properties, the program's flags and what the C++ API checks follow from the rows.

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace opwright {

/// How a program's command line gives a setting. A number follows its flag; of any other type the
/// flag alone says `value`.
template <class T>
struct Flag {
  /// Only scalars have flags.
  using Value = std::conditional_t<std::is_scalar_v<T>, T, bool>;
  const char* name = nullptr;  ///< with its hyphens; null: there is none
  const char* help = "";
  Value value{};
  Value most{};  ///< of a number, which is more than 0; 0: there is no limit
};

/// A setting that is a member of `Owner`.
template <class Owner, class T>
struct Setting {
  const char* name;  ///< of Python's property
  T Owner::*member;
  const char* doc = "";
  /// Throws Error for what it cannot be; null: it may be anything.
  void (*check)(const T& value) = nullptr;
  std::array<Flag<T>, 2> flags{};

  void set(Owner& owner, T value) const {
    if (check != nullptr) check(value);
    owner.*member = std::move(value);
  }
};

/// A setting that a struct gives and takes by functions.
template <class Owner, class T>
struct ComputedSetting {
  const char* name;
  T (*get)(const Owner& owner);
  void (*set)(Owner& owner, const T& value) = nullptr;  ///< may throw Error; null: it is only read
  const char* doc = "";
};

/// Gives a member a value. Throws Error, and leaves the value before, for what its row of visit()
/// does not allow.
template <class Owner, class T>
void set(Owner& owner, T Owner::*member, std::type_identity_t<T> value) {
  Owner::visit([&](const auto& row) {
    if constexpr (std::is_same_v<decltype(row), const Setting<Owner, T>&>)
      if (row.member == member && row.check != nullptr) row.check(value);
  });
  owner.*member = std::move(value);
}

/// The check of an enumeration; `what` is how a message calls it.
template <class Enum>
void check_enum(Enum value, const char* what) {
  const auto number = static_cast<int32_t>(value);
  require(number >= 0 && number < EnumMax<Enum>(), "there is no ", what, " ", number);
}

}  // namespace opwright
