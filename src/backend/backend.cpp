#include "backend/backend.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <ostream>
#include <utility>
#include <vector>

#include "backend/communicator.h"
#include "base/error.h"
#include "base/library.h"
#include "base/library_folder.h"
#include "base/printable.h"

namespace opwright {
namespace {

/// Backends that have a library of their own.
constexpr std::pair<std::string_view, DeviceType> kLibraries[] = {{"cuda", DeviceType::kGPU}};

/// Stands for a backend whose library cannot be loaded.
class AbsentBackend final : public Backend {
 public:
  AbsentBackend(std::string_view name, DeviceType type, std::string obstacle)
      : name_(name), type_(type), obstacle_(std::move(obstacle)) {}
  std::string_view name() const override { return name_; }
  DeviceType type() const override { return type_; }
  std::string obstacle() const override { return obstacle_; }
  int device_count() const override { return 0; }
  const Device& device(int) const override { fail_with(ErrorCode::kUNSUPPORTED_STATE, obstacle_); }

 private:
  const std::string_view name_;
  const DeviceType type_;
  const std::string obstacle_;
};

const Backend* load_backend(std::string_view name, DeviceType type) {
  const auto path = library_folder() / str("libopwright_", name, ".so");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return new AbsentBackend(
        name, type, str("this build of Opwright has no backend '", name, "' (", dlerror(), ")"));
  const auto entry = reinterpret_cast<BackendEntry>(dlsym(library, kBackendEntry));
  if (entry == nullptr)
    return new AbsentBackend(name, type, str(path.string(), " is not of this version of Opwright"));
  return entry();
}

std::string joined(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view each : names) text += str(text.empty() ? "" : ", ", each);
  return text;
}

/// A registered backend. Its library may be not loaded yet.
class KnownBackend {
 public:
  KnownBackend(std::string_view name, DeviceType type) : name_(name), type_(type) {}
  explicit KnownBackend(const Backend& backend)
      : name_(backend.name()), type_(backend.type()), backend_(&backend) {}
  std::string_view name() const { return name_; }
  DeviceType type() const { return type_; }
  const Backend& get(LibraryLock& loading) {
    if (const Backend* backend = backend_.load(std::memory_order_acquire)) return *backend;
    const std::lock_guard lock(loading);
    if (backend_.load(std::memory_order_acquire) == nullptr)
      backend_.store(load_backend(name_, type_), std::memory_order_release);
    return *backend_;
  }

 private:
  const std::string_view name_;
  const DeviceType type_;
  std::atomic<const Backend*> backend_ = nullptr;
};

class Backends {
 public:
  Backends() {
    for (const auto& [name, type] : kLibraries)
      known_.push_back(std::make_unique<KnownBackend>(name, type));
  }
  static Backends& all() { return Library::part<Backends>(); }
  const Backend& get(KnownBackend& known) { return known.get(loading_); }

  void add(const Backend& backend) {
    const std::lock_guard lock(mutex_);
    for (const auto& each : known_)
      require(each->name() != backend.name(), "there is a backend '", backend.name(), "' already");
    known_.push_back(std::make_unique<KnownBackend>(backend));
  }
  KnownBackend* find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    for (const auto& each : known_)
      if (each->name() == name) return each.get();
    return nullptr;
  }
  KnownBackend& get(std::string_view name) const {
    KnownBackend* const found = find(name);
    require(found != nullptr, "there is no backend '", printable(name), "'; there are ",
            joined(names()));
    return *found;
  }
  /// Backends of that type, in the order of their registration.
  std::vector<KnownBackend*> of(DeviceType type) const {
    std::vector<KnownBackend*> found;
    const std::lock_guard lock(mutex_);
    for (const auto& each : known_)
      if (each->type() == type) found.push_back(each.get());
    return found;
  }
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> names;
    const std::lock_guard lock(mutex_);
    for (const auto& each : known_) names.push_back(each->name());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  LibraryLock loading_{LockOrder::kBackendLoading};
  mutable LibraryLock mutex_;
  std::vector<std::unique_ptr<KnownBackend>> known_;
};

DeviceId chosen_device() {
  return parse_device(std::getenv("OPWRIGHT_DEVICE"), "the environment variable OPWRIGHT_DEVICE");
}

}  // namespace

const CodeFormat& Backend::code_format() const {
  static const CodeFormat opaque;
  return opaque;
}

CommunicatorUse Backend::use_communicator(void*) const {
  fail_with(ErrorCode::kUNSUPPORTED_STATE, "backend '", name(), "' has no library of collectives");
}

