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

/// A function with a stack of its own. Fibers of one thread at a time run.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Restarts the fiber. `body` must end in suspend() and must not be resumed after it.
  void start(void (*body)());
  /// Runs the fiber, and those that it hands over to, until one of them suspends.
  void resume();
  /// Returns from resume(). Only the running fiber may call this.
  void suspend();
  /// Suspends this fiber, which runs, and continues another one.
  void hand_over(Fiber& next);

 private:
#ifdef __x86_64__
  using Registers = void*;
#else
  using Registers = ucontext_t;
#endif
  static void continue_at(Registers& save, Registers& to);

  static Registers caller_;
  char* stack_;
  Registers own_;
};

#ifdef __x86_64__
inline void Fiber::continue_at(Registers& save, Registers& to) {
  opwright_emulation_switch(&save, to);
}
#else
inline void Fiber::continue_at(Registers& save, Registers& to) { swapcontext(&save, &to); }
#endif
inline void Fiber::resume() { continue_at(caller_, own_); }
inline void Fiber::suspend() { continue_at(own_, caller_); }
inline void Fiber::hand_over(Fiber& next) { continue_at(own_, next.own_); }

}  // namespace emulation
