#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "network/operator.h"
#include "plugin/registry/registration.h"

namespace opwright {

/// A language in which plugins can be implemented and whose sources engines can carry. A binding of
/// the language knows how to find and to run them; the engine itself does not know any.
class SourceLanguage {
 public:
  /// The sources from which load() defines those of the plugins that are implemented in this
  /// language; empty when none is. Their target is the language's name, and they may depend on each
  /// other only. Throws Error that names a plugin whose source cannot be had.
  virtual std::vector<CodeObject> collect(std::span<const PluginRequirement> plugins) = 0;

  /// What creators and definitions load() found.
  struct Plugins {
    std::vector<PluginRegistration> creators;
    std::vector<std::shared_ptr<const FunctionPlugin>> definitions;
  };
  /// Runs sources that define the plugins. Throws when that fails; whether all plugins are there
  /// afterwards the caller checks. The creators stay for the process's life, as does the code.
  virtual Plugins load(std::span<const CodeObject> sources,
                       std::span<const PluginRequirement> plugins) = 0;

 protected:
  ~SourceLanguage() = default;
};

/// Makes a language known under its name, such as "python"; again replaces it, null forgets it.
/// `language` must stay valid. Thread safe.
void set_source_language(const std::string& name, SourceLanguage* language);
/// Null when nobody made it known.
SourceLanguage* find_source_language(const std::string& name);
std::vector<SourceLanguage*> all_source_languages();

}  // namespace opwright
