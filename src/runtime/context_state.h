#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "backend/last_use.h"
#include "runtime/context.h"
#include "runtime/runner.h"
#include "runtime/scratch.h"
#include "runtime/shape_state.h"

namespace opwright {

/// A context in one profile.
struct ProfileState {
  ProfileState(const Plan& plan, int profile) : shapes(plan, profile) {}
  ShapeState shapes;
  std::unique_ptr<Runner> runner;
};

/// State of an input of the network.
struct InputState {
  const void* address = nullptr;
};

/// State of an output of the network.
struct OutputState {
  void* address = nullptr;
  std::shared_ptr<OutputMemory> memory;
  size_t bytes = 0;  ///< the size of the memory at the output's largest shape
};

/// No stream has this handle.
inline const Queue kNoQueue = reinterpret_cast<Queue>(~uintptr_t{0});  // NOLINT(*-int-to-ptr)

struct Context::State {
  explicit State(ScratchSharing* sharing) : scratch(sharing) {}
  const Device* gpu = nullptr;  ///< null: the host itself
  /// The last use, by its runs, of what the context's kernels use; null on the host.
  std::shared_ptr<LastUse> last_use;
  std::vector<std::unique_ptr<ProfileState>> profiles;
  ProfileState* current = nullptr;
  std::atomic<int32_t> current_step = -1;
  std::vector<InputState> inputs;
  std::vector<OutputState> outputs;
  std::vector<int> shape_inputs;
  Scratch scratch;  ///< the context's own memory, and the mark that the context runs
  std::byte* users_memory = nullptr;
  size_t users_bytes = 0;
  void* workspace = nullptr;
  Queue queue = kNoQueue;  ///< the last queue that was checked
  void* input_consumed = nullptr;
  std::vector<Queue> aux_queues;
  LayerTimeCallback callback;
  std::vector<float> times;
  bool are_times_known = false;  ///< whether the last run has times
  int timed_profile = 0;         ///< the profile of the times
  bool has_output_memory = false;
  /// Whether shapes, kernels, memory and addresses are as the next run needs them.
  bool is_ready = false;
  uint64_t generation = 0;  ///< generation of the engine's weights when is_ready was set
  /// Number of threads that share the kernels' loops. Kernels are made for this number.
  int threads = 1;

  bool shape_values_changed() const {
    for (const int input : shape_inputs) {
      if (current->shapes.differs(input, inputs[input].address)) return true;
    }
    return false;
  }
};

inline bool has_elements(const Shape& shape) {
  return std::find(shape.begin(), shape.end(), 0) == shape.end();
}

}  // namespace opwright
