#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/config_writer.h"
#include "backend/gpu/product_tiles.h"
#include "backend/gpu/source.h"
#include "operators/fused_program.h"

namespace opwright::gpu {

/// One operand of a product. Its reader is an object of the generated code with a method
/// `void copy(Element* tile, Index k)`. It copies a tile of the block's rows (or columns), from
/// element `k` along k on. Elements beyond the operand are 0.
struct ProductOperand {
  /// Whether neighbours in memory are neighbours along k. Else they lie in neighbouring rows of a,
  /// or columns of b.
  bool is_along_k = true;
  DataType type = DataType::kFLOAT;
  std::string reader;  ///< the reader's type, an instance of a template over the side
  /// The reader's initializers, in braces. They may use `task`, a ProductTask.
  std::string make;
  bool is_constant = false;  ///< whether no earlier kernel writes the operand
  /// The tensor map, if TMA can read the operand. Then box_reader is the type of a reader with a
  /// method `void copy(Element* tile, Index k, unsigned barrier)`, and make_boxes has its
  /// initializers. They may use the map, `a_map` or `b_map`.
  std::optional<KernelTensorMap> map = {};
  std::string box_reader = {}, make_boxes = {};
};

/// A matrix of a stack of matrices that follow each other in an input.
struct MatrixStackPlace {
  std::string number = "0";  ///< the matrix's number, an expression of the generated code
  Expr count = 1;
  Expr stride = 0;  ///< in elements
};

/// The steps from a sum to a result: the bias and the residual are added, then the activation or
/// the program is computed.
struct ProductEpilogue {
  int bias = -1;  ///< the input; -1: none
  /// The index of an element of the bias, an expression of the generated code. It may use `row`,
  /// `column`, `task`, and variables that `of_batch` defines.
  std::string bias_element;
  int residual = -1;  ///< the input, which has the output's layout; -1: none
  FusedActivation activation;
  FusedProgram program;
  std::string channel_element;  ///< as bias_element, for the program's inputs per channel
  /// Whether neighbours of a row that are stored at once are neighbours in the bias and in inputs
  /// per channel.
  bool has_channel_rows = false;
  int row_axes = 1;  ///< the number of the output's last axes that make up a row
};

/// Where results lie that do not follow each other (device/scattered_places.cuh).
struct ScatteredResults {
  std::string type, make;  ///< the type of the places, and its initializers, in braces
  Expr row_length = 0;     ///< neighbours in the output lie in pieces of rows of this length
  int pack = 1;            ///< neighbours that are stored at once; divides row_length
};

/// Members of ProductProgram in device/product_tasks.cuh that compute results: functions of the
/// generated code.
struct ResultProgram {
  std::string columns, read, make;
};
/// Writes the functions for packs of neighbours of a row, whose sums go through shared memory.
/// `pack`: the number of neighbours. `staged`: the input that is read from stages; -1: none. The
/// statements `of_batch` define the variables that elements' indices use of a batch.
ResultProgram write_results(KernelSource& source, const KernelArgs& args,
                            const ProductEpilogue& epilogue, const Expr& row_stride, int pack,
                            int staged, std::string_view of_batch);
/// Writes the functions for sums in registers and results of 8 or 16 bits
/// (device/packed_results.cuh). `column_count`: the output's number of columns, an expression of
/// the generated code.
ResultProgram write_packed_results(const KernelArgs& args, const ProductEpilogue& epilogue,
                                   std::string_view of_batch, std::string_view column_count);

/// Writes the code around the kernels of device/*product.cuh and row_stream.cuh, for a stack of
/// products [m, k] x [k, n]: their configuration, arguments and functions, and the call.
class ProductWriter {
 public:
  ProductWriter(std::string name, const KernelArgs& args)
      : ProductWriter(std::move(name), args, args.candidate->tactic) {}
  /// With the tile of the product's tactic `tactic`.
  ProductWriter(std::string name, const KernelArgs& args, int64_t tactic);

  KernelSource& source() { return source_; }
  /// Config, for members that readers name.
  ConfigWriter& config() { return config_; }
  /// Adds declarations of readers.
  void add_reader(std::string_view text) { readers_ += text; }
  /// Adds declarations of readers that use TMA (ProductOperand::box_reader).
  void add_box_reader(std::string_view text) { box_readers_ += text; }
  const ProductTile& tile() const { return tile_; }
  /// For streamed rows: divides the rows of a by their root mean square first, and multiplies them
  /// by the elements of the constant input `scale`.
  void normalize_rows(int scale, float epsilon) { scale_ = scale, epsilon_ = epsilon; }
  /// Stores results at these places. Not for tiles of a few rows.
  void scatter(ScatteredResults results) { scattered_ = std::move(results); }

