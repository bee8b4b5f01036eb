#include "tensorrt/abi/facade.h"

#include <algorithm>
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
  const std::lock_guard lock(faces().mutex);
  Facade*& face = faces().all[{object, beside.major_}];
  if (face == nullptr) {
    face = make(object, kind, beside.major_);
    if (kind.destroy == nullptr) {
      face->owner_ = beside.owner_ == nullptr ? &beside : beside.owner_;
      face->owner_->belongings_.push_back(face);
    }
  }
  return face;
}

Facade* Facade::owned(void* object, const Kind& kind, int major) {
  const std::lock_guard lock(faces().mutex);
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
    if (face->owner_ != nullptr) std::erase(face->owner_->belongings_, face);
  }
  delete face;
}

Facade::~Facade() {
  for (Facade* const face : belongings_) delete face;
  {
    const std::lock_guard lock(faces().mutex);
    faces().all.erase({object(), major_});
  }
  if (destroy_ != nullptr) destroy_(object());
}

}  // namespace opwright::tensorrt
