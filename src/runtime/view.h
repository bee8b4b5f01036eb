#pragma once

#include <span>
#include <string>

#include "plan/plan.h"

namespace opwright {

/// An engine to be looked at, and what it is called beside another.
struct ViewedPlan {
  std::string label;
  const Plan* plan = nullptr;
};

/// A page of HTML that shows engines and needs nothing else: the graph of the steps with their
/// formats, what the tuner compared, where time and memory go, and of two engines what differs.
/// Names are data in it, never markup, whoever wrote the file.
std::string view_page(std::span<const ViewedPlan> plans);

}  // namespace opwright
