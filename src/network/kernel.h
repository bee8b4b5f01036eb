#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/blob.h"
#include "base/shape.h"

namespace opwright {

/// A constant input as a kernel rearranged it during the build, stored in the plan instead of the
/// original.
struct PackedInput {
  int input = 0;
  Blob data;
  std::string layout;  ///< the kernel's own description of the arrangement
};

/// The order in which a device works; on the CPU all calls are synchronous and it is null, on a GPU
/// a stream.
using Queue = void*;

/// Entered before and left after a run of consecutive kernels that need it, such as the interpreter
/// lock of Python callbacks. `queue` is the one that they get.
class ExecutionDomain {
 public:
  virtual void enter(Queue queue) = 0;
  virtual void leave() noexcept = 0;

 protected:
  ~ExecutionDomain() = default;
};

/// An operator made ready for one execution context. Not thread safe; used by one context at a
/// time.
class Kernel {
 public:
  virtual ~Kernel() = default;

  /// Bytes of scratch memory (64-byte aligned) for shapes up to the profile's maximum, asked once
  /// after construction.
  virtual size_t workspace_size() const { return 0; }
  /// Constant inputs that the kernel has rearranged and whose original it no longer reads. Asked
  /// during the build only.
  virtual std::vector<PackedInput> packed() const { return {}; }
  /// The elements of a shape input (Operation::is_shape_input): called before the first
  /// on_shape_change() and whenever they have changed, which on_shape_change() then follows.
  /// Kernels go by these rather than by the input's memory, which work may have changed.
  virtual void on_values_change(int input, std::span<const int64_t> elements) {
    (void)input, (void)elements;
  }
  /// Called before the first enqueue and whenever a shape differs from that of the last call. All
  /// that depends on shapes is prepared here.
  virtual void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) {
    (void)inputs, (void)outputs;
  }
  /// Runs. `inputs[i]` is null for absent optional inputs and for inputs that were packed; pointers
  /// are valid, non-null and 64-byte aligned (network inputs and outputs: as the user gave them)
  /// otherwise, also for tensors without elements. May be called many times between shape changes.
  virtual void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
                       Queue queue) = 0;
  /// Why what enqueue() gives to the queue may not be captured and run again without calling it;
  /// empty: it may, for as long as the shapes stay. Devices without queues do not ask.
  virtual std::string capture_obstacle() const { return {}; }
  /// Null when nothing needs to be entered.
  virtual ExecutionDomain* domain() const { return nullptr; }
  /// What runs, for the inspector and logs, as far as the kernel knows: "jit:avx512_core".
  virtual std::string description() const { return {}; }
};

}  // namespace opwright
