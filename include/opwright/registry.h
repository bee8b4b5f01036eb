#pragma once

/// \file
/// Where plugin creators are registered and found.

#include "logger.h"
#include "plugin.h"

namespace opwright {

/// Creators by (name, version, namespace). The library owns its registries; creators belong to
/// those who register them and must stay until they are deregistered. Strings are at most 1024
/// bytes with the terminating null.
class IPluginRegistry {
 public:
  using PluginLibraryHandle = void*;

  /// \return false if name, version and namespace are taken.
  virtual bool registerCreator(IPluginCreator& creator,
                               AsciiChar const* const pluginNamespace) noexcept = 0;

  /// The creators that derive from IPluginCreator; valid until the next change.
  virtual IPluginCreator* const* getPluginCreatorList(
      int32_t* const numCreators) const noexcept = 0;

  /// \return null if there is none, or if it does not derive from IPluginCreator.
  virtual IPluginCreator* getPluginCreator(
      AsciiChar const* const pluginName, AsciiChar const* const pluginVersion,
      AsciiChar const* const pluginNamespace = "") noexcept = 0;

  IPluginRegistry() = default;
  IPluginRegistry(IPluginRegistry const&) = delete;
  IPluginRegistry(IPluginRegistry&&) = delete;
  IPluginRegistry& operator=(IPluginRegistry const&) & = delete;
  IPluginRegistry& operator=(IPluginRegistry&&) & = delete;

 protected:
  virtual ~IPluginRegistry() noexcept = default;

 public:
  /// Counts a reference on `recorder` and gives up the one before; null for none.
  virtual void setErrorRecorder(IErrorRecorder* const recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

  /// \return false if the creator is not registered here.
  virtual bool deregisterCreator(IPluginCreator const& creator) noexcept = 0;

  /// Whether a creator that is not found here is looked for in the parent registry. True at first.
  virtual bool isParentSearchEnabled() const = 0;
  virtual void setParentSearchEnabled(bool const enabled) = 0;

  /// Opens a shared library and registers its creators: those that its `getCreators` (or
  /// `getPluginCreators`) function returns, and those that register themselves when it is opened.
  /// A `setLoggerFinder` function is called with an ILoggerFinder if the library exports one.
  /// \return null if the library cannot be opened, or brings a creator that is registered already.
  virtual PluginLibraryHandle loadLibrary(AsciiChar const* pluginPath) noexcept = 0;

  /// Deregisters what loadLibrary() registered and closes the library.
  virtual void deregisterLibrary(PluginLibraryHandle handle) noexcept = 0;

  /// \return false if name, version and namespace are taken.
  virtual bool registerCreator(IPluginCreatorInterface& creator,
                               AsciiChar const* const pluginNamespace) noexcept = 0;

  /// All creators of this registry; valid until the next change.
  virtual IPluginCreatorInterface* const* getAllCreators(
      int32_t* const numCreators) const noexcept = 0;

  /// \return null if there is none.
  virtual IPluginCreatorInterface* getCreator(
      AsciiChar const* const pluginName, AsciiChar const* const pluginVersion,
      AsciiChar const* const pluginNamespace = "") noexcept = 0;

  /// \return false if the creator is not registered here.
  virtual bool deregisterCreator(IPluginCreatorInterface const& creator) noexcept = 0;

  /// The resource under `key`, with one more reference. If there is none, a clone of `resource`.
  virtual IPluginResource* acquirePluginResource(AsciiChar const* key,
                                                 IPluginResource* resource) noexcept = 0;

  /// Gives up a reference; with the last one the resource is released and deleted.
  /// \return 0 on success.
  virtual int32_t releasePluginResource(AsciiChar const* key) noexcept = 0;

  /// The creators of this registry and its parents; valid until the next change.
  virtual IPluginCreatorInterface* const* getAllCreatorsRecursive(
      int32_t* const numCreators) noexcept = 0;
};

}  // namespace opwright

/// The process's registry, parent of all others.
extern "C" OPWRIGHT_API opwright::IPluginRegistry* getPluginRegistry() noexcept;

/// The registry that a build for `capability` looks creators up in; null if there is none.
extern "C" OPWRIGHT_API opwright::IPluginRegistry* getBuilderPluginRegistry(
    opwright::EngineCapability capability) noexcept;

/// Registers the plugins that come with the library; safe to call more than once.
/// \param logger an ILogger, or null.
/// \param libNamespace the namespace to register them under.
extern "C" OPWRIGHT_API bool initLibNvInferPlugins(void* logger, char const* libNamespace);

namespace opwright {

/// Registers a `T` when the library that holds it is loaded.
template <typename T>
class PluginRegistrar {
 public:
  PluginRegistrar() { getPluginRegistry()->registerCreator(instance, ""); }

 private:
  T instance{};
};

}  // namespace opwright

/// At namespace scope: registers the creator class `name` under the namespace "".
#define REGISTER_TENSORRT_PLUGIN(name) \
  static opwright::PluginRegistrar<name> pluginRegistrar##name {}
