#pragma once

#include <span>

#include "driver/kernel_image.h"

namespace emulation {

/// The most blocks of a cluster.
inline constexpr int kMaxCluster = 16;

/// The end of a block of threads that wait for each other.
enum class BlockEnd { kFinished, kDeadlock };

/// Runs the block that `table.block` names and the other blocks of its cluster, which follow along
/// x. Each thread has its own stack, and threads run in turns. `shared` has the dynamic shared
/// memory of each block.
BlockEnd run_collective_blocks(const Table& table, const Entry& entry, void** parameters,
                               std::span<char* const> shared);

/// Sets the functions that kernels call.
void set_callbacks(Block& block, void (*trap)());

}  // namespace emulation
