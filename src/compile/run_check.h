#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "backend/tensor_scan.h"
#include "base/error.h"

namespace opwright {

/// A candidate computes a wrong result, or writes memory that it must not write.
class CandidateFault final : public Error {
 public:
  explicit CandidateFault(const std::string& message)
      : Error(ErrorCode::kFAILED_COMPUTATION, message) {}
};

/// Checks how the runs of a candidate write memory: they have to write the whole of its outputs,
/// and nothing within kGuardBytes of these and of its workspace. Large outputs are checked in
/// parts, at both ends and at places between. Any run between fill() and look() is checked,
/// whatever its purpose, so the check costs little.
class RunCheck {
 public:
  /// `who` begins messages: "plugin 'p' (version 1, namespace ''): ". `is_plugin`: whether messages
  /// tell the plugin's author what to do. `may_leave_elements`: whether elements that are not
  /// written are no fault.
  RunCheck(const Device& device, std::string who, bool is_plugin, bool may_leave_elements)
      : device_(device),
        who_(std::move(who)),
        is_plugin_(is_plugin),
        may_leave_elements_(may_leave_elements) {}
  /// `tensor.data` is memory of the device, with GuardedMemory::kGuardBytes of unused memory on
  /// either side. `name` is the tensor's. `is_written`: whether each element has to be written.
  void add_output(size_t output, std::string_view name, const TensorView& tensor, bool is_written);
  void add_workspace(void* data, size_t bytes);

  /// Writes patterns into the checked memory, other ones each time. Nothing else may use the memory
  /// then.
  void fill();
  /// Checks the runs since fill(), which have ended. Throws CandidateFault for a certain fault.
  /// Returns whether an element may have its value by chance; then another fill(), run and look()
  /// decide.
  bool look();
  /// With `may_leave_elements`, says which elements are not written; empty where all are.
  const std::string& left_elements() const { return left_elements_; }

 private:
  struct Area {
    std::string text;  ///< "output 0 ('y': FP32 2x3)"
    TensorView tensor;
    ptrdiff_t bytes = 0;
    bool is_workspace = false, is_written = false;
    std::vector<std::pair<ptrdiff_t, ptrdiff_t>> parts;  ///< from byte to byte, guards included
    std::vector<int64_t> suspects;  ///< elements that equalled every pattern so far
  };
  void add(Area area);
  std::span<const std::byte> pattern(const Area& area) const;
  void check_guards(const Area& area, std::pair<ptrdiff_t, ptrdiff_t> part,
                    const std::byte* memory) const;
  std::string describe_unwritten(const Area& area) const;

  const Device& device_;
  const std::string who_;
  const bool is_plugin_, may_leave_elements_;
  std::string left_elements_;
  std::vector<Area> areas_;
  std::vector<std::byte> image_, pattern_;
  int fills_ = 0;
};

}  // namespace opwright
