#pragma once

#include <dlfcn.h>

#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "opwright/logger.h"

/// \file
/// A client of the binary interface of TensorRT 11: it does what a program does that was compiled
/// with NVIDIA's headers. It finds a method's slot by its name.

namespace opwright::client {

/// What a client holds: an object of a class with inline methods, or the implementation that these
/// call.
struct Object {
  void* const* table;
  Object* implementation;
};

/// TensorRT 11's logger, which says nothing.
class Logger final : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"ILogger", 1, 0}; }
  virtual void log(ILogger::Severity, AsciiChar const*) noexcept {}
};

/// A function of the library under the name of Opwright's for `libnvinfer.so.11` and others.
template <class Function>
Function* exported(const std::string& library, const char* name) {
  void* const handle = dlopen(("libopwright_" + library + "_11.so").c_str(), RTLD_LAZY);
  void* const found = handle == nullptr ? nullptr : dlsym(handle, name);
  if (found == nullptr) throw std::runtime_error("cannot find " + library + "'s " + name);
  return reinterpret_cast<Function*>(found);
}

using Slots = std::map<std::pair<std::string, std::string>, size_t>;

inline Slots described_slots() {
  std::istringstream lines(exported<char const*(int32_t)>("nvinfer", "opwrightTensorrtTables")(11));
  Slots slots;
  for (std::string line, table, number, method; std::getline(lines, line);) {
    std::istringstream parts(line);
    std::getline(std::getline(std::getline(parts, table, '\t'), number, '\t'), method, '\t');
    slots.try_emplace({table, method}, std::stoul(number));
  }
  return slots;
}

inline size_t slot_of(const std::string& table, const std::string& method) {
  static const Slots slots = described_slots();
  const auto found = slots.find({table, method});
  if (found == slots.end()) throw std::runtime_error("no " + table + "::" + method);
  return found->second;
}

template <class R, class... Args>
R call_slot(Object* implementation, size_t slot, Args... args) {
  return reinterpret_cast<R (*)(Object*, Args...)>(implementation->table[slot])(implementation,
                                                                                args...);
}

/// Calls a method of an object with inline methods. References are given as addresses.
template <class R, class... Args>
R call(Object* object, const std::string& table, const std::string& method, Args... args) {
  return call_slot<R>(object->implementation, slot_of(table, method), args...);
}

/// `delete object`.
inline void drop(Object* object) {
  if (object != nullptr) call_slot<void>(object, 1);
}

}  // namespace opwright::client
