#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/source.h"
#include "operators/fused_program.h"

namespace opwright::gpu {

/// What multiplies the elements of two tiles.
enum class ProductUnit {
  kScalar,  ///< multiply-adds of FP32, for all floating types, or of integers
  /// Tensor cores: FP16, BF16, FP8, or FP32 rounded to TF32, summed in FP32; or INT8 and UINT8.
  kTensor,
  /// FP16, BF16, FP8, INT8 or UINT8 by four warps together (wgmma), which multiply what others
  /// copy: 9.0 alone.
  kWarpGroup,
  /// FP16 or BF16 of a few rows by tensor cores, straight from memory; see row_product.h.
  kRows,
  /// Likewise, of constant columns that come to shared memory while kernels before are at work:
  /// from 9.0 on.
  kStreamedRows,
};

/// The types that products of the query's first input are computed in: the network's, and shorter
/// ones that the query allows; none where there is no kernel.
std::vector<DataType> product_types(const CandidateQuery& query);

/// Types and formats of the output of a product with a fused program, and of the inputs that it
/// reads. False where they cannot have the format.
bool set_fused_types(Candidate& candidate, const FusedProgram& program, const CandidateQuery& query,
                     DataType type, TensorFormat format);

/// How a block of threads computes one tile of a product: m x n results, from `k` elements of each
/// row and column at a time, of which `stages` are on their way. Each warp has a part of m /
/// warps_m x n / warps_n.
struct ProductTile {
  ProductUnit unit = ProductUnit::kScalar;
  int m = 0, n = 0, k = 0, warps_m = 1, warps_n = 1, stages = 2;
  /// Of warpgroups: a multiprocessor's block stays there and copies for the next tile while it
  /// stores one; else each tile has a block.
  bool is_persistent = false;
  /// Of persistent blocks of one warpgroup a tile: there are two, which take every other tile, so
  /// that one multiplies while the other stores.
  bool takes_turns = false;
  /// "tensor 128x64x32, 4 warps, 4 stages".
  std::string name() const;
};

/// What can multiply the elements, the fastest first; for FP32 tensor cores where the query allows
/// TF32.
std::vector<ProductUnit> product_units(DataType a, DataType b, const CandidateQuery& query);

/// The tile of a candidate's tactic, and in how many parts of k blocks compute each tile.
struct ProductTactic {
  const ProductTile& tile;
  int parts = 1;
  /// Of operands of that type.
  std::string name(DataType type) const;
};
/// Numbers of products' tactics are less; operators that are products, too, begin here with others.
inline constexpr int64_t kProductTacticsEnd = 1000;
/// Throws Error for a number that is none.
ProductTactic product_tactic(int64_t number);

/// KernelTactics::names of the tiles for these units that can multiply one of these types. On
/// tensor cores FP32 is TF32.
std::vector<std::string> product_tactic_names(std::initializer_list<ProductUnit> units,
                                              std::initializer_list<DataType> types);

/// How large products are at the profile's optimum.
struct ProductSize {
  int64_t m = 0, n = 0, k = 0, batches = 1;
  bool is_fixed = false;  ///< for all shapes of the profile
  /// Whether neighbours of both operands are neighbours along k, which warpgroups want of bytes.
  bool is_along_k = true;
};
/// Whether all shapes of the query are fixed.
bool has_fixed_shapes(const CandidateQuery& query);
/// Numbers of tactics that are worth timing, the best guess first, or of all that can multiply.
std::vector<int64_t> product_tactics(DataType type, ProductUnit unit, const ProductSize& size,
                                     int architecture, bool all);

/// One side of a product. Its reader is an object of the code with a method
/// `void copy(T* tile, Index k)`, T being ElementA or ElementB, which copies what of the block's
/// rows (or columns) begins at element `k` of the sum; elements beyond the operand are 0.
struct ProductOperand {
  /// Whether neighbours in memory are neighbours along k; else they are neighbouring rows of a, or
  /// columns of b.
  bool is_along_k = true;
  DataType type = DataType::kFLOAT;
  std::string reader;  ///< its type
  /// What it is initialized with, in braces; may use first_row, first_column and batch.
  std::string make;
  bool is_constant = false;  ///< whether it is there before kernels before are done
  /// How the copying unit (TMA) reads it, where that can: then there is a reader with a method
  /// `void copy(ElementA* tile, Index k, unsigned barrier)`, made with a map `a_map` or `b_map`.
  std::optional<KernelTensorMap> map = {};
  std::string box_reader = {}, make_boxes = {};
};

/// A stack of matrices that lie behind each other in an input.
struct MatrixStackPlace {
  std::string number = "0";  ///< which one it is, an expression of the code
  Expr count = 1;
  Expr stride = 0;  ///< in elements
};

/// What becomes of a sum before it is stored: the bias is added, and the residual, then follows the
/// activation or the program.
struct ProductEpilogue {
  int bias = -1;  ///< the input; -1: none
  /// The place of a row's, or column's, element in a bias: of row `row` and column `column`.
  std::string bias_element;
  int residual = -1;  ///< the input, which lies as the output does; -1: none
  FusedActivation activation;
  FusedProgram program;
  std::string channel_element;  ///< as bias_element, of the program's inputs for channels
  int row_axes = 1;             ///< of the output: its last ones are the columns of a row
};

struct PackedResults;

/// Writes the kernel of a stack of products [m, k] x [k, n]. Operand tiles go through shared
/// memory, several at once (cp.async); a warp's sums go through it, too, so that whole rows are
/// stored. Where a tile has parts, the last block that is done adds them up, always in one order.
/// Elements `out0[first + row * row_stride + column]`.
class ProductWriter {
 public:
  ProductWriter(std::string name, const KernelArgs& args);

