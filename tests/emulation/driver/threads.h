#pragma once

#include <span>

#include "driver/kernel_image.h"

namespace emulation {

/// Blocks that a cluster may have.
inline constexpr int kMaxCluster = 16;

/// How a block of threads that wait for each other ended.
enum class BlockEnd { kFinished, kDeadlock };

/// Runs the block that `table.block` names, and with it the others of its cluster, which follow
/// along x: each thread on a stack of its own, in turns. `shared`: the dynamic shared memory of
/// each.
BlockEnd run_collective_blocks(const Table& table, const Entry& entry, void** parameters,
                               std::span<char* const> shared);

/// Sets the functions that kernels call.
void set_callbacks(Block& block, void (*trap)());

}  // namespace emulation
