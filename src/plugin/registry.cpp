#include "plugin/registry.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "plugin/callback.h"
#include "plugin/library_exports.h"
#include "plugin/registration.h"
#include "plugin/shared_object.h"

namespace opwright {

namespace {

template <class Creator>
CreatorIdentity ask(const Creator& creator) {
  const char* name = creator.getPluginName();
  const char* version = creator.getPluginVersion();
  const char* plugin_namespace = creator.getPluginNamespace();
  rethrow_pending_exception();
  require(name != nullptr && *name != '\0', "a plugin creator has no plugin name");
  return {name, version ? version : "", plugin_namespace ? plugin_namespace : ""};
}

constexpr std::string_view kCreatorV1 = "PLUGIN CREATOR_V1";

/// Runs the body of a method of the public API: an exception becomes a report and `failed`.
template <class T, class Report, class Body>
T guard(T failed, Report&& report, Body&& body) noexcept {
  try {
    return body();
  } catch (const Error& error) {
    report(error.code(), error.what());
  } catch (const std::exception& error) {
    report(ErrorCode::kINTERNAL_ERROR, error.what());
  } catch (...) {
    report(ErrorCode::kUNSPECIFIED_ERROR, "an exception of an unknown type");
  }
  return failed;
}

}  // namespace

/// What happens while a library is being opened on this thread.
struct PluginRegistry::Loading {
  Library library;
  std::vector<std::string> refused;
};

thread_local PluginRegistry::Loading* PluginRegistry::loading_ = nullptr;

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

PluginRegistry& PluginRegistry::global() {
  static auto* registry = new PluginRegistry();
  return *registry;
}

PluginRegistry::~PluginRegistry() noexcept {
  for (const auto& [handle, library] : libraries_) close(handle, library);
  for (const auto& [key, resource] : resources_) {
    resource.object->release();
    delete resource.object;
  }
  setErrorRecorder(nullptr);
}

void PluginRegistry::report(ErrorCode code, const std::string& message) const noexcept {
  log_.error(message);
  IErrorRecorder* recorder = getErrorRecorder();
  if (recorder != nullptr) recorder->reportError(code, message.c_str());
}

// Creators

void PluginRegistry::add(IPluginCreatorInterface& creator, const char* plugin_namespace) {
  CreatorIdentity id = identity(creator);
  if (RegistrationCapture* capture = RegistrationCapture::current()) {
    id.plugin_namespace = plugin_namespace != nullptr ? plugin_namespace : "";
    for (const PluginRegistration& other : capture->creators) {
      const CreatorIdentity its = identity(*other.creator);
      require(its.name != id.name || its.version != id.version ||
                  other.plugin_namespace != id.plugin_namespace,
              "plugin ", str(id), " is registered already");
    }
    capture->creators.push_back({&creator, id.plugin_namespace});
    return;
  }
  Entry entry{id, id.plugin_namespace};
  entry.identity.plugin_namespace = plugin_namespace != nullptr ? plugin_namespace : "";
  const bool is_v1 = is_kind(creator, kCreatorV1);
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& other : entries_) {
      if (other.identity == entry.identity) {
        if (loading_ != nullptr) loading_->refused.push_back(str(entry.identity));
        fail("plugin ", str(entry.identity), " is registered already");
      }
    }
    creators_.push_back(&creator);
    if (is_v1) v1_creators_.push_back(static_cast<IPluginCreator*>(&creator));
    entries_.push_back(entry);
  }
  if (loading_ != nullptr) loading_->library.creators.emplace_back(this, &creator);
  // A V2 plugin's namespace is that of its registration.
  if (is_v1 && !entry.identity.plugin_namespace.empty())
    static_cast<IPluginCreator&>(creator).setPluginNamespace(
        entry.identity.plugin_namespace.c_str());
}

bool PluginRegistry::remove(const IPluginCreatorInterface* creator) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(creators_.begin(), creators_.end(), creator);
  if (found == creators_.end()) return false;
  entries_.erase(entries_.begin() + (found - creators_.begin()));
  std::erase_if(v1_creators_, [&](IPluginCreator* v1) { return v1 == creator; });
  creators_.erase(found);
  return true;
}

