#pragma once

#include <string>
#include <vector>

#include "backend/candidates.h"
#include "backend/gpu/source.h"
#include "base/types.h"
#include "operators/fused_attention.h"

// A namespace of its own, since other kernels have tiles and tactics, too.
namespace opwright::gpu::attention {

enum class AttentionKind {
  kScalar,  ///< multiply-adds
  kTensor,  ///< tensor cores: FP16 or BF16, summed in FP32
  kDirect,  ///< tensor cores, for few queries: keys and values go from memory to registers, each
            ///< warp has n keys of its own, and the results of warps, and of the blocks of a
            ///< cluster, are merged
  kSplit,   ///< the same, but a run decides how many blocks share the keys, and the last one merges
  kWarpgroup,  ///< wgmma, only on compute capability 9.0: each warpgroup has 64 of the queries, and
               ///< another one copies
};

/// Work of a block of threads: m queries and n keys at a time, with `stages` tiles of keys on their
/// way. Each warp has 16 of the queries and its share of the keys.
struct AttentionTile {
  AttentionKind kind = AttentionKind::kTensor;
  int m = 0, n = 0, warps_m = 1, warps_n = 1, stages = 2;
  /// For warpgroups: one starts its products when another has started its own. So one computes
  /// weights while another multiplies.
  bool takes_turns = false;

  bool is_tensor() const { return kind != AttentionKind::kScalar; }
  bool is_direct() const { return kind == AttentionKind::kDirect || is_split(); }
  bool is_split() const { return kind == AttentionKind::kSplit; }
  bool is_group() const { return kind == AttentionKind::kWarpgroup; }
  int groups() const { return warps_m / 4; }
  int threads() const { return 32 * warps_m * warps_n; }  ///< threads that multiply
  std::string name() const;
};

struct Tactic {
  const AttentionTile& tile;
  int parts = 1;  ///< blocks with one part of the keys each
  std::string name() const;
};
/// Throws Error for a number without a tactic.
Tactic tactic_of(int64_t number);
/// Numbers of the tactics that are worth timing, for operands of that type.
std::vector<int64_t> tactics(const FusedAttentionParams& params, DataType type,
                             const CandidateQuery& query);

/// KernelTactics::names.
std::vector<std::string> tactic_names();

/// The most elements of a head: its sums are in registers.
inline constexpr int64_t kMaxSize = 256;

/// Tasks with all keys that an attention of queries of that shape has at most.
int64_t most_tasks(const FusedAttentionParams& params, const AttentionTile& tile,
                   const Shape& queries);
/// Bits of a counter of the blocks that share a task's keys.
inline constexpr int kSplitCounterBits = 8;
/// The number of blocks among which a run divides the keys of each task. Keys may be none.
Expr split_parts(const AttentionTile& tile, const Expr& keys, const Expr& tasks);
/// Bytes for the results of these blocks, for up to that many tasks.
int64_t split_scratch(const AttentionTile& tile, const FusedAttentionParams& params,
                      int64_t most_tasks);

/// Bytes of shared memory of a block.
int64_t shared_memory(const AttentionTile& tile, const FusedAttentionParams& params, DataType type);
/// Bytes for the results of warps that share queries but no keys.
int64_t state_size(const AttentionTile& tile, const FusedAttentionParams& params);

inline int rounded(int64_t size, int64_t to) { return static_cast<int>(round_up(size, to)); }
inline int rounded_size(int64_t size) { return rounded(size, 16); }
inline int vector_of(DataType type) { return 128 / bits(type); }

}  // namespace opwright::gpu::attention
