#pragma once

#include <cstddef>

#include "backend/gpu/kernels.h"
#include "operators/dist_collective.h"

namespace opwright::gpu {

/// The kernel that reduces the ranks' parts of a tensor. Its input has them one behind the other,
/// with the shape [ranks, elements], and its output has one element for each of a part.
GeneratedKernel generate_rank_reduction(const DistCollectiveParams& params, const KernelArgs& args);

/// Bytes of the largest tensor that the kernel of generate_peer_all_reduce() reduces.
size_t most_bytes_between_peers(int ranks);
/// Bytes that it needs in the memory of each GPU.
size_t packet_bytes_between_peers(int ranks);
/// Whether generate_peer_all_reduce() can generate the operation's kernel: an all-reduce of floats
/// over all ranks, of which there are not too many.
bool can_reduce_between_peers(const DistCollectiveParams& params, DataType type);

/// The kernel of an all-reduce in memory that the ranks' GPUs share. Its inputs are this rank's
/// elements and the table of that memory (device/peers.cuh), and its output are the reduced
/// elements. All have one axis.
GeneratedKernel generate_peer_all_reduce(const DistCollectiveParams& params,
                                         const KernelArgs& args);

}  // namespace opwright::gpu