  /// Returns the operand for a matrix in an input. Its rows of contiguous elements begin `stride`
  /// elements apart. `extent`: the number of rows of a or columns of b.
  ProductOperand matrix(bool is_a, int input, bool is_along_k, const MatrixStackPlace& place,
                        const Expr& extent, const Expr& stride, const Expr& k,
                        const std::string& is_aligned);
  /// "A" or "B": the type of the side, over which readers are templates (ProductSide of
  /// device/product_tasks.cuh).
  static std::string_view side(bool is_a) { return is_a ? "A" : "B"; }
  /// "is_aligned<float, 4>(in0) && n3 % 4 == 0": whether vectors may be copied from an input. Its
  /// rows and matrices begin at multiples of `strides`.
  std::string alignment(int input, const std::vector<Expr>& strides);

  /// Writes the kernel. The statements `of_batch` define the variables that the operands' `make`
  /// and the epilogue's indices use of a batch. Rows of the output begin `row_stride`, and batches
  /// `batch_stride`, elements apart.
  GeneratedKernel write(const Expr& m, const Expr& n, const Expr& k, const Expr& batches,
                        const std::string& of_batch, const ProductOperand& a,
                        const ProductOperand& b, const Expr& batch_stride, const Expr& row_stride,
                        const ProductEpilogue& epilogue);

 private:
  std::string alignment(const std::string& pointer, DataType type, const std::vector<Expr>& strides,
                        int vector);
  /// A kernel of device/*.cuh: its header, the template of its configuration, the call, and the
  /// launch.
  struct DeviceKernel {
    std::string_view header, config;
    std::string call;
    Expr blocks;
    int threads = 0;
    int64_t shared_memory = 0;
    int blocks_at_once = 0, cluster = 1;
  };
  /// Whether TMA reads both operands.
  bool copies_boxes(const ProductOperand& a, const ProductOperand& b) const {
    return tile_.unit == ProductUnit::kWarpGroup && a.map && b.map;
  }
  /// Lets TMA read an input that has the output's layout, if it can, through the stages behind the
  /// operands (device/boxes_behind.cuh).
  void stage_behind(const Expr& m, const Expr& n, const Expr& batches, const Expr& row_stride,
                    const ProductEpilogue& epilogue);
  /// Whether the results of warpgroups are computed in the registers that hold their sums.
  bool keeps_registers(const ProductEpilogue& epilogue) const;
  /// The input that is a second matrix beside b, whose sums the program takes; -1: none.
  int second_matrix(const ProductEpilogue& epilogue) const;
  /// kStepsOfPart of the scalar product.
  int64_t steps_of_part(const Expr& k) const;
  /// ProductProgram::prefetch, a function of the generated code. It prefetches other inputs of a
  /// tile's results.
  std::string write_prefetch(const ProductEpilogue& epilogue) const;

  DeviceKernel tiles(const ProductOperand& a, const ProductOperand& b, const Expr& k,
                     const Expr& tasks);
  DeviceKernel warp_groups(const ProductOperand& a, const ProductOperand& b, const Expr& tasks);
  DeviceKernel rows(const Expr& tasks);
  DeviceKernel row_stream(const Expr& m, const Expr& k, const ProductEpilogue& epilogue,
                          const Expr& tasks);

  const KernelArgs& args_;
  KernelSource source_;
  const ProductTile& tile_;
  const int parts_;
  const DataType output_;
  ConfigWriter config_;
  DataType sum_type_ = DataType::kFLOAT;
  std::string readers_, box_readers_;
  int scale_ = -1;  ///< the input by which rows are multiplied; -1: rows are not normalized
  float epsilon_ = 0;
  std::optional<ScatteredResults> scattered_;
  int pack_ = 1;     ///< neighbours of a row of results that are stored at once
  int staged_ = -1;  ///< the input that goes through the stages behind the operands; -1: none
  bool is_packed_ = false;  ///< keeps_registers()
};

}  // namespace opwright::gpu
