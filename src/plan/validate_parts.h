#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "plan/plan.h"

namespace opwright {

// Building blocks of the checks of plans. `where` and `what` are words for messages.

inline bool is_size_type(DataType type) {
  return type == DataType::kINT32 || type == DataType::kINT64;
}

/// Throws Error for a text with a zero byte, which would end it early in C.
inline void check_text(const std::string& text, std::string_view where) {
  require(text.find('\0') == std::string::npos, "a text of ", where, " contains a zero byte");
}

/// Throws Error unless `index` is that of an expression of the plan.
inline void check_expression(const Plan& plan, int32_t index, std::string_view what,
                             const std::string& name) {
  require(index >= 0 && static_cast<size_t>(index) < plan.expressions.size(), what, " '", name,
          "' uses expression ", index, " of ", plan.expressions.size());
}

void check_dims(const Plan& plan, std::span<const int32_t> dims, std::string_view what,
                const std::string& name);

/// Throws Error unless type and format are known, and a tensor of that rank can have them.
void check_type(PortType type, int rank, std::string_view what, const std::string& name);

/// Throws Error unless a schedule of the plan is consistent: indices are in range, tensors lie
/// within their memory, and each tensor is written before it is read. The plan's other parts have
/// been checked. `changes`: per value of Plan::refit, whether refitting may change it.
void validate_schedule(const Plan& plan, const Schedule& schedule,
                       const std::vector<bool>& changes);

}  // namespace opwright
