#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/aligned_memory.h"
#include "base/error.h"

namespace opwright {

/// A kernel's workspace: the planned one for its largest shapes, and memory of its own for shapes
/// that need more.
class KernelWorkspace {
 public:
  void plan(size_t bytes) { planned_ = bytes; }
  size_t planned() const { return planned_; }
  /// Makes room for runs that need `bytes`. Throws Error, and then leaves everything as it was.
  void need(size_t bytes) {
    if (bytes > planned_ && bytes > own_size_) {
      void* const larger = allocate_aligned(bytes);
      if (larger == nullptr)
        fail_with(ErrorCode::kFAILED_ALLOCATION, "The CPU could not allocate ", bytes, " bytes.");
      own_.reset(larger);
      own_size_ = bytes;
    }
    uses_own_ = bytes > planned_;
  }
  /// The memory for a run whose planned workspace is `planned`.
  void* of(void* planned) const { return uses_own_ ? own_.get() : planned; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  size_t planned_ = 0, own_size_ = 0;
  std::unique_ptr<void, Free> own_;
  bool uses_own_ = false;
};

}  // namespace opwright
