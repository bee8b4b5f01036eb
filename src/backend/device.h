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

/// A point in the order of a queue, recorded anew as often as wanted.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Queue queue) = 0;
  /// Returns once all that the queue was given before is done.
  virtual void synchronize() = 0;
  /// What the queue is given from now on runs after that, too.
  virtual void make_wait(Queue queue) {
    (void)queue;
    synchronize();
  }
  /// Once both have been reached.
  virtual float milliseconds_since(Event& earlier) = 0;
};

/// Over how much a function of device code is run.
struct LaunchShape {
  std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  uint32_t shared_memory = 0;  ///< bytes of dynamic shared memory per block
  bool begins_early = false;   ///< whether it may begin while the kernel before it in the queue
                               ///< ends: its code waits for that one
};

/// How far a launch may go.
struct LaunchLimits {
  static constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  std::array<int64_t, 3> grid{kMost, kMost, kMost}, block{kMost, kMost, kMost};
  int64_t threads = kMost;  ///< of a block
};

/// A function of code for a device, loaded. Shared by contexts, thread safe.
class DeviceFunction {
 public:
  virtual ~DeviceFunction() = default;
  /// How many parameters it declares; -1 where that is not known.
  virtual int num_parameters() const = 0;
  /// Whether launches with up to so much dynamic shared memory can be made; called before launch()
  /// with what is the most.
  virtual void allow_shared_memory(uint32_t bytes) const = 0;
  /// `arguments[i]` points to argument i.
  virtual void launch(const LaunchShape& shape, void* const* arguments, Queue queue) const = 0;
};

/// What a tensor map describes: KernelLaunch::TensorMap with its expressions evaluated.
struct TensorMapShape {
  DataType type = DataType::kHALF;
  std::vector<uint64_t> extents = {}, strides = {};  ///< strides in bytes
  std::vector<int32_t> box = {}, steps = {}, lower = {}, upper = {};
};

/// What was given to a queue, as one unit that runs again in one call.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Memory that lies elsewhere than when the work was captured.
  struct Move {
    const void* from = nullptr;
    void* to = nullptr;
    size_t bytes = 0;
  };
  virtual void launch(Queue queue) = 0;
  /// Lets the work read and write the memory in its new place. False where the graph cannot tell
  /// what of its work refers to it, so that it must be captured anew; nothing has changed then.
  virtual bool move(std::span<const Move> moves) = 0;
  /// How many kernels, copies and fills one launch runs.
  virtual int size() const = 0;
};

/// A device: its backend, and which of that one's. Its text is "cpu", "cuda" or "cuda:1"
/// (backend/backend.h).
struct DeviceId {
  std::string backend;
  int ordinal = -1;  ///< -1: none is named
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

/// Near to far. kInner: the cache of one core, or nothing that a device distinguishes.
enum class CacheLevel : uint8_t { kInner, kOuter, kMemory };

/// The caches as a step of an engine finds them.
struct CacheScene {
  /// Device::cache_level() of what a run uses in all, and of its tensors without the constants.
  struct Levels {
    CacheLevel constants = CacheLevel::kInner, tensors = CacheLevel::kInner;
    bool operator==(const Levels&) const = default;
  } levels;
  std::vector<std::span<const std::byte>> constants;
  std::vector<std::span<std::byte>> operands;  ///< which the steps before have written
  std::vector<std::span<const std::byte>> results;
};

/// The memory of a device.
class DeviceHeap {
 public:
  virtual ~DeviceHeap() = default;
  /// Bytes that it has in all: on the host those of the machine.
  virtual uint64_t memory() const;
  /// Bytes of it that nobody uses, as far as that can be known.
  virtual uint64_t free_memory() const { return memory(); }
  /// 64-byte aligned memory, 256 on a GPU. Throws Error with kFAILED_ALLOCATION naming the size.
  virtual void* allocate(size_t bytes) const = 0;
  /// Whatever the device was given may use the memory: it is freed after all of that.
  virtual void free(void* memory) const noexcept = 0;
  /// Nothing that was given to the device since the event was recorded uses the memory.
  virtual void free_after(void* memory, Event& last_use) const noexcept {
    (void)last_use;
    free(memory);
  }
  /// Host memory that the device copies from and to without waiting.
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

/// What a device does in the order of queues.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  /// Copies in the order of the queue, from and to the device's memory or the host's. Of host
  /// memory that is not from allocate_host(), what is read may change once the call returns, and
  /// what is written is there when it returns.
  virtual void copy(void* to, const void* from, size_t bytes, Queue queue) const = 0;
  /// Returns once the queue has done all that it was given. Throws Error for work that failed.
  virtual void synchronize(Queue queue) const = 0;
  /// Returns once what came before the event is done, or has failed; null: all that the device was
  /// given. False: that cannot be waited for now, since some of it is being captured.
  virtual bool wait_for(Event* event) const noexcept {
    (void)event;
    return true;
  }
  /// Records an event of the application's in the order of the queue. Throws Error where the device
  /// has none.
  virtual void record(void* event, Queue queue) const;
  /// Throws Error unless the device can work in that order: a stream of another device, or one that
  /// is destroyed.
  virtual void check_queue(Queue queue) const { (void)queue; }
  /// One that is not timed costs the device less, and milliseconds_since() is not to be asked then.
  virtual std::unique_ptr<Event> make_event(bool is_timed = true) const = 0;
  /// Whether work of several queues runs at once.
  virtual bool has_queues() const { return false; }
  /// A queue of the caller's own, which goes with the pointer, once it has done what it was given.
  virtual std::shared_ptr<void> make_queue() const { return nullptr; }
  /// Whether the caller is capturing the queue's work itself.
  virtual bool is_capturing(Queue queue) const {
    (void)queue;
    return false;
  }
  /// Whether capture() works.
  virtual bool has_graphs() const { return false; }
  /// What `work` gives to the queue that it is called with, not run yet. Throws Error where some of
  /// it cannot be captured, and what `work` throws.
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void(Queue)>& work) const;
  /// Whether what was done within `work`, to its queue or beside it, has broken its capture.
  virtual bool is_capture_broken(Queue queue) const {
    (void)queue;
    return false;
  }
};

