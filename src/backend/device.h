#pragma once

#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "network/operator.h"

namespace opwright {

class Backend;

/// Work failed in a way that the device's context does not survive (an illegal address, a trap):
/// nothing in this process can use the device any more.
class DeviceLostError final : public Error {
 public:
  explicit DeviceLostError(const std::string& message)
      : Error(ErrorCode::kFAILED_EXECUTION, message) {}
};

/// A point in the order of a queue. It may be recorded any number of times.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Queue queue) = 0;
  /// Returns once the queue has done all that it was given before the event.
  virtual void synchronize() = 0;
  /// Lets later work of `queue` run after the event.
  virtual void make_wait(Queue queue) {
    (void)queue;
    synchronize();
  }
  /// Milliseconds between `earlier` and this event, once both have been reached.
  virtual float milliseconds_since(Event& earlier) = 0;
};

/// Grid, block and options of one launch of a device function.
struct LaunchShape {
  std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  uint32_t shared_memory = 0;  ///< bytes of dynamic shared memory per block
  bool begins_early = false;   ///< whether the kernel may begin while the kernel before it in the
                               ///< queue ends: its code waits for that one
};

/// The greatest launch that a device allows.
struct LaunchLimits {
  static constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  std::array<int64_t, 3> grid{kMost, kMost, kMost}, block{kMost, kMost, kMost};
  int64_t threads = kMost;  ///< per block
};

/// A loaded function of device code. Shared by contexts, thread safe.
class DeviceFunction {
 public:
  virtual ~DeviceFunction() = default;
  /// The number of declared parameters; -1 where it is not known.
  virtual int num_parameters() const = 0;
  /// Allows launches with up to `bytes` of dynamic shared memory. Called before launch() with the
  /// most that launches use.
  virtual void allow_shared_memory(uint32_t bytes) const = 0;
  /// `arguments[i]` points to argument i.
  virtual void launch(const LaunchShape& shape, void* const* arguments, Queue queue) const = 0;
};

/// Parameters of a tensor map: KernelLaunch::TensorMap with its expressions evaluated.
struct TensorMapShape {
  DataType type = DataType::kHALF;
  std::vector<uint64_t> extents = {}, strides = {};  ///< strides in bytes
  std::vector<int32_t> box = {}, steps = {}, lower = {}, upper = {};
};

/// Work captured from a queue, as one unit that runs again in one call.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Memory that has moved since the work was captured.
  struct Move {
    const void* from = nullptr;
    void* to = nullptr;
    size_t bytes = 0;
  };
  virtual void launch(Queue queue) = 0;
  /// Lets the work read and write the memory in its new place. False where the graph cannot tell
  /// which of its work refers to the memory. Nothing has changed then, and the work must be
  /// captured anew.
  virtual bool move(std::span<const Move> moves) = 0;
  /// The number of kernels, copies and fills in one launch.
  virtual int size() const = 0;
};

/// A device: its backend and its number there. Its text is "cpu", "cuda" or "cuda:1"
/// (backend/backend.h).
struct DeviceId {
  std::string backend;
  int ordinal = -1;  ///< -1: no number is named
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

/// Caches from near to far. kInner: the cache of one core, or any cache of a device that
/// distinguishes none.
enum class CacheLevel : uint8_t { kInner, kOuter, kMemory };

/// State of the caches when a step of an engine begins.
struct CacheScene {
  /// Device::cache_level() of all that a run uses, and of its tensors without the constants.
  struct Levels {
    CacheLevel constants = CacheLevel::kInner, tensors = CacheLevel::kInner;
    bool operator==(const Levels&) const = default;
  } levels;
  std::vector<std::span<const std::byte>> constants;
  std::vector<std::span<std::byte>> operands;  ///< tensors that earlier steps have written
  std::vector<std::span<const std::byte>> results;
};

/// The memory of a device.
class DeviceHeap {
 public:
  virtual ~DeviceHeap() = default;
  /// Bytes of the device's whole memory; for the host, of the machine's.
  virtual uint64_t memory() const;
  /// Bytes of the memory that nobody uses, as far as that can be known.
  virtual uint64_t free_memory() const { return memory(); }
  /// Allocates memory aligned to 64 bytes, on a GPU to 256. Throws Error with kFAILED_ALLOCATION
  /// naming the size.
  virtual void* allocate(size_t bytes) const = 0;
  /// Frees the memory after all work that the device was given, since any of it may use the memory.
  virtual void free(void* memory) const noexcept = 0;
  /// Frees memory that no work uses that was given to the device after the event was recorded.
  virtual void free_after(void* memory, Event& last_use) const noexcept {
    (void)last_use;
    free(memory);
  }
  /// Allocates host memory that the device copies from and to without waiting.
  virtual void* allocate_host(size_t bytes) const { return allocate(bytes); }
  virtual void free_host(void* memory) const noexcept { free(memory); }
  /// Throws Error that begins with `what` unless the device can use all of the memory.
  virtual void check_address(const void* address, size_t bytes, std::string_view what) const {
    (void)address, (void)bytes, (void)what;
  }
  /// Throws Error that begins with `what` unless the host can read the memory.
  virtual void check_host_address(const void* address, std::string_view what) const {
    (void)address, (void)what;
  }
};

/// Work that a device does in the order of queues.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  /// Copies in the order of the queue, from and to the device's memory or the host's. Host memory
  /// that is not from allocate_host() is read or written before the call returns.
  virtual void copy(void* to, const void* from, size_t bytes, Queue queue) const = 0;
  /// Returns once the queue has done all that it was given. Throws Error for work that failed.
  virtual void synchronize(Queue queue) const = 0;
  /// Returns once the work before the event is done, or has failed; null: all work that the device
  /// was given. False: the work cannot be waited for now, since some of it is being captured.
  virtual bool wait_for(Event* event) const noexcept {
    (void)event;
    return true;
  }
  /// Records an event of the application's in the order of the queue. Throws Error where the device
  /// has none.
  virtual void record(void* event, Queue queue) const;
  /// Throws Error unless the device can work in the order of the queue. A stream of another device
  /// and a destroyed stream are errors.
  virtual void check_queue(Queue queue) const { (void)queue; }
  /// Makes an event. One that is not timed costs the device less; do not call its
  /// milliseconds_since().
  virtual std::unique_ptr<Event> make_event(bool is_timed = true) const = 0;
  /// Whether work of several queues may run at once.
  virtual bool has_queues() const { return false; }
  /// Makes a queue of the caller's own. It is destroyed with the pointer, after its work is done.
  virtual std::shared_ptr<void> make_queue() const { return nullptr; }
  /// Whether the caller itself is capturing the queue's work.
  virtual bool is_capturing(Queue queue) const {
    (void)queue;
    return false;
  }
  /// Whether capture() works.
  virtual bool has_graphs() const { return false; }
  /// Captures the work that `work` gives to its queue, without running it. Throws Error where some
  /// of it cannot be captured, and whatever `work` throws.
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void(Queue)>& work) const;
  /// Whether something done within `work`, on its queue or elsewhere, has broken the capture.
  virtual bool is_capture_broken(Queue queue) const {
    (void)queue;
    return false;
  }
};

