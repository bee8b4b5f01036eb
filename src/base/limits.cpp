#include "base/limits.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <limits>

namespace opwright {
namespace {

constexpr int64_t kMaxSteps = 1000000, kMaxExpressions = 10000000;
/// Seconds, some years. With more, the clock's arithmetic would overflow.
constexpr double kForever = 1e8;

template <class T>
void set_default(T& limit, T value, const char* name) {
  require(limit >= T(), "Limits: ", name, " is ", limit,
          "; expected a positive number, or 0 for the default");
  if (limit == T()) limit = value;
}

}  // namespace

void check_limits(const Limits& limits) { resolved(limits, machine_memory()); }

uint64_t machine_memory() {
  static const uint64_t bytes = [] {
    const int64_t pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(size)
                                 : uint64_t{1} << 40;
  }();
  return bytes;
}

Limits resolved(const Limits& given, uint64_t device_memory) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  Limits limits = given;
  set_default(limits.memory, device_memory, "memory");
  set_default(limits.steps, kMaxSteps, "steps");
  set_default(limits.expressions, kMaxExpressions, "expressions");
  set_default(limits.run_seconds, kNever, "run_seconds");
  set_default(limits.build_memory, limits.memory, "build_memory");
  set_default(limits.build_seconds, kNever, "build_seconds");
  return limits;
}

std::string limit_hint(const char* limit) {
  const std::string name = limit;
  const char* option = name == "memory" || name == "build_memory"         ? ", --max-memory"
                       : name == "run_seconds" || name == "build_seconds" ? ", --max-time"
                                                                          : "";
  return str("where you trust the file, raise it: Limits::", name, " in C++, opwright.Limits(",
             name, "=...) in Python", option, *option != '\0' ? " of the program" : "");
}

Deadline::Deadline(double seconds) : seconds_(seconds), is_set_(seconds < kForever) {
  if (is_set_)
    end_ = Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace opwright
