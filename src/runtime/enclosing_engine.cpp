#include "runtime/enclosing_engine.h"

#include <utility>

#include "backend/device.h"
#include "base/error.h"
#include "base/limits.h"
#include "plan/plan.h"

namespace opwright {
namespace {

thread_local EnclosingEngine* innermost_engine = nullptr;

void check_count(uint64_t count, int64_t limit, const char* name, const char* what) {
  require(count <= static_cast<uint64_t>(limit), "it has ", count, " ", what,
          ", more than the limit of ", limit, " (", name, "); ", limit_hint(name));
}

}  // namespace

void EnclosingEngine::add(const Plan& plan, const Device& device) {
  for (const Schedule& schedule : plan.schedules) {
    steps_ += schedule.steps.size();
    if (device.is_host()) continue;  // weights stay in the file
    for (const PlanTensor& tensor : schedule.tensors) weights_ += tensor.data.size();
  }
  expressions_ += plan.expressions.size() * plan.schedules.size();
  check_count(steps_, limits_.steps, "steps", "steps");
  check_count(expressions_, limits_.expressions, "expressions",
              "expressions in all profiles together");
}

EnclosingEngine* EnclosingEngine::current() { return innermost_engine; }

EnclosingEngine::Scope::Scope(EnclosingEngine& engine)
    : before_(std::exchange(innermost_engine, &engine)) {}
EnclosingEngine::Scope::~Scope() { innermost_engine = before_; }

}  // namespace opwright
