#include "runtime/call_shapes.h"

namespace opwright {

CallShapes::CallShapes(const Engine& engine)
    : engine_(engine), checked_([&engine] { return std::make_unique<Checked>(engine.plan()); }) {}

void CallShapes::check(std::span<const Shape> shapes, std::span<const void* const> addresses) {
  Checked& checked = checked_.get();
  const std::lock_guard lock(checked.mutex);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const PlanPort& port = engine_.plan().inputs[i];
    const int input = static_cast<int>(i);
    checked.state.set_shape(input, shapes[i]);
    if (!port.is_shape_input) continue;
    if (addresses[i] != nullptr) {
      checked.state.take_values(input, addresses[i]);
    } else {
      require(shapes[i].numel() == 0, "the address of shape input '", port.name, "' is not set");
    }
  }
  checked.state.update();
}

}  // namespace opwright
