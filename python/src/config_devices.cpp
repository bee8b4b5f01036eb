// Properties of an IBuilderConfig for DLAs, devices of single layers, and calibration.

#include "api/dla.h"
#include "config.h"
#include "network/network.h"

namespace opwright::python {
namespace {

/// Throws Error: ranges for INT8 come from the network, not from calibration.
[[noreturn]] void refuse_calibration(const char* what) {
  fail(what,
       ": calibration is not here; give plugins that take INT8 their ranges with "
       "ITensor.set_dynamic_range, or use a model with lower-precision types of its own "
       "(BuilderFlag.BF16 and FP16 need no ranges)");
}

}  // namespace

void bind_config_devices(nb::module_& m, nb::class_<BuilderConfig>& c) {
  nb::class_<DeviceId>(m, "_DeviceId")
      .def_ro("ordinal", &DeviceId::ordinal)
      .def_prop_ro("type", [](const DeviceId& self) { return type_of(self); });
  m.def(
      "_parse_device",
      [](nb::handle device) {
        DeviceType type{};
        if (nb::try_cast(device, type, false)) return device_of(type);
        try {
          return parse_device(nb::str(device).c_str(), "device");
        } catch (const Error& error) {
          throw nb::value_error(error.what());
        }
      },
      nb::arg("device"));
  m.def(
      "_device_obstacle",
      [](const std::string& device) -> std::string {
        try {
          get_device(parse_device(device, "device"));
          return "";
        } catch (const Error& error) {
          return error.what();
        }
      },
      nb::arg("device"), "Why the device cannot be used; empty where it can.");
  m.def(
      "_gpu_count",
      [] {
        const Backend& backend = get_backend(device_of(DeviceType::kGPU).backend);
        return backend.obstacle().empty() ? backend.device_count() : 0;
      },
      "How many GPUs can be used.");
  c.def_prop_rw(
      "_device", [](const BuilderConfig& self) { return self.device; }, &BuilderConfig::set_device);
  c.def_prop_rw(
       "DLA_core", [](const BuilderConfig&) { return kNoDla; },
       [](BuilderConfig&, int core) { require_no_dla(core); },
       "-1: no DLA is driven. Another one raises Error.")
      .def(
          "can_run_on_DLA", [](const BuilderConfig&, const Layer&) { return false; },
          nb::arg("layer"), "False: no DLA is driven.")
      .def(
          "set_device_type",
          [](BuilderConfig& self, const Layer& layer, DeviceType device) {
            self.set_device_type(&layer, layer.name(), device);
          },
          nb::arg("layer"), nb::arg("device_type"),
          "Where a layer is to run. All layers of an engine run on default_device_type, so that a "
          "build raises Error for another one.")
      .def(
          "get_device_type",
          [](const BuilderConfig& self, const Layer& layer) { return self.device_type(&layer); },
          nb::arg("layer"), "What was set, or default_device_type.")
      .def(
          "is_device_type_set",
          [](const BuilderConfig& self, const Layer& layer) {
            return self.is_device_type_set(&layer);
          },
          nb::arg("layer"), "Whether set_device_type was called for the layer.")
      .def(
          "reset_device_type",
          [](BuilderConfig& self, const Layer& layer) { self.reset_device_type(&layer); },
          nb::arg("layer"), "Takes set_device_type back.");
}

void bind_config_calibration(nb::module_& m, nb::class_<BuilderConfig>& c) {
  nb::enum_<QuantizationFlag>(m, "QuantizationFlag", nb::is_arithmetic(),
                              "Bits of IBuilderConfig.quantization_flags.")
      .value("CALIBRATE_BEFORE_FUSION", QuantizationFlag::kCALIBRATE_BEFORE_FUSION,
             "Without effect: there is no calibration.");
  bind_flags(c, "quantization_flag", &BuilderConfig::quantization_flags);
  c.def_prop_rw(
       "quantization_flags", [](const BuilderConfig& self) { return self.quantization_flags.bits; },
       [](BuilderConfig& self, uint32_t flags) { self.quantization_flags.bits = flags; },
       "Bits 1 << int(QuantizationFlag), without effect.")
      .def_prop_rw(
          "int8_calibrator", [](const BuilderConfig&) { return nb::none(); },
          [](BuilderConfig&, nb::handle calibrator) {
            if (!calibrator.is_none()) refuse_calibration("int8_calibrator");
          },
          nb::for_setter(nb::arg("calibrator").none()),
          "None. Another one raises Error, which says what to do instead.")
      .def(
          "set_calibration_profile",
          [](BuilderConfig&, nb::handle) -> bool { refuse_calibration("set_calibration_profile"); },
          nb::arg("profile"), "Raises Error: there is no calibration.")
      .def(
          "get_calibration_profile", [](const BuilderConfig&) { return nb::none(); },
          "None: there is no calibration.");
}

}  // namespace opwright::python
