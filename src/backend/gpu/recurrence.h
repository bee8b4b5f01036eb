#pragma once

#include <string>
#include <vector>

#include "backend/gpu/source.h"
#include "operators/recurrence.h"

namespace opwright::gpu {

enum RecurrentPort { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kP };

/// How a recurrent layer is divided.
struct RecurrentPlan {
  int rows = 1;    ///< of the batch, which go through all steps together
  int blocks = 1;  ///< that share the units; more than one are a cluster
  /// On tensor cores: of each warp, of four units each. 0: lanes multiply.
  int tiles = 0;
  int warps = 0;            ///< of a block on tensor cores
  bool is_rounded = false;  ///< of FP32 on tensor cores: to TF32
  std::string name() const;
  friend bool operator==(const RecurrentPlan&, const RecurrentPlan&) = default;
};

/// Whether a GRU's reset gate multiplies the state, whose product then needs all of it.
inline bool resets_first(const RecurrenceParams& params) {
  return params.cell == RecurrentCell::kGRU && !params.linear_before_reset;
}

/// Runs fail for inputs that do not fit the sequences.
void check_recurrent_shapes(KernelSource& source, const KernelArgs& args);

/// Declares a cell's functions, all of which take the direction last. Sums of gates have their
/// biases.
///  - `activation0(x, direction)`, ... and `gate0(sum, direction)`, ..., which clip before;
///  - of LSTM `next_state({i, o, f, c}, {i's peephole, o's, f's}, cell, direction)`, which changes
///    the cell;
///  - of GRU `next_state({z, r, candidate's from x, from h}, h, direction)`, or, where it resets
///    first, `mix_states(z, candidate's sum, h, direction)`.
/// `is_quick`: sigmoid and tanh err by some 1e-7, which types of 16 bits do not show.
void declare_recurrent_cell(KernelSource& source, const RecurrenceParams& params,
                            bool has_peepholes, bool is_quick);

/// What the kernel on tensor cores has room for, by the ports' types.
std::vector<RecurrentPlan> recurrent_tile_plans(const RecurrenceParams& params,
                                                const KernelArgs& args);
/// KernelTactics::names of them.
std::vector<std::string> recurrent_tile_names();
/// Whether GPUs of that architecture run the plan, one of the above.
bool fits_tiles(const RecurrentPlan& plan, const KernelArgs& args, int architecture);
GeneratedKernel generate_recurrent_tiles(const RecurrenceParams& params, const KernelArgs& args,
                                         const RecurrentPlan& plan);

}  // namespace opwright::gpu
