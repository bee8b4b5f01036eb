#include "plugin/kernel/host_code.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <list>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/library.h"
#include "base/per_process.h"
#include "plugin/registry/shared_object.h"

namespace opwright {

namespace {

/// The processor's features, as Linux names them.
const std::set<std::string>& host_features() {
  static const std::set<std::string> features = [] {
    std::set<std::string> found;
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
      const size_t colon = line.find(':');
      if (colon == std::string::npos ||
          (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0))
        continue;
      std::istringstream words(line.substr(colon + 1));
      for (std::string word; words >> word;) found.insert(word);
      break;
    }
    return found;
  }();
  return features;
}

/// The features of the x86-64 microarchitecture levels (System V ABI, AMD64 supplement), as Linux
/// names them.
const std::vector<std::string>* level_features(std::string_view target) {
  static const std::vector<std::string> v2 = {"cx16",   "lahf_lm", "popcnt",
                                              "sse4_1", "sse4_2",  "ssse3"};
  static const std::vector<std::string> v3 = [] {
    std::vector<std::string> all = v2;
    for (const char* f : {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
      all.emplace_back(f);
    return all;
  }();
  static const std::vector<std::string> v4 = [] {
    std::vector<std::string> all = v3;
    for (const char* f : {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})
      all.emplace_back(f);
    return all;
  }();
  if (target == "x86-64-v2") return &v2;
  if (target == "x86-64-v3") return &v3;
  if (target == "x86-64-v4") return &v4;
  return nullptr;
}

/// Linux's name of a feature. Compilers name some features differently.
std::string as_linux_names_it(std::string feature) {
  std::replace(feature.begin(), feature.end(), '.', '_');
  if (feature == "bmi") return "bmi1";
  if (feature == "lzcnt") return "abm";
  if (feature == "neon") return "asimd";
  return feature;
}

void check_target(const CodeObject& object, std::string_view what) {
  std::istringstream words(object.target);
  std::string architecture;
  words >> architecture;
  std::vector<std::string> wanted;
  const std::vector<std::string>* level = level_features(architecture);
  if (level != nullptr) {
    architecture = "x86-64";
    wanted = *level;
  }
  require(architecture == host_architecture(), what, " '", object.name, "' is for '", object.target,
          "', but this host is ", host_architecture());
  for (std::string word; words >> word;) wanted.push_back(as_linux_names_it(std::move(word)));
  require(
      wanted.empty() || !host_features().empty(), what, " '", object.name, "' is for '",
      object.target,
      "', but what this processor can do is not known: /proc/cpuinfo cannot be read; mount /proc");
  std::string missing;
  for (const std::string& feature : wanted)
    if (host_features().count(feature) == 0) missing += (missing.empty() ? "" : ", ") + feature;
  require(missing.empty(), what, " '", object.name, "' is for '", object.target,
          "', but this processor lacks ", missing,
          "; build the engine on this machine or for a lesser target");
}

void check_elf(const CodeObject& object, std::string_view what) {
  const std::string fault = shared_object_fault(object.bytes);
  require(fault.empty(), what, " '", object.name, "' (", object.bytes.size(),
          " bytes) is not a shared object for this host: ", fault);
}

void write_all(int descriptor, const Blob& bytes, const std::string& what) {
  const char* data = bytes.as<char>();
  size_t left = bytes.size();
  while (left > 0) {
    const ssize_t written = retry([&] { return write(descriptor, data, left); });
    require(written > 0, what, " could not be copied into memory: ", std::strerror(errno));
    data += written;
    left -= static_cast<size_t>(written);
  }
}

}  // namespace

std::string_view host_architecture() {
#if defined(__x86_64__)
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#endif
}

void check_host_code(const CodeObject& object, std::string_view what) {
  check_target(object, what);
  check_elf(object, what);
}

HostCode::HostCode(const CodeObject& object, std::string_view what)
    : name_(str(what, " '", object.name, "'")) {
  check_host_code(object, what);
  descriptor_ = memfd_create("opwright-kernel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  require(descriptor_ >= 0, name_, " cannot be loaded: memfd_create: ", std::strerror(errno));
  try {
    write_all(descriptor_, object.bytes, name_);
    require(fcntl(descriptor_, F_ADD_SEALS,
                  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0,
            name_, " cannot be sealed in memory: ", std::strerror(errno));
    path_ = str("/proc/self/fd/", descriptor_);
    RegistrationCapture capture;
    handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
      const char* reason = dlerror();
      fail(name_, " cannot be loaded: ", reason ? reason : "unknown reason");
    }
    registrations_ = std::move(capture.creators);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

HostCode::~HostCode() {
  dlclose(handle_);
  // The dynamic linker knows libraries by their path, which has the descriptor's number. A library
  // may stay resident, for example if it has unique symbols. It would be found in place of the next
  // library with this number, so the number is not given back then.
  if (void* resident = dlopen(path_.c_str(), RTLD_LAZY | RTLD_NOLOAD))
    dlclose(resident);
  else
    close(descriptor_);
}

namespace {

/// Code that is loaded or being loaded.
struct LoadedCodes {
  struct Loaded {
    uint64_t hash;
    Blob bytes;
    std::weak_ptr<const HostCode> code{};
    bool is_loading = true;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Loaded> loaded;
};
/// A forked child loads code again, because loading by the parent's threads never ends in the
/// child.
struct CodesOfProcess : PerProcess<LoadedCodes> {
  CodesOfProcess() : PerProcess([] { return std::make_unique<LoadedCodes>(); }) {}
};

}  // namespace

std::shared_ptr<const HostCode> HostCode::load(const CodeObject& object, std::string_view what) {
  LoadedCodes& codes = Library::part<CodesOfProcess>().get();
  std::list<LoadedCodes::Loaded>& loaded = codes.loaded;
  // Greater than 0 within the constructors of a library, which the dynamic linker runs under a lock
  // of its own. Waiting there for another thread's loading could be a deadlock.
  static thread_local int nesting = 0;

  const uint64_t hash = hash_bytes(object.bytes.bytes());
  std::unique_lock lock(codes.mutex);
  const auto find = [&] {
    std::erase_if(loaded, [](const LoadedCodes::Loaded& each) {
      return !each.is_loading && each.code.expired();
    });
    return std::ranges::find_if(loaded, [&](const LoadedCodes::Loaded& each) {
      return each.hash == hash && each.bytes == object.bytes;
    });
  };
  auto entry = find();
  // Waits so that two threads do not load the same bytes twice.
  while (entry != loaded.end() && entry->is_loading && nesting == 0) {
    codes.changed.wait(lock);
    entry = find();
  }
  if (entry != loaded.end()) {
    if (auto code = entry->code.lock()) {
      lock.unlock();
      check_host_code(object, what);
      return code;
    }
  }
  const auto own = loaded.insert(loaded.end(), {hash, object.bytes});
  // Constructors may load other code, so no lock is held while they run.
  lock.unlock();
  std::shared_ptr<const HostCode> code;
  ++nesting;
  try {
    code.reset(new HostCode(object, what));
  } catch (...) {
    --nesting;
    lock.lock();
    loaded.erase(own);
    codes.changed.notify_all();
    throw;
  }
  --nesting;
  lock.lock();
  own->code = code;
  own->is_loading = false;
  codes.changed.notify_all();
  return code;
}

void* HostCode::symbol(const std::string& name) const {
  void* address = find_symbol(name);
  require(address != nullptr, name_, " exports no symbol '", name, "'");
  return address;
}

void* HostCode::find_symbol(const std::string& name) const { return dlsym(handle_, name.c_str()); }

}  // namespace opwright