  KernelSource& source() { return source_; }
  /// The type of a reader, which is declared behind what ProductOperand's comment names.
  void add_reader(std::string_view text) { readers_ += text; }
  /// Likewise of ProductOperand::box_reader.
  void add_box_reader(std::string_view text) { box_readers_ += text; }
  const ProductTile& tile() const { return tile_; }
  /// Of streamed rows: a's are divided by their root mean square first, and multiplied by the
  /// elements of an input, a constant.
  void normalize_rows(int scale, float epsilon) { scale_ = scale, epsilon_ = epsilon; }

  /// A reader of a matrix in an input whose rows of neighbours begin `stride` apart. `extent`: of
  /// rows of a or columns of b.
  ProductOperand matrix(bool is_a, int input, bool is_along_k, const MatrixStackPlace& place,
                        const Expr& extent, const Expr& stride, const Expr& k,
                        const std::string& is_aligned);
  /// "ElementA, kTileM", which readers are told, or "ElementB, kTileN".
  static std::string_view side(bool is_a) { return is_a ? "ElementA, kTileM" : "ElementB, kTileN"; }
  /// "is_aligned<float, kVector>(in0) && n3 % kVector == 0": whether vectors may be copied from
  /// an input whose rows, and matrices, begin at multiples of these numbers.
  std::string alignment(int input, const std::vector<Expr>& strides);

  /// With statements that define what the operands' `make`, and `first`, use of a batch.
  GeneratedKernel write(const Expr& m, const Expr& n, const Expr& k, const Expr& batches,
                        const std::string& of_batch, const ProductOperand& a,
                        const ProductOperand& b, const std::string& first, const Expr& row_stride,
                        const ProductEpilogue& epilogue);

 private:
  /// The loop of blocks over their tiles, as text.
  struct ProductTasks {
    std::string constants;  ///< of all tiles
    /// "for (...) {" with `first_row`, `first_column`, `first_step` and `end_step` of a tile, or of
    /// a part of one, and what the operands use.
    std::string loop;
    std::string first;  ///< the element of the output from which rows are counted
    Expr count, row_stride;
  };
  /// Code of what an epilogue reads in front of the products.
  struct EarlyReads {
    std::string_view behind_sums;  ///< what follows where the warp has read its sums
    std::string declarations = {}, statements = {};
  };
  /// Whether the copying unit reads both operands.
  bool copies_boxes(const ProductOperand& a, const ProductOperand& b) const {
    return tile_.unit == ProductUnit::kWarpGroup && a.map && b.map;
  }
  /// Lets the copying unit read what lies as the output does, where it can.
  void stage_behind(const Expr& m, const Expr& n, const Expr& batches, const Expr& row_stride,
                    const ProductEpilogue& epilogue);
  /// What products of warpgroups are declared by, and their kernel.
  std::string declare_warp_groups(const ProductOperand& a, const ProductOperand& b);
  GeneratedKernel write_warp_groups(ProductOperand a, ProductOperand b,
                                    const ProductEpilogue& epilogue, const ProductTasks& tasks);
  /// Likewise of a few rows.
  static std::string declare_rows();
  GeneratedKernel write_rows(const ProductOperand& a, const ProductOperand& b,
                             const ProductEpilogue& epilogue, const ProductTasks& tasks);
  /// The input that is a matrix beside b, of which the program takes sums; -1: there is none.
  int second_matrix(const ProductEpilogue& epilogue) const;
  std::string declare_row_stream(const Expr& m, const Expr& k, const ProductEpilogue& epilogue);
  GeneratedKernel write_row_stream(const ProductOperand& a, const ProductOperand& b,
                                   const ProductEpilogue& epilogue, const ProductTasks& tasks,
                                   const Expr& m);
  /// Whether results of warpgroups are computed where their sums are, in registers.
  bool keeps_registers(const ProductEpilogue& epilogue) const;
  /// What stores a warp's sums, or what the blocks of a cluster, each with a part of k, have.
  PackedResults write_own_parts(const ProductEpilogue& epilogue, const ProductTasks& tasks);
  PackedResults write_cluster_parts(const ProductEpilogue& epilogue, const ProductTasks& tasks);
  /// Makes `a` and `b`, which read the operands.
  static std::string write_readers(const ProductOperand& a, const ProductOperand& b);
  /// A block's first tile: what is constant is copied `to` there while the kernel before ends.
  std::string write_prefetch(std::string_view to, const ProductOperand& a, const ProductOperand& b,
                             const ProductEpilogue& epilogue);
  /// kStepsOfPart of the scalar product.
  int64_t steps_of_part(const Expr& k) const;
  /// What merges the parts of a tile; only the last of its blocks goes on.
  std::string write_merging(const Expr& tasks);
  /// Through `sums`, rows of kWarpN elements and padding, in shared memory that the warp has.
  /// `early`: what is read before the sums are there, of a warp whose only 16 rows they are.
  std::string write_epilogue(const ProductEpilogue& epilogue, const Expr& row_stride,
                             std::string_view sums = {}, EarlyReads* early = nullptr);
  /// Code that reads neighbours of the output's from an input into `pack`, from `place` on.
  std::string read_pack(int input, std::string_view pack, std::string_view place) const;

  const KernelArgs& args_;
  KernelSource source_;
  const ProductTile& tile_;
  const int parts_;
  const DataType output_;
  DataType sum_type_ = DataType::kFLOAT;
  std::string readers_, box_readers_;
  int scale_ = -1;  ///< the input that rows are multiplied by; -1: they are not normalized
  float epsilon_ = 0;
  int staged_ = -1;  ///< the input that goes through the stages behind the operands; -1: none
  bool is_packed_ = false;  ///< keeps_registers()
};

}  // namespace opwright::gpu
