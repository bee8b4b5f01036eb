#pragma once

#include <cstdint>
#include <memory>

#include "runtime/engine.h"
#include "runtime/shape_state.h"

namespace opwright {

/// The step that a kernel was made for. What it refers to outlives the kernel.
struct DebuggedStep {
  const Engine& engine;
  const ShapeState& shapes;
  int profile = 0, step = 0;
  uint64_t& guarded_bytes;  ///< of all such steps of the runner
};

/// Whether it is a plugin of any kind, a compiled one included.
bool is_plugin(const PlannedOperator& op);

/// A plugin's kernel that checks every call. The plugin works on memory of the kernel's own between
/// guard bytes, so that its faults reach neither other tensors nor the user's memory. A call ends
/// with an Error, and without outputs, when the plugin
/// - wrote within GuardedMemory::kGuardBytes of an input, an output or the workspace,
/// - changed an input that no output is aliased to,
/// - left elements of an output unwritten,
/// - wrote a size tensor outside of 0 to its upper bound.
/// Its memory counts with that of the runner's other plugins: Error where the engine's limit is
/// less. The first NaN or infinity that a layer makes of finite inputs is a warning, because some
/// operators mean it. On a GPU each call is waited for, so that an error names the plugin that made
/// it.
std::unique_ptr<Kernel> debug_plugin(std::unique_ptr<Kernel> plugin, const DebuggedStep& step);

}  // namespace opwright
