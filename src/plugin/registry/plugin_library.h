#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "opwright/plugin_base.h"

namespace opwright {

class IPluginV2;
class PluginRegistry;

/// A shared object with plugins. It is unloaded after the last user of its code is gone: registries
/// that loaded it, plugins, resources.
class PluginLibrary {
 public:
  /// A creator, and the registry in which it registered itself.
  using Registration = std::pair<PluginRegistry*, IPluginCreatorInterface*>;

  /// Opens the file. A bare name is searched in the current folder first, then as the system does.
  /// A library that is open already is shared. Throws Error that says why it cannot be opened.
  static std::shared_ptr<PluginLibrary> open(const std::string& path);
  ~PluginLibrary();
  PluginLibrary(const PluginLibrary&) = delete;
  PluginLibrary& operator=(const PluginLibrary&) = delete;

  /// The handle that dlopen() returned.
  void* handle() const { return handle_; }
  /// The address of an exported function, or null.
  void* symbol(const char* name) const;
  /// The major version of TensorRT for which the library was compiled; 0 for Opwright.
  int tensorrt() const { return tensorrt_; }
  /// Whether this library has the object's class.
  bool implements(const IVersionedInterface& object) const;

  /// The creators that registered themselves while the library was opened. They are registered
  /// while any registry has the library loaded; `users` is the number of these registries. The lock
  /// that lets registries load one library at a time guards both.
  std::vector<Registration> self_registered;
  int users = 0;

 private:
  PluginLibrary(void* handle, int tensorrt) : handle_(handle), tensorrt_(tensorrt) {}
  void* const handle_;
  const int tensorrt_;
};

/// Keeps the library of the object's class in memory. Null if it cannot be closed anyway.
std::shared_ptr<const void> keep_code(const IVersionedInterface& object);
std::shared_ptr<const void> keep_code(const IPluginV2& plugin);

/// The file of the shared library with the object's class. Empty if the class is in the program, in
/// code from memory, or in a language binding.
std::string code_file(const IVersionedInterface& object);

}  // namespace opwright