IPluginCreatorInterface* PluginRegistry::find(const CreatorIdentity& wanted) const {
  IPluginCreatorInterface* by_own_namespace = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < entries_.size(); ++i) {
      const CreatorIdentity& id = entries_[i].identity;
      if (id == wanted) return creators_[i];
      if (id.plugin_namespace.empty() && id.name == wanted.name && id.version == wanted.version &&
          entries_[i].own_namespace == wanted.plugin_namespace)
        by_own_namespace = creators_[i];
    }
    if (by_own_namespace != nullptr || parent_ == nullptr || !parent_search_)
      return by_own_namespace;
  }
  return parent_->getCreator(wanted.name.c_str(), wanted.version.c_str(),
                             wanted.plugin_namespace.c_str());
}

bool PluginRegistry::registerCreator(IPluginCreatorInterface& creator,
                                     AsciiChar const* pluginNamespace) noexcept {
  return guard(
      false,
      [&](ErrorCode code, const char* what) {
        report(code, str("Registering a plugin creator failed: ", what));
      },
      [&] {
        add(creator, pluginNamespace);
        return true;
      });
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
  return guard(
      static_cast<IPluginCreatorInterface*>(nullptr),
      [&](ErrorCode code, const char* what) {
        report(code, str("Looking up a plugin creator failed: ", what));
      },
      [&] {
        require(pluginName != nullptr && pluginVersion != nullptr,
                "name and version must not be null");
        return find({pluginName, pluginVersion, pluginNamespace ? pluginNamespace : ""});
      });
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
  int32_t parents = 0;
  IPluginCreatorInterface* const* of_parents = nullptr;
  if (parent_ != nullptr && isParentSearchEnabled())
    of_parents = parent_->getAllCreatorsRecursive(&parents);
  const std::lock_guard lock(mutex_);
  recursive_ = creators_;
  recursive_.insert(recursive_.end(), of_parents, of_parents + parents);
  if (numCreators != nullptr) *numCreators = static_cast<int32_t>(recursive_.size());
  return recursive_.data();
}

bool PluginRegistry::isParentSearchEnabled() const {
  const std::lock_guard lock(mutex_);
  return parent_search_;
}

void PluginRegistry::setParentSearchEnabled(bool enabled) {
  const std::lock_guard lock(mutex_);
  parent_search_ = enabled;
}

void PluginRegistry::setErrorRecorder(IErrorRecorder* recorder) noexcept {
  if (recorder != nullptr) recorder->incRefCount();
  IErrorRecorder* previous = nullptr;
  {
    const std::lock_guard lock(mutex_);
    previous = std::exchange(recorder_, recorder);
  }
  if (previous != nullptr) previous->decRefCount();
}

IErrorRecorder* PluginRegistry::getErrorRecorder() const noexcept {
  const std::lock_guard lock(mutex_);
  return recorder_;
}

// Libraries

void PluginRegistry::collect(Loading& loading, void* handle, const std::string& path) {
  const auto symbol = [handle](const char* name) { return dlsym(handle, name); };
  for (IPluginCreatorInterface* creator : exported_creators(symbol, path)) add(*creator, "");
  if (!loading.library.creators.empty()) return;
  if (!loading.refused.empty()) {
    std::string names;
    for (const std::string& name : loading.refused) names += (names.empty() ? "" : ", ") + name;
    fail("plugin library '", path, "' brings only plugins that are registered already: ", names);
  }

  // The library may have been opened before, by other means than this function.
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) {
    int32_t registered = 0;
    IPluginCreatorInterface* const* all = getAllCreatorsRecursive(&registered);
    for (int32_t i = 0; i < registered; ++i) {
      Dl_info info{};
      link_map* owner = nullptr;
      if (dladdr1(all[i], &info, reinterpret_cast<void**>(&owner), RTLD_DL_LINKMAP) != 0 &&
          owner == map)
        return;
    }
  }
  fail("'", path,
       "' is not a plugin library: it exports neither getCreators() nor "
       "getPluginCreators(), and registers no creator by REGISTER_TENSORRT_PLUGIN when it is "
       "opened");
}

