#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/pointwise_broadcast.h"
#include "backend/cpu/pointwise_tile.h"
#include "base/types.h"
#include "network/operator.h"
#include "operators/pointwise.h"

namespace opwright {

/// The type of a tensor's elements in a register.
inline DataType register_type(DataType type) { return is_floating(type) ? DataType::kFLOAT : type; }

/// A pointwise program that runs tile by tile over the elements of its output, so that intermediate
/// values stay in the first-level cache. Some registers are the same for every tile: constants,
/// scalars, vectors that repeat within a tile, and values computed from these. They are computed
/// once per range of tiles. A register whose elements are all equal within each tile is computed
/// once per tile. FP32 and integer tensors are read and written in place.
class PointwisePlan {
  // Half of a first-level cache, so that the tensors' own tiles fit as well. Programs with very
  // many live registers may use more, down to tiles of 64 elements.
  static constexpr int64_t kPreferredBytes = 24 << 10, kScratchBytes = 48 << 10;
  static constexpr int64_t kMaxTile = 2048, kMinTile = 64;
  static constexpr int kMaxSlots = 96, kMaxPointers = 1024;

  struct Register {
    bool invariant = false;  ///< the same for every tile
    bool uniform = false;    ///< all elements are equal
    bool single = false;     ///< one element, which stands for all of a tile
    int last_use = -1;       ///< index of the instruction
    int pointer = -1;        ///< index into the table of pointers, of the tile's values
    int load = -1;           ///< index into loads_ of an input that has not been read yet
    int slot = -1;           ///< scratch that becomes free after the last use
  };
  /// Brings a tile of an input into a register.
  struct Load {
    int input = 0;
    int pointer = 0;
    int slot = -1;      ///< scratch for the register; -1: the input is read in place
    int raw_slot = -1;  ///< scratch for gathered elements before they are converted
    int element_size = 0;
    bool single = false;
    TileFunction convert = nullptr;  ///< null when the register has the input's type
    BroadcastView view;
  };
  /// A function over registers, or a load.
  struct Step {
    TileFunction function = nullptr;  ///< null: loads_[a]
    int out = 0, a = 0, b = 0, c = 0;
    double immediates[2] = {};
    bool single = false;
  };

 public:
  PointwisePlan(std::string_view layer, std::vector<PointwiseInstruction> program, Ints results,
                std::span<const PortDesc> inputs, std::span<const PortDesc> outputs);

  void set_shapes(std::span<const Shape> inputs, std::span<const Shape> outputs);
  int64_t tiles() const { return tiles_; }
  /// Tiles that are worth a thread of their own.
  int64_t grain() const { return grain_; }
  /// Computes tiles [begin, end). Thread safe.
  void run(void const* const* inputs, void* const* outputs, int64_t begin, int64_t end) const {
    const auto [first, last] = elements(begin, end);
    Run(*this, inputs, outputs).compute(first, last);
  }
  /// The first element of tile `begin`, and the one behind tile `end` - 1.
  std::pair<int64_t, int64_t> elements(int64_t begin, int64_t end) const {
    return {begin * tile_, std::min(end * tile_, numel_)};
  }

  /// One thread's work on one set of tensors.
  class Run {
   public:
    Run(const PointwisePlan& plan, void const* const* inputs, void* const* outputs);
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    /// Computes elements [first, end). `first` must be a multiple of the lengths in which inputs
    /// repeat. `own`: the elements of input 0 from `first` on, which has the outputs' shape; null:
    /// they are in inputs[0].
    void compute(int64_t first, int64_t end, const void* own = nullptr);

   private:
    void run_steps(const std::vector<Step>& steps, int64_t first, int64_t count);
    void bring(const Load& load, int64_t first, int64_t count);

    const PointwisePlan& plan_;
    void const* const* inputs_;
    void* const* outputs_;
    const std::byte* own_ = nullptr;
    int64_t own_first_ = 0;
    void* pointers_[kMaxPointers];
    alignas(64) std::byte scratch_[kScratchBytes];
  };

 private:
  struct Constant {
    int slot = 0;
    DataType type = DataType::kFLOAT;
    double value = 0;
  };

  /// Replaces the instructions of a quantization to bytes, and those that dequantize sums, with one
  /// instruction each.
  void fuse_instructions();
  TileFunction function_of(int index) const;
  /// Registers, slots and steps for tiles of at most `limit` elements. False when the scratch
  /// memory does not suffice.
  bool build(int64_t limit);
  void analyze(int64_t limit);
  /// Finds the registers with one element per tile, for a tile size that is a multiple of `unit`.
  /// They are inputs that are repeated along the last axes, and values computed only from such
  /// inputs.
  void find_single(int64_t unit, int64_t limit);
  /// Whether the operand may have one element although the instruction has a whole tile.
  bool takes_single(const PointwiseInstruction& instruction, int operand) const;
  bool is_scalar(int index) const { return registers_[index].uniform || registers_[index].single; }
  void emit(int index);
  void read(int index);
  void release_operands(int index);
  int take_slot();

  std::string layer_;
  std::vector<PointwiseInstruction> program_;
  Ints results_;
  std::vector<PortType> input_types_, output_types_;
  int register_bytes_ = 4;

  std::vector<BroadcastView> views_;  // one per input
  std::vector<Register> registers_;
  std::vector<Load> loads_;
  std::vector<Constant> constants_;
  std::vector<Step> prologue_, steps_;
  std::vector<int> free_slots_;
  int slots_ = 0, first_output_ = 0;
  int64_t slot_bytes_ = 0;
  int64_t numel_ = 0, tile_ = 0, tiles_ = 0, grain_ = 1;
};

}  // namespace opwright
