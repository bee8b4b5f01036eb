#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/sum_rows_kernel.h"
#include "backend/cpu/widened_tile.h"
#include "operators/convolution.h"
#include "operators/matrix.h"

/// \file
/// Products of bytes on processors without instructions for them, by widened_tile.h: those of
/// engines that were built there, and of engines that were built for the instructions of another
/// processor.
namespace opwright {

/// The tactic. Constant weights may have any program behind the sums.
inline constexpr std::string_view kWidenedBytes = "widened bytes";

/// Whether the tactic is worth timing. Where the processor has instructions for bytes, they and a
/// step of its own for the program are faster.
bool offers_widened(const FusedProgram& fused, const CandidateQuery& query);
/// Whether the tactic can multiply: b is INT8, and the rows of a lie one behind the other. If there
/// is a program, b is one constant matrix.
bool takes_widened(const MatrixMultiplyParams& params, std::span<const PortDesc> inputs);
/// The same of convolutions of HWC tensors with constant weights.
bool takes_widened(const ConvolutionParams& params, std::span<const PortDesc> inputs);
/// The kernel. The weights' port has its bytes.
std::unique_ptr<Kernel> make_widened(const MatrixMultiplyParams& params, const KernelArgs& args);
/// The input may be LINEAR, unless each channel has taps of its own; the output is HWC.
std::unique_ptr<Kernel> make_widened(const ConvolutionParams& params, const KernelArgs& args);
/// Whether make_widened() takes the formats of the ports.
bool has_widened_formats(std::span<const PortDesc> inputs, const PortDesc& output);

// --- For the kernels

/// Where the elements of a constant of INT8 lie: [groups, columns, channels, taps] with strides in
/// elements. They are multiplied as panels. The rows of a product are taps of all channels, one tap
/// behind the other.
struct WeightLayout {
  int64_t groups = 1, columns = 0, channels = 0, taps = 1;
  int64_t column_stride = 0, channel_stride = 0;
  int64_t depth() const { return channels * taps; }
  int64_t panels() const { return (columns + kWidenedColumns - 1) / kWidenedColumns; }
  /// Words of a widened row of one group; even.
  int64_t row_words() const { return (depth() + 1) / 2 * 2; }
  /// Bytes of the panels of one group.
  int64_t group_bytes() const { return panels() * row_words() * kWidenedColumns; }
  /// Writes the panels of a group. `weights` begins with the group's.
  void pack(const int8_t* weights, int8_t* to) const;
  /// Multiplies widened rows and panels [begin, end) of a group. Rows of `a` are `a_row` words
  /// apart, and those of `sums`, whose first column is the group's, `y_row` elements.
  void multiply(const int16_t* a, int64_t a_row, int64_t rows, const int8_t* panels, int64_t begin,
                int64_t end, int32_t* sums, int64_t y_row) const;
};

/// Constant weights of the ports' bytes. Throws Error where there are too few.
const int8_t* weights_of(const KernelArgs& args);
/// Whether the weights, input 1, are constant, and the program reads inputs that repeat with rows,
/// or not at all: blocks of rows begin at any row.
bool has_widened_ports(const FusedProgram& fused, std::span<const PortDesc> inputs);

/// A product of rows that are widened block by block, and constant weights.
class WidenedKernel : public SumRowsKernel {
 public:
  std::string description() const override { return std::string(kWidenedBytes); }

 protected:
  WidenedKernel(const KernelArgs& args, const FusedProgram& fused, const WeightLayout& layout);

  /// Writes the widened bytes of each row, those of a group behind those of another.
  void read(const Block& block) const override = 0;
  static int16_t* words_of(const Block& block) { return reinterpret_cast<int16_t*>(block.scratch); }
  int64_t words_of_row() const { return row_bytes() / int64_t{sizeof(int16_t)}; }
  const WeightLayout& layout() const { return layout_; }
  bool is_signed() const { return is_signed_; }

 private:
  int64_t parts() const override { return layout_.groups * layout_.panels(); }
  void add_up(const Block& block, int64_t begin, int64_t end) const override;

  const WeightLayout layout_;
  const bool is_signed_;
  std::vector<int8_t> panels_;
};

}  // namespace opwright
