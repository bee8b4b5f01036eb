#pragma once

#include <string>
#include <vector>

#include "backend/gpu/config_writer.h"
#include "backend/gpu/source.h"
#include "operators/recurrence.h"

namespace opwright::gpu {

enum RecurrentPort { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kP };

/// How a recurrent layer is divided among blocks and warps.
struct RecurrentPlan {
  int rows = 1;    ///< rows of the batch that go through all steps together
  int blocks = 1;  ///< blocks that share the units; several blocks are a cluster
  /// On tensor cores: tiles of each warp, with four units each. 0: lanes multiply.
  int tiles = 0;
  int warps = 0;            ///< on tensor cores: warps of a block
  bool is_rounded = false;  ///< whether FP32 is rounded to TF32 on tensor cores
  bool is_tiled() const { return tiles > 0; }
  bool is_cluster() const { return blocks > 1; }
  std::string name() const;
  friend bool operator==(const RecurrentPlan&, const RecurrentPlan&) = default;
};

/// Whether a GRU's reset gate multiplies the state before its product. The product then needs the
/// reset gates of all units.
inline bool resets_first(const RecurrenceParams& params) {
  return params.cell == RecurrentCell::kGRU && !params.linear_before_reset;
}

/// The members of `struct Config` that device/recurrence.cuh names.
ConfigWriter recurrent_config(const RecurrenceParams& params, const KernelArgs& args,
                              const RecurrentPlan& plan, int warps);
/// The statement that defines `all`, the kernel's RecurrentArguments. Adds checks: runs fail for
/// inputs that do not fit the sequences.
std::string recurrent_arguments(KernelSource& source, const RecurrenceParams& params,
                                const KernelArgs& args, const RecurrentPlan& plan);
/// The number of tasks (device/recurrence.cuh).
Expr recurrent_tasks(const KernelSource& source, const RecurrenceParams& params,
                     const RecurrentPlan& plan);

/// Whether GPUs of that architecture can run a plan without tensor cores.
bool fits_lanes(const RecurrenceParams& params, const KernelArgs& args, const RecurrentPlan& plan,
                int architecture);
/// Writes the kernel without tensor cores (device/recurrence_lanes.cuh).
GeneratedKernel generate_recurrent_lanes(const RecurrenceParams& params, const KernelArgs& args,
                                         const RecurrentPlan& plan);

/// Plans of the kernel on tensor cores (device/recurrence_tiles.cuh) whose weights fit into
/// registers.
std::vector<RecurrentPlan> recurrent_tile_plans(const RecurrenceParams& params,
                                                const KernelArgs& args);
/// KernelTactics::names of the plans on tensor cores.
std::vector<std::string> recurrent_tile_names();
/// Whether GPUs of that architecture can run a plan on tensor cores.
bool fits_tiles(const RecurrentPlan& plan, const KernelArgs& args, int architecture);
/// Writes the kernel on tensor cores.
GeneratedKernel generate_recurrent_tiles(const RecurrenceParams& params, const KernelArgs& args,
                                         const RecurrentPlan& plan);

}  // namespace opwright::gpu
