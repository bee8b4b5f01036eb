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

/// What a candidate computes, or does to memory, is wrong.
class CandidateFault final : public Error {
 public:
  explicit CandidateFault(const std::string& message)
      : Error(ErrorCode::kFAILED_COMPUTATION, message) {}
};

/// Watches what the runs of a candidate do to memory: that they write the whole of its outputs, and
/// nothing within kGuardBytes of these and of its workspace. Of large outputs it looks at parts:
/// at both ends, and at places between. A run between fill() and look() is checked, whatever else
/// runs are for, so that it costs little beside them.
class RunCheck {
 public:
  /// `who` begins messages: "plugin 'p' (version 1, namespace ''): ". `is_plugin`: whether they say
  /// what its author can do.
  RunCheck(const Device& device, std::string who, bool is_plugin)
      : device_(device), who_(std::move(who)), is_plugin_(is_plugin) {}
  /// `tensor.data` is the device's, with GuardedMemory::kGuardBytes of nobody else's on either
  /// side. `name` is that of the tensor. `is_written`: whether each element has to be written.
  void add_output(size_t output, std::string_view name, const TensorView& tensor, bool is_written);
  void add_workspace(void* data, size_t bytes);

  /// Writes patterns where runs are watched; others each time. Nothing else uses the memory then.
  void fill();
  /// What runs since fill() did, which are done. Throws CandidateFault for what is wrong for sure.
  /// Returns whether an element may have its value by chance, so that another fill(), run and
  /// look() has to tell.
  bool look();

 private:
  struct Area {
    std::string text;  ///< "output 0 ('y': FP32 2x3)"
    TensorView tensor;
    ptrdiff_t bytes = 0;
    bool is_workspace = false, is_written = false;
    std::vector<std::pair<ptrdiff_t, ptrdiff_t>> parts;  ///< from byte to byte, guards included
    std::vector<int64_t> suspects;  ///< elements that were as each pattern so far left them
  };
  void add(Area area);
  std::span<const std::byte> pattern(const Area& area) const;
  void check_guards(const Area& area, std::pair<ptrdiff_t, ptrdiff_t> part,
                    const std::byte* memory) const;
  [[noreturn]] void fail_unwritten(const Area& area) const;

  const Device& device_;
  const std::string who_;
  const bool is_plugin_;
  std::vector<Area> areas_;
  std::vector<std::byte> image_, pattern_;
  int fills_ = 0;
};

}  // namespace opwright
