#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "network/operator.h"
#include "plugin/registry/registration.h"

namespace opwright {

/// The target of code for any processor of this architecture: "x86-64".
std::string_view host_architecture();

/// Throws Error unless the code can run on this host. Its ELF header is that of a shared object for
/// this processor, everything that it maps lies within the bytes, and the processor has every
/// feature that `target` lists ("x86-64 avx2 fma", "x86-64-v3"). Only reads the bytes; maps and
/// executes nothing. `what` names the code in messages, here and below.
void check_host_code(const CodeObject& object, std::string_view what = "compiled kernel");

/// A shared object that was loaded from memory. Loading runs its constructors, so only permitted
/// code may be loaded. It is unloaded with the last reference.
class HostCode {
 public:
  ~HostCode();
  HostCode(const HostCode&) = delete;
  HostCode& operator=(const HostCode&) = delete;

  /// Loads the code; identical bytes are loaded once. Throws Error as check_host_code() does, or
  /// with the system's reason.
  static std::shared_ptr<const HostCode> load(const CodeObject& object,
                                              std::string_view what = "compiled kernel");
  /// The address of an exported symbol. Throws Error for an unknown name.
  void* symbol(const std::string& name) const;
  /// The same; null for an unknown name.
  void* find_symbol(const std::string& name) const;
  /// Creators that the code's constructors registered. They are in no registry.
  const std::vector<PluginRegistration>& registrations() const { return registrations_; }

 private:
  HostCode(const CodeObject& object, std::string_view what);
  std::string name_;  ///< with what the code is
  std::string path_;
  int descriptor_ = -1;
  void* handle_ = nullptr;
  std::vector<PluginRegistration> registrations_;
};

}  // namespace opwright
