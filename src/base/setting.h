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

/// A setting's flag on a program's command line. A number follows the flag. For all other types,
/// the flag sets `value`.
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
  const char* name;  ///< name of Python's property
  T Owner::*member;
  const char* doc = "";
  /// Throws Error for an invalid value; null: all values are valid.
  void (*check)(const T& value) = nullptr;
  std::array<Flag<T>, 2> flags{};

  void set(Owner& owner, T value) const {
    if (check != nullptr) check(value);
    owner.*member = std::move(value);
  }
};

/// A setting that functions read and write.
template <class Owner, class T>
struct ComputedSetting {
  const char* name;
  T (*get)(const Owner& owner);
  void (*set)(Owner& owner, const T& value) = nullptr;  ///< may throw Error; null: read-only
  const char* doc = "";
};

/// Sets a member. Throws Error, and keeps the old value, if the member's row of visit() does not
/// allow the value.
template <class Owner, class T>
void set(Owner& owner, T Owner::*member, std::type_identity_t<T> value) {
  Owner::visit([&](const auto& row) {
    if constexpr (std::is_same_v<decltype(row), const Setting<Owner, T>&>)
      if (row.member == member && row.check != nullptr) row.check(value);
  });
  owner.*member = std::move(value);
}

/// The check of an enumeration; `what` names it in messages.
template <class Enum>
void check_enum(Enum value, const char* what) {
  const auto number = static_cast<int32_t>(value);
  require(number >= 0 && number < EnumMax<Enum>(), "there is no ", what, " ", number);
}

}  // namespace opwright
