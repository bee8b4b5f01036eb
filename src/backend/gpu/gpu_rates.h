#pragma once

namespace opwright::gpu {

/// What GPUs of an architecture do in a time, as far as the estimates of kernels' times need it.
/// Times are cycles of a multiprocessor, and rates are those of one multiprocessor, where nothing
/// else is said.
struct GpuRates {
  int architecture = 0;
  double multiprocessors = 0;
  double clock = 0;         ///< cycles per millisecond
  double memory = 0;        ///< bytes per cycle of the whole GPU's memory
  double cache = 0;         ///< bytes per cycle of the whole GPU's second-level cache
  double cache_bytes = 0;   ///< bytes of tensors that stay in that cache between runs
  double port = 0;          ///< bytes per cycle between that cache and a multiprocessor
  double shared = 0;        ///< bytes per cycle of shared memory
  double shared_bytes = 0;  ///< bytes of shared memory
  double scalar = 0, tensor = 0, group = 0;  ///< FP32 operations per cycle of scalar units; FP16
                                             ///< operations of tensor cores, by warps and by
                                             ///< warpgroups
  // Fitted to measured times. `group`: of tiles of warpgroups.
  double start = 0;  ///< cycles of a kernel that does nothing
  /// Cycles until what is read from the second-level cache arrives, and cycles of a tile before its
  /// first step and behind its last one.
  double latency = 0, group_latency = 0, tile = 0, group_tile = 0;
  /// Cycles that warps, or warpgroups, wait for each other in each step.
  double step = 0, group_step = 0;
  /// Instructions of a thread: of each step; to copy a vector of a matrix, a vector of a window,
  /// and an element; of a result without its program.
  double loop = 0, vector_copy = 0, window_copy = 0, element_copy = 0, result = 0;
  double issue = 0;    ///< instructions that a warp begins in a cycle
  double overlap = 0;  ///< the norm that adds up what units do at the same time: 1 adds the cycles,
                       ///< infinity takes the most
  double spill = 0;    ///< times the products where a warpgroup's sums leave no registers
  double results = 0;  ///< times the bytes of results
  /// Cycles to merge the parts of a tile, beside the bytes of its sums: through memory, and in a
  /// cluster, whose blocks read these bytes as if they were so many times as many.
  double merge = 0, cluster = 0, cluster_reads = 0;
};

/// The rates of the newest known architecture up to this one; of the oldest known for older ones.
const GpuRates& gpu_rates(int architecture);

}  // namespace opwright::gpu
