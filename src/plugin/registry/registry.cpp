#include "plugin/registry/registry.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/library.h"
#include "base/per_process.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/library_exports.h"
#include "plugin/registry/registration.h"

namespace opwright {

namespace {

template <class Creator>
CreatorIdentity ask(const Creator& creator) {
  const char* const name = call_plugin("", [&] { return creator.getPluginName(); });
  const char* const version = call_plugin("", [&] { return creator.getPluginVersion(); });
  const char* const plugin_namespace =
      call_plugin("", [&] { return creator.getPluginNamespace(); });
  require(name != nullptr && *name != '\0', "a plugin creator has no plugin name");
  return {name, version ? version : "", plugin_namespace ? plugin_namespace : ""};
}

constexpr std::string_view kCreatorV1 = "PLUGIN CREATOR_V1";
constexpr const char* kRegistering = "Registering a plugin creator failed: ";

/// A creator whose owner keeps it alive while it is registered.
CreatorPtr unowned(IPluginCreatorInterface& creator) { return {CreatorPtr(), &creator}; }

}  // namespace

/// State while this thread opens a library.
struct PluginRegistry::Loading {
  std::vector<PluginLibrary::Registration> registered;
  std::vector<std::string> refused;
};

thread_local PluginRegistry::Loading* PluginRegistry::loading_ = nullptr;

IPluginCreatorInterface* find_creator(IPluginRegistry* registry, const CreatorIdentity& id) {
  IPluginRegistry& where = registry != nullptr ? *registry : *getPluginRegistry();
  return where.getCreator(id.name.c_str(), id.version.c_str(), id.plugin_namespace.c_str());
}

bool is_kind(const IVersionedInterface& object, std::string_view kind) {
  const char* actual = object.getInterfaceInfo().kind;
  return actual != nullptr && kind == actual;
}

CreatorIdentity identity(IPluginCreatorInterface& creator) {
  if (is_kind(creator, kCreatorV1)) return ask(static_cast<IPluginCreator&>(creator));
  if (is_kind(creator, "PLUGIN CREATOR_V3ONE"))
    return ask(static_cast<IPluginCreatorV3One&>(creator));
  if (is_kind(creator, "PLUGIN CREATOR_V3QUICK"))
    return ask(static_cast<IPluginCreatorV3Quick&>(creator));
  const char* kind = creator.getInterfaceInfo().kind;
  fail("a plugin creator has the unknown interface '", kind ? kind : "", "'");
}

std::string str(const CreatorIdentity& identity) {
  return str("'", identity.name, "' (version ", identity.version, ", namespace '",
             identity.plugin_namespace, "')");
}

PluginRegistry& PluginRegistry::global() { return Library::part<PluginRegistry>(); }

PluginRegistry::~PluginRegistry() noexcept {
  for (const auto& [handle, loaded] : libraries_) withdraw(loaded);
}

// Creators

void PluginRegistry::add(CreatorPtr creator, const char* plugin_namespace) {
  CreatorIdentity id = identity(*creator);
  if (RegistrationCapture* capture = RegistrationCapture::current()) {
    id.plugin_namespace = plugin_namespace != nullptr ? plugin_namespace : "";
    for (const PluginRegistration& other : capture->creators) {
      const CreatorIdentity its = identity(*other.creator);
      require(its.name != id.name || its.version != id.version ||
                  other.plugin_namespace != id.plugin_namespace,
              "plugin ", str(id), " is registered already");
    }
    IPluginCreatorInterface* const captured = creator.get();
    capture->creators.push_back({captured, id.plugin_namespace, std::move(creator)});
    return;
  }
  Entry entry{creator, id, id.plugin_namespace};
  entry.identity.plugin_namespace = plugin_namespace != nullptr ? plugin_namespace : "";
  const bool is_v1 = is_kind(*creator, kCreatorV1);
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& other : entries_) {
      if (other.identity == entry.identity) {
        if (loading_ != nullptr) loading_->refused.push_back(str(entry.identity));
        fail("plugin ", str(entry.identity), " is registered already");
      }
    }
    creators_.push_back(creator.get());
    if (is_v1) v1_creators_.push_back(static_cast<IPluginCreator*>(creator.get()));
    entries_.push_back(entry);
  }
  // A V2 plugin's namespace is that of its registration.
  if (is_v1 && !entry.identity.plugin_namespace.empty()) {
    try {
      call_plugin(str("plugin ", str(entry.identity), ": "), [&] {
        static_cast<IPluginCreator&>(*creator).setPluginNamespace(
            entry.identity.plugin_namespace.c_str());
      });
    } catch (...) {
      remove(creator.get());
      throw;
    }
  }
  if (loading_ != nullptr) loading_->registered.emplace_back(this, creator.get());
}

