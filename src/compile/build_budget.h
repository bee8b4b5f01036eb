#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/limits.h"

namespace opwright {

/// Ends a build at any point. A candidate that throws it does not count as failed.
class BuildEndError : public Error {
 public:
  explicit BuildEndError(const std::string& message) : Error(ErrorCode::kINVALID_STATE, message) {}
};

/// A build reached the end of its time.
class BuildTimeError final : public BuildEndError {
 public:
  using BuildEndError::BuildEndError;
};

/// The user ended the build.
class BuildCancelledError final : public BuildEndError {
 public:
  using BuildEndError::BuildEndError;
};

/// The part of its limits that a build may still spend.
class BuildBudget {
 public:
  /// `limits` are resolved; the time began with `deadline`.
  BuildBudget(const Limits& limits, uint64_t workspace_limit, const Deadline& deadline)
      : limits_(limits), workspace_limit_(workspace_limit), deadline_(deadline) {}

  /// Throws BuildTimeError once the time is over. `parts` name the work that is about to begin.
  template <class... Parts>
  void check_time(const Parts&... parts) const {
    if (deadline_.has_passed()) [[unlikely]]
      fail_time(str(parts...));
  }
  /// Throws BuildTimeError where so many operations would take more than the time that is left, at
  /// a speed that no processor reaches. A running kernel is not interrupted, so the check comes
  /// before it.
  void check_work(double operations, const std::string& doing) const;
  bool has_deadline() const { return deadline_.is_set(); }

  /// Bytes that constants and buffers may have at once. Folded constants are already subtracted.
  uint64_t memory_left() const {
    return limits_.build_memory - std::min(folded_, limits_.build_memory);
  }
  /// Throws Error unless the memory is left; `who` needs it: "layer 'a' needs".
  void require_memory(uint64_t bytes, const std::string& who) const;
  /// Throws Error unless a layer may have a workspace of `bytes` bytes. `layer` names the layer:
  /// "Layer 'a' (Loop)".
  void require_workspace(uint64_t bytes, const std::string& layer) const;

  /// Sets the bytes of the model's own constants. The limit of computed constants depends on them.
  void set_given(uint64_t bytes) { given_ = bytes; }
  /// Takes the bytes of a constant that is computed during the build. Returns false where computed
  /// constants would have too many bytes: then the engine runs the layer.
  bool try_fold(uint64_t bytes);

 private:
  [[noreturn]] void fail_time(const std::string& doing) const;

  const Limits limits_;
  const uint64_t workspace_limit_;
  const Deadline deadline_;
  uint64_t given_ = 0, folded_ = 0;
};

}  // namespace opwright
