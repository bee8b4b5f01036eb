#pragma once

#include <span>
#include <string>
#include <string_view>

#include "network/operator.h"

namespace opwright {

class Device;

/// What a backend knows of code for its devices, whether there is one or not. The code of one that
/// overrides nothing is opaque.
class CodeFormat {
 public:
  virtual ~CodeFormat() = default;
  /// "PTX for sm_90"; empty where the bytes are none of the backend's code.
  virtual std::string describe(const CodeObject& object) const {
    (void)object;
    return {};
  }
  /// What the bytes are instead of the backend's code; empty where they are that.
  virtual std::string fault(const CodeObject& object) const {
    (void)object;
    return {};
  }
  /// What plans record as its target: what the code says itself, else `object.target`.
  virtual std::string target(const CodeObject& object) const { return object.target; }
  /// Which devices all of the code runs on, that of the host left out: "GPUs of compute capability
  /// 8.0 and newer"; empty where there is no such code, or that is not known.
  virtual std::string served(std::span<const CodeObject> code) const {
    (void)code;
    return {};
  }
  /// Of what form code is that most devices run, and how to get it, for messages; empty: of none.
  virtual std::string portable_form() const { return {}; }
  /// The highest level that all of the code meets; kNONE where none is for the devices.
  virtual HardwareCompatibilityLevel level(std::span<const CodeObject> code) const {
    (void)code;
    return HardwareCompatibilityLevel{};
  }
  /// Throws Error for a device that is none of those that the level names, and for code that does
  /// not run on all of them.
  virtual void check_level(HardwareCompatibilityLevel level, const Device& device,
                           std::span<const CodeObject> code) const {
    (void)level, (void)device, (void)code;
  }
  /// How many pointers the function has behind those `given`, where it reads none of them: what a
  /// compiler has added.
  virtual size_t unread_pointers(const CodeObject& object, std::string_view function,
                                 size_t given) const {
    (void)object, (void)function, (void)given;
    return 0;
  }
};

}  // namespace opwright
