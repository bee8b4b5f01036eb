#pragma once

#include "bindings.h"
#include "compile/builder_config.h"

namespace opwright::python {

/// Binds the methods set_NAME, clear_NAME and get_NAME of flags.
template <class T, class Flag, class Base>
void bind_flags(nb::class_<T>& c, const std::string& name, Flags<Flag> Base::*flags) {
  c.def(("set_" + name).c_str(), [flags](T& self, Flag flag) { (self.*flags).set(flag); },
        nb::arg("flag"))
      .def(("clear_" + name).c_str(), [flags](T& self, Flag flag) { (self.*flags).clear(flag); },
           nb::arg("flag"))
      .def(("get_" + name).c_str(),
           [flags](const T& self, Flag flag) { return (self.*flags).has(flag); }, nb::arg("flag"));
}

/// Bind the properties of an IBuilderConfig for DLAs, devices of single layers, and calibration.
void bind_config_devices(nb::module_& m, nb::class_<BuilderConfig>& c);
void bind_config_calibration(nb::module_& m, nb::class_<BuilderConfig>& c);
/// Binds the enumerations of builders and their configs.
void bind_builder_enums(nb::module_& m);
/// Binds ITimingCache with its keys and values, for bind_builder.
void bind_timing_cache(nb::module_& m);

}  // namespace opwright::python
