#include "runtime/debug_tensors.h"

#include <algorithm>

#include "base/error.h"

namespace opwright {

bool is_debug_tensor(const Plan& plan, std::string_view name) {
  return std::ranges::any_of(plan.schedules[0].debug, [&](const DebugTensor& tensor) {
    return tensor.is_marked && tensor.name == name;
  });
}

void fail_refused(const DebugView& view) {
  fail_with(ErrorCode::kFAILED_EXECUTION, "the debug listener returned false for tensor '",
            view.name, "', which ends the run");
}

void DebugTensors::set_listener(DebugListener listener) {
  listener_ = std::move(listener);
  update();
}

void DebugTensors::set_state(const std::string& name, bool on) {
  if (!is_debug_tensor(plan_, name)) {
    std::string known;
    for (const DebugTensor& tensor : plan_.schedules[0].debug)
      if (tensor.is_marked) known += (known.empty() ? "'" : ", '") + tensor.name + "'";
    fail("the engine has no debug tensor '", name, "'; ",
         known.empty() ? "none was marked (mark_debug) when it was built" : "it has ", known);
  }
  if (on) {
    on_.insert(name);
  } else {
    on_.erase(name);
  }
  update();
}

void DebugTensors::set_all(bool on) {
  on_.clear();
  for (const DebugTensor& tensor : plan_.schedules[0].debug)
    if (on && tensor.is_marked) on_.insert(tensor.name);
  set_unfused(on);
}

void DebugTensors::set_unfused(bool on) {
  unfused_ = on;
  update();
}

void DebugTensors::update() {
  is_active_ = listener_ && std::ranges::any_of(plan_.schedules, [&](const Schedule& schedule) {
                 return std::ranges::any_of(
                     schedule.debug, [&](const DebugTensor& tensor) { return shows(tensor); });
               });
}

}  // namespace opwright
