#pragma once

#include <span>
#include <string>

#include "plan/plan.h"

namespace opwright {

/// An engine to be shown, and its label beside another engine.
struct ViewedPlan {
  std::string label;
  const Plan* plan = nullptr;
};

/// An HTML page that shows engines and needs no other files: the graph of the steps with their
/// formats, the candidates that the tuner compared, the use of time and memory, and the differences
/// of two engines. Names are data in the page, never markup, whoever wrote the file.
std::string view_page(std::span<const ViewedPlan> plans);

}  // namespace opwright
