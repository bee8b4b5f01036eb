#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/recurrence.h"
#include "base/checked.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

constexpr int kRecurrentThreads = 1024, kFewerThreads = 512;
/// The most bytes of a block's states in shared memory. Larger states are in global memory.
constexpr int64_t kStateBytes = 40960;
/// The most bytes of weights that a block of a cluster keeps in shared memory, where its states
/// leave room for them.
constexpr int64_t kKeptBytes = 200 << 10;

/// A block's states and kept weights. LaneConfig and LaneBlock define their layout.
struct LaneMemory {
  int warps = 1;
  int64_t state_bytes = 0, kept_bytes = 0;
  bool keeps_r = false, keeps_w = false;

  LaneMemory(const RecurrenceParams& params, const KernelArgs& args, const RecurrentPlan& plan,
             int architecture) {
    const int64_t hidden = args.inputs[kR].max[2], input = args.inputs[kW].max[2];
    const int64_t units = (hidden + plan.blocks - 1) / plan.blocks;
    const int most = (plan.rows > 2 ? kFewerThreads : kRecurrentThreads) / kWarp;
    warps = static_cast<int>(std::clamp<int64_t>(units, 1, most));
    const int states = params.cell == RecurrentCell::kLSTM ? 3 : resets_first(params) ? 4 : 2;
    state_bytes =
        checked_product("the states of a recurrent layer",
                        {states, plan.rows, (hidden + 3) / 4 * 4, int64_t{sizeof(float)}});
    if (!plan.is_cluster()) return;
    const int64_t size = element_size(args.inputs[kX].type.dtype), gates = gate_count(params.cell),
                  r = (gates * units * hidden + 7) / 8 * 8 * size, w = gates * units * input * size;
    const int64_t room = std::min(kKeptBytes, most_shared_memory(architecture) - state_bytes);
    keeps_r = r <= room, keeps_w = keeps_r && r + w <= room;
    kept_bytes = (keeps_r ? r : 0) + (keeps_w ? w : 0);
  }
  bool is_shared() const { return state_bytes <= kStateBytes; }
};

}  // namespace

bool fits_lanes(const RecurrenceParams& params, const KernelArgs& args, const RecurrentPlan& plan,
                int architecture) {
  return !plan.is_cluster() || (architecture >= kClusterArchitecture &&
                                LaneMemory(params, args, plan, architecture).state_bytes <=
                                    most_shared_memory(architecture));
}

GeneratedKernel generate_recurrent_lanes(const RecurrenceParams& params, const KernelArgs& args,
                                         const RecurrentPlan& plan) {
  const LaneMemory memory(params, args, plan, target_architecture(args));
  KernelSource source("recurrence", args);
  const std::string arguments = recurrent_arguments(source, params, args, plan);
  const bool has_scratch = !plan.is_cluster() && !memory.is_shared();
  if (has_scratch) {
    const int64_t batch = args.inputs[kX].max[1], most = (batch + plan.rows - 1) / plan.rows;
    source.add_scratch("float", checked_product("the states of a recurrent layer",
                                                {most, params.directions(), memory.state_bytes}));
    source.check(Expr(1) - Expr::make(ExprOp::kLess, batch, source.dims(kX)[1]),
                 "the batch must be within the optimization profile");
  }
  ConfigWriter config = recurrent_config(params, args, plan, memory.warps);
  config.flag("kIsShared", memory.is_shared());
  config.value("long long", "kSharedBytes", memory.state_bytes + memory.kept_bytes);
  config.flag("kKeepsR", memory.keeps_r), config.flag("kKeepsW", memory.keeps_w);
  source.add_declarations(include("recurrence_lanes.cuh") + config.write());
  GeneratedKernel kernel = source.finish(
      str(arguments, "run_by_lanes(all, ", has_scratch ? "scratch" : "nullptr", ");\n"),
      recurrent_tasks(source, params, plan) * Expr(plan.blocks), memory.warps * kWarp,
      plan.is_cluster() ? 1 : 0, plan.blocks);
  if (plan.is_cluster()) kernel.launch.shared_memory = memory.state_bytes + memory.kept_bytes;
  return kernel;
}

}  // namespace opwright::gpu
