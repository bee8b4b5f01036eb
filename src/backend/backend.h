#pragma once

#include <algorithm>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/code_format.h"
#include "backend/device.h"
#include "backend/library_handles.h"

namespace opwright {

struct CommunicatorUse;
class DeviceCommunicator;
class HostCommunicator;

/// Tactics that a backend's kernel has for one kind of operator, whatever the ports are.
struct KernelTactics {
  std::string kind;
  /// Candidate::tactic_name of all tactics, "in parts" standing for each number of parts. Empty:
  /// the kernel has one tactic, whose name does not matter.
  std::vector<std::string> names;
};

/// Tactics of each kind of operator in a backend's table. A null `tactics` of an entry means one
/// tactic.
template <class Table>
std::vector<KernelTactics> tactics_of(const Table& table) {
  std::vector<KernelTactics> all;
  for (const auto& [kind, entry] : table)
    all.push_back({std::string(kind),
                   entry.tactics == nullptr ? std::vector<std::string>() : entry.tactics()});
  std::ranges::sort(all, {}, &KernelTactics::kind);
  return all;
}

/// Devices of one kind. Also answers what is known without a device.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Name of the backend for users and plans, of lower-case letters, digits and '_': "cpu", "cuda".
  virtual std::string_view name() const = 0;
  virtual DeviceType type() const = 0;
  /// Why no device can be used: no driver, a driver that is too old, no device. Empty: a device can
  /// be used.
  virtual std::string obstacle() const { return {}; }
  virtual int device_count() const { return 1; }
  /// Device number `ordinal` of device_count(). -1: the device that the calling thread has chosen
  /// by the backend's own means, else the first.
  virtual const Device& device(int ordinal) const = 0;
  /// Format of the backend's device code. Works without a device, too.
  virtual const CodeFormat& code_format() const;
  /// Library handles that plugins on the device may get. Null where the backend has no such
  /// libraries.
  virtual std::unique_ptr<const LibraryHandles> make_library_handles(const Device&) const {
    return nullptr;
  }
  /// Tactics of each kind of operator that has a kernel, sorted by kind. Tests have to run all of
  /// them.
  virtual std::vector<KernelTactics> kernel_tactics() const { return {}; }
  /// Throws Error where work with a communicator of the backend's library of collectives has failed
  /// since it was made.
  virtual void check_communicator(void* communicator) const { (void)communicator; }
  /// The same communicator for calls of the library itself. Throws Error as check_communicator()
  /// does, and where the backend has no such library.
  virtual CommunicatorUse use_communicator(void* communicator) const;
  /// Throws Error where the backend's library of collectives cannot be used, with what to install.
  virtual void check_collectives() const {}
  /// This rank's communicator of the library of collectives, made together with the other ranks of
  /// the host, which it uses for its whole life. Null where the backend has no such library.
  virtual std::unique_ptr<DeviceCommunicator> make_communicator(const Device& device,
                                                                HostCommunicator& host) const;
};

/// Makes a backend known. It must outlive the process's use of it. Throws Error where its name is
/// taken.
void register_backend(const Backend& backend);
/// Name and type of the function that a backend's library exports. The library is
/// libopwright_NAME.so beside this one, loaded when its backend is first asked for. The function
/// never returns null.
constexpr char kBackendEntry[] = "opwright_backend";
using BackendEntry = const Backend* (*)();

/// The backend of that name, or null.
const Backend* find_backend(std::string_view name);
/// The backend of that name. Where its library cannot be loaded, that is the backend's obstacle.
/// Throws Error that lists the names where there is no such backend.
const Backend& get_backend(std::string_view name);
/// The first registered backend of that type that can be used; the first one where none can be
/// used. Where the type has several backends, that of OPWRIGHT_DEVICE comes first. Throws Error for
/// a type that no backend has.
DeviceId device_of(DeviceType type);
/// The type of the backend, which needs no usable device. Throws Error as get_backend() does.
DeviceType type_of(const DeviceId& id);
/// CodeFormat::describe() of the first backend that knows the code; empty where none does.
std::string describe_code(const CodeObject& object);
/// "CPU", "GPU" or "DLA".
std::string_view name(DeviceType type);

/// Reads "cpu", "cuda" or "cuda:1"; the CPU has no number but 0. Throws Error that begins with
/// `what` for text that names no device.
DeviceId parse_device(std::string_view text, std::string_view what);
std::ostream& operator<<(std::ostream& out, const DeviceId& id);

/// The device of `id`. Where `id` has no number, OPWRIGHT_DEVICE=cuda:1 gives it, else the backend
/// chooses. Throws Error naming what is missing when the device cannot be used. Owned by the
/// library.
const Device& get_device(const DeviceId& id);
const Device& get_device(DeviceType type, int ordinal = -1);
/// The backend of OPWRIGHT_DEVICE=cpu|cuda|cuda:1 where that is set; get_device() adds its number.
/// Else the GPU where one is usable, else the CPU.
DeviceId default_device();
/// Whether the user chose default_device() with OPWRIGHT_DEVICE.
bool is_default_device_chosen();

}  // namespace opwright
