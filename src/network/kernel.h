#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/blob.h"
#include "base/shape.h"

namespace opwright {

/// A constant input that a kernel rearranged during the build. The plan stores it instead of the
/// original.
struct PackedInput {
  int input = 0;
  Blob data;
  std::string layout;  ///< the kernel's own description of the arrangement
};

/// A queue of work for a device. On a GPU it is a stream. On the CPU it is null, and all calls are
/// synchronous.
using Queue = void*;

/// A domain that consecutive kernels need, such as the interpreter lock of Python callbacks. It is
/// entered before such a run of kernels and left after it. `queue` is the kernels' queue.
class ExecutionDomain {
 public:
  virtual void enter(Queue queue) = 0;
  virtual void leave() noexcept = 0;

 protected:
  ~ExecutionDomain() = default;
};

/// An operator that is ready to run in one execution context. Not thread safe; only one context
/// uses it at a time.
class Kernel {
 public:
  virtual ~Kernel() = default;

  /// Bytes of scratch memory (64-byte aligned) for shapes up to the profile's maximum. Asked once,
  /// after construction.
  virtual size_t workspace_size() const { return 0; }
  /// Constant inputs that the kernel rearranged and whose originals it does not read any more.
  /// Asked only during the build.
  virtual std::vector<PackedInput> packed() const { return {}; }
  /// Tells the elements of a shape input (Operation::is_shape_input). Called before the first
  /// on_shape_change(), and whenever the elements have changed; on_shape_change() follows. Kernels
  /// use these elements, not the input's memory, which later work may have changed.
  virtual void on_values_change(int input, std::span<const int64_t> elements) {
    (void)input, (void)elements;
  }
  /// Called before the first enqueue and whenever a shape differs from that of the last call.
  /// Prepares everything that depends on shapes.
  virtual void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) {
    (void)inputs, (void)outputs;
  }
  /// Runs. `inputs[i]` is null for absent optional inputs and for packed inputs. All other pointers
  /// are valid, non-null and 64-byte aligned, even for tensors without elements; those of network
  /// inputs and outputs are as the user gave them. May be called many times between changes of
  /// shapes.
  virtual void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
                       Queue queue) = 0;
  /// Why the work that enqueue() gives to a queue may not be captured and replayed. Empty: it may,
  /// while the shapes stay. Devices without queues do not ask.
  virtual std::string capture_obstacle() const { return {}; }
  /// The domain to enter; null: none.
  virtual ExecutionDomain* domain() const { return nullptr; }
  /// The implementation that runs, for the inspector and logs, as far as the kernel knows:
  /// "jit:avx512_core".
  virtual std::string description() const { return {}; }
};

}  // namespace opwright
