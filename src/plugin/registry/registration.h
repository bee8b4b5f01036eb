#pragma once

#include <memory>
#include <string>
#include <vector>

#include "opwright/plugin_base.h"

namespace opwright {

class FunctionPlugin;

/// A creator and the namespace that it is to be found under.
struct PluginRegistration {
  IPluginCreatorInterface* creator = nullptr;
  std::string plugin_namespace;
  std::shared_ptr<const void> owner{};  ///< keeps the creator alive
};

/// While one lives, whatever this thread's code registers comes here and nowhere else: what an
/// engine brings along is not to be seen by the rest of the process. The innermost one counts.
class RegistrationCapture {
 public:
  RegistrationCapture() noexcept;
  ~RegistrationCapture();
  RegistrationCapture(const RegistrationCapture&) = delete;
  RegistrationCapture& operator=(const RegistrationCapture&) = delete;

  /// Null when registrations go where they are meant to.
  static RegistrationCapture* current() noexcept;

  std::vector<PluginRegistration> creators;
  std::vector<std::shared_ptr<const FunctionPlugin>> definitions;

 private:
  friend class RegistrationPassage;
  RegistrationCapture* const outer_;
};

/// While one lives, nothing is captured, as if no capture were there.
class RegistrationPassage {
 public:
  RegistrationPassage() noexcept;
  ~RegistrationPassage();
  RegistrationPassage(const RegistrationPassage&) = delete;
  RegistrationPassage& operator=(const RegistrationPassage&) = delete;

 private:
  RegistrationCapture* const outer_;
};

}  // namespace opwright