void PluginRegistry::add(IPluginCreatorInterface& creator, const char* plugin_namespace) {
  add(unowned(creator), plugin_namespace);
}

bool PluginRegistry::remove(const IPluginCreatorInterface* creator) {
  CreatorPtr removed;  // released after the lock
  const std::lock_guard lock(mutex_);
  const auto found = std::find(creators_.begin(), creators_.end(), creator);
  if (found == creators_.end()) return false;
  const auto entry = entries_.begin() + (found - creators_.begin());
  removed = std::move(entry->creator);
  entries_.erase(entry);
  std::erase_if(v1_creators_, [&](IPluginCreator* v1) { return v1 == creator; });
  creators_.erase(found);
  return true;
}

CreatorPtr PluginRegistry::find(const CreatorIdentity& wanted) const {
  CreatorPtr by_own_namespace;
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      const CreatorIdentity& id = entry.identity;
      if (id == wanted) return entry.creator;
      if (id.plugin_namespace.empty() && id.name == wanted.name && id.version == wanted.version &&
          entry.own_namespace == wanted.plugin_namespace)
        by_own_namespace = entry.creator;
    }
    if (by_own_namespace != nullptr || parent_ == nullptr || !parent_search_)
      return by_own_namespace;
  }
  return parent_->find(wanted);
}

bool PluginRegistry::register_creator(CreatorPtr creator, const char* plugin_namespace) {
  try {
    add(std::move(creator), plugin_namespace);
    return true;
  } catch (const Error&) {
    return errors_.guard(
        false, []() -> bool { throw; }, kRegistering);
  }
}

bool PluginRegistry::registerCreator(IPluginCreatorInterface& creator,
                                     AsciiChar const* pluginNamespace) noexcept {
  return errors_.guard(
      false, [&] { return register_creator(unowned(creator), pluginNamespace); }, kRegistering);
}

bool PluginRegistry::registerCreator(IPluginCreator& creator,
                                     AsciiChar const* pluginNamespace) noexcept {
  return registerCreator(static_cast<IPluginCreatorInterface&>(creator), pluginNamespace);
}

bool PluginRegistry::deregisterCreator(IPluginCreatorInterface const& creator) noexcept {
  return remove(&creator);
}

bool PluginRegistry::deregisterCreator(IPluginCreator const& creator) noexcept {
  return remove(&creator);
}

IPluginCreatorInterface* PluginRegistry::getCreator(AsciiChar const* pluginName,
                                                    AsciiChar const* pluginVersion,
                                                    AsciiChar const* pluginNamespace) noexcept {
  return errors_.guard<IPluginCreatorInterface*>(
      nullptr,
      [&] {
        require(pluginName != nullptr && pluginVersion != nullptr,
                "name and version must not be null");
        return find({pluginName, pluginVersion, pluginNamespace ? pluginNamespace : ""}).get();
      },
      "Looking up a plugin creator failed: ");
}

