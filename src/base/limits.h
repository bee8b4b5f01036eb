#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "opwright/resource_limits.h"

namespace opwright {

/// The machine's memory in bytes.
uint64_t machine_memory();

/// Throws Error for a limit that is negative or not a number.
void check_limits(const Limits& limits);

/// `given` with each 0 replaced by its default, which is infinity for seconds. Throws Error for a
/// limit that is negative or not a number.
Limits resolved(const Limits& given, uint64_t device_memory);

/// The end of a message about a limit: how to set it, in each language. `limit` is the member's
/// name.
std::string limit_hint(const char* limit);

/// Throws Error: "`what` <bytes>, more than the limit of <bytes> (memory): ..." unless the bytes
/// are within the limit of that name. `what` says who needs them: "layer 'a' needs".
template <class... What>
void require_bytes(uint64_t bytes, uint64_t limit, const char* name, const What&... what) {
  if (bytes > limit) [[unlikely]]
    fail(what..., " ", bytes_text(bytes), ", more than the limit of ", bytes_text(limit), " (",
         name, "); ", limit_hint(name));
}

/// The time at which something that begins now must have ended.
class Deadline {
 public:
  /// Infinity: there is no deadline.
  explicit Deadline(double seconds);
  bool has_passed() const { return is_set_ && Clock::now() >= end_; }
  double seconds() const { return seconds_; }
  bool is_set() const { return is_set_; }
  /// Only if is_set(); negative once the deadline has passed.
  double seconds_left() const { return std::chrono::duration<double>(end_ - Clock::now()).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_;
  bool is_set_;
  Clock::time_point end_;
};

}  // namespace opwright
