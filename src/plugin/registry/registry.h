#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/error_report.h"
#include "base/library.h"
#include "opwright/registry.h"
#include "plugin/registry/plugin_library.h"
#include "plugin/registry/plugin_resources.h"

namespace opwright {

/// The identity of a creator of any generation.
struct CreatorIdentity {
  std::string name, version, plugin_namespace;
  friend auto operator<=>(const CreatorIdentity&, const CreatorIdentity&) = default;
};
/// Asks the creator for its identity. Throws Error for a creator of an unknown interface.
CreatorIdentity identity(IPluginCreatorInterface& creator);
/// "circ_pad (version 1, namespace '')".
std::string str(const CreatorIdentity& identity);

/// Finds a creator in a registry (null: the process's); null if there is none.
IPluginCreatorInterface* find_creator(IPluginRegistry* registry, const CreatorIdentity& id);

/// Whether the object implements the interface of this kind, such as "PLUGIN CREATOR_V3ONE".
bool is_kind(const IVersionedInterface& object, std::string_view kind);

/// A creator, together with the owner that keeps it alive, if there is one.
using CreatorPtr = std::shared_ptr<IPluginCreatorInterface>;

/// The registry of the process, or one of a builder or runtime whose parent is the process's.
///
/// A creator that is registered under a namespace is found under that one. A creator that is
/// registered under the empty namespace is also found under its own, because an engine knows only
/// that. The methods of IPluginRegistry do not throw: they log and report to the error recorder.
/// Thread safe; no lock is held while code of creators and resources runs. Libraries are loaded and
/// deregistered one at a time, across all registries.
class PluginRegistry final : public IPluginRegistry {
 public:
  /// `parent` is of this class, because the library makes all registries.
  explicit PluginRegistry(IPluginRegistry* parent = nullptr, Log log = {})
      : parent_(static_cast<PluginRegistry*>(parent)), errors_(log) {}
  /// Closes the libraries that are still loaded.
  ~PluginRegistry() noexcept override;

  /// The process's registry. It is never destroyed, because plugins may use it until the very end.
  static PluginRegistry& global();

  /// As registerCreator(). Throws Error that says why the creator cannot be registered.
  void add(IPluginCreatorInterface& creator, const char* plugin_namespace);
  /// The same, and keeps the creator alive while it is registered.
  void add(CreatorPtr creator, const char* plugin_namespace);
  /// As registerCreator(), but throws exceptions that code of a language binding raises.
  bool register_creator(CreatorPtr creator, const char* plugin_namespace);
  /// As getAllCreators() and getAllCreatorsRecursive(). Creators with an owner stay valid even if
  /// other threads deregister them meanwhile.
  std::vector<CreatorPtr> creators() const;
  std::vector<CreatorPtr> creators_recursive() const;
  /// As getCreator().
  CreatorPtr find(const CreatorIdentity& wanted) const;
  /// Receives errors of this registry.
  ErrorReport& errors() const { return errors_; }

  /// As loadLibrary(). Throws Error that says why the library cannot be used.
  PluginLibraryHandle load_library(const std::string& path);
  /// As deregisterLibrary(). Throws Error when the handle is not of this registry.
  void deregister_library(PluginLibraryHandle handle);
  PluginResources& resources() { return resources_; }

  bool registerCreator(IPluginCreator& creator, AsciiChar const* pluginNamespace) noexcept override;
  IPluginCreator* const* getPluginCreatorList(int32_t* numCreators) const noexcept override;
  IPluginCreator* getPluginCreator(AsciiChar const* pluginName, AsciiChar const* pluginVersion,
                                   AsciiChar const* pluginNamespace) noexcept override;
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    errors_.set_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }
  bool deregisterCreator(IPluginCreator const& creator) noexcept override;
  bool isParentSearchEnabled() const override;
  void setParentSearchEnabled(bool enabled) override;
  PluginLibraryHandle loadLibrary(AsciiChar const* pluginPath) noexcept override;
  void deregisterLibrary(PluginLibraryHandle handle) noexcept override;
  bool registerCreator(IPluginCreatorInterface& creator,
                       AsciiChar const* pluginNamespace) noexcept override;
  IPluginCreatorInterface* const* getAllCreators(int32_t* numCreators) const noexcept override;
  IPluginCreatorInterface* getCreator(AsciiChar const* pluginName, AsciiChar const* pluginVersion,
                                      AsciiChar const* pluginNamespace) noexcept override;
  bool deregisterCreator(IPluginCreatorInterface const& creator) noexcept override;
  IPluginResource* acquirePluginResource(AsciiChar const* key,
                                         IPluginResource* resource) noexcept override;
  int32_t releasePluginResource(AsciiChar const* key) noexcept override;
  IPluginCreatorInterface* const* getAllCreatorsRecursive(int32_t* numCreators) noexcept override;

 private:
  struct Entry {
    CreatorPtr creator;
    CreatorIdentity identity;   ///< with the namespace of its registration
    std::string own_namespace;  ///< the creator's own namespace
  };
  /// A library that this registry loaded, and the creators that it exports.
  struct Loaded {
    std::shared_ptr<PluginLibrary> library;
    int references = 0;
    std::vector<IPluginCreatorInterface*> creators;
    bool is_user = false;
  };
  struct Loading;

  bool remove(const IPluginCreatorInterface* creator);
  /// Registers the creators of a library. Throws Error when it has none. The caller prevents other
  /// loading meanwhile; so does the caller of withdraw().
  void activate(Loaded& loaded, Loading& loading, const std::string& path);
  void withdraw(const Loaded& loaded) noexcept;

  static thread_local Loading* loading_;

  PluginRegistry* const parent_;
  mutable ErrorReport errors_;  // not a part of the content
  mutable LibraryLock mutex_;
  bool parent_search_ = true;
  std::vector<Entry> entries_;                       // parallel to creators_
  std::vector<IPluginCreatorInterface*> creators_;   // getAllCreators() points to it
  std::vector<IPluginCreator*> v1_creators_;         // getPluginCreatorList() points to it
  std::vector<IPluginCreatorInterface*> recursive_;  // getAllCreatorsRecursive() points to it
  std::map<void*, Loaded> libraries_;
  PluginResources resources_;  // destroyed before the libraries, which implement resources
};

}  // namespace opwright
