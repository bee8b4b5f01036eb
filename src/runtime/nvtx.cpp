#include "runtime/nvtx.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace opwright::nvtx {
namespace {

// The interface between a tool and a program, as in nvtx3/nvtxDetail/nvtxTypes.h of NVIDIA's NVTX
// 3. The program passes the tool's InitializeInjectionNvtx2 a function that returns tables by their
// numbers. One table leads to pointers to functions, which the tool sets to its own functions.

using Function = void (*)();
constexpr uint32_t kCallbacks = 1, kVersionInfo = 3;  // numbers of tables
constexpr int kCore2 = 5;                             // number of a module: ranges in domains
constexpr size_t kRangePush = 4, kRangePop = 5, kDomainCreate = 12, kFunctions = 16;  // its entries
constexpr uint16_t kVersion = 3;
constexpr int32_t kAscii = 1;

struct EventAttributes {
  uint16_t version = kVersion, size = sizeof(EventAttributes);
  uint32_t category = 0;
  int32_t color_type = 0;
  uint32_t color = 0;
  int32_t payload_type = 0, reserved = 0;
  uint64_t payload = 0;
  int32_t message_type = kAscii;
  const char* message = nullptr;
};

struct Callbacks {
  size_t bytes;
  int (*functions_of)(int module, Function*** table, unsigned* count);
};
struct VersionInfo {
  size_t bytes;
  uint32_t version, reserved;
  void (*set_version_of_tool)(uint32_t version);
};

std::array<Function, kFunctions> functions{};

int functions_of(int module, Function*** table, unsigned* count) {
  static std::array<Function*, kFunctions> pointers = [] {
    std::array<Function*, kFunctions> made{};
    for (size_t i = 0; i < kFunctions; ++i) made[i] = &functions[i];
    return made;
  }();
  if (module != kCore2) return 0;
  *table = pointers.data();
  if (count != nullptr) *count = kFunctions;
  return 1;
}

const void* table_of(uint32_t number) {
  static constexpr Callbacks kOfFunctions{sizeof(Callbacks), functions_of};
  static constexpr VersionInfo kOfVersion{sizeof(VersionInfo), kVersion, 0, [](uint32_t) {}};
  if (number == kCallbacks) return &kOfFunctions;
  return number == kVersionInfo ? static_cast<const void*>(&kOfVersion) : nullptr;
}

template <class Type>
Type function(size_t number) {
  return reinterpret_cast<Type>(functions[number]);
}

/// The tool's handle of the domain; null where there is no tool.
void* load() {
  const char* const path = std::getenv("NVTX_INJECTION64_PATH");
  if (path == nullptr) return nullptr;
  void* const tool = dlopen(path, RTLD_LAZY);  // never unloaded
  if (tool == nullptr) return nullptr;
  using Start = int (*)(const void* (*)(uint32_t));
  const auto start = reinterpret_cast<Start>(dlsym(tool, "InitializeInjectionNvtx2"));
  if (start == nullptr || start(table_of) == 0) return nullptr;
  const auto create = function<void* (*)(const char*)>(kDomainCreate);
  const bool is_whole =
      create != nullptr && functions[kRangePush] != nullptr && functions[kRangePop] != nullptr;
  return is_whole ? create("Opwright") : nullptr;
}

/// Loads the tool on first use. The handle is no part of Library, whose parts are made under a
/// lock.
void* domain() {
  static void* const made = load();
  return made;
}

}  // namespace

bool is_there() { return domain() != nullptr; }

void push(const std::string& name) {
  if (!is_there()) return;
  EventAttributes attributes;
  attributes.message = name.c_str();
  function<int (*)(void*, const EventAttributes*)>(kRangePush)(domain(), &attributes);
}

void pop() {
  if (is_there()) function<int (*)(void*)>(kRangePop)(domain());
}

}  // namespace opwright::nvtx
