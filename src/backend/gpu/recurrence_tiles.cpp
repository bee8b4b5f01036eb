#include <algorithm>
#include <bit>

#include "backend/candidates.h"
#include "backend/gpu/recurrence.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// The most registers of a thread for weights of the state.
constexpr int64_t kWeightRegisters = 128;
constexpr int64_t kMostWarps = 8, kMostTiles = 4;
constexpr int kMostBlocks = 16;
/// The fewest units of a block that does not have all units.
constexpr int64_t kFewestUnits = 16;
/// The head of shared memory: two barriers, and from byte 32 on the rows' lengths.
constexpr int64_t kHeadBytes = 256;
/// The fewest units of a layer on tensor cores. With fewer, tiles would be mostly empty.
constexpr int64_t kFewestTiledUnits = 16;

/// The layout of a block's shared memory: the head, two states, the inputs of some steps, their
/// sums, and the weights W if there is room.
struct TileMemory {
  int steps = 0;  ///< steps whose inputs are there at once; 0: there is no room
  bool keeps_w = false;
  int64_t state = 0, inputs = 0, sums = 0, total = 0;

  TileMemory(const RecurrentPlan& plan, const KernelArgs& args, int architecture) {
    const int64_t size = element_size(args.inputs[kX].type.dtype);
    const int64_t input = args.inputs[kW].max[2];
    const auto parts = [&](int64_t length) { return (length * size + 63) / 64; };
    const int64_t units = int64_t{4} * plan.tiles * plan.warps;
    const int64_t row = parts(input) * 64 + (parts(input) % 2 == 0 ? 64 : 0);
    const int64_t threads = int64_t{32} * plan.warps;
    state = parts(units * plan.blocks) * plan.rows * 64;
    const int64_t kept = parts(input) * plan.tiles * threads * 32;
    constexpr int64_t kMostSteps = 8, kStepsWithWeights = 4;
    const int64_t typical = std::clamp<int64_t>(args.inputs[kX].opt[0], 1, kMostSteps);
    for (const bool keeps : {true, false})
      for (int64_t n = kMostSteps; n >= (keeps ? kStepsWithWeights : 1) && steps == 0; n /= 2) {
        if (n >= 2 * typical) continue;
        keeps_w = keeps;
        inputs = n * plan.rows * row;
        sums = n * plan.rows / 8 * plan.tiles * threads * 16;
        total = kHeadBytes + 2 * state + inputs + sums + (keeps ? kept : 0);
        if (total <= most_shared_memory(architecture)) steps = static_cast<int>(n);
      }
  }
};

}  // namespace

std::vector<RecurrentPlan> recurrent_tile_plans(const RecurrenceParams& params,
                                                const KernelArgs& args) {
  const DataType type = args.inputs[kX].type.dtype;
  const int64_t hidden = args.inputs[kR].max[2], batch = args.inputs[kX].opt[1];
  if (hidden < kFewestTiledUnits) return {};
  const int64_t parts = (hidden * element_size(type) + 63) / 64;
  std::vector<RecurrentPlan> plans;
  for (int blocks = kMostBlocks; blocks >= 1; blocks /= 2) {
    const int64_t tiles = ((hidden + 3) / 4 + blocks - 1) / blocks;
    if (tiles > kMostTiles * kMostWarps || (blocks > 1 && 4 * tiles < kFewestUnits)) continue;
    RecurrentPlan plan;
    plan.rows = 8, plan.blocks = blocks;
    plan.tiles = static_cast<int>(std::bit_ceil<uint64_t>((tiles + kMostWarps - 1) / kMostWarps));
    plan.warps = static_cast<int>((tiles + plan.tiles - 1) / plan.tiles);
    // Blocks send their units in pieces of 16 bytes.
    if (plan.tiles * plan.warps % 2 != 0) ++plan.warps;
    if (8 * parts * plan.tiles > kWeightRegisters) continue;
    for (const bool is_rounded : {false, true}) {
      if (is_rounded && type != DataType::kFLOAT) continue;
      plan.is_rounded = is_rounded, plan.rows = 8;
      plans.push_back(plan);
      plan.rows = 16;
      if (batch > 8 && (batch + 7) / 8 * params.directions() * blocks > kFewBlocks)
        plans.push_back(plan);
    }
  }
  return plans;
}

std::vector<std::string> recurrent_tile_names() {
  std::vector<std::string> names;
  for (int blocks = kMostBlocks; blocks >= 1; blocks /= 2)
    for (const int rows : {8, 16})
      for (const bool is_rounded : {false, true})
        names.push_back(RecurrentPlan{rows, blocks, 1, 1, is_rounded}.name());
  return names;
}

bool fits_tiles(const RecurrentPlan& plan, const KernelArgs& args, int architecture) {
  const int first = plan.blocks > 1 ? kClusterArchitecture : kTensorArchitecture;
  return architecture >= first && TileMemory(plan, args, architecture).steps > 0;
}

GeneratedKernel generate_recurrent_tiles(const RecurrenceParams& params, const KernelArgs& args,
                                         const RecurrentPlan& plan) {
  const TileMemory memory(plan, args, target_architecture(args));
  const bool is_float = args.inputs[kX].type.dtype == DataType::kFLOAT;
  KernelSource source("recurrence", args);
  source.leave_waiting();
  ConfigWriter config = recurrent_config(params, args, plan, plan.warps);
  config.number("kTiles", plan.tiles), config.number("kSteps", memory.steps);
  config.number("kSharedBytes", memory.total), config.flag("kKeepsW", memory.keeps_w);
  config.flag("kSplits", is_float && !plan.is_rounded);
  config.flag("kRounds", is_float && plan.is_rounded);
  source.add_declarations(include("recurrence_tiles.cuh") + config.write());
  const std::string arguments = recurrent_arguments(source, params, args, plan);
  GeneratedKernel kernel = source.finish(arguments + "run_by_tiles(all);\n",
                                         recurrent_tasks(source, params, plan) * Expr(plan.blocks),
                                         plan.warps * kWarp, 1, plan.blocks);
  kernel.launch.shared_memory = memory.total;
  return kernel;
}

}  // namespace opwright::gpu
