#pragma once

#include <string>

#include "backend/gpu/attention_tiles.h"
#include "backend/gpu/source.h"

namespace opwright::gpu::attention {

/// Writes the kernel of one attention: in attention_writer.cpp what all have and what goes through
/// tiles in shared memory, in group_attention.cpp that of warpgroups, in direct_attention.cpp that
/// of few queries.
class AttentionWriter {
 public:
  AttentionWriter(const FusedAttentionParams& params, const KernelArgs& args);
  GeneratedKernel write();

 private:
  static size_t at(int axis) { return static_cast<size_t>(axis); }
  bool has(int input) const {
    return args_.inputs.size() > at(input) && args_.inputs[at(input)].present;
  }
  bool is_wide() const { return tile_.is_direct || tile_.is_group; }
  /// Whether scores are only scaled, which is done together with the exponential.
  bool is_plain() const;

  void write_declarations();
  /// `make_result`, of the code: what is stored of a result in FP32.
  std::string write_result() const;
  /// Whether vectors of an operand may be copied.
  std::string alignment(int input);
  std::string place(int operand, std::string_view batch, std::string_view head,
                    std::string_view position);
  std::string reader(int input);
  /// Numbers that all tasks have.
  std::string write_sizes();
  /// Of task `number`: its queries and keys.
  std::string write_task();
  /// How many keys each query of a lane meets, and all of the block.
  std::string write_limits();
  /// Where a mask begins for each query of a lane.
  std::string write_mask_places(int input);
  /// By so many threads, of which this is number `thread`, queries from line `first` on.
  std::string write_query_copies(int count, int threads, std::string_view thread,
                                 std::string_view first);
  /// What becomes of score `x`, in powers of 2, where its key counts.
  std::string write_score() const;
  std::string write_output();

  GeneratedKernel write_tiles(const Expr& tasks);
  std::string write_loop() const;
  /// Warps with other keys hand over what they have found, one after the other.
  static std::string write_warp_merging();
  /// The last block that is done adds up the parts, always in one order.
  std::string write_part_merging(const Expr& tasks);

  GeneratedKernel write_direct(const Expr& tasks);
  std::string write_direct_fetch(const std::string& tasks);
  /// Whether none of a warp's keys may be met, as far as masks say: these are not read.
  std::string write_direct_skip() const;
  std::string write_direct_loop();
  std::string write_direct_output();

  GeneratedKernel write_groups(const Expr& tasks);
  /// How many warpgroups multiply.
  int groups() const { return tile_.warps_m / 4; }
  float group_score_factor() const;
  /// What scores, and sums of values, are multiplied by: 16 elements along the sum.
  std::string group_instructions() const;
  /// Lets the copying unit (TMA) read keys and values where it can.
  void add_maps();
  std::string write_group_declarations();
  /// Of keys (1) or values (2) of the tile, into the next stage.
  std::string write_group_copy(int input);
  /// What becomes of the scores of a tile of keys before they are weighed.
  std::string write_group_scores() const;
  std::string write_group_loop() const;
  std::string write_group_queries();
  std::string write_group_output();

  const FusedAttentionParams& params_;
  const KernelArgs& args_;
  KernelSource source_;
  const Tactic tactic_;
  const AttentionTile& tile_;
  const DataType type_;
  AttentionStrides<Expr> strides_[4];
  Expr batch_, queries_, keys_, tiles_;
  bool has_maps_ = false;
};

}  // namespace opwright::gpu::attention
