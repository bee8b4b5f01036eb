#pragma once

#include <cstdint>

#include "base/log.h"
#include "opwright/resource_limits.h"

namespace opwright {

class Device;
struct Plan;

/// An engine whose operators are being made. The bodies of its loops and branches, at any depth,
/// are engines of their own and parts of it: its limits count for all of them together, and its log
/// hears what they warn of.
class EnclosingEngine {
 public:
  /// `limits` are resolved.
  EnclosingEngine(const Limits& limits, const Log& log) : limits_(limits), log_(log) {}

  /// Adds what the engine or a body asks for. Throws Error where it is too much.
  void add(const Plan& plan, const Device& device);
  /// Bytes on the device so far.
  uint64_t weights() const { return weights_; }
  const Limits& limits() const { return limits_; }
  const Log& log() const { return log_; }

  /// The innermost one of the calling thread that has a Scope; null: there is none.
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
