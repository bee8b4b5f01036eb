#pragma once

#include <cstddef>
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace emulation {

#ifdef __x86_64__
/// Stores the registers and the stack pointer in `save`, and continues at `to`.
extern "C" void opwright_emulation_switch(void** save, void* to);
#endif

/// A function with a stack of its own.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Restarts the fiber. `body` must end in suspend() and must not be resumed after it.
  void start(void (*body)());
  /// Runs the fiber until it suspends.
  void resume();
  /// Suspends the fiber. Only the fiber itself may call this.
  void suspend();

 private:
  char* stack_;
#ifdef __x86_64__
  void* own_ = nullptr;
  void* caller_ = nullptr;
#else
  ucontext_t own_, caller_;
#endif
};

#ifdef __x86_64__
inline void Fiber::resume() { opwright_emulation_switch(&caller_, own_); }
inline void Fiber::suspend() { opwright_emulation_switch(&own_, caller_); }
#endif

}  // namespace emulation
