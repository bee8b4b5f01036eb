#include "runtime/debug_tensors.h"

#include <algorithm>

#include "base/error.h"

namespace opwright {

std::vector<std::string> debug_names(const Plan& plan) {
  std::vector<std::string> names;
  for (const DebugTensor& tensor : plan.schedules[0].debug)
    if (tensor.is_marked) names.push_back(tensor.name);
  return names;
}

bool is_debug_tensor(const Plan& plan, std::string_view name) {
  const std::vector<std::string> names = debug_names(plan);
  return std::ranges::find(names, name) != names.end();
}

void DebugTensors::show(const DebugView& view) const {
  if (!listener_(view))
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
    for (const std::string& each : debug_names(plan_))
      known += (known.empty() ? "'" : ", '") + each + "'";
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
  if (on)
    for (std::string& name : debug_names(plan_)) on_.insert(std::move(name));
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
