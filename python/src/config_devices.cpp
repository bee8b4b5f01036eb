// What an IBuilderConfig says of DLAs, of the devices of single layers, and of calibration.

#include "config.h"
#include "dla.h"

namespace opwright::python {
namespace {

enum class QuantizationFlag : int32_t { kCALIBRATE_BEFORE_FUSION = 0 };

uint32_t bit(QuantizationFlag flag) { return 1u << static_cast<int>(flag); }

/// Raises Error: INT8 comes of ranges that the network says.
[[noreturn]] void refuse_calibration(const char* what) {
  fail(what,
       ": calibration is not here; give plugins that take INT8 their ranges with "
       "ITensor.set_dynamic_range, or use a model with lower-precision types of its own "
       "(BuilderFlag.BF16 and FP16 need no ranges)");
}

}  // namespace

void bind_config_devices(nb::module_& m, nb::class_<Config>& c) {
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
  c.def_prop_rw(
      "_device", [](const Config& self) { return self.device; },
      [](Config& self, const DeviceId& device) {
        self.device = device;
        self.device_is_chosen = true;
      });
  c.def_prop_rw(
       "DLA_core", [](const Config&) { return kNoDla; },
       [](Config&, int core) { check_dla_core(core); },
       "-1: no DLA is driven. Another one raises Error.")
      .def(
          "can_run_on_DLA", [](const Config&, const Layer&) { return false; }, nb::arg("layer"),
          "False: no DLA is driven.")
      .def(
          "set_device_type",
          [](Config& self, const Layer& layer, DeviceType device) {
            self.layer_devices[&layer] = {device, layer.name()};
          },
          nb::arg("layer"), nb::arg("device_type"),
          "Where a layer is to run. All layers of an engine run on default_device_type, so that a "
          "build raises Error for another one.")
      .def(
          "get_device_type",
          [](const Config& self, const Layer& layer) {
            const auto found = self.layer_devices.find(&layer);
            return found == self.layer_devices.end() ? type_of(self.device) : found->second.type;
          },
          nb::arg("layer"), "What was set, or default_device_type.")
      .def(
          "is_device_type_set",
          [](const Config& self, const Layer& layer) {
            return self.layer_devices.contains(&layer);
          },
          nb::arg("layer"), "Whether set_device_type was called for the layer.")
      .def(
          "reset_device_type",
          [](Config& self, const Layer& layer) { self.layer_devices.erase(&layer); },
          nb::arg("layer"), "Takes set_device_type back.");
}

void bind_config_calibration(nb::module_& m, nb::class_<Config>& c) {
  nb::enum_<QuantizationFlag>(m, "QuantizationFlag", nb::is_arithmetic(),
                              "Bits of IBuilderConfig.quantization_flags.")
      .value("CALIBRATE_BEFORE_FUSION", QuantizationFlag::kCALIBRATE_BEFORE_FUSION,
             "Without effect: there is no calibration.");
  c.def_rw("quantization_flags", &Config::quantization_flags,
           "Bits 1 << int(QuantizationFlag), without effect.")
      .def(
          "set_quantization_flag",
          [](Config& self, QuantizationFlag flag) { self.quantization_flags |= bit(flag); },
          nb::arg("flag"))
      .def(
          "clear_quantization_flag",
          [](Config& self, QuantizationFlag flag) { self.quantization_flags &= ~bit(flag); },
          nb::arg("flag"))
      .def(
          "get_quantization_flag",
          [](const Config& self, QuantizationFlag flag) {
            return (self.quantization_flags & bit(flag)) != 0;
          },
          nb::arg("flag"))
      .def_prop_rw(
          "int8_calibrator", [](const Config&) { return nb::none(); },
          [](Config&, nb::handle calibrator) {
            if (!calibrator.is_none()) refuse_calibration("int8_calibrator");
          },
          nb::for_setter(nb::arg("calibrator").none()),
          "None. Another one raises Error, which says what to do instead.")
      .def(
          "set_calibration_profile",
          [](Config&, nb::handle) -> bool { refuse_calibration("set_calibration_profile"); },
          nb::arg("profile"), "Raises Error: there is no calibration.")
      .def(
          "get_calibration_profile", [](const Config&) { return nb::none(); },
          "None: there is no calibration.");
}

}  // namespace opwright::python