std::unique_ptr<DeviceCommunicator> Backend::make_communicator(const Device&,
                                                               HostCommunicator&) const {
  return nullptr;
}

void register_backend(const Backend& backend) { Backends::all().add(backend); }

const Backend* find_backend(std::string_view name) {
  KnownBackend* const found = Backends::all().find(name);
  return found == nullptr ? nullptr : &Backends::all().get(*found);
}

std::string describe_code(const CodeObject& object) {
  for (const std::string_view name : Backends::all().names())
    if (std::string text = find_backend(name)->code_format().describe(object); !text.empty())
      return text;
  return {};
}

const Backend& get_backend(std::string_view name) {
  return Backends::all().get(Backends::all().get(name));
}

DeviceId device_of(DeviceType type) {
  const std::vector<KnownBackend*> found = Backends::all().of(type);
  require(!found.empty(), "there is no backend for device type ", static_cast<int>(type),
          type == DeviceType::kDLA ? ", as no DLA is driven" : "", "; the CPU is ",
          static_cast<int>(DeviceType::kCPU), " and the GPU ", static_cast<int>(DeviceType::kGPU));
  if (found.size() > 1 && is_default_device_chosen())
    if (DeviceId chosen = chosen_device(); type_of(chosen) == type) return {chosen.backend};
  const auto usable = std::find_if(found.begin(), found.end(), [](KnownBackend* each) {
    return Backends::all().get(*each).obstacle().empty();
  });
  return {std::string((usable != found.end() ? *usable : found.front())->name())};
}

DeviceType type_of(const DeviceId& id) { return Backends::all().get(id.backend).type(); }

std::string_view name(DeviceType type) {
  return type == DeviceType::kCPU ? "CPU" : type == DeviceType::kGPU ? "GPU" : "DLA";
}

DeviceId parse_device(std::string_view text, std::string_view what) {
  const size_t colon = std::min(text.find(':'), text.size());
  DeviceId id{std::string(text.substr(0, colon))};
  const char* const end = text.data() + text.size();
  bool is_right = Backends::all().find(id.backend) != nullptr;
  if (colon < text.size()) {
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, id.ordinal);
    is_right = is_right && error == std::errc() && rest == end && id.ordinal >= 0;
  }
  if (is_right && type_of(id) == DeviceType::kCPU) {  // the CPU backend has one device
    is_right = id.ordinal <= 0;
    id.ordinal = -1;
  }
  if (is_right) return id;
  const std::vector<std::string_view> names = Backends::all().names();
  fail(what, " is '", printable(text), "'; expected ", joined(names), " or ", names.back(),
       ":1 (with the number of one of several devices)");
}

std::ostream& operator<<(std::ostream& out, const DeviceId& id) {
  out << id.backend;
  return id.ordinal < 0 ? out : out << ':' << id.ordinal;
}

const Device& get_device(const DeviceId& id) {
  const Backend& backend = get_backend(id.backend);
  const std::string_view type = name(backend.type());
  if (const std::string obstacle = backend.obstacle(); !obstacle.empty())
    fail_with(ErrorCode::kUNSUPPORTED_STATE, "the ", type, " was asked for, but ", obstacle,
              "; or use the CPU (device=\"cpu\" in Python, DeviceType::kCPU, OPWRIGHT_DEVICE=cpu)");
  if (backend.type() == DeviceType::kCPU) return backend.device(-1);
  int ordinal = id.ordinal;
  std::string who = str(type, ' ', ordinal, " was asked for");
  if (ordinal < 0 && is_default_device_chosen())
    if (const DeviceId chosen = chosen_device(); chosen.backend == id.backend) {
      ordinal = chosen.ordinal;
      who = str("OPWRIGHT_DEVICE is ", chosen);
    }
  const int count = ordinal < 0 ? 0 : backend.device_count();
  require(ordinal < 0 || ordinal < count, who, ", and there ",
          count == 1 ? "is 1" : str("are ", count), ", numbered from 0");
  return backend.device(ordinal);
}

const Device& get_device(DeviceType type, int ordinal) {
  DeviceId id = device_of(type);
  if (ordinal >= 0) id.ordinal = ordinal;
  return get_device(id);
}

DeviceId default_device() {
  if (is_default_device_chosen()) return {chosen_device().backend};
  const DeviceId gpu = device_of(DeviceType::kGPU);
  return get_backend(gpu.backend).obstacle().empty() ? gpu : device_of(DeviceType::kCPU);
}

bool is_default_device_chosen() {
  const char* wanted = std::getenv("OPWRIGHT_DEVICE");
  return wanted != nullptr && *wanted != '\0';
}

}  // namespace opwright