IPluginRegistry::PluginLibraryHandle PluginRegistry::load_library(const std::string& path) {
  Loading loading;
  Loading* const outer = std::exchange(loading_, &loading);
  struct Restore {
    Loading* outer;
    ~Restore() { loading_ = outer; }
  } restore{outer};
  const RegistrationPassage passage;

  // A bare file name would be searched for in the system's folders rather than in the current one.
  const bool is_bare = path.find('/') == std::string::npos;
  const std::string file = is_bare ? "./" + path : path;
  if (std::filesystem::is_regular_file(file)) {
    const std::string fault = shared_object_fault(map_file(file));
    require(fault.empty(), "plugin library '", path, "' cannot be opened: ", fault);
  }
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr && is_bare) handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    fail("plugin library '", path, "' cannot be opened: ", reason ? reason : "unknown reason");
  }
  {
    const std::lock_guard lock(mutex_);
    const auto known = libraries_.find(handle);
    if (known != libraries_.end()) {
      ++known->second.references;
      dlclose(handle);
      return handle;
    }
  }
  try {
    collect(loading, handle, path);
  } catch (...) {
    close(handle, loading.library);
    throw;
  }
  loading.library.references = 1;
  const std::lock_guard lock(mutex_);
  libraries_[handle] = std::move(loading.library);
  return handle;
}

void PluginRegistry::close(void* handle, const Library& library) noexcept {
  for (const auto& [registry, creator] : library.creators) registry->remove(creator);
  dlclose(handle);
}

IPluginRegistry::PluginLibraryHandle PluginRegistry::loadLibrary(
    AsciiChar const* pluginPath) noexcept {
  return guard(
      static_cast<void*>(nullptr), [&](ErrorCode code, const char* what) { report(code, what); },
      [&] {
        require(pluginPath != nullptr, "the path of a plugin library is null");
        return load_library(pluginPath);
      });
}

void PluginRegistry::deregisterLibrary(PluginLibraryHandle handle) noexcept {
  Library library;
  bool is_known = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = libraries_.find(handle);
    if (found != libraries_.end()) {
      if (--found->second.references > 0) return;
      is_known = true;
      library = std::move(found->second);
      libraries_.erase(found);
    }
  }
  if (is_known)
    close(handle, library);
  else
    report(ErrorCode::kINVALID_ARGUMENT,
           "deregisterLibrary() was given a handle that loadLibrary() of this registry did not "
           "return");
}

// Resources

IPluginResource* PluginRegistry::acquirePluginResource(AsciiChar const* key,
                                                       IPluginResource* resource) noexcept {
  return guard(
      static_cast<IPluginResource*>(nullptr),
      [&](ErrorCode code, const char* what) {
        report(code, str("Acquiring a plugin resource failed: ", what));
      },
      [&]() -> IPluginResource* {
        require(key != nullptr, "the key is null");
        const auto existing = [&]() -> IPluginResource* {
          const auto found = resources_.find(key);
          if (found == resources_.end()) return nullptr;
          ++found->second.references;
          return found->second.object;
        };
        {
          const std::lock_guard lock(mutex_);
          if (IPluginResource* shared = existing()) return shared;
        }
        require(resource != nullptr, "there is none under the key '", key,
                "' yet, and the resource is null");
        IPluginResource* clone = resource->clone();
        rethrow_pending_exception();
        require(clone != nullptr, "clone() of the resource for '", key, "' returned null");
        IPluginResource* shared = nullptr;
        {
          const std::lock_guard lock(mutex_);
          shared = existing();
          if (shared == nullptr) resources_[key] = {clone, 1};
        }
        if (shared == nullptr) return clone;
        clone->release();
        delete clone;
        return shared;
      });
}

int32_t PluginRegistry::releasePluginResource(AsciiChar const* key) noexcept {
  return guard(
      -1,
      [&](ErrorCode code, const char* what) {
        report(code, str("Releasing a plugin resource failed: ", what));
      },
      [&] {
        require(key != nullptr, "the key is null");
        IPluginResource* last = nullptr;
        {
          const std::lock_guard lock(mutex_);
          const auto found = resources_.find(key);
          require(found != resources_.end(), "there is none under the key '", key, "'");
          if (--found->second.references == 0) {
            last = found->second.object;
            resources_.erase(found);
          }
        }
        int32_t status = 0;
        if (last != nullptr) {
          status = last->release();
          delete last;
          rethrow_pending_exception();
        }
        return status;
      });
}

}  // namespace opwright

opwright::IPluginRegistry* getPluginRegistry() noexcept {
  return &opwright::PluginRegistry::global();
}

opwright::IPluginRegistry* getBuilderPluginRegistry(
    opwright::EngineCapability capability) noexcept {
  return capability == opwright::EngineCapability::kSTANDARD ? getPluginRegistry() : nullptr;
}

bool initLibNvInferPlugins(void*, char const*) noexcept {
  // The plugins that TensorRT brings are layers here, so there is nothing to register.
  return true;
}

opwright::ILogger* getLogger() noexcept {
  static const opwright::Log log;
  return log.logger();
}
