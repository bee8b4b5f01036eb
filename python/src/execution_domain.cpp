#include "execution_domain.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "backend/device.h"
#include "plugin_bindings.h"

namespace opwright::python {
namespace {

/// Functions that get and set a library's current stream; see opwright._streams.
struct StreamSwitch {
  Reference current, enter, leave;
};
/// Number of libraries that opwright._streams knows.
constexpr size_t kMaxSwitches = 3;

struct Run {
  PyGILState_STATE state;
  RunPlace place;
  /// Argument of each switch's `leave`; invalid if the stream was already current.
  std::array<nb::object, kMaxSwitches> former{};
};

/// A plugin may run another engine, so runs nest.
std::vector<Run>& runs() {
  thread_local std::vector<Run> runs;
  return runs;
}

class InterpreterDomain final : public ExecutionDomain {
 public:
  void enter(Queue) override { runs().push_back({PyGILState_Ensure(), {}}); }
  void leave() noexcept override {
    const PyGILState_STATE state = runs().back().state;
    runs().pop_back();
    PyGILState_Release(state);
  }
};

class StreamDomain final : public ExecutionDomain {
 public:
  explicit StreamDomain(const Device& device) : device_(device) {}

  void enter(Queue queue) override {
    runs().push_back({PyGILState_Ensure(), {&device_, queue}});
    try {
      if (num_modules() != num_modules_) [[unlikely]]
        find_switches();
      for (size_t i = 0; i < count_; ++i) enter(i, queue);
    } catch (...) {
      leave();
      throw;
    }
  }

  void leave() noexcept override {
    for (size_t i = count_; i-- > 0;) {
      nb::object former = std::move(runs().back().former[i]);
      if (former.is_valid()) leave(i, former);
    }
    if (num_modules() != num_modules_) [[unlikely]]
      wait_for_new_libraries();
    const PyGILState_STATE state = runs().back().state;
    runs().pop_back();
    PyGILState_Release(state);
  }

 private:
  static Py_ssize_t num_modules() { return PyDict_Size(PyImport_GetModuleDict()); }

  void enter(size_t i, Queue queue) {
    const StreamSwitch& library = switches_[i];
    const nb::object current = nb::steal(PyObject_CallNoArgs(library.current.get().ptr()));
    if (!current.is_valid()) throw nb::python_error();
    if (nb::cast<uintptr_t>(current) == reinterpret_cast<uintptr_t>(queue)) return;
    nb::object former = library.enter.get()(reinterpret_cast<uintptr_t>(queue));
    runs().back().former[i] = std::move(former);
  }

  void leave(size_t i, nb::handle former) noexcept {
    try {
      switches_[i].leave.get()(former);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable(switches_[i].leave.get());
    }
  }

  /// Adds the libraries that were imported since the last call. Returns whether there were any.
  bool find_switches() {
    const Py_ssize_t modules = num_modules();
    const nb::object found =
        nb::module_::import_("opwright._streams").attr("find_switches")(device_.ordinal());
    const size_t before = count_;
    for (; count_ < std::min(nb::len(found), kMaxSwitches); ++count_) {
      const nb::object library = found[count_];
      switches_[count_] = {Reference(library.attr("current")), Reference(library.attr("enter")),
                           Reference(library.attr("leave"))};
    }
    num_modules_ = modules;  // modules that this search imported are examined the next time
    return count_ > before;
  }

  /// Waits for the device if a callback imported a library, whose work is on its default stream.
  void wait_for_new_libraries() noexcept {
    try {
      if (find_switches()) device_.synchronize(nullptr);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("opwright._streams.find_switches");
    } catch (const std::exception&) {
      // A failure on the device is reported by the code that waits for the engine's stream.
    }
  }

  const Device& device_;
  std::array<StreamSwitch, kMaxSwitches> switches_;
  size_t count_ = 0;
  Py_ssize_t num_modules_ = -1;
};

}  // namespace

ExecutionDomain* interpreter_domain(const Device* device) {
  // Never destroyed: kernels may run until the end.
  static auto* host = new InterpreterDomain;
  if (device == nullptr || device->is_host()) return host;
  static auto* mutex = new std::mutex;
  static auto* domains = new std::map<const Device*, StreamDomain*>;
  const std::lock_guard lock(*mutex);
  StreamDomain*& domain = (*domains)[device];
  if (domain == nullptr) domain = new StreamDomain(*device);
  return domain;
}

RunPlace current_place() { return runs().empty() ? RunPlace() : runs().back().place; }

}  // namespace opwright::python
