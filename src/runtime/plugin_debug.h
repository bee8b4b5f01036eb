#pragma once

#include <cstdint>
#include <memory>

#include "runtime/engine.h"
#include "runtime/shape_state.h"

namespace opwright {

/// The step that a kernel was made for. All references must outlive the kernel.
struct DebuggedStep {
  const Engine& engine;
  const ShapeState& shapes;
  int profile = 0, step = 0;
  uint64_t& guarded_bytes;  ///< of all checked steps of the runner
};

/// Whether the step is a plugin of any kind, a compiled one included.
bool is_plugin(const PlannedOperator& op);

/// Wraps a plugin's kernel and checks every call. The plugin works on separate memory between guard
/// bytes, so that its faults reach neither other tensors nor the user's memory. A call ends with an
/// Error, and without outputs, when the plugin
/// - wrote within GuardedMemory::kGuardBytes of an input, an output or the workspace,
/// - changed an input that no output is aliased to,
/// - left elements of an output unwritten,
/// - wrote a size tensor outside of 0 to its upper bound.
/// The memory counts with that of the runner's other checked plugins; exceeding the engine's limit
/// is an Error. If a layer makes NaN or infinity of finite inputs, the first is a warning, because
/// some operators intend it. On a GPU each call waits, so that an error names the plugin that
/// caused it.
std::unique_ptr<Kernel> debug_plugin(std::unique_ptr<Kernel> plugin, const DebuggedStep& step);

}  // namespace opwright
