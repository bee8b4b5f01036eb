#include "crash_report.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <list>
#include <string_view>
#include <vector>

#include "base/printable.h"

namespace opwright::cli {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// State that the signal handler reads. The texts are made beforehand, since a handler may not
// allocate.
std::atomic<const char*> current_stage{nullptr};
std::atomic<const Context*> watched{nullptr};
std::vector<std::string> step_texts;
std::string time_limit;
std::atomic_flag is_reported;
alignas(16) char handler_stack[64 << 10];  // for a crash because the stack is full

/// Text of limited length without allocation.
class Message {
 public:
  Message& operator<<(std::string_view text) {
    const size_t count = std::min(text.size(), sizeof(text_) - size_);
    std::memcpy(text_ + size_, text.data(), count);
    size_ += count;
    return *this;
  }
  void add_address(const void* address) {
    char digits[2 * sizeof(uintptr_t)];
    size_t next = sizeof(digits);
    auto left = reinterpret_cast<uintptr_t>(address);
    do {
      digits[--next] = "0123456789abcdef"[left % 16];
      left /= 16;
    } while (left != 0);
    *this << "0x" << std::string_view(digits + next, sizeof(digits) - next);
  }
  void print() const {
    if (write(STDERR_FILENO, text_, size_) < 0) return;  // nobody is left to be told
  }

 private:
  char text_[4096];
  size_t size_ = 0;
};

const char* name_of(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV, an invalid memory access";
    case SIGBUS:
      return "SIGBUS, an invalid memory access";
    case SIGFPE:
      return "SIGFPE, an integer division by zero or overflow";
    case SIGILL:
      return "SIGILL, an instruction that this processor does not have";
    default:
      return "SIGABRT, it was aborted";
  }
}

/// Adds the current stage, and the layer and plugin that were running.
void add_place(Message& message) {
  if (const char* stage = current_stage.load()) message << " while " << stage;
  const Context* context = watched.load();
  const int step = context != nullptr ? context->current_step() : -1;
  if (step >= 0 && static_cast<size_t>(step) < step_texts.size())
    message << ", in " << step_texts[static_cast<size_t>(step)];
  message << "\n";
}

void end_late(int) {
  if (is_reported.test_and_set()) return;
  Message message;
  message << "opwright: error: not done after " << time_limit << " seconds (--max-time)";
  add_place(message);
  message.print();
  _exit(kTimeLimitStatus);
}

void report(int signal, siginfo_t* info, void*) {
  // Threads that run cells of the same kernel often crash together.
  if (is_reported.test_and_set())
    for (;;) pause();
  Message message;
  message << "opwright: error: crashed (" << name_of(signal);
  if (signal == SIGSEGV || signal == SIGBUS) {
    message << " at ";
    message.add_address(info->si_addr);
  }
  message << ")";
  add_place(message);
  message.print();
  // Ends the process as the signal would have, when this returns.
  ::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

void install_crash_report() {
  const stack_t stack{.ss_sp = handler_stack, .ss_flags = 0, .ss_size = sizeof(handler_stack)};
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = report;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

void set_crash_stage(const std::string& stage) {
  static std::list<std::string> stages;  // texts stay valid for a handler that has begun
  current_stage = stages.emplace_back(stage).c_str();
}

void end_after(double seconds, double limit) {
  if (seconds <= 0) return;
  time_limit = str(limit);
  struct sigaction action {};
  action.sa_handler = end_late;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGALRM, &action, nullptr);
  // A longer time would not fit in the timer, and nobody waits for it.
  const double bounded = std::min(seconds, 1e8);
  const auto whole = static_cast<time_t>(bounded);
  const auto rest = static_cast<suseconds_t>((bounded - static_cast<double>(whole)) * 1e6);
  const itimerval timer{.it_interval = {}, .it_value = {whole, std::max<suseconds_t>(rest, 1)}};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

WatchedContext::WatchedContext(const Context& context) {
  const Engine& engine = *context.engine();
  const int profile = context.profile();
  for (size_t i = 0; i < engine.plan().schedules[profile].steps.size(); ++i)
    step_texts.push_back(printable(engine.describe_step(profile, static_cast<int>(i))));
  watched = &context;
}

WatchedContext::~WatchedContext() {
  watched = nullptr;
  step_texts.clear();
}

}  // namespace opwright::cli
