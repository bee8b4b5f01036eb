#include "tensorrt/abi/received.h"

#include <map>
#include <memory>
#include <mutex>

#include "base/cast.h"
#include "tensorrt/abi/own.h"

namespace opwright::tensorrt {
namespace {

/// The function in a slot of the virtual table of a client's object.
template <class Function>
Function* slot_of(void* object, size_t slot) {
  return reinterpret_cast<Function*>((*static_cast<void***>(object))[slot]);
}

/// Before TensorRT 11 the table begins with log(); since then with the version's two methods and
/// the destructor's two slots. Opwright has the first.
struct LoggerAdapter final : ILogger {
  static constexpr int kMajor = 11;
  static constexpr size_t kLogSlot = 4;
  explicit LoggerAdapter(void* object) : theirs(object) {}
  void log(Severity severity, AsciiChar const* text) noexcept override {
    slot_of<void(void*, Severity, AsciiChar const*)>(theirs, kLogSlot)(theirs, severity, text);
  }
  void* theirs;
};

/// Here Opwright has TensorRT 11's table.
struct ProfilerAdapter final : IProfiler {
  static constexpr int kMajor = 10;
  static constexpr size_t kReportSlot = 0;
  explicit ProfilerAdapter(void* object) : theirs(object) {}
  void reportLayerTime(char const* layer, float ms) noexcept override {
    slot_of<void(void*, char const*, float)>(theirs, kReportSlot)(theirs, layer, ms);
  }
  void* theirs;
};

template <class T>
struct AdapterOf;
template <>
struct AdapterOf<ILogger> {
  using Type = LoggerAdapter;
};
template <>
struct AdapterOf<IProfiler> {
  using Type = ProfilerAdapter;
};

template <class Type>
struct Adapters {
  static Adapters& all() {
    static auto* const kept = new Adapters;
    return *kept;
  }
  std::mutex mutex;
  std::map<void*, Type> by_object;
};

/// Opwright's own logger as a client of TensorRT 11 knows it.
class LoggerFace final : public IVersionedInterface {
 public:
  explicit LoggerFace(ILogger* ours) : ours_(ours) {}
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"ILogger", 1, 0}; }
  virtual void log(ILogger::Severity severity, AsciiChar const* text) noexcept {
    ours_->log(severity, text);
  }

 private:
  ILogger* ours_;
};

void* face_of(ILogger* ours) {
  struct Faces {
    std::mutex mutex;
    std::map<ILogger*, LoggerFace> by_logger;
  };
  static auto* const faces = new Faces;
  const std::lock_guard lock(faces->mutex);
  return &faces->by_logger.try_emplace(ours, ours).first->second;
}
void* face_of(IProfiler* ours) { return ours; }  // its client's own, so this is never asked

class LoggerFinder final : public ILoggerFinder {
 public:
  ILogger* findLogger() override { return OPWRIGHT_OWN(getLogger)(); }
};

/// The finder as a client of TensorRT 11 knows it.
class LoggerFinder11 final : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"ILoggerFinder", 1, 0}; }
  virtual void* findLogger() { return Adapter<ILogger>::original(OPWRIGHT_OWN(getLogger)(), 11); }
};

}  // namespace

template <Received T>
T* Adapter<T>::adapt(void* theirs, int major) {
  using Type = typename AdapterOf<T>::Type;
  if (theirs == nullptr || major != Type::kMajor) return static_cast<T*>(theirs);
  auto& adapters = Adapters<Type>::all();
  const std::lock_guard lock(adapters.mutex);
  return &adapters.by_object.try_emplace(theirs, theirs).first->second;
}

template <Received T>
void* Adapter<T>::original(T* ours, int major) {
  using Type = typename AdapterOf<T>::Type;
  if (ours == nullptr) return nullptr;
  auto* const adapter = cast_to<Type>(ours);
  if (major != Type::kMajor) return ours;
  return adapter == nullptr ? face_of(ours) : adapter->theirs;
}

void* logger_finder(int major) {
  static LoggerFinder finder_10;
  static LoggerFinder11 finder_11;
  return major == 10 ? static_cast<void*>(&finder_10) : &finder_11;
}

template struct Adapter<ILogger>;
template struct Adapter<IProfiler>;

}  // namespace opwright::tensorrt
