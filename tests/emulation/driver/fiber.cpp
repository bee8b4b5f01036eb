#include "driver/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

namespace emulation {
namespace {

constexpr size_t kStack = size_t{128} * 1024;
constexpr size_t kGuard = size_t{64} * 1024;

}  // namespace

Fiber::Registers Fiber::caller_;

Fiber::Fiber()
    : stack_(static_cast<char*>(mmap(nullptr, kGuard + kStack, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (stack_ == MAP_FAILED || mprotect(stack_ + kGuard, kStack, PROT_READ | PROT_WRITE)) {
    std::abort();
  }
}

Fiber::~Fiber() { munmap(stack_, kGuard + kStack); }

#ifdef __x86_64__

// Unlike swapcontext(), this makes no system calls for signal masks.
asm(R"(
.text
.hidden opwright_emulation_switch
.globl opwright_emulation_switch
.type opwright_emulation_switch, @function
opwright_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size opwright_emulation_switch, .-opwright_emulation_switch
)");

void Fiber::start(void (*body)()) {
  // Six saved registers, the address to return to, and one word so that the stack is aligned there.
  auto** top = reinterpret_cast<void**>(stack_ + kGuard + kStack) - 8;
  for (int i = 0; i < 8; ++i) top[i] = nullptr;
  top[6] = reinterpret_cast<void*>(body);
  own_ = top;
}

#else

void Fiber::start(void (*body)()) {
  getcontext(&own_);
  own_.uc_stack.ss_sp = stack_ + kGuard;
  own_.uc_stack.ss_size = kStack;
  own_.uc_link = nullptr;
  makecontext(&own_, body, 0);
}

#endif

}  // namespace emulation
