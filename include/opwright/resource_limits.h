#pragma once

/// \file
/// Limits of the resources that an engine file or a model may use.

#include <cstdint>

namespace opwright {

/// Limits of the resources that files may make the process use. A request beyond a limit is refused
/// before it is served, with an Error that names the limit and the requester. 0 stands for the
/// default.
struct Limits {
  /// Bytes of memory for one engine with one of its contexts, all together: intermediate tensors,
  /// scratch memory, outputs at their largest size for the inputs' shapes, and on a GPU the
  /// weights, which on the CPU stay in the file. Default: the memory of the device, on the CPU that
  /// of the machine.
  uint64_t memory = 0;
  /// Steps of all profiles of an engine, or nodes of a model, together. Default: 1,000,000.
  int64_t steps = 0;
  /// Expressions by which an engine computes shapes, counted once for each profile. Default:
  /// 10,000,000.
  int64_t expressions = 0;
  /// Seconds that one run may take, checked between steps: a step is not interrupted. Default: no
  /// limit.
  double run_seconds = 0;
  /// Bytes of constants and intermediate tensors that the build of an engine may hold at once.
  /// Default: as `memory`.
  uint64_t build_memory = 0;
  /// Seconds that the build of an engine may take, checked between layers and timed runs. Default:
  /// no limit.
  double build_seconds = 0;

  friend bool operator==(Limits const& a, Limits const& b) noexcept {
    return a.memory == b.memory && a.steps == b.steps && a.expressions == b.expressions &&
           a.run_seconds == b.run_seconds && a.build_memory == b.build_memory &&
           a.build_seconds == b.build_seconds;
  }
};

}  // namespace opwright