IPluginCreator* PluginRegistry::getPluginCreator(AsciiChar const* pluginName,
                                                 AsciiChar const* pluginVersion,
                                                 AsciiChar const* pluginNamespace) noexcept {
  IPluginCreatorInterface* creator = getCreator(pluginName, pluginVersion, pluginNamespace);
  return creator != nullptr && is_kind(*creator, kCreatorV1) ? static_cast<IPluginCreator*>(creator)
                                                             : nullptr;
}

IPluginCreator* const* PluginRegistry::getPluginCreatorList(int32_t* numCreators) const noexcept {
  const std::lock_guard lock(mutex_);
  if (numCreators != nullptr) *numCreators = static_cast<int32_t>(v1_creators_.size());
  return v1_creators_.data();
}

IPluginCreatorInterface* const* PluginRegistry::getAllCreators(
    int32_t* numCreators) const noexcept {
  const std::lock_guard lock(mutex_);
  if (numCreators != nullptr) *numCreators = static_cast<int32_t>(creators_.size());
  return creators_.data();
}

IPluginCreatorInterface* const* PluginRegistry::getAllCreatorsRecursive(
    int32_t* numCreators) noexcept {
  const std::vector<CreatorPtr> all = creators_recursive();
  const std::lock_guard lock(mutex_);
  recursive_.clear();
  for (const CreatorPtr& creator : all) recursive_.push_back(creator.get());
  if (numCreators != nullptr) *numCreators = static_cast<int32_t>(recursive_.size());
  return recursive_.data();
}

std::vector<CreatorPtr> PluginRegistry::creators() const {
  const std::lock_guard lock(mutex_);
  std::vector<CreatorPtr> all;
  for (const Entry& entry : entries_) all.push_back(entry.creator);
  return all;
}

std::vector<CreatorPtr> PluginRegistry::creators_recursive() const {
  std::vector<CreatorPtr> all = creators();
  if (parent_ == nullptr || !isParentSearchEnabled()) return all;
  for (CreatorPtr& creator : parent_->creators_recursive()) all.push_back(std::move(creator));
  return all;
}

bool PluginRegistry::isParentSearchEnabled() const {
  const std::lock_guard lock(mutex_);
  return parent_search_;
}

void PluginRegistry::setParentSearchEnabled(bool enabled) {
  const std::lock_guard lock(mutex_);
  parent_search_ = enabled;
}

// Libraries

namespace {

/// Held while a library is loaded or unloaded. The library's code runs then and may load other
/// libraries. Guards the state of PluginLibrary that registries share. A fork does not wait for
/// such code, so the child has another mutex.
struct LoadingMutex : PerProcess<std::recursive_mutex> {
  LoadingMutex() : PerProcess([] { return std::make_unique<std::recursive_mutex>(); }) {}
};
std::recursive_mutex& loading_mutex() { return Library::part<LoadingMutex>().get(); }

}  // namespace

void PluginRegistry::activate(Loaded& loaded, Loading& loading, const std::string& path) {
  PluginLibrary& library = *loaded.library;
  loaded.is_user = true;
  const bool is_first = library.users++ == 0;
  if (!loading.registered.empty()) {
    library.self_registered = std::exchange(loading.registered, {});
  } else if (is_first) {
    // The library stayed in memory because its code was in use, so its constructors do not run
    // again.
    for (const auto& [registry, creator] : library.self_registered) registry->add(*creator, "");
  }
  loading.registered.clear();

  const auto symbol = [&library](const char* name) { return library.symbol(name); };
  for (IPluginCreatorInterface* creator : exported_creators(symbol, path, library.tensorrt())) {
    add(*creator, "");
    loaded.creators.push_back(creator);
  }
  if (!loaded.creators.empty() || !library.self_registered.empty()) return;
  if (!loading.refused.empty()) {
    std::string names;
    for (const std::string& name : loading.refused) names += (names.empty() ? "" : ", ") + name;
    fail("plugin library '", path, "' brings only plugins that are registered already: ", names);
  }
  // The library may have been opened before by other means than a registry.
  for (const CreatorPtr& creator : creators_recursive())
    if (library.implements(*creator)) return;
  fail("'", path,
       "' is not a plugin library: it exports neither getCreators() nor "
       "getPluginCreators(), and registers no creator by REGISTER_TENSORRT_PLUGIN when it is "
       "opened");
}

