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

/// The tactics that a backend's kernel of one kind of operator has, whatever the ports are.
struct KernelTactics {
  std::string kind;
  /// Candidate::tactic_name of all of them, "in parts" standing for each number of parts. Empty:
  /// one, whose name does not matter.
  std::vector<std::string> names;
};

/// Of a backend's table, whose entries have a function `tactics` or none, by kind.
template <class Table>
std::vector<KernelTactics> tactics_of(const Table& table) {
  std::vector<KernelTactics> all;
  for (const auto& [kind, entry] : table)
    all.push_back({std::string(kind),
                   entry.tactics == nullptr ? std::vector<std::string>() : entry.tactics()});
  std::ranges::sort(all, {}, &KernelTactics::kind);
  return all;
}

/// Devices of one kind, and what is known of them where there are none.
class Backend {
 public:
  virtual ~Backend() = default;
  /// What users and plans call it, of lower-case letters, digits and '_': "cpu", "cuda".
  virtual std::string_view name() const = 0;
  virtual DeviceType type() const = 0;
  /// Why no device can be used: no driver, one that is too old, no device. Empty: one can.
  virtual std::string obstacle() const { return {}; }
  virtual int device_count() const { return 1; }
  /// One of device_count(); -1: the one that the calling thread has chosen by the backend's own
  /// means, else the first.
  virtual const Device& device(int ordinal) const = 0;
  /// There, too, where no device is.
  virtual const CodeFormat& code_format() const;
  /// What plugins on the device may get; null where the backend has no such libraries.
  virtual std::unique_ptr<const LibraryHandles> make_library_handles(const Device&) const {
    return nullptr;
  }
  /// Of each kind of operator that has a kernel, by its name: what tests have to run.
  virtual std::vector<KernelTactics> kernel_tactics() const { return {}; }
};

/// Makes a backend known, which outlives the process's use of it. Throws Error where its name is
/// taken.
void register_backend(const Backend& backend);
/// A library libopwright_NAME.so beside this one, which is loaded when its backend is first asked
/// for, exports a function of that name and type. It never returns null.
constexpr char kBackendEntry[] = "opwright_backend";
using BackendEntry = const Backend* (*)();

/// The backend of that name, or null.
const Backend* find_backend(std::string_view name);
/// The backend of that name; one whose library cannot be loaded has that as its obstacle. Throws
/// Error that lists the names where there is none.
const Backend& get_backend(std::string_view name);
/// The first registered backend of that type that can be used, or that of OPWRIGHT_DEVICE where it
/// is one of several; the first one where none can be used. Throws Error for a type that no backend
/// has.
DeviceId device_of(DeviceType type);
/// The type of the backend, which need not be there. Throws Error as get_backend().
DeviceType type_of(const DeviceId& id);
/// CodeFormat::describe() of the first backend whose code it is; empty where it is none's.
std::string describe_code(const CodeObject& object);
/// "CPU", "GPU".
std::string_view name(DeviceType type);

/// Reads "cpu", "cuda" or "cuda:1"; the CPU has no number but 0. Throws Error that begins with
/// `what` for what names none.
DeviceId parse_device(std::string_view text, std::string_view what);
std::ostream& operator<<(std::ostream& out, const DeviceId& id);

/// Without a number that of OPWRIGHT_DEVICE=cuda:1, else the backend's choice. Throws Error naming
/// what is missing when it cannot be used. Owned by the library.
const Device& get_device(const DeviceId& id);
const Device& get_device(DeviceType type, int ordinal = -1);
/// OPWRIGHT_DEVICE=cpu|cuda|cuda:1 where set, whose number get_device() adds, else the GPU where
/// one is usable, else the CPU.
DeviceId default_device();
/// Whether OPWRIGHT_DEVICE names what default_device() gives, so that a user chose it.
bool is_default_device_chosen();

}  // namespace opwright
