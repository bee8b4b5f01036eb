#pragma once

#include <span>
#include <string>
#include <string_view>

#include "network/operator.h"

namespace opwright {

class Device;

/// A backend's knowledge of code for its devices, whether there is a device or not. With the
/// default methods code is opaque.
class CodeFormat {
 public:
  virtual ~CodeFormat() = default;
  /// Description of the code, "PTX for sm_90"; empty where the bytes are not the backend's code.
  virtual std::string describe(const CodeObject& object) const {
    (void)object;
    return {};
  }
  /// Description of bytes that are not the backend's code; empty where they are its code.
  virtual std::string fault(const CodeObject& object) const {
    (void)object;
    return {};
  }
  /// The target that plans record: the one that the code names itself, else `object.target`.
  virtual std::string target(const CodeObject& object) const { return object.target; }
  /// The devices that all of the code runs on, host code left out: "GPUs of compute capability 8.0
  /// and newer". Empty where there is no such code, or the devices are not known.
  virtual std::string served(std::span<const CodeObject> code) const {
    (void)code;
    return {};
  }
  /// For messages: the form of code that runs on most devices, and how to get it. Empty: there is
  /// none.
  virtual std::string portable_form() const { return {}; }
  /// The highest level that all of the code meets; kNONE where no code is for the devices.
  virtual HardwareCompatibilityLevel level(std::span<const CodeObject> code) const {
    (void)code;
    return HardwareCompatibilityLevel{};
  }
  /// Throws Error for a device that the level does not name, and for code that does not run on all
  /// devices that it names.
  virtual void check_level(HardwareCompatibilityLevel level, const Device& device,
                           std::span<const CodeObject> code) const {
    (void)level, (void)device, (void)code;
  }
  /// The number of pointers behind the `given` ones that the function declares and does not read. A
  /// compiler has added them.
  virtual size_t unread_pointers(const CodeObject& object, std::string_view function,
                                 size_t given) const {
    (void)object, (void)function, (void)given;
    return 0;
  }
};

}  // namespace opwright
