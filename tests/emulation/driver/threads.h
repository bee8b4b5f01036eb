#pragma once

#include "driver/kernel_image.h"

namespace emulation {

/// How a block of threads that wait for each other ended.
enum class BlockEnd { kFinished, kDeadlock };

/// Runs the block that `table.block` names: each thread on a stack of its own, in turns.
BlockEnd run_collective_block(const Table& table, const Entry& entry, void** parameters);

/// Sets the functions that kernels call.
void set_callbacks(Block& block, void (*trap)());

}  // namespace emulation
