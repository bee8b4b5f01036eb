#pragma once

#include <memory>
#include <string>
#include <vector>

#include "opwright/plugin_base.h"

namespace opwright {

class FunctionPlugin;

/// A creator, and the namespace under which it is found.
struct PluginRegistration {
  IPluginCreatorInterface* creator = nullptr;
  std::string plugin_namespace;
  std::shared_ptr<const void> owner{};  ///< keeps the creator alive
};

/// While one exists, everything that this thread's code registers comes here and nowhere else,
/// because only its engine may see the plugins in an engine. The innermost capture counts.
class RegistrationCapture {
 public:
  RegistrationCapture() noexcept;
  ~RegistrationCapture();
  RegistrationCapture(const RegistrationCapture&) = delete;
  RegistrationCapture& operator=(const RegistrationCapture&) = delete;

  /// The innermost capture; null: registrations go to their registries.
  static RegistrationCapture* current() noexcept;

  std::vector<PluginRegistration> creators;
  std::vector<std::shared_ptr<const FunctionPlugin>> definitions;

 private:
  friend class RegistrationPassage;
  RegistrationCapture* const outer_;
};

/// While one exists, nothing is captured.
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
