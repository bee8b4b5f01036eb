#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "backend/gpu/kernels.h"
#include "operators/fused_program.h"

namespace opwright::gpu {

/// The way in which a kernel multiplies the elements of two tiles.
enum class ProductUnit {
  kScalar,  ///< multiply-adds of FP32, for all floating types, or of integers
  /// Tensor cores: FP16, BF16, FP8, or FP32 rounded to TF32, summed in FP32; or INT8 and UINT8.
  kTensor,
  /// The same by warpgroups (wgmma). Other warps copy the tiles. Only compute capability 9.0. FP32
  /// is rounded to nearest if TMA copies it, else towards 0.
  kWarpGroup,
  /// FP16 or BF16 of a few rows by tensor cores, without shared memory; see row_product.h.
  kRows,
  /// Like kRows, with constant columns that are copied to shared memory while earlier kernels run.
  /// From compute capability 9.0 on.
  kStreamedRows,
};

/// The types in which products of the query's first input may be computed: the network's type, and
/// shorter ones that the query allows. Empty if there is no kernel.
std::vector<DataType> product_types(const CandidateQuery& query);

/// Sets the types and formats of the output of a product with a fused program, and of the program's
/// inputs. Returns false if they cannot have the format.
bool set_fused_types(Candidate& candidate, const FusedProgram& program, const CandidateQuery& query,
                     DataType type, TensorFormat format);

/// How a block of threads computes one tile of a product, which has m x n results. A step
/// multiplies `k` elements of each row and column. `stages` steps are in flight. Each warp has a
/// part of m / warps_m x n / warps_n results.
struct ProductTile {
  ProductUnit unit = ProductUnit::kScalar;
  int m = 0, n = 0, k = 0, warps_m = 1, warps_n = 1, stages = 2;
  /// For warpgroups: a block computes many tiles, and copies the next tile while it stores one.
  /// Else each tile has a block of its own.
  bool is_persistent = false;
  /// For persistent blocks with one warpgroup per tile: a block has two such warpgroups. Each takes
  /// every other tile, so that one multiplies while the other stores.
  bool takes_turns = false;
  /// "tensor 128x64x32, 4 warps, 4 stages".
  std::string name() const;
};

/// The units that can multiply the elements, the fastest first. FP32 can use tensor cores if the
/// query allows TF32.
std::vector<ProductUnit> product_units(DataType a, DataType b, const CandidateQuery& query);

/// The tile of a candidate's tactic, and the number of parts of k. Each part of a tile has a block
/// of its own.
struct ProductTactic {
  const ProductTile& tile;
  int parts = 1;
  /// The tactic's name for operands of that type.
  std::string name(DataType type) const;
};
/// Products' tactics have smaller numbers. Operators with product tactics number their other
/// tactics from here on.
inline constexpr int64_t kProductTacticsEnd = 1000;
/// Throws Error if no tactic has the number.
ProductTactic product_tactic(int64_t number);

/// KernelTactics::names of the tiles for these units that can multiply one of these types. FP32 on
/// tensor cores is TF32.
std::vector<std::string> product_tactic_names(std::initializer_list<ProductUnit> units,
                                              std::initializer_list<DataType> types);

/// The size of products at the profile's optimum.
struct ProductSize {
  int64_t m = 0, n = 0, k = 0, batches = 1;
  bool is_fixed = false;  ///< whether all shapes of the profile have this size
  /// Whether neighbours of both operands are neighbours along k. Warpgroups need this for bytes and
  /// for TF32.
  bool is_along_k = true;
};
/// Whether all shapes of the query are fixed.
bool has_fixed_shapes(const CandidateQuery& query);
/// Numbers of the tactics that are worth timing, or, with `all`, of all tactics that can multiply,
/// in the order of their tiles. Never empty.
std::vector<int64_t> product_tactics(DataType type, ProductUnit unit, const ProductSize& size,
                                     int architecture, bool all);

/// Elements of a type in 16 bytes, which are copied or stored at once.
int vector_of(DataType type);
/// The type of sums of products of a type: FP32 for all floating types.
DataType sum_type(DataType type);
/// Bytes of a block's shared memory for operands of that type.
int64_t shared_bytes(const ProductTile& tile, DataType type, bool a_along_k, bool b_along_k);

}  // namespace opwright::gpu
