#pragma once

#include <string>

#include "backend/device.h"
#include "base/flags.h"
#include "base/setting.h"
#include "bindings.h"
#include "streams.h"

namespace opwright::python {

/// Binds the settings that a struct's visit() describes as properties of a class `Class`. `of`
/// returns the struct of an object, which may be a member of the object. For settings of other
/// types, a derived class adds overloads.
template <class Owner, class Class, class Of>
class SettingBinder {
 public:
  SettingBinder(nb::class_<Class>& c, Of of) : class_(c), of_(of) {}

  template <class T>
  void operator()(const Setting<Owner, T>& row) {
    class_.def_prop_rw(
        row.name,
        [of = of_, member = row.member](const Class& self) -> const T& { return of(self).*member; },
        [of = of_, row](Class& self, const T& value) { row.set(of(self), value); }, row.doc);
  }
  template <class E>
  void operator()(const Setting<Owner, Flags<E>>& row) {
    class_.def_prop_rw(
        row.name,
        [of = of_, member = row.member](const Class& self) { return (of(self).*member).bits; },
        [of = of_, member = row.member](Class& self, uint32_t bits) {
          (of(self).*member).bits = bits;
        },
        row.doc);
  }
  void operator()(const Setting<Owner, Queue>& row) {
    class_.def_prop_rw(
        row.name,
        [of = of_, member = row.member](const Class& self) {
          return reinterpret_cast<uintptr_t>(of(self).*member);
        },
        [of = of_, member = row.member](Class& self, Handle stream) {
          of(self).*member = stream.as<Queue>();
        },
        row.doc);
  }
  template <class T>
  void operator()(const ComputedSetting<Owner, T>& row) {
    if (row.set == nullptr)
      class_.def_prop_ro(
          row.name, [of = of_, get = row.get](const Class& self) { return get(of(self)); },
          row.doc);
    else
      class_.def_prop_rw(
          row.name, [of = of_, get = row.get](const Class& self) { return get(of(self)); },
          [of = of_, set = row.set](Class& self, const T& value) { set(of(self), value); },
          row.doc);
  }

 protected:
  nb::class_<Class>& class_;
  const Of of_;
};

/// Returns the object itself as the holder of its settings.
inline constexpr auto kItself = [](auto& self) -> auto& { return self; };

/// Binds the settings of a struct that needs no overloads.
template <class Owner, class Class, class Of>
void bind_settings(nb::class_<Class>& c, Of of) {
  Owner::visit(SettingBinder<Owner, Class, Of>(c, of));
}

}  // namespace opwright::python