/// The code that a device runs: loaded functions and kernels of the built-in operators. Also a
/// clock for the tuner.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  /// The function of that name. Throws Error for code that the device cannot run.
  virtual std::shared_ptr<const DeviceFunction> load_function(const CodeObject& code,
                                                              const std::string& name) const;
  virtual LaunchLimits launch_limits() const { return {}; }
  /// Writes the 128 bytes of a tensor map at `to`, which is 64-byte aligned. The tensor lies at
  /// `address`, which is 16-byte aligned. Throws Error where the device has no tensor maps.
  virtual void make_tensor_map(const TensorMapShape& shape, const void* address, void* to) const;

  /// Ways to run a built-in operator; empty when the device has no kernel for it.
  virtual std::vector<Candidate> candidates(const Operator& op,
                                            const CandidateQuery& query) const = 0;
  /// PlannedOperator::check() of a built-in operator.
  virtual void check_operator(const Operator& op, const KernelArgs& args) const {
    (void)op, (void)args;
  }
  virtual std::unique_ptr<Kernel> make_kernel(const Operator& op, const KernelArgs& args) const = 0;
  /// The operator that plans store instead of a built-in operator: on a GPU, the kernel that is
  /// compiled for it. Null: plans store the operator itself.
  virtual PlannedOperatorPtr compile(const Operator& op, const KernelArgs& args) const {
    (void)op, (void)args;
    return nullptr;
  }
  /// Formats other than LINEAR that make sense on this device for a floating-point tensor of this
  /// rank.
  virtual std::vector<TensorFormat> formats(int rank) const = 0;

  /// The cache that still holds `bytes` bytes, used one after another, in the next round.
  virtual CacheLevel cache_level(uint64_t bytes) const {
    (void)bytes;
    return CacheLevel::kInner;
  }
  /// About the milliseconds that time() needs to make a scene of small tensors.
  virtual double scene_milliseconds(const CacheScene::Levels& levels) const {
    (void)levels;
    return 0;
  }
  /// Runs the kernel `iterations` times after one warm-up and returns the median time of a run in
  /// milliseconds. Before each run the caches are as `scene` has them, where the device knows how.
  virtual double time(Kernel& kernel, void const* const* inputs, void* const* outputs,
                      void* workspace, int iterations, const CacheScene& scene) const = 0;
};

/// All that a backend provides for one device. Any thread may call a GPU's methods, but kernels,
/// functions, events and graphs only within a DeviceScope.
class Device : public DeviceHeap, public DeviceWork, public DeviceKernels {
 public:
  /// The backend that the device belongs to (backend/backend.h).
  virtual const Backend& backend() const = 0;
  virtual DeviceType type() const = 0;
  /// Whether the host reads and writes the device's memory as it is.
  bool is_host() const { return type() == DeviceType::kCPU; }
  /// The device's number in its backend.
  virtual int ordinal() const { return 0; }
  /// Key for which timings and packed weights are valid: processor model, instruction set, threads,
  /// library versions.
  virtual std::string identity() const = 0;
  /// The instruction set or architecture that plans record: "x86-64", "aarch64", "sm_90".
  virtual std::string architecture() const = 0;
  /// Whether code for that target ("sm_90a", "compute_80", an architecture()) runs on the device.
  virtual bool runs(std::string_view target) const { return target == architecture(); }

  /// Makes the device the calling thread's. Returns the argument of leave(). See DeviceScope.
  virtual void* enter() const { return nullptr; }
  virtual void leave(void* entered) const noexcept { (void)entered; }
};

/// While a DeviceScope lives, the calling thread works with its device.
class DeviceScope {
 public:
  explicit DeviceScope(const Device& device) : device_(device), entered_(device.enter()) {}
  ~DeviceScope() { device_.leave(entered_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const Device& device_;
  void* const entered_;
};

}  // namespace opwright
