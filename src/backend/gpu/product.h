#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/source.h"
#include "operators/activation.h"

namespace opwright::gpu {

/// What multiplies the elements of two tiles.
enum class ProductUnit {
  kScalar,  ///< multiply-adds of FP32, for all floating types, or of integers
  kTensor,  ///< tensor cores: FP16 or BF16, summed in FP32
};

/// The types that products of the query's first input are computed in: the network's, and shorter
/// ones that the query allows; none where there is no kernel.
std::vector<DataType> product_types(const CandidateQuery& query);
/// What products of elements of that type are stored as.
DataType result_type(DataType type);

/// How a block of threads computes one tile of a product: m x n results, from `k` elements of each
/// row and column at a time, of which `stages` are on their way. Each warp has a part of m /
/// warps_m x n / warps_n.
struct ProductTile {
  ProductUnit unit = ProductUnit::kScalar;
  int m = 0, n = 0, k = 0, warps_m = 1, warps_n = 1, stages = 2;
  /// "tensor 128x64x32, 4 warps, 4 stages".
  std::string name() const;
};

/// The tile of a candidate's tactic. Throws Error for a number that is none.
const ProductTile& product_tile(int64_t tactic);

/// Tactics that are worth trying for m x n results over k, the best guess first.
std::vector<int64_t> product_tactics(DataType type, int64_t m, int64_t n, int64_t k,
                                     std::string_view architecture);

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
};

/// What becomes of a sum before it is stored.
struct ProductEpilogue {
  int bias = -1;             ///< the input; -1: none
  std::string bias_element;  ///< its place, for row `row` and column `column`
  int residual = -1;         ///< the input, which lies as the output does; -1: none
  FusedActivation activation;
};

/// Writes the kernel of a stack of products [m, k] x [k, n]. Operand tiles go through shared
/// memory, several at once (cp.async); a warp's sums go through it, too, so that whole rows are
/// stored. Elements `out0[first + row * row_stride + column]`.
class ProductWriter {
 public:
  ProductWriter(std::string name, const KernelArgs& args);

  KernelSource& source() { return source_; }
  const ProductTile& tile() const { return tile_; }
  /// The type of a reader, which is declared behind what ProductOperand's comment names.
  void add_reader(std::string_view text) { readers_ += text; }

  /// A reader of a matrix in an input whose rows of neighbours begin `stride` apart, at `from` (an
  /// expression of the code) for the first row and column of all tiles. `extent`: of rows of a or
  /// columns of b.
  ProductOperand matrix(bool is_a, int input, bool is_along_k, std::string from, const Expr& extent,
                        const Expr& stride, const Expr& k, std::string is_aligned);
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
  std::string write_epilogue(const ProductEpilogue& epilogue, const Expr& row_stride);

  const KernelArgs& args_;
  KernelSource source_;
  const ProductTile& tile_;
  const DataType output_;
  std::string readers_;
};

}  // namespace opwright::gpu
