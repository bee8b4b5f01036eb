#pragma once

#include <string>
#include <vector>

#include "backend/candidates.h"
#include "base/types.h"
#include "operators/fused_attention.h"

// A namespace of its own: neighbours have tiles and tactics, too.
namespace opwright::gpu::attention {

/// How a block of threads works: on m queries and n keys at a time, of which `stages` tiles are on
/// their way. A warp has 16 of the queries and its share of the keys.
struct AttentionTile {
  bool is_tensor = false;  ///< on tensor cores: FP16 or BF16, summed in FP32
  int m = 0, n = 0, warps_m = 1, warps_n = 1, stages = 2;
  /// Of few queries, on tensor cores: nothing goes through shared memory, a warp has n keys by
  /// itself, and what warps and blocks have found is merged.
  bool is_direct = false;
  /// By warpgroups (wgmma), of which each has 64 of the queries, beside one that copies: 9.0 alone.
  bool is_group = false;
  /// Of warpgroups: one starts its products when another has started its own, so that one weighs
  /// scores while another multiplies.
  bool takes_turns = false;
  std::string name() const;
};

struct Tactic {
  const AttentionTile& tile;
  int parts = 1;  ///< blocks that have a part of the keys each
  std::string name() const;
};
/// Throws Error for a number that is none.
Tactic tactic_of(int64_t number);
/// Numbers of tactics that are worth trying, for operands of that type.
std::vector<int64_t> tactics(const FusedAttentionParams& params, DataType type,
                             const CandidateQuery& query);

/// KernelTactics::names.
std::vector<std::string> tactic_names();

/// Elements of a head at most: its sums are in registers.
inline constexpr int64_t kMaxSize = 256;
/// Queries of a warp.
inline constexpr int kWarpRows = 16;

/// Places in shared memory, in bytes.
struct SharedMemory {
  int64_t stages = 0, weights = 0, total = 0;
  SharedMemory(const AttentionTile& tile, const FusedAttentionParams& params, DataType type);
};

inline int rounded(int64_t size, int64_t to) { return static_cast<int>((size + to - 1) / to * to); }
inline int rounded_size(int64_t size) { return rounded(size, 16); }
inline int vector_of(DataType type) { return 128 / bits(type); }

}  // namespace opwright::gpu::attention
