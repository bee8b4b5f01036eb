#pragma once

#include <cstdint>

#include "base/log.h"
#include "opwright/resource_limits.h"

namespace opwright {

class Device;
struct Plan;

/// An engine whose operators are being made. The bodies of its loops and branches, at any depth,
/// are engines of their own and parts of it. Its limits count for all of them together, and its log
/// receives their warnings.
class EnclosingEngine {
 public:
  /// `limits` are resolved.
  EnclosingEngine(const Limits& limits, const Log& log) : limits_(limits), log_(log) {}

  /// Adds the demands of the engine or of a body. Throws Error if the sum exceeds a limit.
  void add(const Plan& plan, const Device& device);
  /// Bytes of weights on the device so far.
  uint64_t weights() const { return weights_; }
  const Limits& limits() const { return limits_; }
  const Log& log() const { return log_; }

  /// The innermost object that has a Scope on the calling thread; null: there is none.
  static EnclosingEngine* current();
  class Scope {
   public:
    explicit Scope(EnclosingEngine& engine);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    EnclosingEngine* const before_;
  };

 private:
  const Limits limits_;
  const Log log_;
  uint64_t steps_ = 0, expressions_ = 0, weights_ = 0;
};

}  // namespace opwright
