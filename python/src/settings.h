#pragma once

#include <string>
#include <type_traits>

#include "backend/device.h"
#include "base/flags.h"
#include "base/setting.h"
#include "bindings.h"
#include "streams.h"

namespace opwright::python {

/// Binds what a struct's visit() describes as properties of its class. A struct with settings of
/// types of its own derives from this and has overloads for them.
template <class Owner>
class SettingBinder {
 public:
  explicit SettingBinder(nb::class_<Owner>& c) : class_(c) {}

  template <class T>
  void operator()(const Setting<Owner, T>& row) {
    class_.def_prop_rw(
        row.name, [member = row.member](const Owner& self) -> const T& { return self.*member; },
        [row](Owner& self, const T& value) { row.set(self, value); }, row.doc);
  }
  template <class E>
  void operator()(const Setting<Owner, Flags<E>>& row) {
    class_.def_prop_rw(
        row.name, [member = row.member](const Owner& self) { return (self.*member).bits; },
        [member = row.member](Owner& self, uint32_t bits) { (self.*member).bits = bits; }, row.doc);
  }
  void operator()(const Setting<Owner, Queue>& row) {
    class_.def_prop_rw(
        row.name,
        [member = row.member](const Owner& self) {
          return reinterpret_cast<uintptr_t>(self.*member);
        },
        [member = row.member](Owner& self, Handle stream) { self.*member = stream.as<Queue>(); },
        row.doc);
  }
  template <class T>
  void operator()(const ComputedSetting<Owner, T>& row) {
    if (row.set == nullptr)
      class_.def_prop_ro(row.name, row.get, row.doc);
    else
      class_.def_prop_rw(row.name, row.get, row.set, row.doc);
  }

 protected:
  nb::class_<Owner>& class_;
};

}  // namespace opwright::python
