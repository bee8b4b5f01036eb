#pragma once

/// \file
/// Registries of plugin creators.

#include "logger.h"
#include "plugin.h"

namespace opwright {

/// Creators by (name, version, namespace). The library owns its registries. Creators belong to the
/// code that registers them and must live until they are deregistered. Strings are at most 1024
/// bytes with the terminating null.
class IPluginRegistry {
 public:
  using PluginLibraryHandle = void*;

  /// \return false if another creator has the name, version and namespace.
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
  /// Counts a reference on `recorder` and drops the reference on the previous one; null for none.
  virtual void setErrorRecorder(IErrorRecorder* const recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

  /// \return false if the creator is not registered here.
  virtual bool deregisterCreator(IPluginCreator const& creator) noexcept = 0;

  /// Whether a creator that is not found here is looked up in the parent registry. True by default.
  virtual bool isParentSearchEnabled() const = 0;
  virtual void setParentSearchEnabled(bool const enabled) = 0;

  /// Opens a shared library and registers its creators: those that its `getCreators` (or
  /// `getPluginCreators`) function returns, and those that register themselves when it is opened.
  /// If the library exports a `setLoggerFinder` function, calls it with an ILoggerFinder.
  /// \return null if the library cannot be opened, or has a creator that is already registered.
  virtual PluginLibraryHandle loadLibrary(AsciiChar const* pluginPath) noexcept = 0;

  /// Deregisters the creators that loadLibrary() registered and closes the library.
  virtual void deregisterLibrary(PluginLibraryHandle handle) noexcept = 0;

  /// \return false if another creator has the name, version and namespace.
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

  /// Drops a reference. With the last one, the resource is released and deleted.
  /// \return 0 on success.
  virtual int32_t releasePluginResource(AsciiChar const* key) noexcept = 0;

  /// The creators of this registry and its parents; valid until the next change.
  virtual IPluginCreatorInterface* const* getAllCreatorsRecursive(
      int32_t* const numCreators) noexcept = 0;
};

}  // namespace opwright

/// The process's registry, parent of all others.
extern "C" OPWRIGHT_API opwright::IPluginRegistry* getPluginRegistry() noexcept;

/// The registry in which a build for `capability` looks creators up; null if there is none.
extern "C" OPWRIGHT_API opwright::IPluginRegistry* getBuilderPluginRegistry(
    opwright::EngineCapability capability) noexcept;

/// Registers the plugins that come with the library. Safe to call more than once.
/// \param logger an ILogger, or null.
/// \param libNamespace the namespace for these plugins.
extern "C" OPWRIGHT_API bool initLibNvInferPlugins(void* logger, char const* libNamespace);

namespace opwright {

/// Registers a `T` when its library is loaded.
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
