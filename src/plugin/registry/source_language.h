#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "network/operator.h"
#include "plugin/registry/registration.h"

namespace opwright {

/// A language in which plugins can be implemented, and whose sources engines can store. Only a
/// binding of the language can find and run sources; the engine knows no language.
class SourceLanguage {
 public:
  /// The sources from which load() defines the plugins that are implemented in this language; empty
  /// if there are none. Their target is the language's name, and they only depend on each other.
  /// Throws Error naming a plugin whose source is not available.
  virtual std::vector<CodeObject> collect(std::span<const PluginRequirement> plugins) = 0;

  /// The creators and definitions that load() found.
  struct Plugins {
    std::vector<PluginRegistration> creators;
    std::vector<std::shared_ptr<const FunctionPlugin>> definitions;
  };
  /// Runs sources that define the plugins. Throws when that fails. The caller checks whether all
  /// plugins are defined afterwards. Creators and code stay until the process ends.
  virtual Plugins load(std::span<const CodeObject> sources,
                       std::span<const PluginRequirement> plugins) = 0;

 protected:
  ~SourceLanguage() = default;
};

/// Registers a language under its name, such as "python". A second call replaces it, null removes
/// it. `language` must stay valid. Thread safe.
void set_source_language(const std::string& name, SourceLanguage* language);
/// Null for an unknown name.
SourceLanguage* find_source_language(const std::string& name);
std::vector<SourceLanguage*> all_source_languages();

}  // namespace opwright