void PluginRegistry::withdraw(const Loaded& loaded) noexcept {
  const std::lock_guard lock(loading_mutex());
  for (IPluginCreatorInterface* creator : loaded.creators) remove(creator);
  if (!loaded.is_user) return;
  if (--loaded.library->users > 0) return;
  for (const auto& [registry, creator] : loaded.library->self_registered) registry->remove(creator);
}

IPluginRegistry::PluginLibraryHandle PluginRegistry::load_library(const std::string& path) {
  const std::lock_guard one_at_a_time(loading_mutex());
  Loading loading;
  Loading* const outer = std::exchange(loading_, &loading);
  struct Restore {
    Loading* outer;
    ~Restore() { loading_ = outer; }
  } restore{outer};
  const RegistrationPassage passage;

  Loaded loaded;
  loaded.library = PluginLibrary::open(path);
  void* const handle = loaded.library->handle();
  {
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = libraries_.try_emplace(handle);
    ++known->second.references;
    // The library's own code may load it again.
    if (!is_new) return handle;
  }
  try {
    activate(loaded, loading, path);
  } catch (...) {
    withdraw(loaded);
    const std::lock_guard lock(mutex_);
    libraries_.erase(handle);
    throw;
  }
  const std::lock_guard lock(mutex_);
  Loaded& entry = libraries_[handle];
  loaded.references = entry.references;
  entry = std::move(loaded);
  return handle;
}

void PluginRegistry::deregister_library(PluginLibraryHandle handle) {
  const std::lock_guard one_at_a_time(loading_mutex());
  Loaded loaded;
  {
    const std::lock_guard lock(mutex_);
    const auto found = libraries_.find(handle);
    require(found != libraries_.end(),
            "deregisterLibrary() was given a handle that loadLibrary() of this registry did not "
            "return, or whose library was deregistered as often as it was loaded");
    if (--found->second.references > 0) return;
    loaded = std::move(found->second);
    libraries_.erase(found);
  }
  withdraw(loaded);
}

IPluginRegistry::PluginLibraryHandle PluginRegistry::loadLibrary(
    AsciiChar const* pluginPath) noexcept {
  return errors_.guard<void*>(nullptr, [&] {
    require(pluginPath != nullptr, "the path of a plugin library is null");
    return load_library(pluginPath);
  });
}

void PluginRegistry::deregisterLibrary(PluginLibraryHandle handle) noexcept {
  errors_.run([&] { deregister_library(handle); });
}

// Resources

IPluginResource* PluginRegistry::acquirePluginResource(AsciiChar const* key,
                                                       IPluginResource* resource) noexcept {
  return errors_.guard<IPluginResource*>(nullptr,
                                         [&] { return resources_.acquire(key, resource); });
}

int32_t PluginRegistry::releasePluginResource(AsciiChar const* key) noexcept {
  return errors_.guard(-1, [&] { return resources_.release(key); });
}

}  // namespace opwright

opwright::IPluginRegistry* getPluginRegistry() noexcept {
  return &opwright::PluginRegistry::global();
}

opwright::IPluginRegistry* getBuilderPluginRegistry(
    opwright::EngineCapability capability) noexcept {
  return capability == opwright::EngineCapability::kSTANDARD ? getPluginRegistry() : nullptr;
}

bool initLibNvInferPlugins(void*, char const*) {
  // TensorRT's own plugins are built-in layers here, so there is nothing to register.
  return true;
}

opwright::ILogger* getLogger() noexcept {
  static const opwright::Log log;
  return log.logger();
}
