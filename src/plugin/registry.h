#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "opwright/registry.h"

namespace opwright {

/// What identifies a creator of any generation.
struct CreatorIdentity {
  std::string name, version, plugin_namespace;
  friend auto operator<=>(const CreatorIdentity&, const CreatorIdentity&) = default;
};
/// Asks the creator. Throws Error for a creator of an unknown interface.
CreatorIdentity identity(IPluginCreatorInterface& creator);
/// "circ_pad (version 1, namespace '')".
std::string str(const CreatorIdentity& identity);

/// Whether the creator implements the interface of this kind, such as "PLUGIN CREATOR_V3ONE".
bool is_kind(const IVersionedInterface& object, std::string_view kind);

/// The registry of the process, or of a runtime with the process's as its parent.
///
/// A creator that is registered under a namespace is found under that one. Registered under the
/// empty namespace it is found under its own as well, since that is what an engine knows of it.
/// The methods of IPluginRegistry do not throw: they log and tell the error recorder. Thread safe;
/// no lock is held while code of creators, resources and libraries runs.
class PluginRegistry final : public IPluginRegistry {
 public:
  explicit PluginRegistry(IPluginRegistry* parent = nullptr, Log log = {})
      : parent_(parent), log_(log) {}
  /// Closes the libraries that are still loaded.
  ~PluginRegistry() noexcept override;

  /// The process's registry. It is never destroyed, because plugins may use it until the very end.
  static PluginRegistry& global();

  /// As registerCreator(). Throws Error that says why the creator cannot be registered.
  void add(IPluginCreatorInterface& creator, const char* plugin_namespace);
  /// As loadLibrary(). Throws Error that says why the library cannot be used.
  PluginLibraryHandle load_library(const std::string& path);

  bool registerCreator(IPluginCreator& creator, AsciiChar const* pluginNamespace) noexcept override;
  IPluginCreator* const* getPluginCreatorList(int32_t* numCreators) const noexcept override;
  IPluginCreator* getPluginCreator(AsciiChar const* pluginName, AsciiChar const* pluginVersion,
                                   AsciiChar const* pluginNamespace) noexcept override;
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override;
  IErrorRecorder* getErrorRecorder() const noexcept override;
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
    CreatorIdentity identity;   ///< with the namespace that it was registered under
    std::string own_namespace;  ///< what the creator says
  };
  struct Library {
    int references = 0;
    std::vector<std::pair<PluginRegistry*, IPluginCreatorInterface*>> creators;
  };
  struct Resource {
    IPluginResource* object = nullptr;
    int references = 0;
  };
  struct Loading;

  bool remove(const IPluginCreatorInterface* creator);
  IPluginCreatorInterface* find(const CreatorIdentity& wanted) const;
  void collect(Loading& loading, void* handle, const std::string& path);
  void close(void* handle, const Library& library) noexcept;
  void report(ErrorCode code, const std::string& message) const noexcept;

  static thread_local Loading* loading_;

  IPluginRegistry* const parent_;
  const Log log_;
  mutable std::mutex mutex_;
  bool parent_search_ = true;
  IErrorRecorder* recorder_ = nullptr;
  std::vector<Entry> entries_;                       // parallel to creators_
  std::vector<IPluginCreatorInterface*> creators_;   // what getAllCreators() points into
  std::vector<IPluginCreator*> v1_creators_;         // what getPluginCreatorList() points into
  std::vector<IPluginCreatorInterface*> recursive_;  // what getAllCreatorsRecursive() points into
  std::map<void*, Library> libraries_;
  std::map<std::string, Resource, std::less<>> resources_;
};

}  // namespace opwright