/// What a device runs: code that is loaded, kernels of the built-in operators, and a clock for the
/// tuner.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  /// The function of that name. Throws Error for code that the device cannot run.
  virtual std::shared_ptr<const DeviceFunction> load_function(const CodeObject& code,
                                                              const std::string& name) const;
  virtual LaunchLimits launch_limits() const { return {}; }
  /// Writes the 128 bytes of a tensor map at `to`, which is 64-byte aligned, for a tensor at that
  /// address, which is 16-byte aligned. Throws Error where the device has none.
  virtual void make_tensor_map(const TensorMapShape& shape, const void* address, void* to) const;

  /// Ways to run a built-in operator; empty when the device has no kernel for it.
  virtual std::vector<Candidate> candidates(const Operator& op,
                                            const CandidateQuery& query) const = 0;
  /// PlannedOperator::check() of a built-in operator.
  virtual void check_operator(const Operator& op, const KernelArgs& args) const {
    (void)op, (void)args;
  }
  virtual std::unique_ptr<Kernel> make_kernel(const Operator& op, const KernelArgs& args) const = 0;
  /// What plans store instead of a built-in operator: on a GPU the kernel that is compiled for it.
  /// Null: they store the operator itself.
  virtual PlannedOperatorPtr compile(const Operator& op, const KernelArgs& args) const {
    (void)op, (void)args;
    return nullptr;
  }
  /// Formats other than LINEAR that make sense on this device for a floating-point tensor of this
  /// rank.
  virtual std::vector<TensorFormat> formats(int rank) const = 0;

  /// Where so many bytes that are used one after another are found again in the next round.
  virtual CacheLevel cache_level(uint64_t bytes) const {
    (void)bytes;
    return CacheLevel::kInner;
  }
  /// Runs the kernel `iterations` times after one warm-up, each time with caches as `scene` has
  /// them where the device knows how, and returns the median time of a run in milliseconds.
  virtual double time(Kernel& kernel, void const* const* inputs, void* const* outputs,
                      void* workspace, int iterations, const CacheScene& scene) const = 0;
};

/// What a backend provides. A GPU's methods may be called by any thread; kernels, functions, events
/// and graphs only within a DeviceScope.
class Device : public DeviceHeap, public DeviceWork, public DeviceKernels {
 public:
  /// The one that it is of (backend/backend.h).
  virtual const Backend& backend() const = 0;
  virtual DeviceType type() const = 0;
  /// Whether the host reads and writes the memory as it is.
  bool is_host() const { return type() == DeviceType::kCPU; }
  /// Which of the backend's devices it is.
  virtual int ordinal() const { return 0; }
  /// Identifies what timings and packed weights are valid for: processor model, instruction set,
  /// threads, library versions.
  virtual std::string identity() const = 0;
  /// The instruction set or architecture that plans record: "x86-64", "aarch64", "sm_90".
  virtual std::string architecture() const = 0;
  /// Whether code for that target ("sm_90a", "compute_80", an architecture()) runs on the device.
  virtual bool runs(std::string_view target) const { return target == architecture(); }

  /// Makes the device the calling thread's; returns what leave() takes. See DeviceScope.
  virtual void* enter() const { return nullptr; }
  virtual void leave(void* entered) const noexcept { (void)entered; }
};

/// While it lives, the calling thread works with the device.
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
