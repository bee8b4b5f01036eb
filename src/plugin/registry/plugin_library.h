#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "opwright/plugin_base.h"

namespace opwright {

class IPluginV2;
class PluginRegistry;

/// A shared object with plugins, unloaded when the last that uses its code has gone: registries
/// that loaded it, plugins, resources.
class PluginLibrary {
 public:
  /// A creator and the registry that it registered itself in.
  using Registration = std::pair<PluginRegistry*, IPluginCreatorInterface*>;

  /// Opens the file; a bare name is looked for in the current folder first, then as the system
  /// does. One that is open already is shared. Throws Error that says why it cannot be opened.
  static std::shared_ptr<PluginLibrary> open(const std::string& path);
  ~PluginLibrary();
  PluginLibrary(const PluginLibrary&) = delete;
  PluginLibrary& operator=(const PluginLibrary&) = delete;

  /// As dlopen() gave it.
  void* handle() const { return handle_; }
  /// The address of an exported function, or null.
  void* symbol(const char* name) const;
  /// Whether the object's class is of this library.
  bool implements(const IVersionedInterface& object) const;

  /// The creators that registered themselves while the library was being opened. They are
  /// registered as long as a registry has the library loaded; `users` are those registries. Guarded
  /// by what lets registries load one library at a time.
  std::vector<Registration> self_registered;
  int users = 0;

 private:
  explicit PluginLibrary(void* handle) : handle_(handle) {}
  void* const handle_;
};

/// Keeps the library in memory that implements the object's class. Null where nobody can close it.
std::shared_ptr<const void> keep_code(const IVersionedInterface& object);
std::shared_ptr<const void> keep_code(const IPluginV2& plugin);

/// The file of the shared library that implements the object's class. Empty where that is the
/// program, code in memory, or a language binding.
std::string code_file(const IVersionedInterface& object);

}  // namespace opwright
