#include "tensorrt/abi/facade.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "opwright/builder.h"
#include "tensorrt/abi/kinds.h"
#include "tensorrt/abi/slot.h"

namespace opwright::tensorrt {
namespace {

/// All faces, by object and version.
struct Faces {
  std::mutex mutex;
  std::map<std::pair<void*, int>, Facade*> all;
};

Faces& faces() {
  static auto* const kept = new Faces;  // faces may be deleted while the process ends
  return *kept;
}

/// Some faces that were asked for of late. Any thread finds them without a lock. Writers hold the
/// mutex of `Faces`.
class alignas(64) RecentFaces {
 public:
  /// Null if the object's face is not among them.
  Facade* find(void* object) const {
    const uint32_t before = changes_.load(std::memory_order_acquire);
    Facade* face = nullptr;
    for (const Entry& entry : entries_) {
      if (entry.object.load(std::memory_order_acquire) != object) continue;
      face = entry.face.load(std::memory_order_acquire);
      break;
    }
    // The number is odd while a writer is at work, and another one after that.
    return before % 2 == 0 && changes_.load(std::memory_order_relaxed) == before ? face : nullptr;
  }
  void add(void* object, Facade* face) { set(entries_[next_++ % entries_.size()], object, face); }
  void remove(void* object) {
    for (Entry& entry : entries_)
      if (entry.object.load(std::memory_order_relaxed) == object) set(entry, nullptr, nullptr);
  }

 private:
  struct Entry {
    std::atomic<void*> object{nullptr};
    std::atomic<Facade*> face{nullptr};
  };

  void set(Entry& entry, void* object, Facade* face) {
    const uint32_t before = changes_.load(std::memory_order_relaxed);
    changes_.store(before + 1, std::memory_order_relaxed);
    entry.object.store(object, std::memory_order_release);
    entry.face.store(face, std::memory_order_release);
    changes_.store(before + 2, std::memory_order_release);
  }

  std::atomic<uint32_t> changes_{0};
  uint32_t next_ = 0;
  std::array<Entry, 3> entries_{};
};

constexpr int kRecentBits = 12;
using Recent = std::array<RecentFaces, size_t{1} << kRecentBits>;
constinit Recent recent_10;
constinit Recent recent_11;

/// Where a version's face of the object is, if anywhere.
RecentFaces& recent(void* object, int major) {
  const uint64_t mixed = reinterpret_cast<uint64_t>(object) * 0x9E3779B97F4A7C15;
  return (major == 10 ? recent_10 : recent_11)[mixed >> (64 - kRecentBits)];
}

/// The client's class has a virtual method of its own, here and below.
class NetworkFacade final : public Facade {
 public:
  NetworkFacade(void* object, int major) : Facade(object, network_kind, major) {}
  virtual Facade* builder() noexcept {
    IBuilder& builder = static_cast<INetworkDefinition*>(object())->getBuilder();
    return Facade::of(&builder, builder_kind, *this);
  }
};

class ConfigFacade final : public Facade {
 public:
  ConfigFacade(void* object, int major) : Facade(object, config_kind, major) {}
  virtual void set_average(int32_t times) noexcept {
    static_cast<IBuilderConfig*>(object())->setAvgTimingIterations(times);
  }
};

}  // namespace

Facade::Facade(void* object, const Kind& kind, int major)
    : implementations_{}, parts_{}, destroy_(kind.destroy), major_(major) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (kind.tables[i] == nullptr) continue;
    parts_[i] = {kind.tables[i]->of(major), this, object};
    implementations_[i] = &parts_[i];
  }
}

Facade* Facade::make(void* object, const Kind& kind, int major) {
  if (&kind == &network_kind) return new NetworkFacade(object, major);
  if (&kind == &config_kind) return new ConfigFacade(object, major);
  return new Facade(object, kind, major);
}

Facade* Facade::of(void* object, const Kind& kind, Facade& beside) {
  if (Facade* const face = recent(object, beside.major_).find(object)) return face;
  return known_or_made(object, kind, beside);
}

Facade* Facade::known_or_made(void* object, const Kind& kind, Facade& beside) {
  const std::lock_guard lock(faces().mutex);
  Facade*& face = faces().all[{object, beside.major_}];
  if (face == nullptr) {
    face = make(object, kind, beside.major_);
    if (kind.destroy == nullptr) {
      face->owner_ = beside.owner_ == nullptr ? &beside : beside.owner_;
      face->owner_->belongings_.push_back(face);
    }
  }
  recent(object, beside.major_).add(object, face);
  return face;
}

Facade* Facade::owned(void* object, const Kind& kind, int major) {
  const std::lock_guard lock(faces().mutex);
  recent(object, major).remove(object);
  return faces().all[{object, major}] = make(object, kind, major);
}

void Facade::keep(Facade* given) {
  given_ = given;
  given_object_ = given->object();
}

Facade* Facade::kept() const {
  const std::lock_guard lock(faces().mutex);
  const auto found = faces().all.find({given_object_, major_});
  return found == faces().all.end() || found->second != given_ ? nullptr : given_;
}

void Facade::forget(void* object) {
  Facade* face = nullptr;
  {
    const std::lock_guard lock(faces().mutex);
    const auto found = faces().all.find({object, major_});
    if (found == faces().all.end()) return;
    face = found->second;
  }
  delete face;
}

Facade::~Facade() {
  for (Facade* const face : belongings_) {
    face->owner_ = nullptr;
    delete face;
  }
  {
    const std::lock_guard lock(faces().mutex);
    // NVIDIA's Python binding deletes a config's view of its timing cache.
    if (owner_ != nullptr) std::erase(owner_->belongings_, this);
    faces().all.erase({object(), major_});
    recent(object(), major_).remove(object());
  }
  if (destroy_ != nullptr) destroy_(object());
}

}  // namespace opwright::tensorrt
